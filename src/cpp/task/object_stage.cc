// SPDX-License-Identifier: Apache-2.0
//
// A block as one object: put together in memory, put by its last shard, looked at closely whenever
// it comes back.
#include "task/object_stage.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/hex.h"

namespace ucmstore {
namespace {

constexpr std::size_t kMaxSuspects = 4096;
constexpr std::string_view kKindName = "UCMSTORE";
constexpr std::string_view kKindHead = "ucmstore objects, format ";

// For people, and compared line by line.
std::string KindText(const ObjectKind& kind, std::string_view namespace_text) {
  return fmt::format(
      "{}{}\nshard_size: {}\nshards_per_block: {}\ncontent: {}\nfingerprint: {}\n\n{}", kKindHead,
      kObjectVersion, kind.shard_size, kind.shards_per_block, kind.content, ToHex(kind.fingerprint),
      namespace_text);
}

std::string_view TakeLine(std::string_view* text) noexcept {
  const std::string_view line = text->substr(0, text->find('\n'));
  text->remove_prefix(std::min(line.size() + 1, text->size()));
  return line;
}

// Ok if both texts say the same; else the first line in which they differ.
Status CompareKinds(std::string_view stored, std::string_view wanted, std::string_view name) {
  if (stored == wanted) return Status::Ok();
  const std::string_view head = stored.substr(0, stored.find('\n'));
  if (!head.starts_with(kKindHead)) {
    return Status::Error(
        Code::kCorruption,
        fmt::format("{} does not say of what kind the blocks are: it is damaged, or not ours",
                    name));
  }
  if (head != wanted.substr(0, wanted.find('\n'))) {
    return Status::Error(
        Code::kUnsupported,
        fmt::format("{} says '{}', this program knows format {}", name, head, kObjectVersion));
  }
  while (!stored.empty() && !wanted.empty()) {
    const std::string_view there = TakeLine(&stored);
    const std::string_view here = TakeLine(&wanted);
    if (there == here) continue;
    return Status::Error(
        Code::kInvalidArgument,
        fmt::format("{} says '{}', this store is opened with '{}'", name, there, here));
  }
  return Status::Error(Code::kCorruption, fmt::format("{} is cut off", name));
}

}  // namespace

// One block's object, as far as its shards have come: each lies where it will, or further behind,
// where shards before it are short.
class ObjectStage::Writer final : public BlockWriter {
 public:
  Writer(ObjectStage& stage, const BlockId& id) : stage_(stage), id_(id) {}
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() override { stage_.Release(reserved_); }

  void Write(std::span<ShardIo> shards, bool /*last*/) override {
    if (const Status status = Begin(); !status.ok()) {
      for (ShardIo& shard : shards) shard.Fail(status);
      return;
    }
    const std::size_t shard_size = stage_.kind_.shard_size;
    for (ShardIo& shard : shards) {  // nobody else writes these
      const std::size_t at = stage_.kind_.header_size() + shard.index() * shard_size;
      const auto room = std::span(object_).subspan(at, shard_size);
      const auto bytes = static_cast<std::uint32_t>(Gather(shard.segments(), room));
      lengths_[shard.index()] = bytes;
      shard.Succeed(bytes);
    }
  }

  Status Commit() override {
    CloseGaps();
    PrintObjectHeader(stage_.kind_, id_, lengths_, object_);
    const Status status = stage_.Put(stage_.NameOf(id_), std::move(object_));
    if (status.ok()) stage_.Trust(id_);
    return status;
  }

 private:
  Status Begin() {
    const MutexLock lock(mutex_);
    if (reserved_ > 0) return Status::Ok();
    const std::uint64_t size = stage_.kind_.object_size();
    if (!stage_.Reserve(size)) {
      return Status::Error(
          Code::kBusy,
          fmt::format("blocks that wait for their last shards hold {} bytes already, "
                      "of at most {}: dump whole blocks, or fewer at once",
                      stage_.incomplete_bytes_.load(), stage_.traits_.max_incomplete_bytes));
    }
    try {
      lengths_.resize(stage_.kind_.shards_per_block);
      object_.resize(size);
    } catch (...) {  // out of memory
      stage_.Release(size);
      throw;
    }
    reserved_ = size;
    return Status::Ok();
  }

  void CloseGaps() {
    const std::size_t shard_size = stage_.kind_.shard_size;
    std::size_t from = stage_.kind_.header_size();
    std::size_t to = from;
    for (const std::uint32_t length : lengths_) {
      if (to != from) std::memmove(object_.data() + to, object_.data() + from, length);
      from += shard_size;
      to += length;
    }
    if (to == object_.size()) return;
    object_.resize(to);
    object_.shrink_to_fit();  // the medium may keep it as it is
  }

