// SPDX-License-Identifier: Apache-2.0
//
// PosixCounters: the figures of one open Posix store that no other part counts. Thread-safe.
#pragma once

#include "base/metrics.h"

namespace ucmstore {

struct PosixCounters {
  // How shard bytes moved: straight between the caller's memory and the disk; through aligned
  // bounce memory; through the page cache.
  Counter direct_bytes;
  Counter bounced_bytes;
  Counter buffered_bytes;
  Counter direct_fallbacks;  // transfers that direct I/O refused although it works here
  Counter footer_hits;
  Counter footer_misses;
  Counter rereads;           // blocks read again because something in them was wrong
  Counter set_aside;         // blocks judged corrupt twice and moved aside
  Counter put_back;          // blocks moved aside by mistake and put back
  Counter reaped;            // files of dead writers removed
  Counter lookup_timeouts;   // lookups that their deadline cut short
  Counter leftovers;         // own files that could not be removed
  Counter reclaimed_blocks;  // removed for their age, to make room
  Counter reclaimed_bytes;
  Counter reclaim_cycles;    // that came to their end; each measures, and sweeps if there is need
  Counter reclaim_failures;  // files that should have gone and could not be removed
  Counter reclaim_stalls;    // folders that took over half a minute
  Counter touched_blocks;    // whose times were set because they were used
};

}  // namespace ucmstore
