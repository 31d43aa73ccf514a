// Random CAST problems for tests: what random_problem.h makes, with a layer's surrogate tokens and
// gates.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "engine/attention/cast_reference.h"
#include "engine/attention/vanilla_reference.h"
#include "tests/unit/attention/random_problem.h"

namespace castor::attention {

// `spec` holds Cast, and in `surrogates` how many surrogate tokens there are.
struct CastProblem {
  CastProblem(const Spec& spec, std::vector<int32_t> lengths, std::mt19937& random,
              const Gaps& gaps = {})
      : problem(spec, lengths, lengths, gaps),
        surrogates(spec.dtype, spec.surrogates * spec.heads * spec.head_dim),
        gate(problem.view.query_tokens()) {
    std::normal_distribution<float> normal;
    problem.Randomize(random);
    for (int64_t i = 0; i < surrogates.size(); ++i) surrogates.Set(i, normal(random));
    for (float& phi : gate) phi = normal(random);
    problem.view.cast.surrogates = surrogates.data();
    problem.view.cast.gate = gate.data();
  }

  std::vector<double> Reference() const { return CastReference(problem.spec, problem.view); }

  std::vector<double> VanillaOfTheSame() const {
    Spec spec = problem.spec;
    spec.kernel = Vanilla{};
    return VanillaReference(spec, problem.view);
  }

  OwnedProblem problem;
  Elements surrogates;      // [N_c, heads, head_dim]
  std::vector<float> gate;  // [tokens]
};

}  // namespace castor::attention
