// SPDX-License-Identifier: Apache-2.0
//
// Checking and completing. One path for values a user gave and for defaults of a table: a default
// is read as its type says (ParseOptionText) and then checked like any other.
#include "options/option_set.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "options/range.h"
#include "options/size.h"
#include "options/words.h"

namespace ucmstore {
namespace {

std::string TypeWords(OptionType type) {
  switch (type) {
    case OptionType::kBool: return "a bool";
    case OptionType::kInt: return "an integer";
    case OptionType::kFloat: return "a number";
    case OptionType::kSize: return "a size such as \"64KiB\" (or an integer: bytes)";
    case OptionType::kString: return "a text";
    case OptionType::kList: return "a list of texts";
  }
  return "nothing known";
}

struct InputWords {
  std::string operator()(bool) const { return "a bool"; }
  std::string operator()(std::int64_t) const { return "an integer"; }
  std::string operator()(double) const { return "a float"; }
  std::string operator()(const std::string&) const { return "a text"; }
  std::string operator()(const std::vector<std::string>&) const { return "a list"; }
};

struct InputValue {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const {
    char text[32];
    std::snprintf(text, sizeof(text), "%.17g", value);
    return text;
  }
  std::string operator()(const std::string& value) const { return Quote(value); }
  std::string operator()(const std::vector<std::string>& value) const {
    if (value.empty()) return "[]";
    return "[" + Quote(value.front()) + (value.size() > 1 ? ", ...]" : "]");
  }
};

// "posix: workers = 0: outside the allowed 1..1024"
Status Wrong(std::string_view stage, std::string_view key, const OptionInput& value,
             std::string_view rule) {
  std::string text(stage);
  text.append(": ").append(key).append(" = ").append(std::visit(InputValue{}, value));
  text.append(": ").append(rule);
  return Status::Error(Code::kInvalidArgument, text);
}

bool IsSnakeCase(const char* name) {
  if (name == nullptr || *name < 'a' || *name > 'z' || std::strlen(name) > 64) return false;
  for (const char* c = name; *c != '\0'; ++c) {
    const bool allowed = (*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '_';
    if (!allowed) return false;
  }
  return true;
}

std::vector<std::string> Names(std::span<const OptionSpecV1> table) {
  std::vector<std::string> names;
  for (const OptionSpecV1& spec : table) names.emplace_back(spec.name);
  return names;
}

Status UnknownOption(std::string_view stage, std::span<const OptionSpecV1> table,
                     std::string_view key, const OptionInput& value) {
  std::string text(stage);
  text += ": unknown option " + Quote(key) + " (= " + std::visit(InputValue{}, value) + ")";
  const std::vector<std::string> names = Names(table);
  if (names.empty()) {
    text += ": this stage has no options";
  } else {
    text += "; its options: " + Join(names) + DidYouMean(key, names);
  }
  return Status::Error(Code::kInvalidArgument, text);
}

// A value of the right type, wherever it came from.
struct Typed {
  std::int64_t integer = 0;
  double number = 0;
  std::string text;
  std::vector<std::string> list;
};

// Empty: it fits. `from_table`: bare digits are bytes there.
std::string FitSize(const OptionInput& input, bool from_table, const Range& range, Typed& out) {
  if (const auto* integer = std::get_if<std::int64_t>(&input)) {
    if (*integer < 0) return "a size cannot be negative";
    out.integer = *integer;
    return range.Check(out.integer);
  }
  const auto* text = std::get_if<std::string>(&input);
  if (text == nullptr) return "?";
  if (!range.word.empty() && *text == range.word) {
    out.integer = range.word_value;
    return {};
  }
  const Result<std::uint64_t> size = ParseSize(*text);
  if (!size) return std::string(size.error().text());
  if (!from_table && *size != 0 && IsBareNumber(*text)) {
    return "the unit is missing; write \"" + std::to_string(*size) + "B\" for bytes, or \"" +
           std::to_string(*size) + "GiB\"";
  }
  out.integer = static_cast<std::int64_t>(*size);
  return range.Check(out.integer);
}

std::string FitText(const std::string& text, const Range& range) {
  if (text.find('\0') != std::string::npos) return "not allowed: a NUL character is in it";
  return range.Check(std::string_view(text));
}

std::string FitList(const OptionInput& input, bool required, const Range& range, Typed& out) {
  if (const auto* text = std::get_if<std::string>(&input)) {
    out.list = {*text};
  } else if (const auto* list = std::get_if<std::vector<std::string>>(&input)) {
    out.list = *list;
  } else {
    return "?";
  }
  if (required && out.list.empty()) return "at least one entry is needed";
  for (const std::string& entry : out.list) {
    const std::string rule = FitText(entry, range);
    if (!rule.empty()) return Quote(entry) + " is " + rule;
  }
  return {};
}

// The rule that the value breaks; "" if it fits and `out` has it; "?" if its type is wrong.
std::string Fit(const OptionSpecV1& spec, const OptionInput& input, bool from_table,
                const Range& range, Typed& out) {
  switch (spec.type) {
    case OptionType::kBool:
      if (const auto* value = std::get_if<bool>(&input)) {
        out.integer = *value ? 1 : 0;
        return {};
      }
      return "?";
    case OptionType::kInt:
      if (const auto* value = std::get_if<std::int64_t>(&input)) {
        out.integer = *value;
        return range.Check(*value);
      }
      return "?";
    case OptionType::kFloat:
      if (const auto* value = std::get_if<double>(&input)) {
        out.number = *value;
      } else if (const auto* whole = std::get_if<std::int64_t>(&input)) {
        out.number = static_cast<double>(*whole);
      } else {
        return "?";
      }
      if (!std::isfinite(out.number)) return "not a finite number";
      return range.Check(out.number);
    case OptionType::kSize: return FitSize(input, from_table, range, out);
    case OptionType::kString:
      if (const auto* value = std::get_if<std::string>(&input)) {
        out.text = *value;
        return FitText(*value, range);
      }
      return "?";
    case OptionType::kList: return FitList(input, spec.default_text == nullptr, range, out);
  }
  return "?";
}

Status CheckSpec(std::string_view stage, const OptionSpecV1& spec) {
  const auto bad = [&](std::string_view what) {
    std::string text(stage);
    text += ": its plugin has a bad option table: option ";
    text += Quote(spec.name != nullptr ? spec.name : "");
    text.append(": ").append(what);
    return Status::Error(Code::kInternal, text);
  };
  if (!IsSnakeCase(spec.name)) return bad("the name is not snake_case");
  if (static_cast<std::uint32_t>(spec.type) > static_cast<std::uint32_t>(OptionType::kList)) {
    return bad("the type is unknown");
  }
  if (spec.flags != 0) return bad("its flags are unknown to this release");
  if (spec.help == nullptr) return bad("the help is missing");
  const Result<Range> range = Range::Parse(spec.type, spec.range);
  if (!range) return bad("range " + Quote(spec.range) + ": " + std::string(range.error().text()));
  if (spec.default_text == nullptr) return Status::Ok();
  const Result<OptionInput> value = ParseOptionText(stage, spec, spec.default_text);
  Typed typed;
  const std::string rule =
      value ? Fit(spec, *value, true, *range, typed) : std::string("not ") + TypeWords(spec.type);
  if (!rule.empty()) return bad("default " + Quote(spec.default_text) + ": " + rule);
  return Status::Ok();
}

}  // namespace

const char* OptionTypeName(OptionType type) noexcept {
  switch (type) {
    case OptionType::kBool: return "bool";
    case OptionType::kInt: return "int";
    case OptionType::kFloat: return "float";
    case OptionType::kSize: return "size";
    case OptionType::kString: return "string";
    case OptionType::kList: return "list";
  }
  return "unknown";
}

Status CheckOptionTable(std::string_view stage, std::span<const OptionSpecV1> table) {
  std::set<std::string_view> seen;
  for (const OptionSpecV1& spec : table) {
    const Status status = CheckSpec(stage, spec);
    if (!status.ok()) return status;
    if (!seen.insert(spec.name).second) {
      return Status::Error(Code::kInternal, std::string(stage) + ": its plugin lists option " +
                                                Quote(spec.name) + " twice");
    }
  }
  return Status::Ok();
}

Result<OptionInput> ParseOptionText(std::string_view stage, const OptionSpecV1& spec,
                                    std::string_view text) {
  const auto wrong = [&](std::string_view rule) {
    return std::unexpected(Wrong(stage, spec.name, std::string(text), rule));
  };
  switch (spec.type) {
    case OptionType::kBool:
      if (text == "true") return true;
      if (text == "false") return false;
      return wrong("a bool is true or false");
    case OptionType::kInt: {
      const Result<std::int64_t> value = ParseInt(text);
      if (!value) return wrong(value.error().text());
      return *value;
    }
    case OptionType::kFloat: {
      const Result<double> value = ParseFloat(text);
      if (!value) return wrong(value.error().text());
      return *value;
    }
    case OptionType::kList:
      if (text.empty()) return std::vector<std::string>{};
      return std::vector<std::string>{std::string(text)};
    case OptionType::kSize:
    case OptionType::kString: break;
  }
  return std::string(text);
}

Status OptionSet::Add(std::string_view stage, const OptionSpecV1& spec, const OptionInput* given) {
  const Result<Range> range = Range::Parse(spec.type, spec.range);
  if (!range) return range.error();
  OptionInput input;
  if (given != nullptr) {
    input = *given;
  } else {
    if (spec.default_text == nullptr) {
      std::string text(stage);
      text.append(": option ").append(Quote(spec.name)).append(" must be given (");
      text.append(TypeWords(spec.type)).append("): ").append(spec.help);
      return Status::Error(Code::kInvalidArgument, text);
    }
    Result<OptionInput> value = ParseOptionText(stage, spec, spec.default_text);
    if (!value) return value.error();
    input = *std::move(value);
  }
  Typed typed;
  const std::string rule = Fit(spec, input, given == nullptr, *range, typed);
  if (rule == "?") {
    return Wrong(stage, spec.name, input,
                 std::visit(InputWords{}, input) + " was given, wanted is " + TypeWords(spec.type));
  }
  if (!rule.empty()) return Wrong(stage, spec.name, input, rule);

  Owned& owned = owned_.emplace_back(std::move(typed.text), std::move(typed.list));
  for (const std::string& entry : owned.list) owned.pointers.push_back(entry.c_str());
  values_.push_back({.name = spec.name,
                     .type = spec.type,
                     .is_default = given == nullptr ? 1U : 0U,
                     .integer = typed.integer,
                     .number = typed.number,
                     .text = owned.text.c_str(),
                     .list = owned.pointers.data(),
                     .list_count = owned.pointers.size()});
  return Status::Ok();
}

Result<OptionSet> OptionSet::Complete(std::string_view stage, std::span<const OptionSpecV1> table,
                                      const OptionMap& given) {
  Status status = CheckOptionTable(stage, table);
  if (!status.ok()) return std::unexpected(status);
  for (const auto& [key, value] : given) {
    bool known = false;
    for (const OptionSpecV1& spec : table) known = known || key == spec.name;
    if (!known) return std::unexpected(UnknownOption(stage, table, key, value));
  }
  OptionSet set;
  for (const OptionSpecV1& spec : table) {
    const auto found = given.find(spec.name);
    status = set.Add(stage, spec, found == given.end() ? nullptr : &found->second);
    if (!status.ok()) return std::unexpected(status);
  }
  return set;
}

std::vector<std::string> OptionSet::List(std::string_view name) const {
  const OptionValueV1& value = At(name);
  return {value.list, value.list + value.list_count};
}

const OptionValueV1& OptionSet::At(std::string_view name) const {
  for (const OptionValueV1& value : values_) {
    if (name == value.name) return value;
  }
  std::abort();  // a name that is not in the caller's own table
}

}  // namespace ucmstore
