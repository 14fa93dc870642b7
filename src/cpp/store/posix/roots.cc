// SPDX-License-Identifier: Apache-2.0
//
// Choosing, opening, and taking in who comes back.
#include "store/posix/roots.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cerrno>
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
  }
  if (Now() == nullptr) return first_dead;
  LetHeal();
  return Status::Ok();
}

void Roots::LetHeal() {
  const auto accept = [this](std::shared_ptr<Root> root) {
    const std::string path = root->PathOf("");
    Status status = Join(std::move(root), /*late=*/true);
    if (status.ok()) log_.Info([&] { return path + ": this root is back"; });
    return status;
  };
  for (const auto& slot : slots_) {
    slot->TendBy(pool_, clock_, log_, accept, [this, &slot = *slot] { LookAfter(slot); });
  }
}

// Two paths to one folder would look like two roots, and be one.
Status Roots::CheckUnlike(const Root& root, const Root* except) const {
  if (now_ == nullptr) return Status::Ok();
  for (const RootSet::Member& other : now_->members()) {
    if (other.root.get() == except || other.root->file().root_id != root.file().root_id) continue;
    return Status::Error(
        Code::kInvalidArgument,
        fmt::format("roots: {} and {} are the same folder, or one is a copy of the other",
                    other.root->options().path, root.options().path));
  }
  return Status::Ok();
}

Status Roots::Join(std::shared_ptr<Root> root, bool late) {
  const MutexLock lock(mutex_);
  if (Status status = CheckUnlike(*root, nullptr); !status.ok()) return status;
  std::vector<RootSet::Member> members;
  if (now_ != nullptr) members = now_->members();
  const std::uint64_t seed = RootSeed(root->file().root_id);
  members.push_back({.root = std::move(root), .seed = seed, .late = late});
  now_ = std::make_shared<const RootSet>(std::move(members));
  return Status::Ok();
}

Status Roots::Replace(const Root& gone, const std::shared_ptr<Root>& root) {
  std::shared_ptr<const RootSet> before;  // ends after the lock: closing may take its time
  const MutexLock lock(mutex_);
  if (Status status = CheckUnlike(*root, &gone); !status.ok()) return status;
  std::vector<RootSet::Member> members = now_->members();
  for (RootSet::Member& member : members) {
    if (member.root.get() != &gone) continue;
    member.seed = RootSeed(root->file().root_id);
    member.root = root;
  }
  before = now_;
  now_ = std::make_shared<const RootSet>(std::move(members));
  return Status::Ok();
}

bool Roots::IsInUse(const Root& root) const {
  const std::shared_ptr<const RootSet> now = Now();
  return std::ranges::any_of(now->members(),
                             [&root](const auto& member) { return member.root.get() == &root; });
}

Status Roots::Renew(const Root& gone) {
  const MutexLock lock(renewing_);
  if (!IsInUse(gone)) return Status::Ok();
  const TimePoint now = clock_.Now();
  if (failed_to_renew_ == &gone && now < failed_at_ + kRenewAfter) return failure_;
  Status status = MakeAgain(gone);
  failed_to_renew_ = status.ok() ? nullptr : &gone;
  failed_at_ = now;
  failure_ = status;
  return status;
}

Status Roots::MakeAgain(const Root& gone) {
  const std::string path = gone.PathOf("");
  FileStat held;
  FileStat named;
  if (fs_.Stat(gone.folder(), &held) == 0 && fs_.StatAt(AT_FDCWD, path.c_str(), &named) == 0 &&
      named.SameFile(held) && gone.LookAtRootFile() == Root::Marking::kOurs) {
    return Status::Error(Code::kIoError,
                         path +
                             ": the folder is there, but denies that it is when a file is to be "
                             "made in it");
  }
  RootOptions options = gone.options();
  options.root_id = gone.file().root_id;
  Result<std::unique_ptr<Root>> opened = Root::Open(fs_, std::move(options));
  Status status =
      opened ? Replace(gone, std::shared_ptr<Root>(*std::move(opened))) : opened.error();
  if (status.ok()) {
    log_.Warning([&] {
      return path +
             ": somebody removed this folder while it was in use; it is there again, without "
             "the blocks that it had";
    });
    return status;
  }
  const Code code = status.code == Code::kNoSpace ? Code::kNoSpace : Code::kIoError;
  return Status::Error(code,
                       fmt::format("{}: somebody removed this folder while it was in use, and it "
                                   "cannot be made again: {}",
                                   path, status.text()),
                       status.sys_errno);
}

// Who removes a folder, and dumps nothing, shall not find a new one. But a folder in which we make
// files while it is being removed survives that without its UCMSTORE: it gets it back, or whoever
// opens the root next would take it for another.
void Roots::LookAfter(const RootSlot& slot) {
  const std::shared_ptr<const RootSet> now = Now();
  for (const RootSet::Member& member : now->members()) {
    Root& root = *member.root;
    if (root.options().path != slot.options().path) continue;
    if (root.breaker().resting()) {
      Probe(root);
      return;
    }
    FileStat stat;
    const int known = fs_.Stat(root.folder(), &stat);
    const bool gone = known == -ESTALE || (known == 0 && stat.links == 0);
    if (gone) {
      if (fs_.StatAt(AT_FDCWD, root.PathOf(kRootFileName).c_str(), &stat) != 0) return;
    } else {
      const Root::Marking marking = root.LookAtRootFile();
      const bool half = marking == Root::Marking::kMissing && root.HasWriter();
      if (!half && marking != Root::Marking::kAnothers) return;
    }
    (void)Renew(root);  // a failure is for the next dump to tell
    return;
  }
}

void Roots::Probe(const Root& root) {
  const TimePoint begun = clock_.Now();
  root.TryDisk();
  if (!root.breaker().Probed(begun)) return;
  log_.Warning([&] { return root.PathOf("") + ": answers in time; the root is used again"; });
}

std::shared_ptr<const RootSet> Roots::Now() const {
  const MutexLock lock(mutex_);
  return now_;
}

void Roots::Tend() noexcept {
  const TimePoint now = clock_.Now();
  if (now < next_tend_.load(std::memory_order_relaxed)) return;
  next_tend_.store(now + kTendEvery, std::memory_order_relaxed);
  const std::shared_ptr<const RootSet> roots = Now();
  for (const RootSet::Member& member : roots->members()) {
    member.root->breaker().Look();
    if (!member.root->breaker().TakeNews()) continue;
    log_.Warning([&] { return std::string(member.root->Resting().text()); });
  }
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
