// SPDX-License-Identifier: Apache-2.0
//
// What makes up the module ucmstore._core, one function and one file for each subject. Bindings
// only: everything here is private to the package, and typed by _core.pyi.
#pragma once

#include <pybind11/pybind11.h>

namespace ucmstore::python {

// For a class without a constructor: its objects are made in here. Without this Python could make
// an empty one (Class.__new__, copy.copy), and its first method would read memory that is nobody's.
inline void OnlyMadeHere(const pybind11::handle& of) {
  auto* const type = reinterpret_cast<PyTypeObject*>(of.ptr());
  type->tp_new = nullptr;
  PyType_Modified(type);
}

void RegisterAdmin(pybind11::module_& module);     // admin_inspect, admin_walk
void RegisterIdentity(pybind11::module_& module);  // Namespace, Layout, BlockHasher
void RegisterLeases(pybind11::module_& module);    // Lease
void RegisterMemory(pybind11::module_& module);    // Pin, dlpack_memory, crc32c
void RegisterOptions(pybind11::module_& module);   // option_tables, plugins, parse_size, …
void RegisterPipeline(pybind11::module_& module);  // Pipeline, Task

}  // namespace ucmstore::python
