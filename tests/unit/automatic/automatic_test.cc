// The automatic kernel's choice as a pure function of a request and of prices.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/automatic/candidates.h"
#include "engine/automatic/fidelity.h"
#include "engine/kernels/philox.h"
#include "tests/support/attention/prices.h"
#include "tests/support/attention/random_problem.h"
#include "tests/support/attention/spec.h"
#include "tests/support/seeded.h"
#include "tests/support/twins/vanilla.h"

namespace castor::attention {
namespace {

constexpr KernelName kVanilla = KernelName::kVanilla;
constexpr KernelName kClustered = KernelName::kClustered;
constexpr KernelName kImproved = KernelName::kImprovedClustered;
constexpr KernelName kCast = KernelName::kCast;

template <KernelName kName, DType kOnly = DType::kFloat32>
bool Supports(const Spec& spec) {
  return NameOf(spec.kernel) == kName && spec.dtype == kOnly &&
         OptionBeyondThePaper(spec.kernel).empty();
}

bool SupportsWithOptions(const Spec& spec) { return NameOf(spec.kernel) == kImproved; }

template <KernelName kName>
constexpr Variant Row() {
  return {kName, "test", &Supports<kName>, nullptr};
}

constexpr Variant kAll[] = {Row<kVanilla>(), Row<kClustered>(), Row<kImproved>(), Row<kCast>()};

// The prices if nothing was measured.
std::optional<double> Nothing(const Spec&, std::span<const int32_t>, std::span<const int32_t>) {
  return std::nullopt;
}

Spec SpecOf() {
  Spec spec;
  spec.dtype = DType::kFloat32;
  spec.heads = spec.kv_heads = 4;
  spec.head_dim = spec.value_dim = 32;
  spec.softmax_scale = 0.2;
  return spec;
}

// "vanilla", "clustered 25", "improved 50/128", "improved 50/128, options".
std::string LabelOf(const Kernel& kernel) {
  if (const auto* improved = std::get_if<ImprovedClustered>(&kernel)) {
    return "improved " + std::to_string(improved->clusters) + "/" + std::to_string(improved->topk) +
           (OptionBeyondThePaper(kernel).empty() ? "" : ", options");
  }
  const auto* clustered = std::get_if<Clustered>(&kernel);
  return clustered == nullptr ? "vanilla" : "clustered " + std::to_string(clustered->clusters);
}

using Labels = std::vector<std::string>;

Labels Plan(const Automatic& automatic, const PriceOf& price_of, int32_t tokens = 8192,
            std::span<const Variant> variants = kAll, const Spec& spec = SpecOf()) {
  const std::vector<int32_t> offsets = {0, tokens};
  Labels labels;
  for (const Candidate& candidate :
       CandidatesOf(automatic, spec, offsets, offsets, variants, price_of)) {
    labels.push_back(LabelOf(candidate.kernel));
  }
  return labels;
}

TEST(CandidatesTest, WithoutAnAllowanceIsVanillaWhateverItCosts) {
  EXPECT_EQ(Plan(Automatic{}, Prices(100, 1, 1)), Labels{"vanilla"});
  EXPECT_EQ(Plan(Automatic{{kClustered, kVanilla}, 0}, Prices(100, 1, 1)), Labels{"vanilla"});
}

// At 8192 tokens vanilla costs 43 tiles of 192 units and the probe 32. An approximation costs its
// clusters, in whole vectors and tiles, times its price, on top of the probe.
TEST(CandidatesTest, EachKernelShouldTakeHalfTheTimeOfTheNext) {
  EXPECT_EQ(Plan(Automatic{{}, 0.1}, Prices(1, 1, 5)),
            (Labels{"clustered 25", "clustered 100", "improved 50/128", "improved 200/128",
                    "improved 800/128", "vanilla"}));
  // Improved costs no more than clustered with as many clusters, which is then useless.
  EXPECT_EQ(Plan(Automatic{{}, 0.1}, Prices(1, 1, 1)),
            (Labels{"improved 50/128", "improved 200/128", "improved 800/128", "vanilla"}));
  EXPECT_EQ(
      Plan(Automatic{{}, 0.1}, Prices(1, 1, 36.5)),
      (Labels{"clustered 50", "clustered 200", "clustered 800", "improved 100/128", "vanilla"}));
  EXPECT_EQ(
      Plan(Automatic{{}, 0.1}, Prices(1, 1, 36.6)),
      (Labels{"clustered 50", "clustered 200", "clustered 800", "improved 50/128", "vanilla"}));
  EXPECT_EQ(Plan(Automatic{{}, 0.1}, Prices(1, 36.5, 1000)),
            (Labels{"clustered 25", "clustered 100", "vanilla"}));
  EXPECT_EQ(Plan(Automatic{{}, 0.1}, Prices(1, 1000, 1000)), Labels{"vanilla"});
}

TEST(CandidatesTest, NeverChoosesCastOrWhatIsNotAllowed) {
  EXPECT_EQ(Plan(Automatic{{kCast, kVanilla}, 1}, Prices(100, 1, 1)), Labels{"vanilla"});
  EXPECT_EQ(Plan(Automatic{{kImproved, kVanilla}, 1}, Prices(1, 1, 1)),
            (Labels{"improved 50/128", "improved 200/128", "improved 800/128", "vanilla"}));
  EXPECT_EQ(Plan(Automatic{{kClustered, kClustered}, 1}, Prices(1, 1, 1)),
            (Labels{"clustered 50", "clustered 200", "clustered 800"}));
}

// These have the smallest errors. A GPU does not support them, like the variants of the tests
// above.
TEST(CandidatesTest, TakesOptionsBeyondThePaperWhereTheDeviceHasThem) {
  constexpr Variant kOptions[] = {Row<kVanilla>(),
                                  {kImproved, "test", &SupportsWithOptions, nullptr}};
  const Labels plan = Plan(Automatic{{}, 0.1}, Prices(1, 1, 1), 8192, kOptions);
  EXPECT_EQ(plan, (Labels{"improved 25/128", "improved 25/128, options", "improved 400/128",
                          "improved 200/128, options", "improved 800/128, options", "vanilla"}));
}

TEST(CandidatesTest, CountsTheProbeAgainstAnApproximation) {
  // The probe's rows are half of all.
  EXPECT_EQ(Plan(Automatic{{}, 0.1}, Prices(1, 1e-6, 1e-6), 2 * kAutomaticFidelityRows - 1),
            Labels{"vanilla"});
  EXPECT_EQ(Plan(Automatic{{}, 0.1}, Prices(1, 1e-6, 1e-6), 3 * kAutomaticFidelityRows),
            (Labels{"improved 800/128", "vanilla"}));
}

// A kernel slower than exact attention is useless even if exact attention is not allowed.
TEST(CandidatesTest, LeavesOutWhatIsSlowerThanExactAttention) {
  EXPECT_EQ(Plan(Automatic{{kImproved}, 0.1}, Prices(1, 1, 36.6)).back(), "improved 200/128");
  EXPECT_EQ(Plan(Automatic{{kImproved}, 0.1}, Prices(1, 1, 1000)), Labels{"improved 100/32"})
      << "one must run";
}

TEST(CandidatesTest, TakesOnlyWhatHonoursTheRequest) {
  const auto plan = [](const Spec& spec) {
    return Plan(Automatic{{}, 0.1}, Prices(1, 1, 1), 8192, CpuVariants(), spec);
  };
  Spec windowed = SpecOf();
  windowed.window.left = 7;
  EXPECT_EQ(plan(windowed), Labels{"vanilla"});
  Spec capped = SpecOf();
  capped.softcap = 7;
  EXPECT_EQ(plan(capped), Labels{"vanilla"});
  Spec biased = SpecOf();
  biased.key_bias_heads = 1;
  EXPECT_EQ(plan(biased), plan(SpecOf()));
  EXPECT_GT(plan(biased).size(), 1U);
}

TEST(CandidatesTest, TakesOnlyWhatTheDeviceRuns) {
  constexpr Variant kTwo[] = {Row<kVanilla>(), Row<kClustered>()};
  EXPECT_EQ(Plan(Automatic{{}, 0.1}, Prices(1, 1, 1), 8192, kTwo),
            (Labels{"clustered 50", "clustered 200", "clustered 800", "vanilla"}));
}

TEST(CandidatesTest, IsTheMostExactOneWhereNothingWasMeasured) {
  EXPECT_EQ(Plan(Automatic{{}, 1}, Nothing), Labels{"vanilla"});
  EXPECT_EQ(Plan(Automatic{{kClustered, kImproved}, 1}, Nothing), Labels{"improved 100/32"});
  // Only vanilla was measured: kernels that may be slower than it are not tried.
  const PriceOf vanillas = [](const Spec& spec, auto, auto) {
    return NameOf(spec.kernel) == kVanilla ? std::optional(1.0) : std::nullopt;
  };
  EXPECT_EQ(Plan(Automatic{{}, 1}, vanillas), Labels{"vanilla"});
  EXPECT_EQ(Plan(Automatic{{kClustered, kImproved}, 1}, vanillas), Labels{"improved 100/32"});
}

// 4096 sequences, which are too short for an approximation, or long enough.
TEST(CandidatesTest, ManySequencesArePricedTogether) {
  for (const int32_t tokens : {40, 300}) {
    std::vector<int32_t> offsets = {0};
    for (int i = 0; i < 4096; ++i) offsets.push_back(offsets.back() + tokens);
    const auto candidates =
        CandidatesOf(Automatic{{}, 0.1}, SpecOf(), offsets, offsets, kAll, Prices(1, 0.01, 0.01));
    EXPECT_EQ(candidates.size() > 1, tokens == 300) << tokens;
    EXPECT_EQ(LabelOf(candidates.back().kernel), "vanilla");
  }
}

TEST(CandidatesTest, EveryPlanLeadsToWhatIsAllowedWithinTwiceItsTime) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> price(0.1, 10);
  std::uniform_int_distribution<int32_t> tokens(1, 5000);
  for (int i = 0; i < 200; ++i) {
    Automatic automatic{{}, 0.5};
    for (KernelName name : {kClustered, kVanilla, kImproved}) {
      if (random() % 2 == 0) automatic.allowed.push_back(name);
    }
    const std::vector<int32_t> offsets = {0, tokens(random)};
    const auto plan = CandidatesOf(automatic, SpecOf(), offsets, offsets, kAll,
                                   Prices(price(random), price(random), price(random)));
    ASSERT_FALSE(plan.empty());
    const auto allows = [&](KernelName name) {
      return automatic.allowed.empty() ||
             std::count(automatic.allowed.begin(), automatic.allowed.end(), name) > 0;
    };
    EXPECT_EQ(LossOf(plan.back().kernel) == 0, allows(kVanilla));
    double spent = 0;
    for (size_t r = 0; r < plan.size(); ++r) {
      EXPECT_TRUE(allows(NameOf(plan[r].kernel)));
      if (r > 0) {
        EXPECT_GT(LossOf(plan[r - 1].kernel), LossOf(plan[r].kernel));
      }
      spent += plan[r].predicted_us;
    }
    EXPECT_LE(spent, 2 * plan.back().predicted_us);
  }
}

// The parts of the fidelity probe: the choice of rows, and the error over them.

TEST(DrawFidelityRowsTest, AreThoseOfTheDefinition) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const uint64_t request_seed = random();
  const std::vector<int32_t> offsets = {0, 1, 8, 1008, 1024};
  for (const int32_t rows : {1, 3, 16, 1024}) {
    const FidelityRows drawn = DrawFidelityRows(request_seed, rows, offsets);
    ASSERT_EQ(drawn.cu_seqlens.size(), offsets.size());
    size_t at = 0;
    for (size_t b = 0; b + 1 < offsets.size(); ++b) {
      const int64_t n = offsets[b + 1] - offsets[b];
      const int64_t strata = std::min<int64_t>(rows, n);
      ASSERT_EQ(drawn.cu_seqlens[b + 1] - drawn.cu_seqlens[b], strata);
      for (int64_t r = 0; r < strata; ++r, ++at) {
        const int64_t lo = r * n / strata;
        const int64_t hi = (r + 1) * n / strata;
        const uint64_t x0 = kernels::Philox(
            {static_cast<uint32_t>(r), static_cast<uint32_t>(b), 0, 4}, request_seed)[0];
        EXPECT_EQ(
            drawn.tokens[at],
            offsets[b] + lo + static_cast<int64_t>((x0 * static_cast<uint64_t>(hi - lo)) >> 32));
      }
    }
    EXPECT_EQ(at, drawn.tokens.size());
    EXPECT_EQ(std::set<int32_t>(drawn.tokens.begin(), drawn.tokens.end()).size(), at) << "distinct";
  }
}

