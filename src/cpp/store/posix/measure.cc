// SPDX-License-Identifier: Apache-2.0
//
// Root, namespaces, samples, and what is foreign.
#include "store/posix/measure.h"

#include <algorithm>
#include <cerrno>

namespace ucmstore {

bool Measure::Step(const std::atomic<bool>& stop) {
  if (!begun_) {
    begun_ = true;
    StepRoot();
  } else if (now_.folder) {
    StepPrefix(stop);
  } else if (!folders_.empty()) {
    const std::string label = std::move(folders_.back());
    folders_.pop_back();
    BeginNamespace(label);
  } else if (!foreign_.empty()) {
    StepForeign(stop);
  }
  return now_.folder || !folders_.empty() || !foreign_.empty();
}

void Measure::StepRoot() {
  FileStat stat;
  const int known = fs_.Stat(root_, &stat);
  Note(known);
  if (known < 0) return;
  device_ = stat.device;
  used_bytes_ += stat.disk_bytes;
  Note(fs_.List(root_, [&](std::string_view name) {
    const std::string text(name);
    if (fs_.StatAt(root_, text.c_str(), &stat) < 0 || stat.device != device_) return true;
    if (stat.kind == FileKind::kFolder) {
      folders_.push_back(text);
    } else {
      used_bytes_ += stat.disk_bytes;
    }
    return true;
  }));
}

void Measure::BeginNamespace(const std::string& label) {
  now_ = OpenNamespace(fs_, root_, label);
  if (!now_.folder) {
    // None of ours, or of a newer format: counted, and left alone.
    Count(root_, label, label);
    return;
  }
  labels_.push_back(label);
  used_bytes_ += now_.disk_bytes;
  ages_.BeginGroup();
  sampled_folders_ = sampled_files_ = 0;
  sampled_bytes_ = 0;
  const int folder = now_.folder.get();
  Note(ListPrefixes(fs_, now_, ++seed_, &prefixes_, [&](std::string_view name) {
    const std::string text(name);
    Count(folder, text, label + "/" + text);
  }));
  if (prefixes_.empty()) now_ = {};
}

void Measure::StepPrefix(const std::atomic<bool>& stop) {
  const std::string& prefix = prefixes_[sampled_folders_++];
  const File folder(fs_, fs_.OpenAt(now_.folder.get(), prefix.c_str(), kOpenFolder, 0));
  FileStat stat;
  if (folder && fs_.Stat(folder.get(), &stat) == 0) {
    sampled_bytes_ += stat.disk_bytes;
    Note(VisitPrefix(fs_, folder.get(), prefix, [&](const PrefixEntry& entry) {
      ++sampled_files_;
      sampled_bytes_ += entry.stat.disk_bytes;
      const NameKind kind = entry.parsed.kind;
      if (kind != NameKind::kForeign && kind != NameKind::kActivated) {
        ages_.Add(entry.stat.mtime_ns, entry.stat.disk_bytes);
      }
      return !stop.load(std::memory_order_relaxed);
    }));
  } else if (folder.get() != -ENOENT) {
    Note(folder.get());
  }
  const std::size_t enough = std::max(kMinFolders, prefixes_.size() / kMinShare);
  const bool done = sampled_folders_ >= enough && sampled_files_ >= kMinFiles;
  if (done || sampled_folders_ == prefixes_.size()) EndNamespace();
}

void Measure::EndNamespace() {
  const double scale =
      static_cast<double>(prefixes_.size()) / static_cast<double>(sampled_folders_);
  used_bytes_ += static_cast<std::uint64_t>(static_cast<double>(sampled_bytes_) * scale);
  ages_.ScaleGroup(scale);
  now_ = {};
}

void Measure::StepForeign(const std::atomic<bool>& stop) {
  const std::string path = std::move(foreign_.back());
  foreign_.pop_back();
  const File folder(fs_, fs_.OpenAt(root_, path.c_str(), kOpenFolder, 0));
  if (!folder) {
    if (folder.get() != -ENOENT) Note(folder.get());
    return;
  }
  Note(fs_.List(folder.get(), [&](std::string_view name) {
    const std::string text(name);
    Count(folder.get(), text, path + "/" + text);
    return !stop.load(std::memory_order_relaxed);
  }));
}

void Measure::Count(int folder, const std::string& name, const std::string& path) {
  FileStat stat;
  if (fs_.StatAt(folder, name.c_str(), &stat) < 0 || stat.device != device_) return;
  used_bytes_ += stat.disk_bytes;
  if (stat.kind != FileKind::kFolder) return;
  if (foreign_.size() < kMaxForeignFolders) {
    foreign_.push_back(path);
  } else {
    Note(-E2BIG);
  }
}

}  // namespace ucmstore
