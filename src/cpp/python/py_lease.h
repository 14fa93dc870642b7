// SPDX-License-Identifier: Apache-2.0
//
// PyLease: the core's half of a Python Lease. The arrays over its memory hold it, so the memory
// stays mapped while one of them is alive, and leased until the lease is released.
// The GIL guards nothing here; what the pipeline's Lease promises holds.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <optional>

#include "pipeline/lease.h"

namespace ucmstore::python {

class PyLease {
 public:
  PyLease(std::unique_ptr<Lease> lease, std::uint64_t shard_size, std::uint32_t shards_per_block);

  // For each block its code, and whether it is leased.
  [[nodiscard]] pybind11::tuple Codes() const;
  // Why the first of those that were refused was: a code and words; 0 and "".
  [[nodiscard]] pybind11::tuple Refusal() const;
  [[nodiscard]] pybind11::array_t<std::uint64_t> Addresses() const;
  [[nodiscard]] pybind11::array_t<std::uint32_t> Lengths() const;
  void Commit(std::uint32_t block, std::uint32_t shard, std::uint32_t bytes) const;
  void Release() const;

  // The leased shards of a block as an array that holds `self`; None: it is not leased.
  [[nodiscard]] static pybind11::object View(const pybind11::object& self, std::uint32_t block);

 private:
  [[nodiscard]] bool writable() const noexcept { return lease_->shard_count() > 0; }
  [[nodiscard]] std::uint32_t first() const noexcept { return lease_->first_shard(); }
  [[nodiscard]] std::uint32_t shards() const noexcept {
    return writable() ? lease_->shard_count() : shards_per_block_;
  }

  const std::unique_ptr<Lease> lease_;
  const std::uint64_t shard_size_;
  const std::uint32_t shards_per_block_;
};

}  // namespace ucmstore::python
