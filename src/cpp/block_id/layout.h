// SPDX-License-Identifier: Apache-2.0
//
// Layout: how the KV of one model is cut over the ranks of a deployment, and what of that belongs
// into identity. The sizes that change bytes go into the namespace; a rank goes into the tag of
// Namespace::Derive, unless a block spans the ranks, when it chooses the shard index. Scheduler and
// workers both ask here, so they cannot disagree. Immutable; thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/result.h"
#include "ucmstore/types.h"

namespace ucmstore {

// How many ranks, or which one: tensor, pipeline and context parallel.
struct Ranks {
  std::uint32_t tensor = 0;
  std::uint32_t pipeline = 0;
  std::uint32_t context = 0;
};

class UCMSTORE_EXPORT Layout {
 public:
  // `sizes`: each at least 1. `tensor_replicated`: all tensor parallel ranks hold the same bytes
  // (MLA), so their number and theirs alone leaves no trace, and deployments of any number share.
  [[nodiscard]] static Result<Layout> Make(const Ranks& sizes, bool tensor_replicated = false);

  // Adds "tp" (its size, or "replicated"), "pp" and "cp" to the fields of a namespace. Refuses to
  // overwrite a field that says something else.
  [[nodiscard]] Status AddTo(std::map<std::string, std::string>& fields) const;

  // The tag of one rank: "tp1 pp0 cp0", or "pp0 cp0" if the tensor parallel ranks are replicas.
  // Refuses a rank that is not below its size.
  [[nodiscard]] Result<std::string> Tag(const Ranks& rank) const;

 private:
  Layout(const Ranks& sizes, bool tensor_replicated)
      : sizes_(sizes), tensor_replicated_(tensor_replicated) {}
  Ranks sizes_;
  bool tensor_replicated_;
};

}  // namespace ucmstore
