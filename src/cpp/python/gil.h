// SPDX-License-Identifier: Apache-2.0
//
// GilRelease: lets other Python threads run while this one is in the store. Unlike pybind11's, it
// is about 50 ns cheaper, and a daemon thread that comes back while the interpreter ends sleeps for
// ever instead of unwinding through frames that may not throw: the process ends without it.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace ucmstore::python {

class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;
  ~GilRelease() {
    // The main thread is the one that ends the interpreter, and must come back.
    if (Finalizing() && ::gettid() != ::getpid()) SleepForEver();
    try {
      PyEval_RestoreThread(state_);
    } catch (const abi::__forced_unwind&) {
      // The interpreter began to end while we waited for the GIL, and answers with pthread_exit.
      SleepForEver();
    }
  }

 private:
  [[noreturn]] static void SleepForEver() noexcept {
    for (;;) ::pause();
  }
  static bool Finalizing() noexcept {
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsFinalizing() != 0;
#else
    return _Py_IsFinalizing() != 0;
#endif
  }

  PyThreadState* state_;
};

}  // namespace ucmstore::python
