// SPDX-License-Identifier: Apache-2.0
//
// LeaseAllowance: the right to some leases, for one call. They are taken together, since taking
// them sums up what all processes have, and what is not used goes back. LeaseCount is one of them.
// Not synchronised: one call's.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "shm/process_table.h"

namespace ucmstore {

class LeaseAllowance {
 public:
  // `limit`: of all processes together. `reap` is called once if there are none left: the dead may
  // still be counted.
  LeaseAllowance(ProcessTable& processes, std::uint64_t limit, std::function<void()> reap)
      : processes_(processes), limit_(limit), reap_(std::move(reap)) {}
  LeaseAllowance(const LeaseAllowance&) = delete;
  LeaseAllowance& operator=(const LeaseAllowance&) = delete;
  ~LeaseAllowance() {
    if (left_ > 0) processes_.ReturnLeases(left_);
  }

  // So many will be wanted, as it seems.
  void Expect(std::uint64_t count) noexcept {
    if (count > left_) left_ += processes_.TakeLeases(count - left_, limit_);
  }
  [[nodiscard]] bool Take() {
    Expect(1);
    if (left_ == 0 && reap_) {
      std::exchange(reap_, nullptr)();
      Expect(1);
    }
    if (left_ == 0) return false;
    --left_;
    return true;
  }
  void GiveBack() noexcept { ++left_; }
  [[nodiscard]] Status Refusal() const;

 private:
  ProcessTable& processes_;
  const std::uint64_t limit_;
  std::function<void()> reap_;
  std::uint64_t left_ = 0;
};

// The right to one lease; given back if none comes of it.
class LeaseCount {
 public:
  explicit LeaseCount(LeaseAllowance& allowance)
      : allowance_(allowance.Take() ? &allowance : nullptr) {}
  LeaseCount(LeaseCount&& other) noexcept : allowance_(std::exchange(other.allowance_, nullptr)) {}
  LeaseCount& operator=(LeaseCount&&) = delete;
  ~LeaseCount() {
    if (allowance_ != nullptr) allowance_->GiveBack();
  }
  explicit operator bool() const noexcept { return allowance_ != nullptr; }
  void Use() noexcept { allowance_ = nullptr; }  // it is the lease's now

 private:
  LeaseAllowance* allowance_;
};

}  // namespace ucmstore
