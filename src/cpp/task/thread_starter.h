// SPDX-License-Identifier: Apache-2.0
//
// Starting the runtime's threads: one seam to the kernel for all of them, so that a test can be the
// machine on which no thread is to be had. A thread of ours blocks all signals: Ctrl-C and its kind
// belong to the application's own. Thread-safe.
#pragma once

#include <functional>
#include <string_view>
#include <thread>

#include "base/result.h"

namespace ucmstore {

// Starts a thread that runs the function. Throws std::system_error where it cannot, as std::thread
// does. Empty: std::thread.
using ThreadStarter = std::function<std::thread(std::function<void()>)>;

// Starts one with all signals blocked. 0 or the errno: EAGAIN where a limit was hit, ENOMEM.
[[nodiscard]] int StartThread(const ThreadStarter& starter, std::function<void()> function,
                              std::thread* thread) noexcept;

// The words for such an errno: "no <what> could be started: <errno's text>; <limits, what to do>".
[[nodiscard]] Status NoThreadStatus(std::string_view what, int error) noexcept;

}  // namespace ucmstore
