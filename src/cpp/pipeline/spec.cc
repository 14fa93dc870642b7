// SPDX-License-Identifier: Apache-2.0
//
// The parser of specs: cut at the bars, then look at each piece.
#include "pipeline/spec.h"

#include <algorithm>
#include <map>

#include "options/words.h"

namespace ucmstore {
namespace {

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsNameCharacter(char c) { return IsLetter(c) || (c >= '0' && c <= '9'); }
bool IsSchemeCharacter(char c) { return IsNameCharacter(c) || c == '+' || c == '-' || c == '.'; }
bool IsSpace(char c) { return c == ' ' || c == '\t'; }
bool IsUrlCharacter(char c) { return c > ' ' && c < '\x7F' && c != '|'; }

std::unexpected<Status> Wrong(std::size_t column, std::string_view rule) {
  return Failure(Code::kInvalidArgument,
                 "spec column " + std::to_string(column) + ": " + std::string(rule));
}

// The piece begins with `scheme://`.
bool LooksLikeUrl(std::string_view piece) {
  const std::size_t colon = piece.find("://");
  if (colon == std::string_view::npos || colon == 0 || !IsLetter(piece[0])) return false;
  return std::ranges::all_of(piece.substr(0, colon), IsSchemeCharacter);
}

Result<SpecStage> ParseUrl(std::string_view piece, std::size_t column, bool is_last) {
  if (!is_last) return Wrong(column, "a url (" + Quote(piece) + ") may only be the last stage");
  const auto bad = std::ranges::find_if_not(piece, IsUrlCharacter);
  if (bad != piece.end()) {
    const auto offset = static_cast<std::size_t>(bad - piece.begin());
    return Wrong(column + offset, Quote(piece.substr(offset, 1)) + " cannot be in a url");
  }
  if (piece.ends_with("://")) return Wrong(column, Quote(piece) + " names nothing after ://");
  return SpecStage{.name = std::string(piece),
                   .column = static_cast<std::uint32_t>(column),
                   .is_url = true,
                   .label = {}};
}

Result<SpecStage> ParsePiece(std::string_view piece, std::size_t column, bool is_last) {
  while (!piece.empty() && IsSpace(piece.front())) {
    piece.remove_prefix(1);
    ++column;
  }
  while (!piece.empty() && IsSpace(piece.back())) piece.remove_suffix(1);
  if (piece.empty()) {
    return Wrong(column, "a stage is missing; a spec looks like \"Cache|Posix\"");
  }
  if (LooksLikeUrl(piece)) return ParseUrl(piece, column, is_last);
  const auto bad = std::ranges::find_if_not(piece, IsNameCharacter);
  if (bad != piece.end() || !IsLetter(piece[0])) {
    const std::size_t offset =
        IsLetter(piece[0]) ? static_cast<std::size_t>(bad - piece.begin()) : 0;
    return Wrong(column + offset,
                 "stage " + Quote(piece) + ": " + Quote(piece.substr(offset, 1)) +
                     " cannot be here; a name is a letter, then letters or digits");
  }
  if (piece.size() > kMaxStageName) {
    return Wrong(column, "stage " + Quote(piece) + " has more than " +
                             std::to_string(kMaxStageName) + " characters");
  }
  return SpecStage{.name = std::string(piece),
                   .column = static_cast<std::uint32_t>(column),
                   .is_url = false,
                   .label = {}};
}

void Label(std::vector<SpecStage>& stages) {
  std::map<std::string, int> seen;
  for (SpecStage& stage : stages) {
    const std::string scheme = stage.name.substr(0, stage.name.find("://"));
    stage.label = LowerCase(stage.is_url ? scheme : stage.name);
    const int count = ++seen[stage.label];
    if (count > 1) stage.label += "#" + std::to_string(count);
  }
}

}  // namespace

Result<std::vector<SpecStage>> ParseSpec(std::string_view spec) {
  if (spec.size() > kMaxSpecLength) {
    return Wrong(kMaxSpecLength + 1,
                 "a spec has at most " + std::to_string(kMaxSpecLength) + " characters");
  }
  std::vector<SpecStage> stages;
  std::size_t begin = 0;
  while (true) {
    const std::size_t bar = spec.find('|', begin);
    const bool is_last = bar == std::string_view::npos;
    if (stages.size() == kMaxStages) {
      return Wrong(begin + 1, "a spec has at most " + std::to_string(kMaxStages) + " stages");
    }
    Result<SpecStage> stage = ParsePiece(spec.substr(begin, bar - begin), begin + 1, is_last);
    if (!stage) return std::unexpected(stage.error());
    stages.push_back(*std::move(stage));
    if (is_last) break;
    begin = bar + 1;
  }
  Label(stages);
  return stages;
}

std::string SpecPosition(const SpecStage& stage) {
  return "spec column " + std::to_string(stage.column) + ", stage " + Quote(stage.name);
}

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

}  // namespace ucmstore
