// SPDX-License-Identifier: Apache-2.0
//
// ucmstore._core: the C++ core as a Python module. Private: its face is the package ucmstore.
#include <pybind11/pybind11.h>

#include "python/errors.h"
#include "python/register.h"
#include "python/release_queue.h"

PYBIND11_MODULE(_core, module) {
  namespace py = pybind11;
  using namespace ucmstore::python;  // NOLINT(google-build-using-namespace): a few calls, one scope
  module.attr("version") = UCMSTORE_VERSION;
  StartReleaseQueue();
  py::module_::import("atexit").attr("register")(py::cpp_function(&EndReleaseQueue));
  RegisterErrors();
  RegisterIdentity(module);
  RegisterMemory(module);
  RegisterLeases(module);
  RegisterOptions(module);
  RegisterPipeline(module);
  RegisterAdmin(module);
}
