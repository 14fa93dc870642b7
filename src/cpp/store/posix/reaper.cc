// SPDX-License-Identifier: Apache-2.0
//
// The census of writers, and the sweep.
#include "store/posix/reaper.h"

#include <cerrno>
#include <string>

namespace ucmstore {

int WriterCensus::Take(bool tidy) {
  const File writers(fs_,
                     fs_.OpenAt(folder_, kWritersName, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0));
  if (!writers) return 0;
  return fs_.List(writers.get(), [this, tidy](std::string_view name) {
    const ParsedMark mark = ParseMark(name);
    if (mark.writer == 0) return true;
    if (mark.temporary) {
      if (tidy) (void)fs_.Unlink(folder_, TemporaryName(mark.writer).c_str());
    } else {
      (void)Judge(mark.writer, &dead_);
    }
    return dead_.size() < kMaxDead;
  });
}

Life WriterCensus::Judge(WriterId writer, std::map<WriterId, File>* dead) {
  const auto found = known_.find(writer);
  if (found != known_.end()) return found->second.life;
  if (dead->size() >= kMaxDead) return Life::kAlive;  // not now
  MarkVerdict verdict = JudgeMark(fs_, folder_, writer, local_);
  if (verdict.life == Life::kDead) dead->emplace(writer, std::move(verdict.lock));
  known_.emplace(writer, Known{verdict.life, std::move(verdict.text)});
  return verdict.life;
}

bool WriterCensus::MayReap(WriterId writer) {
  switch (Judge(writer, &dead_later_)) {
    case Life::kAlive: return false;
    case Life::kDead: return true;
    // A writer makes its mark before its first file and removes it after its last, so a file
    // without a mark was left behind. Where a server may answer from an old picture of the folder,
    // a missing mark proves nothing.
    case Life::kGone: return local_;
  }
  return false;
}

void WriterCensus::RemoveMarks() {
  for (const auto& [writer, lock] : dead_) (void)fs_.Unlink(folder_, MarkName(writer).c_str());
  dead_.clear();
}

std::string WriterCensus::TextOf(WriterId writer) const {
  const auto found = known_.find(writer);
  return found == known_.end() ? "" : found->second.text;
}

namespace {

// One prefix folder. False if something in it was not dealt with.
bool SweepFolder(FileSystem& fs, int folder, std::string_view prefix, WriterCensus& census,
                 const std::function<bool()>& stop, std::uint64_t* removed) {
  const std::string name(prefix);
  const File opened(fs, fs.OpenAt(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0));
  if (!opened) return false;
  bool clean = true;
  const int listed = fs.List(opened.get(), [&](std::string_view file) {
    const ParsedName parsed = ParseBlockFile(prefix, file);
    if (parsed.kind != NameKind::kActivated || !census.MayReap(parsed.writer)) return true;
    if (stop()) return clean = false;
    const int unlinked = fs.Unlink(opened.get(), std::string(file).c_str());
    if (unlinked == 0) ++*removed;
    clean = clean && (unlinked == 0 || unlinked == -ENOENT);
    return true;
  });
  return clean && listed == 0;
}

}  // namespace

std::uint64_t ReapDead(FileSystem& fs, int folder, std::uint32_t prefix_digits,
                       WriterCensus& census, const std::function<bool()>& stop) {
  std::vector<std::string> prefixes;  // at most 16^prefix_digits, whatever else is there
  bool clean = fs.List(folder, [&](std::string_view name) {
    if (IsPrefixFolder(name, prefix_digits)) prefixes.emplace_back(name);
    return true;
  }) == 0;
  std::uint64_t removed = 0;
  for (const std::string& prefix : prefixes) {
    if (stop()) return removed;
    clean = SweepFolder(fs, folder, prefix, census, stop, &removed) && clean;
  }
  if (clean) census.RemoveMarks();
  return removed;
}

}  // namespace ucmstore
