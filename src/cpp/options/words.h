// SPDX-License-Identifier: Apache-2.0
//
// Words for errors: what a user wrote, quoted so that it can be read whatever is in it, and the
// name he probably meant. Pure functions; thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ucmstore {

// `text` in double quotes: control characters, quotes and what is not ASCII escaped, a long text
// without its middle.
[[nodiscard]] std::string Quote(std::string_view text);

// The names with ", " between them.
[[nodiscard]] std::string Join(std::span<const std::string> names);

// How far apart two names are: the insertions, deletions, changes and swaps of neighbours that turn
// one into the other, letter case and the separators _ - . and space left aside. A name that holds
// the other ("posix_capacity", "capacity"), or has a word like it ("storage_root", "roots"), is
// near. Looks at the first 64 characters.
[[nodiscard]] std::size_t NameDistance(std::string_view a, std::string_view b);

// The nearest of `names`, the first of equals; "" if none is near enough to have been meant.
[[nodiscard]] std::string_view Nearest(std::string_view wanted, std::span<const std::string> names);

// The end of an error: `; did you mean "capacity"?`, or "" if none of them can have been meant.
[[nodiscard]] std::string DidYouMean(std::string_view wanted, std::span<const std::string> names);

}  // namespace ucmstore
