// A trace as classes and payloads.
//
// A class is what a user wants a figure for: the requests of one kind, kernel, model, size,
// priority and deadline, such as "attend clustered 128 high". The size is the tokens of all
// sequences, rounded up to a power of two; deadlines fall into classes by the next of 1, 2 and 5
// times a power of ten, and a class has the longest of its own. Where two classes would have the
// same name, their deadlines are part of it.
//
// Each distinct shape of a class (its sequences, heads, dimensions, dtype, the kernel's parameters)
// is a payload, with random contents of that shape. A class keeps 64 payloads, or as many as take
// 256 MiB; a further shape is sent as the payload with the nearest number of tokens, which the
// summary counts. Texts are replayed as texts of as many words as they had tokens, less the two
// special ones; those of which the bytes alone are known, as a word for every five.
#pragma once

#include <cstdint>

#include "client/load/schedule/schedule.h"
#include "client/load/workload/workload.h"

namespace castor::load {

struct ReplaySummary {
  int64_t requests = 0;      // of the trace
  int64_t approximated = 0;  // sent as another shape of about the same size ...
  double token_error = 0;    // ... whose tokens differ by this share, on average
  double seconds = 0;        // from the first request to the last, as recorded
};

// Reads the trace of `workload.load`, a Replay, and fills in the classes, and the duration where it
// is 0. Throws cli::UsageError.
Workload PrepareReplay(Workload workload, ReplaySummary* summary = nullptr);

// MakeSchedule for a prepared workload: reads the trace again. The first `warm_up` of the trace is
// the warm-up, and what would come after `duration` is left out. Throws cli::UsageError, also when
// the trace is not the one that the classes were made of.
Schedule ReplaySchedule(const Workload& workload, double verify_share);

}  // namespace castor::load