class RelativeErrorTest : public testing::TestWithParam<DType> {};

// The engine's probe, on a result with a known perturbation, against double precision over the same
// rows.
TEST_P(RelativeErrorTest, AgreesWithDoublePrecision) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Spec spec = MakeSpec(GetParam(), Vanilla{}, 3, 20, 12);
  spec.softmax_scale = 0.25;
  OwnedProblem problem(spec, {70, 9}, {40, 33}, {.query = 4, .output = 5});
  problem.Randomize(random);
  const std::vector<double> exact = VanillaReference(spec, problem.view);
  std::normal_distribution<double> normal;
  const int64_t row = spec.heads * spec.value_dim;
  for (int64_t token = 0; token < problem.view.query_tokens(); ++token) {
    for (int64_t e = 0; e < row; ++e) {
      problem.output.Set(token * problem.view.output_stride + e,
                         exact[token * row + e] + 0.05 * normal(random));
    }
  }

  const FidelityRows drawn = DrawFidelityRows(seed, 16, problem.cu_seqlens_q);
  // The gathered queries with all keys form a problem of their own.
  OwnedProblem rows(spec, {16, 9}, {40, 33});
  GatherRows(spec.dtype, problem.query.data(), problem.view.query_stride,
             spec.heads * spec.head_dim, drawn.tokens, rows.query.data());
  rows.view.key = problem.view.key;
  rows.view.value = problem.view.value;
  const std::vector<double> exact_rows = VanillaReference(spec, rows.view);
  Elements stored(spec.dtype, static_cast<int64_t>(exact_rows.size()));
  double error = 0;
  double norm = 0;
  for (size_t r = 0; r < drawn.tokens.size(); ++r) {
    for (int64_t e = 0; e < row; ++e) {
      const double expected = exact_rows[r * row + e];
      EXPECT_DOUBLE_EQ(expected, exact[drawn.tokens[r] * row + e]) << "the right query";
      stored.Set(r * row + e, expected);
      const double rounded = stored.Get(r * row + e);
      const double given = problem.output.Get(drawn.tokens[r] * problem.view.output_stride + e);
      error += (given - rounded) * (given - rounded);
      norm += rounded * rounded;
    }
  }
  const double measured =
      RelativeError(spec.dtype, problem.output.data(), problem.view.output_stride, row,
                    drawn.tokens, stored.data());
  EXPECT_NEAR(measured, std::sqrt(error / norm), 1e-12);
  EXPECT_GT(measured, 0.01);
}

