// SPDX-License-Identifier: Apache-2.0
//
// What Python gave, looked at once and refused in words that name the argument. See arguments.h.
#include "python/arguments.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "python/errors.h"

namespace ucmstore::python {

namespace py = pybind11;

namespace {

constexpr Py_ssize_t kIdSize = sizeof(BlockId);

// One id out of a sequence; the fast road for what almost all are.
BlockId OneId(PyObject* item, Py_ssize_t position) {
  BlockId id;
  if (PyBytes_CheckExact(item) && PyBytes_GET_SIZE(item) == kIdSize) {
    std::memcpy(id.bytes.data(), PyBytes_AS_STRING(item), sizeof id);
    return id;
  }
  const std::string name = "ids[" + std::to_string(position) + "]";
  BufferView view;
  if (PyUnicode_Check(item) || !view.Acquire(item, PyBUF_SIMPLE)) {
    PyErr_Clear();
    throw ArgumentTypeError(name + " is " + TypeName(item) +
                            "; a block id is 16 bytes, or a buffer of as many");
  }
  if (view.get().len != kIdSize) {
    ThrowArgument(name + " has " + std::to_string(view.get().len) + " bytes; a block id has 16");
  }
  std::memcpy(id.bytes.data(), view.get().buf, sizeof id);
  return id;
}

void CheckCount(std::size_t count) {
  if (count > std::numeric_limits<std::uint32_t>::max()) {
    ThrowArgument("ids: " + std::to_string(count) + " are more than one call takes");
  }
}

OptionInput ToOption(const std::string& name, const py::handle& value) {
  PyObject* object = value.ptr();
  if (PyBool_Check(object)) return object == Py_True;
  if (PyFloat_Check(object)) return PyFloat_AS_DOUBLE(object);
  if (PyIndex_Check(object) != 0) {
    const auto integer = py::reinterpret_steal<py::object>(PyNumber_Index(object));
    if (!integer) throw py::error_already_set();
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(integer.ptr(), &overflow);
    if (overflow != 0) {
      throw StatusError(Status::Error(Code::kInvalidArgument,
                                      name + " = " + py::str(integer).cast<std::string>() +
                                          ": the number does not fit into 64 bits"),
                        Origin::kOpen);
    }
    return static_cast<std::int64_t>(number);
  }
  if (PyUnicode_Check(object)) return value.cast<std::string>();
  if (py::hasattr(value, "__fspath__")) {
    return py::module_::import("os").attr("fspath")(value).cast<std::string>();
  }
  if (PyList_Check(object) || PyTuple_Check(object)) {
    std::vector<std::string> list;
    for (const auto& item : py::reinterpret_borrow<py::sequence>(value)) {
      const OptionInput one = ToOption(name, item);
      if (const auto* text = std::get_if<std::string>(&one)) {
        list.push_back(*text);
        continue;
      }
      throw StatusError(
          Status::Error(Code::kInvalidArgument, name + ": " + TypeName(item.ptr()) +
                                                    " in a list; a list holds texts or paths"),
          Origin::kOpen);
    }
    return list;
  }
  throw StatusError(
      Status::Error(Code::kInvalidArgument,
                    name + " is " + TypeName(object) +
                        "; a value is a bool, a number, a text, a path, or a list of texts"),
      Origin::kOpen);
}

}  // namespace

bool BufferView::Acquire(PyObject* object, int flags) noexcept {
  return PyObject_GetBuffer(object, &view_, flags) == 0;
}

BufferView::~BufferView() {
  if (view_.obj != nullptr) PyBuffer_Release(&view_);
}

std::string TypeName(PyObject* object) {
  if (object == Py_None) return "None";
  return std::string("a '") + Py_TYPE(object)->tp_name + "'";
}

BlockIds::BlockIds(PyObject* ids) {
  if (PyBytes_CheckExact(ids) || PyObject_CheckBuffer(ids) != 0) {
    FromBuffer(ids);
  } else if (PyUnicode_Check(ids) || PySequence_Check(ids) == 0) {
    throw ArgumentTypeError(
        "ids is " + TypeName(ids) +
        "; give a sequence of 16-byte objects, or one buffer of them: bytes, or "
        "an array [n, 16] of uint8 such as numpy's (a tensor's .numpy())");
  } else {
    FromSequence(ids);
  }
}

void BlockIds::FromBuffer(PyObject* buffer) {
  if (!view_.Acquire(buffer, PyBUF_ND)) {
    PyErr_Clear();
    ThrowArgument("ids: the buffer is not contiguous; give a contiguous copy");
  }
  const Py_buffer& view = view_.get();
  const Py_ssize_t row = view.ndim == 0 ? view.itemsize : view.shape[view.ndim - 1] * view.itemsize;
  if (view.itemsize != 1 && view.itemsize != kIdSize) {
    ThrowArgument("ids: a buffer of items of " + std::to_string(view.itemsize) +
                  " bytes; give bytes, or items of 16 bytes each");
  }
  if (view.ndim > 1 && view.itemsize == 1 && row != kIdSize) {
    ThrowArgument("ids: rows of " + std::to_string(row) + " bytes; a block id has 16");
  }
  if (view.len % kIdSize != 0) {
    ThrowArgument("ids: a buffer of " + std::to_string(view.len) +
                  " bytes is not a whole number of 16-byte block ids");
  }
  ids_ = {static_cast<const BlockId*>(view.buf), static_cast<std::size_t>(view.len / kIdSize)};
  CheckCount(ids_.size());
}

void BlockIds::FromSequence(PyObject* sequence) {
  const auto fast = py::reinterpret_steal<py::object>(PySequence_Fast(sequence, "ids"));
  if (!fast) throw py::error_already_set();
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(fast.ptr());
  CheckCount(static_cast<std::size_t>(count));
  copy_.reserve(static_cast<std::size_t>(count));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.ptr()); ++i) {
    copy_.push_back(OneId(PySequence_Fast_GET_ITEM(fast.ptr(), i), i));
  }
  ids_ = copy_;
}

