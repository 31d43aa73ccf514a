#include "engine/device/cuda/launch/pieces.h"

#include <span>
#include <variant>

#include "engine/device/cuda/launch/launch_work.h"

namespace castor {
namespace {

using attention::Problem;
using attention::Spec;

Piece WholeSequence(const Spec& spec, const Problem& batch, int64_t sequence) {
  Piece piece;
  piece.first = sequence;
  piece.count = 1;
  piece.first_token = batch.cu_seqlens_q[sequence];
  piece.queries = batch.cu_seqlens_q[sequence + 1] - batch.cu_seqlens_q[sequence];
  piece.keys = batch.cu_seqlens_k[sequence + 1] - batch.cu_seqlens_k[sequence];
  piece.work = LaunchWork(spec, piece.queries, piece.keys);
  return piece;
}

// Queries [first, end) of a sequence.
Piece PartOf(const Spec& spec, const Piece& whole, int64_t first, int64_t end) {
  Piece part = whole;
  part.first_token += first;
  part.queries = end - first;
  // Later keys are hidden from all of these queries. So the mask ends at the last query's last key,
  // as it did in the sequence.
  if (attention::IsCausal(spec)) part.keys -= whole.queries - end;
  part.partial = true;
  part.work = LaunchWork(spec, part.queries, part.keys);
  return part;
}

void CutSequence(const Spec& spec, const Piece& whole, double most, int64_t step,
                 std::vector<Piece>* pieces) {
  // The soonest end of a range that begins at `first`. The last range includes the rest, which may
  // be less than a step.
  const auto next = [&](int64_t first) {
    return whole.queries - first < 2 * step ? whole.queries : first + step;
  };
  for (int64_t first = 0; first < whole.queries;) {
    int64_t end = next(first);
    Piece part = PartOf(spec, whole, first, end);
    while (end < whole.queries) {
      const Piece longer = PartOf(spec, whole, first, next(end));
      if (longer.work > most) break;
      part = longer;
      end = next(end);
    }
    pieces->push_back(part);
    first = end;
  }
}

// `count` sequences' offsets from the first one's start on.
std::vector<int32_t> Rebased(std::span<const int32_t> offsets, int64_t first, int64_t count) {
  std::vector<int32_t> rebased;
  rebased.reserve(count + 1);
  for (const int32_t offset : offsets.subspan(first, count + 1)) {
    rebased.push_back(offset - offsets[first]);
  }
  return rebased;
}

}  // namespace

std::vector<Piece> CutBatch(const Spec& spec, const Problem& batch, double most,
                            const QueryStep& step) {
  std::vector<Piece> pieces;
  bool joins = false;  // the last piece is of whole sequences
  for (int64_t s = 0; s < batch.sequences(); ++s) {
    const Piece whole = WholeSequence(spec, batch, s);
    const int64_t queries = whole.work > most ? step(whole.queries, whole.keys) : 0;
    if (queries > 0 && whole.queries >= 2 * queries) {
      CutSequence(spec, whole, most, queries, &pieces);
      joins = false;
    } else if (joins && pieces.back().work + whole.work <= most) {
      Piece& run = pieces.back();
      ++run.count;
      run.queries += whole.queries;
      run.keys += whole.keys;
      run.work += whole.work;
    } else {
      pieces.push_back(whole);
      joins = true;
    }
  }
  return pieces;
}

PieceProblem::PieceProblem(const Spec& spec, const Problem& batch, const Piece& piece)
    : problem_(batch) {
  if (piece.partial) {
    cu_seqlens_q_ = {0, static_cast<int32_t>(piece.queries)};
    cu_seqlens_k_ = {0, static_cast<int32_t>(piece.keys)};
  } else {
    cu_seqlens_q_ = Rebased(batch.cu_seqlens_q, piece.first, piece.count);
    cu_seqlens_k_ = Rebased(batch.cu_seqlens_k, piece.first, piece.count);
  }
  const auto element = static_cast<int64_t>(SizeOf(spec.dtype));
  const int64_t first_key = batch.cu_seqlens_k[piece.first];
  problem_.query += piece.first_token * batch.query_stride * element;
  problem_.key += first_key * batch.key_stride * element;
  problem_.value += first_key * batch.value_stride * element;
  problem_.cu_seqlens_q = cu_seqlens_q_;
  problem_.cu_seqlens_k = cu_seqlens_k_;
  if (!problem_.places.empty()) {
    problem_.places = problem_.places.subspan(piece.first, piece.count);
  }
  if (problem_.key_bias != nullptr) problem_.key_bias += first_key * spec.key_bias_heads;
  if (problem_.cast.gate != nullptr) problem_.cast.gate += piece.first_token;
  if (!problem_.cast.layer_of_sequence.empty()) {
    problem_.cast.layer_of_sequence =
        problem_.cast.layer_of_sequence.subspan(piece.first, piece.count);
  }
}

}  // namespace castor
