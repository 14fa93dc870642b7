// SPDX-License-Identifier: Apache-2.0
//
// What goes, and what stays.
#include "store/posix/sweep.h"

#include <algorithm>
#include <cerrno>

namespace ucmstore {

bool Sweep::Step(const std::atomic<bool>& stop) {
  if (!now_.folder) {
    if (plan_.labels.empty()) return false;
    BeginNamespace();
  } else {
    StepPrefix(stop);
  }
  if (enough()) return false;
  if (now_.folder && prefixes_.empty()) EndNamespace();
  return now_.folder || !plan_.labels.empty();
}

void Sweep::BeginNamespace() {
  label_ = std::move(plan_.labels.back());
  plan_.labels.pop_back();
  now_ = OpenNamespace(fs_, root_, label_);
  if (!now_.folder) return;  // purged meanwhile
  // The writers first: who dies after this has nothing that this sweep would miss for good.
  census_ = std::make_unique<WriterCensus>(fs_, now_.folder.get(), now_.local);
  reaped_all_ = census_->Take() == 0;
  const int listed = ListPrefixes(fs_, now_, ++plan_.seed, &prefixes_, [](std::string_view) {});
  reaped_all_ = reaped_all_ && listed == 0;
}

void Sweep::EndNamespace() {
  if (reaped_all_) census_->RemoveMarks();
  census_.reset();
  now_ = {};
}

void Sweep::StepPrefix(const std::atomic<bool>& stop) {
  const std::string prefix = std::move(prefixes_.back());
  prefixes_.pop_back();
  const File folder(fs_, fs_.OpenAt(now_.folder.get(), prefix.c_str(), kOpenFolder, 0));
  FileStat stat;
  if (!folder || fs_.Stat(folder.get(), &stat) < 0) {
    reaped_all_ = reaped_all_ && folder.get() == -ENOENT;
    return;
  }
  bool empty = true;
  const int visited = VisitPrefix(fs_, folder.get(), prefix, [&](const PrefixEntry& entry) {
    if (stop.load(std::memory_order_relaxed) || enough()) return empty = false;
    const bool gone = IsToGo(entry) && Remove(folder.get(), prefix, entry);
    empty = empty && gone;
    return true;
  });
  if (visited < 0) reaped_all_ = empty = false;
  // A writer that is about to make a file in it makes the folder again.
  if (empty && fs_.RemoveFolder(now_.folder.get(), prefix.c_str()) == 0) {
    freed_bytes_ += stat.disk_bytes;
  }
}

bool Sweep::IsToGo(const PrefixEntry& entry) {
  switch (entry.parsed.kind) {
    case NameKind::kForeign: return false;
    case NameKind::kActivated: return census_->MayReap(entry.parsed.writer);
    case NameKind::kBlock:
    case NameKind::kMoved:  // by whom is all the same: what is cold goes
    case NameKind::kSetAside: break;
  }
  if (entry.stat.mtime_ns != plan_.cut.mtime_ns) return entry.stat.mtime_ns < plan_.cut.mtime_ns;
  if (plan_.cut.tie_bytes == 0) return false;
  plan_.cut.tie_bytes -= std::min(plan_.cut.tie_bytes, entry.stat.disk_bytes);
  return true;
}

bool Sweep::Remove(int folder, const std::string& prefix, const PrefixEntry& entry) {
  const std::string name(entry.name);
  const int removed = fs_.Unlink(folder, name.c_str());
  if (removed == -ENOENT) return true;  // somebody was faster
  if (removed < 0) {
    ++failures_;
    counters_.reclaim_failures.Add();
    stuck_bytes_ += entry.stat.disk_bytes;
    if (entry.parsed.kind == NameKind::kActivated) reaped_all_ = false;
    if (first_error_ == 0) {
      first_error_ = removed;
      first_path_ = label_ + "/" + prefix + "/" + name;
    }
    return false;
  }
  // A file with a second name goes on to take its room.
  const std::uint64_t freed = entry.stat.links <= 1 ? entry.stat.disk_bytes : 0;
  freed_bytes_ += freed;
  if (entry.parsed.kind == NameKind::kActivated) {
    counters_.reaped.Add();
    return true;
  }
  // The sum that the cut is for: with anything else in it the sweep would end before it has come
  // to all that is older.
  aged_bytes_ += freed;
  ++removed_blocks_;
  counters_.reclaimed_blocks.Add();
  counters_.reclaimed_bytes.Add(entry.stat.disk_bytes);
  return true;
}

}  // namespace ucmstore
