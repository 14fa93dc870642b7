// SPDX-License-Identifier: Apache-2.0
//
// Python arguments as the plain data that the store wants: block ids, columns of numbers, timeouts,
// options. All need the GIL to be made and to be destroyed; what they show may be read without, and
// cannot be resized or freed meanwhile, since the buffer stays exported.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "options/option_input.h"
#include "ucmstore/types.h"

namespace ucmstore::python {

// A buffer, exported for as long as this lives.
class BufferView {
 public:
  BufferView() = default;
  // `flags`: PyBUF_*. False: the object exports no such buffer, and a Python error says why.
  [[nodiscard]] bool Acquire(PyObject* object, int flags) noexcept;
  BufferView(const BufferView&) = delete;
  BufferView& operator=(const BufferView&) = delete;
  ~BufferView();

  [[nodiscard]] const Py_buffer& get() const noexcept { return view_; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return {static_cast<const std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

// Block ids: one contiguous buffer of 16 bytes each, or a sequence of objects of 16 bytes.
class BlockIds {
 public:
  explicit BlockIds(PyObject* ids);
  BlockIds(const BlockIds&) = delete;
  BlockIds& operator=(const BlockIds&) = delete;

  [[nodiscard]] std::span<const BlockId> get() const noexcept { return ids_; }
  [[nodiscard]] std::uint32_t count() const noexcept {
    return static_cast<std::uint32_t>(ids_.size());
  }

 private:
  void FromBuffer(PyObject* buffer);
  void FromSequence(PyObject* sequence);

  BufferView view_;
  std::vector<BlockId> copy_;
  std::span<const BlockId> ids_;
};

// A contiguous buffer of 64-bit integers. `name` is how errors call it.
class Column {
 public:
  Column(PyObject* object, const char* name);
  [[nodiscard]] std::span<const std::uint64_t> get() const noexcept { return values_; }

 private:
  BufferView view_;
  std::span<const std::uint64_t> values_;
};

// Contiguous bytes to read, of any type.
class ReadableBytes {
 public:
  ReadableBytes(PyObject* object, const char* name);
  [[nodiscard]] std::span<const std::byte> get() const noexcept { return view_.bytes(); }
  [[nodiscard]] std::span<const std::uint8_t> octets() const noexcept {
    return {static_cast<const std::uint8_t*>(view_.get().buf),
            static_cast<std::size_t>(view_.get().len)};
  }

 private:
  BufferView view_;
};

// Seconds, as Python counts them, to milliseconds, rounded up. None and infinity: nothing.
[[nodiscard]] std::optional<std::uint32_t> TimeoutMs(PyObject* timeout, bool zero_is_allowed);

[[nodiscard]] StageOptions ToStageOptions(const pybind11::dict& options);

// "a 'list'": how an error names what was given.
[[nodiscard]] std::string TypeName(PyObject* object);

}  // namespace ucmstore::python
