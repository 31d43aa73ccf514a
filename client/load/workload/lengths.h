// Draws of a Length.
#pragma once

#include <cstdint>

#include "client/load/workload/random.h"
#include "client/load/workload/workload.h"

namespace castor::load {

// At least 1. Equal states of `random` give equal lengths, on every machine.
int64_t Draw(const Length& length, Random& random);

// The mean of Draw. Exact, rounding and cutting included.
double Mean(const Length& length);

// The greatest that Draw can return.
int64_t Greatest(const Length& length);

}  // namespace castor::load
