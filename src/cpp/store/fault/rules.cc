// SPDX-License-Identifier: Apache-2.0
//
// Reading rules, and asking them.
#include "store/fault/rules.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <charconv>
#include <string>

namespace ucmstore::fault {
namespace {

template <typename... Args>
Status Invalid(fmt::format_string<Args...> format, Args&&... args) {
  return Status::Error(Code::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...));
}

// "io_error" -> kIoError: CodeName with every other character an underscore ("i/o error").
std::optional<Code> ParseCode(std::string_view word) {
  for (std::int32_t i = 1; i <= static_cast<std::int32_t>(Code::kInternal); ++i) {
    const auto code = static_cast<Code>(i);
    std::string name;
    for (const char c : std::string_view(CodeName(code))) {
      if (c != '/') name += c == ' ' ? '_' : c;
    }
    if (name == word && code != Code::kPending) return code;
  }
  return std::nullopt;
}

template <typename Number>
bool ParseNumber(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

std::optional<Point> ParsePoint(std::string_view word) {
  if (word == "before") return Point::kBefore;
  if (word == "moving") return Point::kMoving;
  if (word == "after") return Point::kAfter;
  return std::nullopt;
}

struct KeyValue {
  std::string_view key;
  std::optional<std::string_view> value;
};

KeyValue Split(std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) return {word, std::nullopt};
  return {word.substr(0, equals), word.substr(equals + 1)};
}

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (end > 0) words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

}  // namespace

Status Rules::ParseAction(std::string_view word, Rule& rule) {
  const auto [key, value] = Split(word);
  struct Known {
    std::string_view word;
    Action action;
    enum : std::uint8_t { kNone, kCode, kNumber, kMaybeNumber } wants;
  };
  static constexpr Known kKnown[] = {{"refuse", Action::kRefuse, Known::kCode},
                                     {"fail", Action::kFail, Known::kCode},
                                     {"throw", Action::kThrow, Known::kNone},
                                     {"delay", Action::kDelay, Known::kNumber},
                                     {"hold", Action::kHold, Known::kNone},
                                     {"never", Action::kHold, Known::kNone},
                                     {"stuck", Action::kStuck, Known::kNone},
                                     {"flip", Action::kFlip, Known::kNone},
                                     {"short", Action::kShort, Known::kNumber},
                                     {"scribble", Action::kScribble, Known::kMaybeNumber}};
  const auto* known = std::ranges::find(kKnown, key, &Known::word);
  if (known == std::end(kKnown)) return Invalid("no action '{}'", key);
  rule.action = known->action;
  if (rule.action == Action::kRefuse) rule.code = Code::kBusy;
  if (!value) {
    return known->wants == Known::kNumber ? Invalid("'{}' wants a number: {}=N", key, key)
                                          : Status::Ok();
  }
  if (known->wants == Known::kNone) return Invalid("'{}' takes no value", key);
  if (known->wants == Known::kCode) {
    const std::optional<Code> code = ParseCode(*value);
    if (!code) return Invalid("no code '{}'; write it as in 'not_found', 'io_error'", *value);
    rule.code = *code;
    return Status::Ok();
  }
  return ParseNumber(*value, rule.value) ? Status::Ok() : Invalid("'{}' is no number", *value);
}

Status Rules::ParseKey(std::string_view word, Rule& rule) {
  const auto [key, value] = Split(word);
  if (!value) return Invalid("'{}' wants a value", key);
  bool good = true;
  if (key == "when") {
    rule.when = ParsePoint(*value);
    good = rule.when.has_value();
  } else if (key == "nth") {
    good = ParseNumber(*value, rule.nth) && rule.nth > 0;
  } else if (key == "every") {
    good = ParseNumber(*value, rule.every) && rule.every > 0;
  } else if (key == "count") {
    good = ParseNumber(*value, rule.count) && rule.count > 0;
  } else if (key == "shard") {
    good = ParseNumber(*value, rule.shard.emplace());
  } else if (key == "errno") {
    good = ParseNumber(*value, rule.sys_errno);
  } else if (key == "chance") {
    good = ParseNumber(*value, rule.chance) && rule.chance >= 0.0 && rule.chance <= 1.0;
  } else {
    return Invalid("no key '{}'", key);
  }
  return good ? Status::Ok() : Invalid("'{}' cannot be '{}'", key, *value);
}

