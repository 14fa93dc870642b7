// SPDX-License-Identifier: Apache-2.0
//
// From a Status to an object of ucmstore.errors, by way of its from_status. See errors.h.
#include "python/errors.h"

#include <pybind11/pybind11.h>

namespace ucmstore::python {

namespace py = pybind11;

namespace {

// A message may have been cut within a character; what it quotes may be no UTF-8 at all.
py::str Text(std::string_view text) {
  auto* object = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  if (object == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(object);
}

void Raise(const py::object& exception) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
}

void Translate(std::exception_ptr thrown) {
  try {
    std::rethrow_exception(std::move(thrown));
  } catch (const StatusError& error) {
    const Status& status = error.status();
    Raise(py::module_::import("ucmstore.errors")
              .attr("from_status")(static_cast<int>(status.code), status.sys_errno,
                                   Text(status.text()), error.origin() == Origin::kOpen));
  } catch (const ArgumentTypeError& error) {
    Raise(py::module_::import("ucmstore.errors").attr("ArgumentTypeError")(Text(error.what())));
  }
}

}  // namespace

void ThrowArgument(const std::string& text) {
  throw StatusError(Status::Error(Code::kInvalidArgument, text));
}

void RegisterErrors() { py::register_local_exception_translator(&Translate); }

}  // namespace ucmstore::python
