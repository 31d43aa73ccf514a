// The automatic kernel's choice as a pure function of a request and of prices.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/automatic/candidates.h"
#include "tests/support/attention/prices.h"
#include "tests/support/seeded.h"

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
  EXPECT_EQ(plan, (Labels{"improved 50/128", "improved 200/128", "improved 800/128",
                          "improved 800/128, options", "vanilla"}));
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

}  // namespace
}  // namespace castor::attention
