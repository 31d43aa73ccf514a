// The work of a launch of attention in plain operations, so that the parts of a launch add up to
// the whole. forecast/cost_terms.cc counts as the CPU cuts its work.
//
// Pure; any thread may call it.
#pragma once

#include <cstdint>

#include "engine/attention/problem.h"
#include "engine/base/dtype.h"

namespace castor {

// Millions of multiply-adds, roughly, that one sequence takes. With a causal mask the queries are
// the last of those that the keys belong to. Grows with the queries. Never wraps: it is a double.
double LaunchWork(const attention::Spec& spec, int64_t queries, int64_t keys);

// The work that takes `us` microseconds at a rate which every served GPU reaches. Launches are
// shorter on a faster GPU; they queue behind one another, so it does not idle.
double LaunchWorkIn(double us, DType dtype);

}  // namespace castor
