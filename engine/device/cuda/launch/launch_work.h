// How much work a launch of attention is: plain operations, so that the parts of a launch add up to
// the whole. forecast/cost_terms.cc counts as the CPU cuts its work.
//
// Pure; any thread may call it.
#pragma once

#include <cstdint>

#include "engine/attention/problem.h"

namespace castor {

// Millions of multiply-adds, roughly, that one sequence takes. With a causal mask the queries are
// the last of those that the keys belong to. Grows with the queries. Never wraps: it is a double.
double LaunchWork(const attention::Spec& spec, int64_t queries, int64_t keys);

}  // namespace castor
