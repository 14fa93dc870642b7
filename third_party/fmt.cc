// SPDX-License-Identifier: Apache-2.0
//
// The one place where the bodies of fmt are compiled, and where those of its templates that the
// other files only declare are made for char.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

template thousands_sep_result<char> thousands_sep_impl<char>(locale_ref);
template char decimal_point_impl<char>(locale_ref);

}  // namespace detail
FMT_END_NAMESPACE
