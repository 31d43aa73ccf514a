// Cuts a packed batch into short launches, so that between them the device can turn to other work,
// or drop this. Rows keep their bytes: a sequence's result does not depend on its neighbours, and
// one sequence's queries are cut only where its kernel allows that (attention/cuda/choice.h). Keys
// are never cut.
//
// Pure; any thread may call it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/attention/problem.h"

namespace castor {

// Neighbouring sequences of a batch, or some neighbouring queries of one.
struct Piece {
  int64_t first = 0;        // sequence
  int64_t count = 0;        // sequences
  int64_t first_token = 0;  // query token of the batch, where the piece's rows begin
  int64_t queries = 0;      // tokens
  int64_t keys = 0;         // tokens that they see: not all for a part under a causal mask
  bool partial = false;     // queries of one sequence, not all of them
  double work = 0;          // LaunchWork
};

// The step at which a sequence of `queries` and `keys` may be cut: ranges of queries begin at
// multiples of the step and hold at least one step. 0: it may not be cut.
using QueryStep = std::function<int64_t(int64_t queries, int64_t keys)>;

// Pieces of at most `most` work each, in the order of their rows, which cover the batch. What
// cannot be cut stays whole, however much it is. A piece holds whole sequences or queries of one;
// as far as that allows, no fewer pieces would do. The batch has a sequence, and each a query.
std::vector<Piece> CutBatch(const attention::Spec& spec, const attention::Problem& batch,
                            double most, const QueryStep& step);

// A piece as a problem of its own, without an output, like the packed batch (packed_batch.h) whose
// tensors it points into.
class PieceProblem {
 public:
  PieceProblem(const attention::Spec& spec, const attention::Problem& batch, const Piece& piece);
  PieceProblem(const PieceProblem&) = delete;
  PieceProblem& operator=(const PieceProblem&) = delete;

  // Points into this object.
  const attention::Problem& problem() const { return problem_; }

 private:
  std::vector<int32_t> cu_seqlens_q_;
  std::vector<int32_t> cu_seqlens_k_;
  attention::Problem problem_;
};

}  // namespace castor