Column::Column(PyObject* object, const char* name) {
  if (!view_.Acquire(object, PyBUF_ND | PyBUF_FORMAT)) {
    PyErr_Clear();
    throw ArgumentTypeError(std::string(name) + " is " + TypeName(object) +
                            "; give a contiguous buffer of 64-bit integers, such as a numpy array");
  }
  const Py_buffer& view = view_.get();
  const char* format = view.format == nullptr ? "B" : view.format;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (view.itemsize != 8 || std::strchr("QLNqln", *format) == nullptr || format[1] != '\0') {
    ThrowArgument(std::string(name) + ": items of format '" + format + "' and " +
                  std::to_string(view.itemsize) + " bytes; give 64-bit integers");
  }
  values_ = {static_cast<const std::uint64_t*>(view.buf), static_cast<std::size_t>(view.len / 8)};
}

ReadableBytes::ReadableBytes(PyObject* object, const char* name) {
  if (PyUnicode_Check(object) || PyObject_CheckBuffer(object) == 0) {
    throw ArgumentTypeError(std::string(name) + " is " + TypeName(object) + "; give bytes");
  }
  if (!view_.Acquire(object, PyBUF_SIMPLE)) {
    PyErr_Clear();
    ThrowArgument(std::string(name) + ": the buffer is not contiguous; give a contiguous copy");
  }
}

std::optional<std::uint32_t> TimeoutMs(PyObject* timeout, bool zero_is_allowed) {
  if (timeout == Py_None) return std::nullopt;
  const double seconds = PyBool_Check(timeout) ? -1 : PyFloat_AsDouble(timeout);
  if (PyErr_Occurred() != nullptr || PyBool_Check(timeout)) {
    PyErr_Clear();
    throw ArgumentTypeError("timeout is " + TypeName(timeout) + "; give seconds, or None");
  }
  if (std::isnan(seconds) || seconds < 0 || (seconds == 0 && !zero_is_allowed)) {
    ThrowArgument("timeout: " + py::str(py::handle(timeout)).cast<std::string>() + " seconds; " +
                  (zero_is_allowed ? "it cannot be negative" : "it must be more than 0"));
  }
  const double ms = std::ceil(seconds * 1000);
  constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();
  if (std::isinf(ms)) return std::nullopt;
  return ms >= kMost ? kMost : static_cast<std::uint32_t>(ms);
}

StageOptions ToStageOptions(const py::dict& options) {
  StageOptions result;
  for (const auto& [stage, values] : options) {
    auto& map = result[stage.cast<std::string>()];
    for (const auto& [key, value] : values.cast<py::dict>()) {
      const auto name = key.cast<std::string>();
      map.emplace(name, ToOption(stage.cast<std::string>() + "." + name, value));
    }
  }
  return result;
}

}  // namespace ucmstore::python