Result<Rules::Rule> Rules::Parse(std::string_view text) {
  const auto failure = [text](std::string_view why) {
    return std::unexpected(Invalid("Fault: rule '{}': {}; the grammar is in rules.h", text, why));
  };
  const std::vector<std::string_view> words = Words(text);
  if (words.size() < 2) return failure("it wants a call and an action, as in 'load fail nth=2'");
  Rule rule;
  if (words[0] == "lookup") {
    rule.call = Call::kLookup;
  } else if (words[0] == "dump") {
    rule.call = Call::kDump;
  } else if (words[0] != "load") {
    return failure(fmt::format("no call '{}'", words[0]));
  }
  if (Status status = ParseAction(words[1], rule); !status.ok()) return failure(status.text());
  for (std::size_t i = 2; i < words.size(); ++i) {
    if (Status status = ParseKey(words[i], rule); !status.ok()) return failure(status.text());
  }
  const bool load_only = rule.action == Action::kFlip || rule.action == Action::kShort ||
                         rule.action == Action::kScribble;
  if (load_only && rule.call != Call::kLoad) return failure("only a load can suffer that");
  const bool lookup_can = rule.action == Action::kRefuse || rule.action == Action::kDelay ||
                          rule.action == Action::kHold;
  if (rule.call == Call::kLookup && !lookup_can) return failure("a lookup cannot suffer that");
  return rule;
}

Result<std::uint64_t> Rules::Add(std::string_view text) {
  Result<Rule> rule = Parse(text);
  if (!rule) return std::unexpected(rule.error());
  rule->id = rules_.size() + 1;
  rules_.push_back(*rule);
  return rule->id;
}

void Rules::Remove(std::uint64_t rule) {
  for (Rule& each : rules_) {
    if (rule == 0 || each.id == rule) each.armed = false;
  }
}

std::uint64_t Rules::Hits(std::uint64_t rule) const {
  return rule >= 1 && rule <= rules_.size() ? rules_[rule - 1].hits : 0;
}

bool Rules::Acts(Rule& rule) {
  ++rule.seen;
  if (rule.nth != 0 && rule.seen != rule.nth) return false;
  if (rule.every != 0 && rule.seen % rule.every != 0) return false;
  if (rule.count != 0 && rule.hits >= rule.count) return false;
  if (rule.chance < 1.0 && std::uniform_real_distribution<>(0.0, 1.0)(random_) >= rule.chance) {
    return false;
  }
  ++rule.hits;
  ++all_hits_;
  return true;
}

Status Rules::FailureOf(const Rule& rule) {
  return Status::Error(rule.code,
                       fmt::format("Fault: rule {} says {}", rule.id, CodeName(rule.code)),
                       rule.sys_errno);
}

std::optional<Status> Rules::Refusal(Call call) {
  for (Rule& rule : rules_) {
    if (!rule.armed || rule.call != call || rule.action != Action::kRefuse) continue;
    if (Acts(rule)) return FailureOf(rule);
  }
  return std::nullopt;
}

void Rules::Apply(const Rule& rule, Plan& plan) {
  const auto stop_at = [&](Point usual) -> Plan::Stop& {
    return plan.stops[static_cast<std::size_t>(rule.when.value_or(usual))];
  };
  switch (rule.action) {
    case Action::kRefuse: break;  // of the call, not of a shard
    case Action::kFail: stop_at(Point::kBefore).failure = FailureOf(rule); break;
    case Action::kThrow: plan.throws = true; break;
    case Action::kDelay: stop_at(Point::kBefore).delay_ms += rule.value; break;
    case Action::kHold: stop_at(Point::kMoving).hold_rule = rule.id; break;
    case Action::kStuck:
      stop_at(Point::kMoving).hold_rule = rule.id;
      stop_at(Point::kMoving).stuck = true;
      break;
    case Action::kFlip: plan.flips = true; break;
    case Action::kShort: plan.short_bytes += rule.value; break;
    case Action::kScribble: plan.scribble_ms = rule.value; break;
  }
}

Plan Rules::PlanFor(Call call, std::uint32_t shard) {
  Plan plan;
  for (Rule& rule : rules_) {
    if (!rule.armed || rule.call != call || rule.action == Action::kRefuse) continue;
    if (rule.shard && *rule.shard != shard) continue;
    if (Acts(rule)) Apply(rule, plan);
  }
  return plan;
}

}  // namespace ucmstore::fault
