// SPDX-License-Identifier: Apache-2.0
//
// Rules: which calls and shards a Fault stage spoils, and how. A rule is one line of text:
//
//   rule    = call action { key "=" value }
//   call    = "lookup" | "load" | "dump"
//   action  = "refuse" ["=" code]   the call itself fails (default busy); a lookup likewise
//           | "fail" ["=" code]     the shard ends with the code (default io_error)
//           | "throw"               a worker throws: the shard ends with internal_error
//           | "delay=" MS           the shard, or lookup, takes so much longer
//           | "hold"                until released, or the store closes
//           | "stuck"               the same, but not even Close frees it
//           | "never"               another word for hold
//           | "flip"                load: one byte of the destination is wrong
//           | "short=" BYTES        load: fewer bytes are reported
//           | "scribble" ["=" MS]   load: the destination is overwritten once the task has ended:
//                                   while Wait retires it, or MS later (it must live so long)
//   key     = "when"    before (default of delay, fail: not begun, so a deadline or cancel ends
//   it),
//                       moving (default of hold, never, stuck: begun; below knows nothing yet),
//                       after (done below, not yet known above)
//           | "nth"     only the nth match counts       | "every"   only every nth match
//           | "count"   acts at most so often           | "shard"   only shards of this index
//           | "chance"  acts with this probability      | "errno"   of a failure
//
// A code is written as in CodeName, with underscores: not_found, io_error. Not synchronised.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ucmstore::fault {

enum class Call : std::uint8_t { kLookup, kLoad, kDump };
enum class Point : std::uint8_t { kBefore = 0, kMoving = 1, kAfter = 2 };
inline constexpr std::size_t kPoints = 3;

// What happens to one shard, or lookup: the rules that matched it, put together.
struct Plan {
  struct Stop {
    std::uint32_t delay_ms = 0;
    std::uint64_t hold_rule = 0;  // 0: not held
    bool stuck = false;
    std::optional<Status> failure;
  };
  std::array<Stop, kPoints> stops;
  bool throws = false;
  bool flips = false;
  std::uint32_t short_bytes = 0;
  std::optional<std::uint32_t> scribble_ms;  // 0: while Wait retires it

  [[nodiscard]] const Stop& at(Point point) const { return stops[static_cast<std::size_t>(point)]; }
};

class Rules {
 public:
  explicit Rules(std::uint64_t seed) : random_(seed) {}

  [[nodiscard]] Result<std::uint64_t> Add(std::string_view text);
  void Remove(std::uint64_t rule);  // 0: all
  [[nodiscard]] std::uint64_t Hits(std::uint64_t rule) const;
  [[nodiscard]] std::uint64_t AllHits() const noexcept { return all_hits_; }

  // The failure of the call itself, if a rule says so.
  [[nodiscard]] std::optional<Status> Refusal(Call call);
  // Asked once for each shard, in order, and once for each lookup (shard 0).
  [[nodiscard]] Plan PlanFor(Call call, std::uint32_t shard);

 private:
  enum class Action : std::uint8_t {
    kRefuse,
    kFail,
    kThrow,
    kDelay,
    kHold,
    kStuck,
    kFlip,
    kShort,
    kScribble
  };
  struct Rule {
    std::uint64_t id = 0;
    Call call = Call::kLoad;
    Action action = Action::kFail;
    std::optional<Point> when;
    std::uint32_t value = 0;
    Code code = Code::kIoError;
    std::int32_t sys_errno = 0;
    std::uint64_t nth = 0;
    std::uint64_t every = 0;
    std::uint64_t count = 0;
    std::optional<std::uint32_t> shard;
    double chance = 1.0;
    std::uint64_t seen = 0;
    std::uint64_t hits = 0;
    bool armed = true;
  };
  [[nodiscard]] static Result<Rule> Parse(std::string_view text);
  [[nodiscard]] static Status ParseAction(std::string_view word, Rule& rule);
  [[nodiscard]] static Status ParseKey(std::string_view word, Rule& rule);
  [[nodiscard]] static Status FailureOf(const Rule& rule);
  static void Apply(const Rule& rule, Plan& plan);
  [[nodiscard]] bool Acts(Rule& rule);

  std::vector<Rule> rules_;  // those disarmed stay, for Hits
  std::mt19937_64 random_;
  std::uint64_t all_hits_ = 0;
};

}  // namespace ucmstore::fault
