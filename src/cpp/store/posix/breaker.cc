// SPDX-License-Identifier: Apache-2.0
//
// Two lists of uses, in the order in which they began.
#include "store/posix/breaker.h"

namespace ucmstore {

Breaker::Use::Use(Breaker& breaker, Kind kind) noexcept : breaker_(breaker), kind_(kind) {
  if (breaker_.slow_ == milliseconds(0)) return;
  const MutexLock lock(breaker_.mutex_);
  begun_ = breaker_.clock_.Now();  // within the lock, so that the list is in order
  InFlight& list = breaker_.ListOf(kind_);
  previous_ = list.last;
  (list.last != nullptr ? list.last->next_ : list.first) = this;
  list.last = this;
}

Breaker::Use::~Use() {
  if (breaker_.slow_ == milliseconds(0)) return;
  const MutexLock lock(breaker_.mutex_);
  InFlight& list = breaker_.ListOf(kind_);
  (previous_ != nullptr ? previous_->next_ : list.first) = next_;
  (next_ != nullptr ? next_->previous_ : list.last) = previous_;
  if (begun_ < breaker_.since_) return;
  if (breaker_.clock_.Now() - begun_ > breaker_.LimitOf(kind_)) breaker_.Rest();
}

void Breaker::Rest() noexcept {
  if (resting_.exchange(true)) return;
  rests_.fetch_add(1);
  news_.store(true);
}

void Breaker::Look() noexcept {
  if (slow_ == milliseconds(0) || resting()) return;
  const MutexLock lock(mutex_);
  const TimePoint now = clock_.Now();
  for (const Kind kind : {Kind::kRead, Kind::kWrite}) {
    const Use* oldest = ListOf(kind).first;
    while (oldest != nullptr && oldest->begun_ < since_) oldest = oldest->next_;
    if (oldest != nullptr && now - oldest->begun_ > LimitOf(kind)) Rest();
  }
}

bool Breaker::Probed(TimePoint begun) noexcept {
  const MutexLock lock(mutex_);
  if (!resting() || clock_.Now() - begun > slow_) return false;
  since_ = clock_.Now();
  resting_.store(false);
  return true;
}

}  // namespace ucmstore
