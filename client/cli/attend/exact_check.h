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
// kernel it names (only `vanilla.causal` counts), with its positions, softcap and key_bias, for
// rows spread evenly over the output: as many as `max_operations` multiply-adds allow, at least
// one. nullopt with `problem` set when request and answer do not fit.
std::optional<CheckResult> CheckExactly(const v1::AttendRequest& request,
                                        const v1::AttendResponse& response, int64_t max_operations,
                                        std::string* problem);

// The relative error that a correct exact kernel stays below, by storage type.
double ExactTolerance(v1::DataType dtype);

// How a request changes scores in addition to scaling them: positions, windows, biases and a
// softcap, for the reference of `castor attend --check`.

// One sequence's place in the packed tensors, in tokens.
struct Sequence {
  int64_t query_begin, queries, key_begin, keys;
};

class ScoreRule {
 public:
  // Whether these parts of the request fit its sequences and `heads`; no other request may have a
  // rule.
  static bool Fits(const v1::AttendRequest& request, const std::vector<Sequence>& sequences,
                   int64_t heads);

  // Refers to the request.
  ScoreRule(const v1::AttendRequest& request, int64_t heads);

  // The position of a sequence's first query less that of its first key, and that of the latter.
  struct Place {
    int64_t shift;
    int64_t first_key;
  };
  Place PlaceOf(const Sequence& sequence, int64_t index) const;

  // What becomes of the scaled score of a sequence's query i and key j in a head; -Inf if the key
  // is hidden.
  double Of(double score, const Sequence& sequence, const Place& place, int64_t i, int64_t j,
            int64_t head) const;

 private:
  bool Hides(int64_t distance, int64_t key_position) const;

  const v1::AttendRequest& request_;
  const v1::Positions& positions_;
  const int64_t heads_;
  const int64_t kv_heads_;
  const int64_t left_;  // -1: no bound
  const int64_t right_;
  const std::vector<float> table_;     // [heads, 2 reach + 1], or empty
  const std::vector<float> key_bias_;  // [keys] or [keys, kv_heads], or empty
  const bool bias_of_heads_;
};

}  // namespace castor::cli
