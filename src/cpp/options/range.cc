// SPDX-License-Identifier: Apache-2.0
//
// Parsing ranges, and the words for what lies outside.
#include "options/range.h"

#include <charconv>
#include <cmath>

#include "options/size.h"
#include "options/words.h"

namespace ucmstore {
namespace {

std::unexpected<Status> Refuse(std::string_view rule) {
  return Failure(Code::kInvalidArgument, rule);
}

Result<std::int64_t> ParseBound(OptionType type, std::string_view text) {
  if (type == OptionType::kInt) return ParseInt(text);
  const Result<std::uint64_t> size = ParseSize(text);
  if (!size) return std::unexpected(size.error());
  return static_cast<std::int64_t>(*size);
}

Status ParseBounds(Range& range) {
  std::string_view text = range.text;
  const std::size_t bar = text.find('|');
  if (bar != std::string_view::npos && range.type == OptionType::kSize) {
    range.word = text.substr(0, bar);
    text.remove_prefix(bar + 1);
  }
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) {
    return Status::Error(Code::kInvalidArgument, "the range is not of the form MIN..MAX");
  }
  const std::string_view low = text.substr(0, dots);
  const std::string_view high = text.substr(dots + 2);
  bool ordered = false;
  if (range.type == OptionType::kFloat) {
    const Result<double> min = ParseFloat(low);
    const Result<double> max = ParseFloat(high);
    if (!min) return min.error();
    if (!max) return max.error();
    range.min_number = *min;
    range.max_number = *max;
    ordered = *min <= *max;
  } else {
    const Result<std::int64_t> min = ParseBound(range.type, low);
    const Result<std::int64_t> max = ParseBound(range.type, high);
    if (!min) return min.error();
    if (!max) return max.error();
    range.min = *min;
    range.max = *max;
    ordered = *min <= *max;
  }
  if (!ordered) return Status::Error(Code::kInvalidArgument, "the range ends before it begins");
  if (bar != std::string_view::npos && range.word.empty()) {
    return Status::Error(Code::kInvalidArgument, "the range has an empty word");
  }
  range.word_value = range.min > 0 ? 0 : -1;
  return Status::Ok();
}

Status ParseWords(Range& range) {
  std::string_view rest = range.text;
  while (true) {
    const std::size_t bar = rest.find('|');
    const std::string_view word = rest.substr(0, bar);
    if (word.empty()) {
      return Status::Error(Code::kInvalidArgument, "the range has an empty word");
    }
    range.words.emplace_back(word);
    if (bar == std::string_view::npos) return Status::Ok();
    rest.remove_prefix(bar + 1);
  }
}

}  // namespace

Result<Range> Range::Parse(OptionType type, const char* text) {
  Range range;
  range.type = type;
  if (text == nullptr || *text == '\0') return range;
  range.text = text;
  range.bounded = true;
  if (type == OptionType::kBool) return Refuse("a bool has no range");
  const bool of_words = type == OptionType::kString || type == OptionType::kList;
  const Status status = of_words ? ParseWords(range) : ParseBounds(range);
  if (!status.ok()) return std::unexpected(status);
  return range;
}

std::string Range::Check(std::int64_t value) const {
  if (!bounded || (value >= min && value <= max)) return {};
  return "outside the allowed " + text;
}

std::string Range::Check(double value) const {
  if (!bounded || (value >= min_number && value <= max_number)) return {};
  return "outside the allowed " + text;
}

std::string Range::Check(std::string_view value) const {
  if (!bounded) return {};
  for (const std::string& allowed : words) {
    if (allowed == value) return {};
  }
  return "not one of " + text + DidYouMean(value, words);
}

Result<std::int64_t> ParseInt(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) return Refuse("more than 64 bits");
  if (error != std::errc{} || end != text.data() + text.size()) return Refuse("not an integer");
  return value;
}

Result<double> ParseFloat(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) {
    return Refuse("not a finite number");
  }
  return value;
}

}  // namespace ucmstore
