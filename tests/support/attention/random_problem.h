// Random ragged attention problems for tests, in any dtype, that own their memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "engine/attention/problem.h"
#include "tests/support/attention/elements.h"

namespace castor::attention {

// Offsets of the sequences' first tokens, and the total.
inline std::vector<int32_t> OffsetsOf(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> offsets = {0};
  for (const int32_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

// Extra elements between consecutive tokens.
struct Gaps {
  int64_t query = 0;
  int64_t key = 0;
  int64_t value = 0;
  int64_t output = 0;
};

// A problem that owns its memory. Not copyable: Problem points into it.
class OwnedProblem {
 public:
  OwnedProblem(const Spec& spec, std::vector<int32_t> query_lengths,
               std::vector<int32_t> key_lengths, const Gaps& gaps = {})
      : spec(spec),
        cu_seqlens_q(OffsetsOf(query_lengths)),
        cu_seqlens_k(OffsetsOf(key_lengths)),
        query(spec.dtype, cu_seqlens_q.back() * (spec.heads * spec.head_dim + gaps.query)),
        key(spec.dtype, cu_seqlens_k.back() * (spec.key_row() + gaps.key)),
        value(spec.dtype, cu_seqlens_k.back() * (spec.value_row() + gaps.value)),
        output(spec.dtype, cu_seqlens_q.back() * (spec.heads * spec.value_dim + gaps.output)) {
    view.query = query.data();
    view.key = key.data();
    view.value = spec.value_is_key_prefix ? key.data() : value.data();
    view.output = output.data();
    view.query_stride = spec.heads * spec.head_dim + gaps.query;
    view.key_stride = spec.key_row() + gaps.key;
    view.value_stride = spec.value_stride() + (spec.value_is_key_prefix ? gaps.key : gaps.value);
    view.value_head_stride = spec.value_head_stride();
    view.output_stride = spec.heads * spec.value_dim + gaps.output;
    view.cu_seqlens_q = cu_seqlens_q;
    view.cu_seqlens_k = cu_seqlens_k;
    if (spec.log_sum_exp) {
      log_sum_exp.resize(cu_seqlens_q.back() * spec.heads);
      view.log_sum_exp = log_sum_exp.data();
    }
  }
  OwnedProblem(const OwnedProblem&) = delete;
  OwnedProblem& operator=(const OwnedProblem&) = delete;

  // Draws queries, keys and values from N(0, 1) times the given factors, gaps included.
  void Randomize(std::mt19937& random, double query_factor = 1, double key_factor = 1,
                 double value_factor = 1) {
    Fill(query, random, query_factor);
    Fill(key, random, key_factor);
    Fill(value, random, value_factor);
  }

  // One output element; `token` counts over all sequences.
  double Output(int64_t token, int64_t head, int64_t e) const {
    return output.Get(token * view.output_stride + head * spec.value_dim + e);
  }

  Spec spec;
  std::vector<int32_t> cu_seqlens_q;
  std::vector<int32_t> cu_seqlens_k;
  Elements query;
  Elements key;
  Elements value;
  Elements output;
  std::vector<float> log_sum_exp;  // if the spec has it
  Problem view;

 private:
  static void Fill(Elements& elements, std::mt19937& random, double factor) {
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < elements.size(); ++i) elements.Set(i, factor * normal(random));
  }
};

// Copies sequence `from` of one problem to sequence `to` of another with the same spec and lengths.
// Neither has gaps.
inline void CopySequence(const OwnedProblem& source, int64_t from, OwnedProblem& target,
                         int64_t to) {
  const Spec& spec = source.spec;
  const auto copy = [&](const Elements& a, Elements& b, const std::vector<int32_t>& cu_a,
                        const std::vector<int32_t>& cu_b, int64_t row) {
    const auto bytes = row * static_cast<int64_t>(SizeOf(spec.dtype));
    std::copy_n(a.data() + cu_a[from] * bytes, (cu_a[from + 1] - cu_a[from]) * bytes,
                b.data() + cu_b[to] * bytes);
  };
  copy(source.query, target.query, source.cu_seqlens_q, target.cu_seqlens_q,
       spec.heads * spec.head_dim);
  copy(source.key, target.key, source.cu_seqlens_k, target.cu_seqlens_k, spec.key_row());
  copy(source.value, target.value, source.cu_seqlens_k, target.cu_seqlens_k, spec.value_row());
}

// Copies queries, and the keys and values that each head reads to a problem in which it has its
// own.
inline void RepeatHeads(const OwnedProblem& shared, OwnedProblem& repeated) {
  const Spec& spec = shared.spec;
  const Problem& view = shared.view;
  const Elements& values = spec.value_is_key_prefix ? shared.key : shared.value;
  const auto copy = [&](const Elements& from, int64_t tokens, int64_t stride, int64_t kv_stride,
                        int64_t group, int64_t dim, Elements& to) {
    for (int64_t token = 0; token < tokens; ++token) {
      for (int64_t i = 0; i < spec.heads * dim; ++i) {
        to.Set(token * spec.heads * dim + i,
               from.Get(token * stride + i / dim / group * kv_stride + i % dim));
      }
    }
  };
  const int64_t group = spec.heads / spec.kv_heads;
  copy(shared.query, view.query_tokens(), view.query_stride, spec.head_dim, 1, spec.head_dim,
       repeated.query);
  copy(shared.key, view.key_tokens(), view.key_stride, spec.head_dim, group, spec.head_dim,
       repeated.key);
  copy(values, view.key_tokens(), view.value_stride, view.value_head_stride, group, spec.value_dim,
       repeated.value);
}

// The bytes of one sequence's rows, without gaps.
inline std::vector<std::byte> OutputOf(const OwnedProblem& problem, int64_t sequence) {
  const int64_t row = problem.spec.heads * problem.spec.value_dim *
                      static_cast<int64_t>(SizeOf(problem.spec.dtype));
  const std::byte* const data = problem.output.data();
  return {data + problem.cu_seqlens_q[sequence] * row,
          data + problem.cu_seqlens_q[sequence + 1] * row};
}

}  // namespace castor::attention
