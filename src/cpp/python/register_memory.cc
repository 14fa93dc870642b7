// SPDX-License-Identifier: Apache-2.0
//
// Where the bytes of a Python object lie, and whether they may be used: through the buffer protocol
// (Pin) or DLPack. Errors are predicates without a subject ("is read-only"): ucmstore.memory, which
// knows how the caller named the object, puts it in front.
#include <pybind11/pybind11.h>

#include <cstring>
#include <string_view>

#include "base/checksum.h"
#include "python/arguments.h"
#include "python/dlpack.h"
#include "python/errors.h"
#include "python/gil.h"
#include "python/register.h"

namespace ucmstore::python {

namespace py = pybind11;

namespace {

// A contiguous buffer that stays exported, and so in its place, as long as this lives.
class Pin {
 public:
  Pin(const py::object& object, bool writable) {
    if (PyUnicode_Check(object.ptr()) || PyObject_CheckBuffer(object.ptr()) == 0) {
      throw ArgumentTypeError("is " + TypeName(object.ptr()) +
                              ", which has no memory that can be used");
    }
    const int flags = PyBUF_ND | (writable ? PyBUF_WRITABLE : 0);
    if (!view_.Acquire(object.ptr(), flags | PyBUF_FORMAT)) {
      PyErr_Clear();
      // Some element types, such as bfloat16, have no name in the protocol.
      if (!view_.Acquire(object.ptr(), flags)) Refuse(object);
    }
    const char* format = view_.get().format;
    if ((format != nullptr && std::string_view(format).find('O') != std::string_view::npos) ||
        py::getattr(py::getattr(object, "dtype", py::none()), "hasobject", py::bool_(false))
            .cast<bool>()) {
      ThrowArgument("holds Python objects, not plain data");
    }
  }

  [[nodiscard]] std::uintptr_t address() const noexcept {
    return reinterpret_cast<std::uintptr_t>(view_.get().buf);
  }
  [[nodiscard]] std::uint64_t nbytes() const noexcept {
    return static_cast<std::uint64_t>(view_.get().len);
  }
  // The first of several dimensions; -1: flat.
  [[nodiscard]] std::int64_t rows() const noexcept {
    return view_.get().ndim > 1 ? view_.get().shape[0] : -1;
  }

 private:
  [[noreturn]] static void Refuse(const py::object& object) {
    PyErr_Clear();
    BufferView any;
    if (any.Acquire(object.ptr(), PyBUF_STRIDED_RO) && any.get().readonly != 0) {
      ThrowArgument("is read-only; a load writes into it");
    }
    PyErr_Clear();
    ThrowArgument("is not contiguous; give a contiguous copy, or its pieces");
  }

  BufferView view_;
};

bool IsContiguous(const dlpack::Tensor& tensor) {
  if (tensor.strides == nullptr) return true;
  std::int64_t expected = 1;
  for (std::int32_t i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

// The capsule is not consumed: whoever keeps it keeps the tensor.
py::tuple DlpackMemory(const py::capsule& capsule, bool writable) {
  const std::string_view name = capsule.name() == nullptr ? "" : capsule.name();
  const dlpack::Tensor* tensor = nullptr;
  std::uint64_t flags = 0;
  if (name == "dltensor") {
    tensor = &capsule.get_pointer<dlpack::Managed>()->tensor;
  } else if (name == "dltensor_versioned") {
    const auto* managed = capsule.get_pointer<dlpack::ManagedVersioned>();
    if (managed->version.major != 1) {
      ThrowArgument("speaks DLPack " + std::to_string(managed->version.major) + ", not 1");
    }
    tensor = &managed->tensor;
    flags = managed->flags;
  } else {
    ThrowArgument("gave no DLPack tensor, or one that was used already");
  }
  if (tensor->device.type != dlpack::kCpu && tensor->device.type != dlpack::kCudaHost &&
      tensor->device.type != dlpack::kRocmHost) {
    throw StatusError(Status::Error(
        Code::kUnsupported, "is on DLPack device type " + std::to_string(tensor->device.type) +
                                "; only host memory can be used: copy it there"));
  }
  if (!IsContiguous(*tensor)) {
    ThrowArgument("is not contiguous; give a contiguous copy, or its pieces");
  }
  if (writable && (flags & dlpack::kReadOnly) != 0) {
    ThrowArgument("is read-only; a load writes into it");
  }
  if (writable && (flags & dlpack::kIsCopied) != 0) {
    ThrowArgument("gave a copy of its memory; what a load writes into that would be lost");
  }
  std::uint64_t count = 1;
  for (std::int32_t i = 0; i < tensor->ndim; ++i) {
    count *= static_cast<std::uint64_t>(tensor->shape[i]);
  }
  const std::uint64_t bits = std::uint64_t{tensor->dtype.bits} * tensor->dtype.lanes;
  return py::make_tuple(reinterpret_cast<std::uintptr_t>(tensor->data) + tensor->byte_offset,
                        (count * bits + 7) / 8, tensor->ndim > 1 ? tensor->shape[0] : -1);
}

std::uint32_t Checksum(const py::object& data, std::uint32_t crc) {
  const ReadableBytes bytes(data.ptr(), "data");
  const GilRelease no_gil;
  return Crc32c(bytes.get(), crc);
}

}  // namespace

void RegisterMemory(py::module_& module) {
  py::class_<Pin>(module, "Pin")
      .def(py::init<const py::object&, bool>(), py::arg("memory"), py::arg("writable"))
      .def_property_readonly("address", &Pin::address)
      .def_property_readonly("nbytes", &Pin::nbytes)
      .def_property_readonly("rows", &Pin::rows);
  module.def("dlpack_memory", &DlpackMemory, py::arg("capsule"), py::arg("writable"));
  module.def("crc32c", &Checksum, py::arg("data"), py::arg("crc") = 0);
}

}  // namespace ucmstore::python
