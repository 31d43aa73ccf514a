// Exact attention in double precision, by plain loops: the reference of `castor attend --check`. It
// is independent of the engine on purpose.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "castor/v1/attention.pb.h"

namespace castor::cli {

// What keeps `answer` from being one to the request, naming the part; empty if nothing does.
// Nothing of its tensors may be read before: who sent it may be no castor-server.
std::string FindMisfit(const v1::AttendRequest& request, const v1::AttendResponse& answer);

struct CheckResult {
  double relative_error = 0;  // ||answer - exact||_2 / ||exact||_2 over the rows checked
  int64_t rows_checked = 0;   // a row is one head of one query
  int64_t rows = 0;
  bool finite = true;  // every value checked is a number
  // If the request asked for it: the greatest |answer - exact| / max(1, |exact|) of log_sum_exp.
  std::optional<double> log_sum_exp_error;
};

// Recomputes softmax(scale * Q K^T) V of the request's own tensors, and its log-sum-exp, whatever
// kernel it names (only `vanilla.causal` counts), for rows spread evenly over the output: as many
// as `max_operations` multiply-adds allow, at least one. REQUIRES: it has no positions, softcap or
// biases. nullopt with `problem` set when request and answer do not fit.
std::optional<CheckResult> CheckExactly(const v1::AttendRequest& request,
                                        const v1::AttendResponse& response, int64_t max_operations,
                                        std::string* problem);

// The relative error that a correct exact kernel stays below, by storage type.
double ExactTolerance(v1::DataType dtype);

}  // namespace castor::cli
