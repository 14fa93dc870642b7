// SPDX-License-Identifier: Apache-2.0
//
// Fields and tags of a layout, made in one place. See layout.h.
#include "block_id/layout.h"

#include <array>
#include <string_view>
#include <utility>

namespace ucmstore {
namespace {

struct Dimension {
  std::string_view name;  // in fields and tags
  std::uint32_t Ranks::* member;
};
constexpr std::array<Dimension, 3> kDimensions = {
    {{"tp", &Ranks::tensor}, {"pp", &Ranks::pipeline}, {"cp", &Ranks::context}}};

bool IsTensor(const Dimension& dimension) { return dimension.member == &Ranks::tensor; }

}  // namespace

Result<Layout> Layout::Make(const Ranks& sizes, bool tensor_replicated) {
  for (const Dimension& dimension : kDimensions) {
    if (sizes.*dimension.member == 0) {
      return Failure(Code::kInvalidArgument, "layout: the size of " + std::string(dimension.name) +
                                                 " is 0, must be at least 1");
    }
  }
  return Layout(sizes, tensor_replicated);
}

Status Layout::AddTo(std::map<std::string, std::string>& fields) const {
  std::map<std::string, std::string> added;
  for (const Dimension& dimension : kDimensions) {
    std::string value = tensor_replicated_ && IsTensor(dimension)
                            ? "replicated"
                            : std::to_string(sizes_.*dimension.member);
    const auto [place, is_new] = fields.try_emplace(std::string(dimension.name), value);
    if (!is_new && place->second != value) {
      for (const auto& [name, unused] : added) fields.erase(name);
      return Status::Error(Code::kInvalidArgument,
                           "layout: the namespace has " + place->first + " = \"" + place->second +
                               "\" already, the layout says \"" + value + "\"");
    }
    if (is_new) added.emplace(dimension.name, std::move(value));
  }
  return Status::Ok();
}

Result<std::string> Layout::Tag(const Ranks& rank) const {
  std::string tag;
  for (const Dimension& dimension : kDimensions) {
    const std::uint32_t size = sizes_.*dimension.member;
    const std::uint32_t value = rank.*dimension.member;
    const bool replicated = tensor_replicated_ && IsTensor(dimension);
    if (value >= size) {
      return Failure(Code::kInvalidArgument, "layout: rank " + std::string(dimension.name) +
                                                 " is " + std::to_string(value) +
                                                 ", must be below its size, " +
                                                 std::to_string(size));
    }
    if (replicated) continue;
    if (!tag.empty()) tag += ' ';
    tag += dimension.name;
    tag += std::to_string(value);
  }
  return tag;
}

}  // namespace ucmstore
