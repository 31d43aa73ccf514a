// What the reference twins share: tensors as doubles, and the definitions' small functions.
//
// Twins are written from the definitions, to be read: double precision, plain loops, no sharing of
// work. They take only the engine's descriptions of a problem. Everything they compute with is
// their own, including random numbers and element conversions, so a mistake in a fast path cannot
// be in its twin as well. Any thread may call them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/attention/problem.h"

namespace castor::attention {

// A problem's query, key and value in double precision, without gaps between tokens: [tokens,
// heads, dim], heads being kv_heads for keys and values.
struct ReferenceTensors {
  ReferenceTensors(const Spec& spec, const Problem& problem);

  // Rows of `head_dim` or `value_dim` doubles, which a query head reads; tokens count over all
  // sequences.
  const double* query(int64_t token, int64_t head) const;
  const double* key(int64_t token, int64_t head) const;
  const double* value(int64_t token, int64_t head) const;

  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t value_dim;
  std::vector<double> queries;
  std::vector<double> keys;
  std::vector<double> values;
};

// `count` tokens of `row` elements each, starting `stride` elements apart, as doubles: [count,
// row].
std::vector<double> Doubles(DType dtype, const std::byte* data, int64_t count, int64_t stride,
                            int64_t row);

double Dot(const double* a, const double* b, int64_t count);

// What key `token` of all sequences adds to its scores; 0 if the problem has no such biases.
double KeyBiasAt(const Spec& spec, const Problem& problem, int64_t token, int64_t head);

// exp(x_j) / sum exp(x); zeros where all are -Inf.
std::vector<double> Softmax(std::vector<double> scores);

// ln sum exp(x); -Inf of none, or where all are.
double LogSumExp(const std::vector<double>& scores);

}  // namespace castor::attention
