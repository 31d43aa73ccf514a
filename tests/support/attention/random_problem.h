// Random ragged attention problems for tests, in any dtype, that own their memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <variant>
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

// Draws what a spec does to scores beside their scale, each in some of the draws: all of it for
// vanilla, biases of keys for the others. Owns the biases by distance.
class RandomScores {
 public:
  RandomScores(Spec& spec, std::mt19937& random) {
    const auto up_to = [&](int64_t most) { return static_cast<int64_t>(random() % (most + 1)); };
    std::normal_distribution<float> normal;
    if (up_to(2) == 0) spec.key_bias_heads = up_to(1) == 0 ? 1 : spec.kv_heads;
    if (!std::holds_alternative<Vanilla>(spec.kernel)) return;
    if (up_to(1) == 0) {
      spec.window = {.left = up_to(120) - 1, .right = up_to(120) - 1};
      if (spec.window.any()) spec.window.always_visible = std::max<int64_t>(0, up_to(20) - 10);
    }
    spec.placed = up_to(1) == 0;
    if (up_to(2) == 0) spec.softcap = 0.5 + static_cast<double>(up_to(50));
    if (up_to(2) == 0) {
      spec.bias.reach = up_to(150);
      table_.resize(spec.heads * (2 * spec.bias.reach + 1));
      for (float& bias : table_) bias = 2 * normal(random);
      spec.bias.table = table_.data();
    }
    if (up_to(2) == 0) {
      slopes_.resize(spec.heads);
      for (float& slope : slopes_) slope = normal(random) / 8;
      spec.bias.slopes = slopes_.data();
    }
  }
  RandomScores(const RandomScores&) = delete;
  RandomScores& operator=(const RandomScores&) = delete;

 private:
  std::vector<float> table_;
  std::vector<float> slopes_;
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
    if (spec.key_bias_heads > 0) {
      key_bias.resize(cu_seqlens_k.back() * spec.key_bias_heads);
      view.key_bias = key_bias.data();
    }
    if (spec.placed) {
      for (int64_t s = 0; s < view.sequences(); ++s) places.push_back(view.PlaceOf(spec, s));
      view.places = places;
    }
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
    std::normal_distribution<float> normal;
    for (float& bias : key_bias) bias = random() % 4 == 0 ? -INFINITY : 2 * normal(random);
    for (Place& place : places) {
      place.shift += static_cast<int64_t>(random() % 200) - 100;
      if (spec.window.always_visible > 0) place.visible = static_cast<int64_t>(random() % 8);
    }
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
  std::vector<float> key_bias;     // likewise; of Randomize, a quarter hides keys
  std::vector<Place> places;       // likewise; of Randomize, near the usual ones
  Problem view;

 private:
  static void Fill(Elements& elements, std::mt19937& random, double factor) {
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < elements.size(); ++i) elements.Set(i, factor * normal(random));
  }
};

// Copies sequence `from` of one problem, or of its keys only [key_begin, key_end), to sequence `to`
// of another with the same spec and as many queries and keys. Neither has gaps.
inline void CopySequence(const OwnedProblem& source, int64_t from, OwnedProblem& target, int64_t to,
                         int64_t key_begin, int64_t key_end) {
  const Spec& spec = source.spec;
  const auto copy = [&](const Elements& a, Elements& b, int64_t at, int64_t count, int64_t goal,
                        int64_t row) {
    const auto bytes = row * static_cast<int64_t>(SizeOf(spec.dtype));
    std::copy_n(a.data() + at * bytes, count * bytes, b.data() + goal * bytes);
  };
  const int64_t query = source.cu_seqlens_q[from];
  copy(source.query, target.query, query, source.cu_seqlens_q[from + 1] - query,
       target.cu_seqlens_q[to], spec.heads * spec.head_dim);
  const int64_t key = source.cu_seqlens_k[from] + key_begin;
  const int64_t keys = key_end - key_begin;
  const int64_t goal = target.cu_seqlens_k[to];
  copy(source.key, target.key, key, keys, goal, spec.key_row());
  copy(source.value, target.value, key, keys, goal, spec.value_row());
  if (spec.placed) target.places[to] = source.places[from];
  const int64_t biases = spec.key_bias_heads;
  std::copy_n(source.key_bias.begin() + key * biases, keys * biases,
              target.key_bias.begin() + goal * biases);
}

inline void CopySequence(const OwnedProblem& source, int64_t from, OwnedProblem& target,
                         int64_t to) {
  CopySequence(source, from, target, to, 0,
               source.cu_seqlens_k[from + 1] - source.cu_seqlens_k[from]);
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
