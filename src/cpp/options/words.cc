// SPDX-License-Identifier: Apache-2.0
//
// Quoting, and the distance between names.
#include "options/words.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace ucmstore {
namespace {

constexpr std::size_t kMaxQuoted = 48;
constexpr std::size_t kMaxCompared = 64;

void AppendEscaped(std::string& out, std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte >= 0x20 && byte < 0x7F) {
      out += c;
    } else {
      out += "\\x";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
}

bool IsSeparator(char c) { return c == '_' || c == '-' || c == '.' || c == ' '; }

// Its words, in lower case (ASCII: names are), of the first kMaxCompared characters.
std::vector<std::string> WordsOf(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : name.substr(0, kMaxCompared)) {
    if (IsSeparator(c)) {
      if (!words.back().empty()) words.emplace_back();
    } else {
      words.back() += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
  }
  return words;
}

std::string Together(const std::vector<std::string>& words) {
  return std::accumulate(words.begin(), words.end(), std::string());
}

// Optimal string alignment (Levenshtein's distance and swaps of neighbours).
std::size_t Edits(const std::string& x, const std::string& y) {
  // One row for each prefix of x: row[j] is the distance to the first j characters of y.
  std::vector<std::size_t> before(y.size() + 1);
  std::vector<std::size_t> above(y.size() + 1);
  std::vector<std::size_t> row(y.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= x.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= y.size(); ++j) {
      const std::size_t change = above[j - 1] + (x[i - 1] == y[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, change});
      const bool swapped = i > 1 && j > 1 && x[i - 1] == y[j - 2] && x[i - 2] == y[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(above);
    above.swap(row);
  }
  return above[y.size()];
}

}  // namespace

std::string Quote(std::string_view text) {
  std::string out = "\"";
  if (text.size() <= kMaxQuoted) {
    AppendEscaped(out, text);
  } else {
    AppendEscaped(out, text.substr(0, kMaxQuoted / 2));
    out += "...";
    AppendEscaped(out, text.substr(text.size() - kMaxQuoted / 2));
  }
  out += '"';
  return out;
}

std::string Join(std::span<const std::string> names) {
  std::string out;
  for (const std::string& name : names) {
    if (!out.empty()) out += ", ";
    out += name;
  }
  return out;
}

std::size_t NameDistance(std::string_view a, std::string_view b) {
  constexpr std::size_t kLeastPart = 3;  // shorter ones are in everything
  constexpr std::size_t kForPart = 2;    // what it costs that only a part is like the other
  const std::vector<std::string> a_words = WordsOf(a);
  const std::vector<std::string> b_words = WordsOf(b);
  const std::string x = Together(a_words);
  const std::string y = Together(b_words);
  std::size_t distance = Edits(x, y);
  const std::string& inner = x.size() < y.size() ? x : y;
  const std::string& outer = x.size() < y.size() ? y : x;
  if (inner.size() >= kLeastPart && outer.find(inner) != std::string::npos) {
    distance = std::min(distance, kForPart);
  }
  for (const std::string& word : a_words) {
    if (word.size() >= kLeastPart) distance = std::min(distance, kForPart + Edits(word, y));
  }
  for (const std::string& word : b_words) {
    if (word.size() >= kLeastPart) distance = std::min(distance, kForPart + Edits(word, x));
  }
  return distance;
}

std::string_view Nearest(std::string_view wanted, std::span<const std::string> names) {
  std::string_view best;
  std::size_t best_distance = 0;
  for (const std::string& name : names) {
    const std::size_t distance = NameDistance(wanted, name);
    if (best.empty() || distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  // A quarter of the letters wrong, and one: beyond that two names have nothing to do with another.
  const std::size_t letters = std::min(std::max(wanted.size(), best.size()), kMaxCompared);
  return best_distance <= 1 + letters / 4 ? best : std::string_view();
}

std::string DidYouMean(std::string_view wanted, std::span<const std::string> names) {
  const std::string_view nearest = Nearest(wanted, names);
  return nearest.empty() ? std::string() : "; did you mean " + Quote(nearest) + "?";
}

}  // namespace ucmstore
