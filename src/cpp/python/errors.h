// SPDX-License-Identifier: Apache-2.0
//
// How a failed Status becomes a Python exception of ucmstore.errors. The classes and their choice
// live in Python (errors.from_status); here is only the road there. The GIL is needed to cross it;
// the two exception types may be thrown without.
#pragma once

#include <stdexcept>
#include <string>

#include "base/result.h"

namespace ucmstore::python {

// The call whose failure it is: a wrong argument of Open is a wrong option.
enum class Origin { kCall, kOpen };

class StatusError : public std::exception {
 public:
  explicit StatusError(const Status& status, Origin origin = Origin::kCall) noexcept
      : status_(status), origin_(origin) {}
  [[nodiscard]] const char* what() const noexcept override { return status_.message; }
  [[nodiscard]] const Status& status() const noexcept { return status_; }
  [[nodiscard]] Origin origin() const noexcept { return origin_; }

 private:
  Status status_;
  Origin origin_;
};

// An argument of a type that cannot be used at all.
class ArgumentTypeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] void ThrowArgument(const std::string& text);

inline void ThrowIfFailed(const Status& status, Origin origin = Origin::kCall) {
  if (!status.ok()) throw StatusError(status, origin);
}

template <typename T>
[[nodiscard]] T ValueOrThrow(Result<T> result, Origin origin = Origin::kCall) {
  if (!result) throw StatusError(result.error(), origin);
  return *std::move(result);
}

void RegisterErrors();

}  // namespace ucmstore::python
