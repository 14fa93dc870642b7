// SPDX-License-Identifier: Apache-2.0
//
// Leases as Python sees them: codes, addresses, and numpy arrays over the ring's memory.
#include "python/errors.h"
#include "python/gil.h"
#include "python/py_lease.h"
#include "python/register.h"

namespace ucmstore::python {

namespace py = pybind11;

PyLease::PyLease(std::unique_ptr<Lease> lease, std::uint64_t shard_size,
                 std::uint32_t shards_per_block)
    : lease_(std::move(lease)), shard_size_(shard_size), shards_per_block_(shards_per_block) {}

py::tuple PyLease::Codes() const {
  const auto blocks = lease_->blocks();
  py::array_t<std::int32_t> codes(static_cast<py::ssize_t>(blocks.size()));
  py::array_t<bool> leased(static_cast<py::ssize_t>(blocks.size()));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    codes.mutable_data()[i] = static_cast<std::int32_t>(blocks[i].code);
    leased.mutable_data()[i] = blocks[i].lease != 0;
  }
  return py::make_tuple(codes, leased);
}

py::tuple PyLease::Refusal() const {
  const Status& status = lease_->refusal();
  return py::make_tuple(static_cast<int>(status.code), std::string(status.text()));
}

py::array_t<std::uint64_t> PyLease::Addresses() const {
  const std::size_t count = lease_->blocks().size();
  py::array_t<std::uint64_t> addresses(
      {static_cast<py::ssize_t>(count), static_cast<py::ssize_t>(shards())});
  std::uint64_t* address = addresses.mutable_data();
  for (std::size_t i = 0; i < count; ++i) {
    for (std::uint32_t shard = 0; shard < shards(); ++shard) {
      *address++ = reinterpret_cast<std::uintptr_t>(lease_->DataOf(i, first() + shard));
    }
  }
  return addresses;
}

py::array_t<std::uint32_t> PyLease::Lengths() const {
  const auto lengths = lease_->lengths();
  py::array_t<std::uint32_t> copy({static_cast<py::ssize_t>(lease_->blocks().size()),
                                   static_cast<py::ssize_t>(shards_per_block_)});
  std::copy(lengths.begin(), lengths.end(), copy.mutable_data());
  return copy;
}

void PyLease::Commit(std::uint32_t block, std::uint32_t shard, std::uint32_t bytes) const {
  Status status;
  {
    const GilRelease no_gil;
    status = lease_->Commit(block, shard, bytes);
  }
  ThrowIfFailed(status);
}

void PyLease::Release() const {
  const GilRelease no_gil;
  lease_->Release();
}

py::object PyLease::View(const py::object& self, std::uint32_t block) {
  const auto& lease = self.cast<const PyLease&>();
  void* const data = lease.lease_->DataOf(block, lease.first());
  if (data == nullptr) return py::none();
  py::array_t<std::uint8_t> view(
      {static_cast<py::ssize_t>(lease.shards()), static_cast<py::ssize_t>(lease.shard_size_)},
      {static_cast<py::ssize_t>(lease.lease_->shard_stride()), py::ssize_t{1}},
      static_cast<const std::uint8_t*>(data), self);
  if (!lease.writable()) view.attr("flags").attr("writeable") = false;
  return view;
}

void RegisterLeases(py::module_& module) {
  py::class_<PyLease>(module, "Lease")
      .def("codes", &PyLease::Codes)
      .def("refusal", &PyLease::Refusal)
      .def("addresses", &PyLease::Addresses)
      .def("lengths", &PyLease::Lengths)
      .def("commit", &PyLease::Commit, py::arg("block"), py::arg("shard"), py::arg("length"))
      .def("release", &PyLease::Release)
      .def(
          "view",
          [](const py::object& self, std::uint32_t block) { return PyLease::View(self, block); },
          py::arg("block"));
  OnlyMadeHere(module.attr("Lease"));
}

}  // namespace ucmstore::python
