// SPDX-License-Identifier: Apache-2.0
//
// Finding the collector of a root.
#include "store/posix/reclaim.h"

namespace ucmstore {

Reclaim::Reclaim(const Collector::Services& services, std::span<const std::string> paths,
                 const Limits& limits, const Modes& modes, milliseconds touch_interval)
    : touches_(services.pool, services.counters, touch_interval) {
  for (const std::string& path : paths) {
    collectors_.push_back(std::make_unique<Collector>(services, path, limits, modes));
  }
}

Status Reclaim::Open() {
  for (const auto& collector : collectors_) {
    if (Status status = collector->Agree(); !status.ok()) return status;
  }
  for (const auto& collector : collectors_) collector->Begin();
  return Status::Ok();
}

Collector* Reclaim::Of(const Root& root) noexcept {
  for (const auto& collector : collectors_) {
    if (collector->path() == root.options().path) return collector.get();
  }
  return nullptr;
}

void Reclaim::Committed(const Root& root, std::uint64_t bytes) noexcept {
  if (Collector* const collector = Of(root)) collector->Committed(bytes);
}

void Reclaim::Full(const Root& root) noexcept {
  if (Collector* const collector = Of(root)) collector->Full();
}

std::uint64_t Reclaim::used_bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const auto& collector : collectors_) sum += collector->used_bytes();
  return sum;
}

std::uint64_t Reclaim::capacity_bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const auto& collector : collectors_) sum += collector->capacity_bytes();
  return sum;
}

void Reclaim::LookForStalls() noexcept {
  for (const auto& collector : collectors_) collector->LookForStall();
}

bool Reclaim::End(TimePoint until) {
  bool ended = true;  // one that hangs must not keep the others going
  for (const auto& collector : collectors_) ended = collector->End(until) && ended;
  return touches_.End(until) && ended;
}

}  // namespace ucmstore