TEST_P(RelativeErrorTest, IsZeroForEqualRowsAndInfiniteWhereNothingCanBeSaid) {
  const DType dtype = GetParam();
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  Elements exact(dtype, 4);
  Elements given(dtype, 8);  // two tokens of stride 4, of which 2 elements count
  const std::vector<int32_t> rows = {0, 1};
  const auto measured = [&] {
    return RelativeError(dtype, given.data(), 4, 2, rows, exact.data());
  };
  EXPECT_EQ(measured(), 0) << "all zero";
  given.Set(3, 7);
  EXPECT_EQ(measured(), 0) << "gaps between tokens do not count";
  given.Set(1, 0.5);
  EXPECT_EQ(measured(), kInfinite) << "the exact rows are zero";
  exact.Set(1, 0.25);
  exact.Set(3, -0.0625);
  given.Set(5, -0.0625);
  EXPECT_DOUBLE_EQ(measured(), 0.25 / std::hypot(0.25, 0.0625));
  for (const double bad : {kInfinite, -kInfinite, std::nan("")}) {
    given.Set(4, bad);
    EXPECT_EQ(measured(), kInfinite) << bad;
    given.Set(4, 0);
    exact.Set(2, bad);
    EXPECT_EQ(measured(), kInfinite) << bad;
    exact.Set(2, 0);
  }
}

// Every float16, including the denormals.
TEST(RelativeErrorHalfTest, ReadsEveryHalf) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    Elements half(DType::kFloat16, 1);
    std::memcpy(half.data(), &bits, 2);
    const double value = half.Get(0);
    if (!std::isfinite(value) || value == 0) continue;
    Elements zero(DType::kFloat16, 1);
    const std::vector<int32_t> row = {0};
    // The error is 0 against itself and |value - 1| against 1; the error of zero is 1.
    EXPECT_EQ(RelativeError(DType::kFloat16, half.data(), 1, 1, row, half.data()), 0);
    EXPECT_EQ(RelativeError(DType::kFloat16, zero.data(), 1, 1, row, half.data()), 1);
    Elements unit(DType::kFloat16, 1);
    unit.Set(0, 1);
    ASSERT_DOUBLE_EQ(RelativeError(DType::kFloat16, half.data(), 1, 1, row, unit.data()),
                     std::abs(value - 1))
        << bits;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, RelativeErrorTest, testing::ValuesIn(kFloatTypes));

}  // namespace
}  // namespace castor::attention
