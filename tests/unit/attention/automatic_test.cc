// The automatic kernel's choice as a pure function of a request and a cost model, and the ladder
// from one kernel to the next.
#include "engine/attention/automatic.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/support/seeded.h"

namespace castor::attention {
namespace {

constexpr KernelName kVanilla = KernelName::kVanilla;
constexpr KernelName kClustered = KernelName::kClustered;
constexpr KernelName kImproved = KernelName::kImprovedClustered;
constexpr KernelName kCast = KernelName::kCast;

template <KernelName kName, DType kOnly = DType::kFloat32>
bool Supports(const Spec& spec) {
  return NameOf(spec.kernel) == kName && spec.dtype == kOnly;
}

template <KernelName kName>
constexpr Variant Row() {
  return {kName, "test", &Supports<kName>, nullptr};
}

constexpr Variant kAll[] = {Row<kVanilla>(), Row<kClustered>(), Row<kImproved>(), Row<kCast>()};

// Prices that depend only on the tokens, so that tests can set each kernel's cost. The probe of an
// approximation is priced like vanilla, on its few rows.
CostModel Prices(double vanilla, double clustered, double improved) {
  CostModel model;
  const auto set = [&model](KernelName name, double us_per_million) {
    CostTerms prices{};
    prices[static_cast<size_t>(CostTerm::kScores)] = us_per_million;
    model.Set(name, DType::kFloat32, prices);
  };
  set(kVanilla, vanilla);
  set(kClustered, clustered);
  set(kImproved, improved);
  return model;
}

Spec SpecOf() {
  Spec spec;
  spec.dtype = DType::kFloat32;
  spec.heads = 4;
  spec.head_dim = spec.value_dim = 32;
  spec.softmax_scale = 0.2;
  return spec;
}

std::vector<KernelName> NamesOf(const std::vector<Rung>& rungs) {
  std::vector<KernelName> names;
  for (const Rung& rung : rungs) names.push_back(NameOf(rung.kernel));
  return names;
}

std::vector<KernelName> Plan(const Automatic& automatic, const CostModel& costs,
                             int32_t tokens = 8192, std::span<const Variant> variants = kAll) {
  const std::vector<int32_t> offsets = {0, tokens};
  return NamesOf(PlanAutomatic(automatic, SpecOf(), offsets, offsets, variants, costs));
}

using Names = std::vector<KernelName>;

TEST(PlanAutomaticTest, WithoutAnAllowanceIsVanillaWhateverItCosts) {
  EXPECT_EQ(Plan(Automatic{}, Prices(100, 1, 1)), Names{kVanilla});
  EXPECT_EQ(Plan(Automatic{{kClustered, kVanilla}, 0}, Prices(100, 1, 1)), Names{kVanilla});
}

TEST(PlanAutomaticTest, StartsWithTheCheapestAndGoesOnToTheMoreExact) {
  EXPECT_EQ(Plan(Automatic{{}, 0.1}, Prices(1, 1, 5)), (Names{kClustered, kImproved, kVanilla}));
}

TEST(PlanAutomaticTest, NeverChoosesCastOrWhatIsNotAllowed) {
  EXPECT_EQ(Plan(Automatic{{kCast, kVanilla}, 1}, Prices(100, 1, 1)), Names{kVanilla});
  EXPECT_EQ(Plan(Automatic{{kImproved, kVanilla}, 1}, Prices(1, 1, 1)),
            (Names{kImproved, kVanilla}));
  EXPECT_EQ(Plan(Automatic{{kClustered, kClustered}, 1}, Prices(1, 1, 1)), Names{kClustered});
}

// At 8192 tokens vanilla costs 43 tiles of 192 units and the probe 32. An approximation, whose 100
// centroids fill seven vectors, costs 112 times its price on top of the probe.
TEST(PlanAutomaticTest, TriesOnlyWhatShouldHalveTheTime) {
  EXPECT_EQ(Plan(Automatic{{}, 0.1}, Prices(1, 1, 36.5)), (Names{kClustered, kImproved, kVanilla}));
  EXPECT_EQ(Plan(Automatic{{}, 0.1}, Prices(1, 1, 36.6)), (Names{kClustered, kVanilla}));
  EXPECT_EQ(Plan(Automatic{{}, 0.1}, Prices(1, 36.5, 1000)), (Names{kClustered, kVanilla}));
  EXPECT_EQ(Plan(Automatic{{}, 0.1}, Prices(1, 36.6, 1000)), Names{kVanilla});
  // Improved costs little more than clustered: clustered would not be worth the risk.
  EXPECT_EQ(Plan(Automatic{{}, 0.1}, Prices(1, 1, 2)), (Names{kImproved, kVanilla}));
  EXPECT_EQ(Plan(Automatic{{}, 0.1}, Prices(1, 1, 1)), (Names{kImproved, kVanilla}));
}

TEST(PlanAutomaticTest, CountsTheProbeAgainstAnApproximation) {
  // The probe's rows are half of all.
  EXPECT_EQ(Plan(Automatic{{}, 0.1}, Prices(1, 1e-6, 1e-6), 2 * kAutomaticFidelityRows),
            Names{kVanilla});
  EXPECT_EQ(Plan(Automatic{{}, 0.1}, Prices(1, 1e-6, 1e-6), 3 * kAutomaticFidelityRows),
            (Names{kImproved, kVanilla}));
}

TEST(PlanAutomaticTest, TakesOnlyWhatTheDeviceRuns) {
  constexpr Variant kTwo[] = {Row<kVanilla>(), Row<kImproved>()};
  EXPECT_EQ(Plan(Automatic{{}, 0.1}, Prices(1, 1, 2), 8192, kTwo), (Names{kImproved, kVanilla}));
}

TEST(PlanAutomaticTest, IsTheMostExactOneWhereNothingWasMeasured) {
  EXPECT_EQ(Plan(Automatic{{}, 1}, CostModel{}), Names{kVanilla});
  EXPECT_EQ(Plan(Automatic{{kClustered, kImproved}, 1}, CostModel{}), Names{kImproved});
  // Only vanilla was measured: kernels that may be slower than it are not tried.
  CostModel model;
  model.Set(kVanilla, DType::kFloat32, CostTerms{1});
  EXPECT_EQ(Plan(Automatic{{}, 1}, model), Names{kVanilla});
  EXPECT_EQ(Plan(Automatic{{kClustered, kImproved}, 1}, model), Names{kImproved});
}

TEST(PlanAutomaticTest, SaysWhatTheModelPredicts) {
  const CostModel costs = Prices(3, 1, 2);
  const std::vector<int32_t> offsets = {0, 1000, 5000};
  const auto rungs = PlanAutomatic(Automatic{{}, 0.1}, SpecOf(), offsets, offsets, kAll, costs);
  ASSERT_FALSE(rungs.empty());
  for (const Rung& rung : rungs) {
    Spec spec = SpecOf();
    spec.kernel = rung.kernel;
    EXPECT_EQ(rung.predicted_us, costs.Predict(spec, offsets, offsets).value());
  }
}

TEST(PlanAutomaticTest, EveryPlanIsAWayToTheMostExactAllowed) {
  const uint32_t seed = FreshSeed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> price(0.1, 10);
  std::uniform_int_distribution<int32_t> tokens(1, 5000);
  const auto exactness = [](KernelName name) {
    return name == kVanilla ? 2 : name == kImproved ? 1 : 0;
  };
  for (int i = 0; i < 200; ++i) {
    Automatic automatic{{}, 0.5};
    for (KernelName name : {kClustered, kVanilla, kImproved}) {
      if (random() % 2 == 0) automatic.allowed.push_back(name);
    }
    const Names plan =
        Plan(automatic, Prices(price(random), price(random), price(random)), tokens(random));
    ASSERT_FALSE(plan.empty());
    int best = 0;
    Names allowed = automatic.allowed;
    if (allowed.empty()) allowed = {kVanilla};
    for (KernelName name : allowed) best = std::max(best, exactness(name));
    EXPECT_EQ(exactness(plan.back()), best);
    for (size_t r = 0; r + 1 < plan.size(); ++r) {
      EXPECT_LT(exactness(plan[r]), exactness(plan[r + 1]));
    }
  }
}

// ---- the ladder

Ladder ThreeRungs(double allowance) {
  return Ladder({{Clustered{}, 10}, {ImprovedClustered{}, 20}, {Vanilla{}, 90}}, allowance);
}

Fidelity Estimate(double error) { return {32, error, 5}; }

TEST(LadderTest, TakesTheFirstThatMeetsTheAllowance) {
  Ladder ladder = ThreeRungs(0.1);
  EXPECT_TRUE(ladder.needs_estimate());
  EXPECT_TRUE(ladder.Accept(Estimate(0.1), 11));
  EXPECT_EQ(NameOf(ladder.current().kernel), kClustered);
  EXPECT_EQ(ladder.fidelity()->relative_error, 0.1);
  EXPECT_TRUE(ladder.rejected().empty());
}

TEST(LadderTest, ClimbsToVanillaWhichNeedsNoEstimate) {
  Ladder ladder = ThreeRungs(0.1);
  EXPECT_FALSE(ladder.Accept(Estimate(0.4), 11));
  EXPECT_EQ(NameOf(ladder.current().kernel), kImproved);
  EXPECT_TRUE(ladder.needs_estimate());
  EXPECT_FALSE(ladder.Accept(Estimate(0.2), 21));
  EXPECT_EQ(NameOf(ladder.current().kernel), kVanilla);
  EXPECT_FALSE(ladder.needs_estimate());
  EXPECT_FALSE(ladder.fidelity().has_value());
  EXPECT_EQ(ladder.current().predicted_us, 90);
  const auto rejected = ladder.rejected();
  ASSERT_EQ(rejected.size(), 2u);
  EXPECT_EQ(rejected[0].kernel, kClustered);
  EXPECT_EQ(rejected[0].measured_us, 11);
  EXPECT_EQ(rejected[0].relative_error, 0.4);
  EXPECT_EQ(rejected[1].kernel, kImproved);
  EXPECT_EQ(rejected[1].relative_error, 0.2);
}

TEST(LadderTest, WithoutVanillaTheLeastEstimateIsTheAnswer) {
  const std::vector<Rung> rungs = {{Clustered{}, 10}, {ImprovedClustered{}, 20}};
  Ladder last(rungs, 0.01);
  EXPECT_FALSE(last.Accept(Estimate(0.4), 11));
  EXPECT_TRUE(last.Accept(Estimate(0.2), 21));
  EXPECT_EQ(NameOf(last.current().kernel), kImproved);
  EXPECT_EQ(last.fidelity()->relative_error, 0.2);

  Ladder first(rungs, 0.01);
  EXPECT_FALSE(first.Accept(Estimate(0.2), 11));
  EXPECT_FALSE(first.Accept(Estimate(0.4), 21)) << "clustered must run again";
  EXPECT_EQ(NameOf(first.current().kernel), kClustered);
  EXPECT_FALSE(first.needs_estimate()) << "its error is known";
  EXPECT_EQ(first.fidelity()->relative_error, 0.2);
  ASSERT_EQ(first.rejected().size(), 1u);
  EXPECT_EQ(first.rejected()[0].kernel, kImproved);
}

TEST(LadderTest, AnEstimateThatIsNoNumberIsTooLarge) {
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    Ladder ladder = ThreeRungs(1);
    EXPECT_FALSE(ladder.Accept(Estimate(bad), 11)) << bad;
    EXPECT_EQ(NameOf(ladder.current().kernel), kImproved);
  }
}

}  // namespace
}  // namespace castor::attention
