// The kernels that the automatic kernel chooses from, with the parameters it gives them, and which
// of them are worth trying before which.
//
// Pure functions of their arguments; any thread may call them.
#pragma once

#include <span>
#include <vector>

#include "engine/request.h"

namespace castor::attention {

// Whether a kernel approximates vanilla, so that its error can be measured. CAST does not: it is a
// different function.
bool IsApproximate(KernelName kernel);

// One kernel that may answer.
struct Rung {
  Kernel kernel;            // with its parameters
  double predicted_us = 0;  // 0: the model does not know
};

// A rung before it is chosen.
struct Candidate {
  Rung rung;
  double cost_us = 0;  // of the run and the estimate of its error; infinite if it is not known
};

// How much an approximation loses in proportion to other ones; 0 for exact attention. Inputs differ
// by far more than kernels do, so this says nothing of an error, but orders the rungs, and tells
// from the error of one what to expect of another.
double LossOf(const Kernel& kernel);

// Every kernel with every set of parameters that `allowed` (empty: all) leaves, most exact first.
// Among them are options beyond the paper, which not every device has (CheckOption).
std::vector<Kernel> KernelsToChooseFrom(std::span<const KernelName> allowed);

// The candidates to try, cheapest first, of those given, most exact first. The first of these is
// always among them. Another is tried before the one after it if it costs at most half of it, since
// its time is lost if its error turns out too large. So all approximations together cost no more
// than the most exact candidate, whatever their errors are, and a request no more than twice that.
std::vector<Rung> RungsThatPay(std::span<const Candidate> candidates);

}  // namespace castor::attention
