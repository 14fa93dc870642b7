// SPDX-License-Identifier: Apache-2.0
//
// Describing, listing and removing segments.
#include "store/cache/admin.h"

#include <spdlog/fmt/fmt.h>
#include <sys/stat.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <system_error>
#include <vector>

#include "shm/segment_look.h"

namespace ucmstore {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, kSlotStates> kStateNames = {
    "empty", "claimed", "proposed", "filling", "assembling", "clean", "dirty", "flushing"};

std::string ProcessesText(const SegmentLook& look) {
  std::string text;
  for (const SegmentLook::Process& process : look.processes) {
    text += fmt::format("{}{} (pid {}{})", text.empty() ? "" : ", ", process.place, process.pid,
                        process.alive ? "" : ", dead");
  }
  return text.empty() ? "none" : text;
}

// "12: 8 of process 0 (pid 4711), 4 of process 3 (pid 4712, dead)".
std::string LeasesText(const SegmentLook& look) {
  std::uint64_t all = 0;
  std::string text;
  for (const SegmentLook::Process& process : look.processes) {
    if (process.leases == 0) continue;
    all += process.leases;
    text += fmt::format("{}{} of process {} (pid {}{})", text.empty() ? ": " : ", ", process.leases,
                        process.place, process.pid, process.alive ? "" : ", dead");
  }
  return std::to_string(all) + text;
}

Status Inspect(const char* path, void* ctx,
               void (*field)(void* ctx, const char* name, const char* value)) noexcept {
  try {
    const auto look = LookAtSegment(path);
    if (!look) return look.error();
    const auto tell = [&](const char* name, const std::string& value) {
      field(ctx, name, value.c_str());
    };
    const RingHeader& header = look->header;
    tell("version", std::to_string(header.version));
    tell("bytes", std::to_string(header.segment_bytes));
    tell("slots", std::to_string(header.slot_count));
    tell("shards_per_block", std::to_string(header.shards_per_block));
    tell("shard_size", std::to_string(header.shard_size));
    tell("identity", look->identity);
    tell("processes", ProcessesText(*look));
    tell("leases", LeasesText(*look));
    for (std::size_t state = 0; state < kSlotStates; ++state) {
      tell(fmt::format("slots_{}", kStateNames[state]).c_str(), std::to_string(look->slots[state]));
    }
    tell("evictions", std::to_string(look->evictions));
    return Status::Ok();
  } catch (const std::exception& error) {
    return Status::Error(Code::kInternal, error.what());
  }
}

struct Found {
  fs::path path;
  std::string name;
};

std::vector<Found> SegmentsIn(const char* folder, const char* name, std::error_code& error) {
  std::vector<Found> found;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string file = entry.path().filename().string();
    const std::string_view its = SegmentNameOf(file);
    if (its.empty() || (name != nullptr && its != name)) continue;
    found.push_back({.path = entry.path(), .name = std::string(its)});
  }
  std::ranges::sort(found, {}, &Found::path);
  return found;
}

// False: `entry` has had enough.
bool Visit(const Found& found, std::uint32_t flags, void* ctx,
           bool (*entry)(void* ctx, const AdminEntryV1* entry)) {
  const std::string path = found.path.string();
  struct stat stat{};
  if (::lstat(path.c_str(), &stat) != 0) return true;  // gone
  AdminVerdict verdict = AdminVerdict::kGood;
  AdminAction action = AdminAction::kNone;
  std::string text;
  const auto look = LookAtSegment(path);
  if (look) {
    if (look->in_use()) verdict = AdminVerdict::kInUse;
    text = fmt::format("{} slots of {} bytes, {} dirty", look->header.slot_count,
                       look->header.shard_stride * look->header.shards_per_block,
                       look->slots[static_cast<std::size_t>(SlotState::kDirty)] +
                           look->slots[static_cast<std::size_t>(SlotState::kFlushing)]);
  } else {
    text = std::string(look.error().text());
    const Code code = look.error().code;
    verdict = code == Code::kCorruption    ? AdminVerdict::kCorrupt
              : code == Code::kUnsupported ? AdminVerdict::kUnknown
                                           : AdminVerdict::kUnreadable;
  }
  const bool removable = verdict == AdminVerdict::kGood || verdict == AdminVerdict::kCorrupt;
  if ((flags & kAdminPurge) != 0 && removable) {
    std::error_code error;
    fs::remove(found.path, error);
    action = error ? AdminAction::kFailed : AdminAction::kRemoved;
    if (error) text = error.message();
  }
  const AdminEntryV1 told{
      .struct_size = sizeof(AdminEntryV1),
      .kind = verdict == AdminVerdict::kUnknown ? AdminKind::kForeign : AdminKind::kSegment,
      .verdict = verdict,
      .action = action,
      .path = path.c_str(),
      .namespace_label = found.name.c_str(),
      .text = text.c_str(),
      .size_bytes = static_cast<std::uint64_t>(stat.st_size),
      .disk_bytes = static_cast<std::uint64_t>(stat.st_blocks) * 512,
      .mtime_ns = stat.st_mtim.tv_sec * 1'000'000'000 + stat.st_mtim.tv_nsec};
  return entry(ctx, &told);
}

Status Walk(const char* root, const char* namespace_label, std::uint32_t flags, void* ctx,
            void (*total)(void* ctx, std::uint64_t files),
            bool (*entry)(void* ctx, const AdminEntryV1* entry)) noexcept {
  try {
    if ((flags & ~kAdminFlags) != 0) {
      return Status::Error(Code::kInvalidArgument, fmt::format("flags {:#x} are unknown", flags));
    }
    std::error_code error;
    const std::vector<Found> found = SegmentsIn(root, namespace_label, error);
    if (error) return ErrnoStatus(error.value(), root);
    if (total != nullptr) total(ctx, found.size());
    for (const Found& each : found) {
      if (!Visit(each, flags, ctx, entry)) break;
    }
    return Status::Ok();
  } catch (const std::exception& error) {
    return Status::Error(Code::kInternal, error.what());
  }
}

}  // namespace

const AdminTableV1* CacheAdmin() noexcept {
  static constexpr AdminTableV1 kTable{
      .struct_size = sizeof(AdminTableV1), .reserved = 0, .inspect = &Inspect, .walk = &Walk};
  return &kTable;
}

}  // namespace ucmstore
