// Errors of results, and the tolerances for them.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/support/attention/random_problem.h"
#include "tests/support/twins/vanilla.h"

namespace castor::attention {

// ||a - b||_2 / ||b||_2 over `count` elements, a(i) and b(i); infinite if one of them is not
// finite.
template <typename A, typename B>
double Distance(int64_t count, A a, B b) {
  double error = 0;
  double norm = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double expected = b(i);
    const double difference = a(i) - expected;
    error += difference * difference;
    norm += expected * expected;
  }
  const double relative = norm == 0 ? error : std::sqrt(error / norm);
  return std::isfinite(relative) ? relative : INFINITY;
}

template <typename T>
double Distance(const std::vector<T>& a, const std::vector<T>& b) {
  const auto at = [](const std::vector<T>& vector) {
    return [&vector](int64_t i) -> double { return vector[i]; };
  };
  return a.size() == b.size() ? Distance(static_cast<int64_t>(a.size()), at(a), at(b)) : INFINITY;
}

// The distance of a problem's output from the twin's rows, [tokens, heads, value_dim]. Small rows,
// such as laplace's over few tokens, fall among float16's subnormals, which are 2^-24 apart, and so
// do their weights. The unavoidable rounding of both, 2^-25 each, is not counted as error: a
// weight's is multiplied by its value, which is at most some 3.
inline double RelativeError(const OwnedProblem& problem, const std::vector<double>& expected) {
  const int64_t row = problem.spec.heads * problem.spec.value_dim;
  const double rounding = problem.spec.dtype == DType::kFloat16 ? 0x1p-23 : 0;
  return Distance(
      problem.view.query_tokens() * row,
      [&](int64_t i) {
        const double output = problem.Output(i / row, 0, i % row);
        const double least = expected[i] - rounding;
        const double most = expected[i] + rounding;
        if (output >= least && output <= most) return expected[i];
        return output < least ? output + rounding : output - rounding;
      },
      [&](int64_t i) { return expected[i]; });
}

// Whether a log-sum-exp is right, to a part of it, or below `unit`, the size of a score's terms, to
// a part of that.
inline bool IsNear(double log_sum_exp, double expected, double tolerance, double unit = 1) {
  if (expected == -INFINITY) return log_sum_exp == expected;
  return std::abs(log_sum_exp - expected) <= tolerance * std::max(unit, std::abs(expected));
}

// The tolerances of the service's contract.
inline double Tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 2e-3;
    case DType::kBFloat16:
      return 1.5e-2;
    default:
      return 1e-5;
  }
}

// Exact attention over the same tensors.
inline std::vector<double> VanillaOfTheSame(const OwnedProblem& problem) {
  Spec spec = problem.spec;
  spec.kernel = Vanilla{};
  return VanillaReference(spec, problem.view);
}

}  // namespace castor::attention
