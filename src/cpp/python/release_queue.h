// SPDX-License-Identifier: Apache-2.0
//
// The release queue: Python objects that a thread without the GIL wants to let go, such as the
// memory of a task that ended after its Task object was lost. The interpreter's main thread lets
// them go at its next chance, or any call into this module does. One for the process, as the
// interpreter is. Thread-safe, and whole after fork.
#pragma once

#include <Python.h>

namespace ucmstore::python {

// Takes over the reference (null: none). Needs no GIL. `ask`: has the interpreter called back; one
// who is about to call ReleaseNow need not. After the interpreter began to end, nothing is let go.
void ReleaseLater(PyObject* object, bool ask) noexcept;

// Lets go what waits. Needs the GIL; may run any Python code (finalizers).
void ReleaseNow() noexcept;

// Called once, when the module is imported; and when the interpreter is about to end.
void StartReleaseQueue();
void EndReleaseQueue();

}  // namespace ucmstore::python
