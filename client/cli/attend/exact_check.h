// Exact attention in double precision, by plain loops: the reference that `castor attend` checks
// answers to random problems against. It shares no code with the engine on purpose.
#pragma once

#include <cstdint>
#include <string>

#include "castor/v1/attention.pb.h"

namespace castor::cli {

// How the answer's output contradicts the request; empty if it does not. Call this before reading
// the output: the peer may not be a castor-server.
std::string FindMismatch(const v1::AttendRequest& request, const v1::AttendResponse& answer);

struct CheckResult {
  double relative_error = 0;  // ||answer - exact||_2 / ||exact||_2 over the rows checked
  int64_t rows_checked = 0;   // a row is one head of one query
  int64_t rows = 0;
  bool finite = true;  // every value checked is finite
};

// Compares the answer with softmax(scale * Q K^T) V, whatever kernel the request names (only
// `vanilla.causal` counts), on rows spread evenly over the output: as many as `max_operations`
// multiply-adds allow, at least one. REQUIRES a random problem of MakeProblem, and an answer
// without a mismatch.
CheckResult CheckExactly(const v1::AttendRequest& request, const v1::AttendResponse& answer,
                         int64_t max_operations);

// The relative error that a correct exact kernel stays below, by storage type.
double ExactTolerance(v1::DataType dtype);

}  // namespace castor::cli
