// Softmax scales that no model uses but a request may send, and what every kernel must answer.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <variant>

#include "tests/support/attention/compare.h"
#include "tests/support/attention/random_problem.h"
#include "tests/support/attention/spec.h"
#include "tests/support/sanitizer.h"

namespace castor::attention {

// All keys get the same weight: scores of N(0, 1) inputs make no difference.
inline constexpr double kScalesNearZero[] = {0.0,      -0.0,  4.9e-324, -1e-300, 4.7e-46,
                                             -4.8e-46, 1e-45, -1e-40,   1e-38,   -1e-20};

// The greatest score takes all the weight. Its product with the scale may overflow a float.
inline constexpr double kHugeScales[] = {1e20, -1e30, 1e38, -2.35e38, 2.4e38, -3.4e38};

// Calls body(scale): with each, under a sanitizer with every third.
template <size_t kCount, typename Body>
void ForScales(const double (&scales)[kCount], Body body) {
  for (size_t i = 0; i < kCount; i += kSanitized ? 3 : 1) body(scales[i]);
}

inline bool IsLaplace(const Spec& spec) {
  const auto* const cast = std::get_if<Cast>(&spec.kernel);
  return cast != nullptr && cast->attention_function == Cast::AttentionFunction::kLaplace;
}

// `run` computes the problem. Needs random inputs and, for Cast, clusters of all tokens.
template <typename Run>
void ExpectRowsOfScalesNearZero(OwnedProblem& problem, Run run) {
  ForScales(kScalesNearZero, [&](double scale) {
    SCOPED_TRACE(testing::Message() << Describe(problem.spec) << " scale " << scale);
    problem.spec.softmax_scale = scale;
    problem.output.Clear();
    run(problem);
    const bool causal = std::holds_alternative<Vanilla>(problem.spec.kernel) &&
                        std::get<Vanilla>(problem.spec.kernel).causal;
    EXPECT_LE(RelativeError(problem, causal ? VanillaReference(problem.spec, problem.view)
                                            : VanillaOfTheSame(problem)),
              Tolerance(problem.spec.dtype));
  });
}

// All values are 1, so every output should be 1 too, whatever the weights. Two kinds of kernels are
// only required to give finite rows: laplace's weights do not sum to 1; and a kernel that sums the
// same score in two orders may get different scores where a huge scale magnifies the last digit.
// Covers zero scales too, and clusters of any size.
template <typename Run>
void ExpectFiniteRowsOfAnyScale(OwnedProblem& problem, Run run, bool sums_near_zero = true,
                                bool sums_of_huge = true) {
  for (int64_t i = 0; i < problem.value.size(); ++i) problem.value.Set(i, 1);
  const double tolerance = Tolerance(problem.spec.dtype);
  const auto expect = [&](double scale, bool sum_to_one) {
    SCOPED_TRACE(testing::Message() << Describe(problem.spec) << " scale " << scale);
    problem.spec.softmax_scale = scale;
    problem.output.Clear();
    run(problem);
    double most = 0;
    for (int64_t i = 0; i < problem.output.size(); ++i) {
      const double off = std::abs(problem.output.Get(i) - (sum_to_one ? 1 : 0));
      most = off > most || std::isnan(off) ? off : most;
      if (!std::isfinite(most)) break;
    }
    if (sum_to_one) {
      EXPECT_LE(most, tolerance);
    } else {
      EXPECT_TRUE(std::isfinite(most));
    }
  };
  const bool normalised = !IsLaplace(problem.spec);
  ForScales(kScalesNearZero, [&](double s) { expect(s, normalised && sums_near_zero); });
  ForScales(kHugeScales, [&](double s) { expect(s, normalised && sums_of_huge); });
}

}  // namespace castor::attention
