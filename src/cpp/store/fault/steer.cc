// SPDX-License-Identifier: Apache-2.0
//
// Opening a Fault stage with its options, and steering it while it runs.
#include <algorithm>
#include <exception>
#include <string>

#include "store/fault/fault_stage.h"

namespace ucmstore {
namespace {

// The open stages that have a name, for FaultTableV1::find.
struct Registry {
  Mutex mutex;
  std::map<std::string, FaultStage*, std::less<>> stages UCMSTORE_GUARDED_BY(mutex);
};

Registry& OpenStages() {
  static Registry* const registry =
      std::make_unique<Registry>().release();  // outlives every thread
  return *registry;
}

}  // namespace

Status FaultStage::Open(const StageSetup& setup) {
  const auto seed = static_cast<std::uint64_t>(setup.Int("seed"));
  {
    const MutexLock lock(mutex_);
    rules_.emplace(seed);
    for (const std::string& text : setup.List("rules")) {
      if (const auto rule = rules_->Add(text); !rule) return rule.error();
    }
  }
  if (const std::string& wanted = setup.Text("name"); !wanted.empty()) {
    Registry& registry = OpenStages();
    const MutexLock lock(registry.mutex);
    if (!registry.stages.emplace(wanted, this).second) {
      return Status::Error(Code::kInvalidArgument,
                           "fault.name '" + wanted + "' is taken by another open Fault stage");
    }
    registered_name_ = wanted;
  }
  table_.emplace(runtime().options().max_tasks);
  return Status::Ok();
}

FaultStage::~FaultStage() { Unregister(); }

void FaultStage::Unregister() noexcept {
  if (registered_name_.empty()) return;
  Registry& registry = OpenStages();
  const MutexLock lock(registry.mutex);
  registry.stages.erase(registered_name_);
  registered_name_.clear();
}

FaultStage* FaultStage::Find(const char* name) {
  Registry& registry = OpenStages();
  const MutexLock lock(registry.mutex);
  const auto found = registry.stages.find(std::string_view(name));
  return found == registry.stages.end() ? nullptr : found->second;
}

Status FaultStage::Arm(const char* text, std::uint64_t* rule) {
  const MutexLock lock(mutex_);
  const Result<std::uint64_t> added = rules_->Add(text);
  if (!added) return added.error();
  *rule = *added;
  return Status::Ok();
}

void FaultStage::Disarm(std::uint64_t rule) {
  const MutexLock lock(mutex_);
  rules_->Remove(rule);
}

std::uint64_t FaultStage::Hits(std::uint64_t rule) {
  const MutexLock lock(mutex_);
  return rules_->Hits(rule);
}

std::uint32_t FaultStage::HeldBy(std::uint64_t rule) const {
  return static_cast<std::uint32_t>(
      std::ranges::count_if(parks_, [rule](const auto& park) { return park.second.rule == rule; }));
}

bool FaultStage::WaitHeld(std::uint64_t rule, std::uint32_t count, std::uint32_t timeout_ms) {
  const TimePoint until = std::chrono::steady_clock::now() + milliseconds(timeout_ms);
  const MutexLock lock(mutex_);
  while (HeldBy(rule) < count) {
    if (!changed_.WaitUntil(mutex_, until)) return HeldBy(rule) >= count;
  }
  return true;
}

std::uint32_t FaultStage::Release(std::uint64_t rule, std::uint32_t count) {
  std::vector<std::uint64_t> ids;
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, park] : parks_) {
      const bool meant = park.rule == rule || (rule == 0 && park.rule != 0);
      if (meant && (count == 0 || ids.size() < count)) ids.push_back(id);
    }
  }
  for (const std::uint64_t id : ids) Resume(id);
  return static_cast<std::uint32_t>(ids.size());
}

}  // namespace ucmstore