  ObjectStage& stage_;
  const BlockId id_;
  Mutex mutex_;
  std::uint64_t reserved_ = 0;          // written once, under the mutex; 0: nothing was written
  std::vector<std::uint32_t> lengths_;  // each written by the one Write of its shard
  Object object_;                       // likewise
};

ObjectStage::ObjectStage(std::string name, const ObjectTraits& traits)
    : TerminalStage(std::move(name)), traits_(traits) {}

ObjectStage::~ObjectStage() = default;

Status ObjectStage::Open(const StageSetup& setup) {
  kind_ = {.fingerprint = setup.fingerprint,
           .shard_size = setup.shard_size,
           .shards_per_block = setup.shards_per_block,
           .content = setup.content};
  prefix_ = setup.namespace_label + "/";
  if (const std::string rule = CheckObjectKind(kind_); !rule.empty()) {
    return Status::Error(Code::kInvalidArgument, rule);
  }
  if (Status status = OpenMedium(setup); !status.ok()) return status;
  return AdoptKind();
}

Status ObjectStage::AdoptKind() {
  const std::string name = prefix_ + std::string(kKindName);
  const std::string wanted = KindText(kind_, setup().namespace_text);
  for (const bool first : {true, false}) {
    const Result<Object> there = Get(name);
    if (there) {
      const std::string_view stored(reinterpret_cast<const char*>(there->data()), there->size());
      return CompareKinds(stored, wanted, name);
    }
    if (there.error().code != Code::kNotFound) return there.error();
    if (!first) break;
    Object object(wanted.size());
    std::memcpy(object.data(), wanted.data(), wanted.size());
    // Another store may do so at the same time: what is there afterwards counts.
    if (Status status = Put(name, std::move(object)); !status.ok()) return status;
  }
  return Status::Error(Code::kIoError,
                       fmt::format("{} was put, but is not there when it is asked for", name));
}

std::string ObjectStage::NameOf(const BlockId& block) const { return prefix_ + ToHex(block); }

Result<std::unique_ptr<BlockWriter>> ObjectStage::Create(const BlockId& block) {
  return std::make_unique<Writer>(*this, block);
}

Status ObjectStage::HasEach(std::span<const std::string> names, bool stop_at_miss,
                            std::uint8_t* found) {
  Status first;
  std::size_t errors = 0;
  std::size_t asked = 0;
  while (asked < names.size()) {
    const Result<bool> has = Has(names[asked]);
    found[asked] = has.value_or(false) ? 1 : 0;
    if (!has) {
      if (errors++ == 0) first = has.error();
    }
    if (found[asked++] == 0 && stop_at_miss) break;
  }
  if (errors == 0) return Status::Ok();
  if (errors == asked) return first;
  log().Warning([&] {  // the caller takes them for absent
    return fmt::format("{} of {} blocks could not be looked up: {}", errors, asked, first.text());
  });
  return Status::Ok();
}

Status ObjectStage::Find(std::span<const BlockId> blocks, std::uint32_t flags,
                         std::uint8_t* found) {
  const bool stop_at_miss = (flags & kStopAtMiss) != 0;
  std::vector<std::string> names;
  std::vector<std::size_t> places;  // in `blocks`
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (!IsSuspect(blocks[i])) {
      names.push_back(NameOf(blocks[i]));
      places.push_back(i);
    } else if (stop_at_miss) {
      break;
    }
  }
  std::vector<std::uint8_t> there(names.size());
  const Status status = HasEach(names, stop_at_miss, there.data());
  if (!status.ok()) return status;
  const std::uint8_t hit = traits_.in_memory ? kInMemory : kBelow;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (there[i] != 0) found[places[i]] = hit;
  }
  return Status::Ok();
}

Status ObjectStage::Deliver(const BlockId& block, const Object& object,
                            std::span<ShardIo> shards) const {
  const Result<ParsedObject> parsed = ParsedObject::Parse(kind_, block, object);
  if (!parsed) return parsed.error();
  Status wrong;
  for (ShardIo& shard : shards) {
    if (shard.ended()) continue;
    const auto bytes = parsed->Shard(shard.index());
    if (bytes) {
      shard.Deliver(*bytes);
    } else {
      wrong = bytes.error();
    }
  }
  return wrong;
}

void ObjectStage::Read(const BlockId& block, std::span<ShardIo> shards) {
  const std::string name = NameOf(block);
  Status status;
  for (const bool last : {false, true}) {  // one flaky transfer is no verdict
    const Result<Object> object = Get(name);
    status = object ? Deliver(block, *object, shards) : object.error();
    if (status.ok()) return Trust(block);
    if (status.code != Code::kCorruption) break;
    if (last) {
      Suspect(block);
      log().Error([&] { return fmt::format("{}: {}", name, status.text()); });
    }
  }
  const Status named =
      Status::Error(status.code, fmt::format("{}: {}", name, status.text()), status.sys_errno);
  for (ShardIo& shard : shards) {
    if (!shard.ended()) shard.Fail(named);
  }
}

bool ObjectStage::Reserve(std::uint64_t bytes) noexcept {
  std::uint64_t held = incomplete_bytes_.load();
  do {
    if (held > 0 && held + bytes > traits_.max_incomplete_bytes) return false;
  } while (!incomplete_bytes_.compare_exchange_weak(held, held + bytes));
  return true;
}

void ObjectStage::Release(std::uint64_t bytes) noexcept { incomplete_bytes_.fetch_sub(bytes); }

void ObjectStage::Suspect(const BlockId& block) {
  const MutexLock lock(mutex_);
  if (suspects_.contains(block)) return;
  if (suspects_by_age_.size() >= kMaxSuspects) {
    suspects_.erase(suspects_by_age_.front());
    suspects_by_age_.pop_front();
  }
  suspects_by_age_.push_back(block);
  try {
    suspects_.insert(block);
  } catch (...) {  // out of memory: both or none
    suspects_by_age_.pop_back();
    throw;
  }
}

void ObjectStage::Trust(const BlockId& block) {
  const MutexLock lock(mutex_);
  if (suspects_.erase(block) == 0) return;  // nearly always
  std::erase(suspects_by_age_, block);
}

bool ObjectStage::IsSuspect(const BlockId& block) {
  const MutexLock lock(mutex_);
  return !suspects_.empty() && suspects_.contains(block);
}

}  // namespace ucmstore
