// SPDX-License-Identifier: Apache-2.0
//
// Choosing, opening, and taking in who comes back.
#include "store/posix/roots.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <utility>

#include "store/posix/names.h"

namespace ucmstore {
namespace {

// The disk cannot be reached, as opposed to: it must not be used like this.
bool IsDead(Code code) noexcept {
  switch (code) {
    case Code::kIoError:
    case Code::kNotFound:
    case Code::kNoSpace:
    case Code::kBusy:
    case Code::kTimeout: return true;
    default: return false;
  }
}

}  // namespace

RootSet::RootSet(std::vector<Member> members)
    : members_(std::move(members)), any_late_(std::ranges::any_of(members_, &Member::late)) {}

std::size_t RootSet::Choose(const BlockId& id, bool with_late) const noexcept {
  std::size_t best = members_.size();
  std::uint64_t best_score = 0;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].late && !with_late) continue;
    const std::uint64_t score = RootScore(id, members_[i].seed);
    // On a tie the smaller id, so that the order of the list has no say.
    if (best == members_.size() || score > best_score ||
        (score == best_score &&
         members_[i].root->file().root_id < members_[best].root->file().root_id)) {
      best = i;
      best_score = score;
    }
  }
  return best;
}

Root* RootSet::FormerHomeOf(const BlockId& id) const noexcept {
  if (!any_late_) return nullptr;
  const Member& home = members_[Choose(id, /*with_late=*/true)];
  return home.late ? members_[Choose(id, /*with_late=*/false)].root.get() : nullptr;
}

Status Roots::Open(std::vector<RootOptions> options) {
  Status first_dead;
  for (RootOptions& each : options) {
    slots_.push_back(std::make_unique<RootSlot>(fs_, std::move(each)));
    Result<std::shared_ptr<Root>> root = slots_.back()->Open();
    if (root) {
      Status joined = Join(*std::move(root), /*late=*/false);
      if (!joined.ok()) return joined;
      continue;
    }
    if (!IsDead(root.error().code) || options.size() == 1) return root.error();
    if (first_dead.ok()) first_dead = root.error();
    ++dead_;
  }
  if (dead_ == slots_.size()) return first_dead;
  LetHeal();
  return Status::Ok();
}

void Roots::LetHeal() {
  for (const auto& slot : slots_) {
    if (slot->live()) continue;
    slot->HealBy(pool_, clock_, log_, [this](std::shared_ptr<Root> root) {
      const std::string path = root->PathOf("");
      Status status = Join(std::move(root), /*late=*/true);
      if (!status.ok()) return status;
      --dead_;
      log_.Info([&] { return path + ": this root is back"; });
      return status;
    });
  }
}

// Two paths to one folder would look like two roots, and be one.
Status Roots::Join(std::shared_ptr<Root> root, bool late) {
  const MutexLock lock(mutex_);
  std::vector<RootSet::Member> members;
  if (now_ != nullptr) members = now_->members();
  for (const RootSet::Member& other : members) {
    if (other.root->file().root_id != root->file().root_id) continue;
    return Status::Error(
        Code::kInvalidArgument,
        fmt::format("roots: {} and {} are the same folder, or one is a copy of the other",
                    other.root->options().path, root->options().path));
  }
  const std::uint64_t seed = RootSeed(root->file().root_id);
  members.push_back({.root = std::move(root), .seed = seed, .late = late});
  now_ = std::make_shared<const RootSet>(std::move(members));
  return Status::Ok();
}

std::shared_ptr<const RootSet> Roots::Now() const {
  const MutexLock lock(mutex_);
  return now_;
}

void Roots::Tend() noexcept {
  if (dead_.load(std::memory_order_relaxed) == 0) return;
  for (const auto& slot : slots_) slot->Tend();
}

void Roots::VisitDead(const std::function<void(const Status& why)>& dead) const {
  for (const auto& slot : slots_) {
    if (!slot->live()) dead(slot->why());
  }
}

bool Roots::End(TimePoint until) {
  return std::ranges::all_of(slots_, [until](const auto& slot) { return slot->End(until); });
}

}  // namespace ucmstore
