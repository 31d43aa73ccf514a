// The cost model: the fit of its prices, and the file that stores it.
#include "engine/attention/cost/cost_model.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "engine/attention/cost/cost_file.h"
#include "engine/attention/cost/typical_prices.h"
#include "tests/support/attention/random_problem.h"
#include "tests/support/attention/spec.h"
#include "tests/support/seeded.h"
#include "tests/support/temporary_folder.h"

namespace castor::attention {
namespace {

Spec SpecOf(const Kernel& kernel, int64_t heads = 2, int64_t head_dim = 4, int64_t value_dim = 6) {
  return MakeSpec(DType::kFloat32, kernel, heads, head_dim, value_dim);
}

TEST(FitCostsTest, PredictsWhatItHasNotSeen) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> price(0.5, 20);
  std::uniform_real_distribution<double> noise(0.98, 1.02);
  std::uniform_int_distribution<int32_t> tokens(16, 4096);
  CostTerms truth{};
  for (double& us : truth) us = price(random);
  const auto time = [&](const CostTerms& terms) {
    double us = 0;
    for (size_t t = 0; t < kCostTerms; ++t) us += terms[t] * truth[t];
    return us;
  };
  const auto problem = [&] {
    ImprovedClustered kernel;
    kernel.clusters = static_cast<int32_t>(random() % 200) + 1;
    kernel.iterations = static_cast<int32_t>(random() % 10) + 1;
    kernel.topk = static_cast<int32_t>(random() % 64) + 1;
    return CostTermsOf(SpecOf(kernel, 8, random() % 2 == 0 ? 32 : 64, 64),
                       OffsetsOf({tokens(random)}), OffsetsOf({tokens(random)}));
  };
  std::vector<CostSample> samples;
  for (int i = 0; i < 24; ++i) {
    const CostTerms terms = problem();
    samples.push_back({terms, time(terms) * noise(random)});
  }
  const CostTerms fitted = FitCosts(samples);
  for (const double us : fitted) EXPECT_GE(us, 0);
  for (int i = 0; i < 20; ++i) {
    const CostTerms terms = problem();
    double predicted = 0;
    for (size_t t = 0; t < kCostTerms; ++t) predicted += terms[t] * fitted[t];
    EXPECT_NEAR(predicted / time(terms), 1, 0.15);
  }
}

TEST(FitCostsTest, NeverPaysForWorkAndSurvivesNoSamples) {
  // Twice the work in half the time: the closest sensible model is a constant.
  CostSample small;
  small.terms[0] = 1;
  small.terms[1] = 1;
  small.us = 10;
  CostSample large = small;
  large.terms[1] = 2;
  large.us = 5;
  for (const double us : FitCosts(std::vector{small, large})) EXPECT_GE(us, 0);
  for (const double us : FitCosts({})) EXPECT_EQ(us, 0);
}

TEST(CostModelTest, KnowsOnlyWhatWasMeasured) {
  CostModel model;
  const auto offsets = OffsetsOf({10});
  EXPECT_FALSE(model.Predict(SpecOf(Vanilla{}), offsets, offsets).has_value());
  CostTerms prices{};
  prices[0] = 7;
  model.Set(KernelName::kVanilla, DType::kFloat32, prices);
  EXPECT_EQ(model.Predict(SpecOf(Vanilla{}), offsets, offsets), 7);
  EXPECT_FALSE(model.Predict(SpecOf(Clustered{}), offsets, offsets).has_value());
  Spec half = SpecOf(Vanilla{});
  half.dtype = DType::kFloat16;
  EXPECT_FALSE(model.Predict(half, offsets, offsets).has_value());
}

TEST(TypicalPricesTest, EveryTermThatOccursHasOne) {
  const auto offsets = OffsetsOf({300, 40});
  Cast single;
  single.clustering = Cast::Clustering::kSingleAssignmentTopK;
  single.attention_function = Cast::AttentionFunction::kLaplace;
  for (const Kernel& kernel : {Kernel(Vanilla{}), Kernel(Clustered{}), Kernel(ImprovedClustered{}),
                               Kernel(Cast{}), Kernel(single)}) {
    const Spec spec = MakeSpec(DType::kFloat32, kernel, 8, 20, 20, 16);
    const CostTerms terms = CostTermsOf(spec, offsets, offsets, {.workers = 2, .gain = 1});
    const CostTerms prices = TypicalPrices(NameOf(kernel));
    for (size_t t = 0; t < kCostTerms; ++t) {
      if (terms[t] > 0) {
        EXPECT_GT(prices[t], 0) << "term " << t << " of " << NameOf(NameOf(kernel));
      }
    }
  }
}

// ---- the file

CostModel RandomModel(std::mt19937& random) {
  std::uniform_real_distribution<double> price(0, 100);
  CostModel model;
  model.SetTeam({.workers = 1 + static_cast<int>(random() % 8), .gain = price(random) / 100});
  for (KernelName name : {KernelName::kVanilla, KernelName::kClustered,
                          KernelName::kImprovedClustered, KernelName::kCast}) {
    for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      CostTerms prices;
      for (double& us : prices) us = price(random);
      prices[random() % kCostTerms] = 0;
      model.Set(name, dtype, prices);
    }
  }
  return model;
}

class CostFileTest : public testing::Test, protected Seeded {
 protected:
  const TemporaryFolder folder_;
};

TEST_F(CostFileTest, ComesBackAsItWasWritten) {
  const CostModel model = RandomModel(random_);
  const std::string key = "castor 1; a device\nwith an odd name; 2 threads";
  const std::string file = folder_ / "costs";
  EXPECT_TRUE(absl::IsNotFound(ReadCosts(file, key).status()));
  ASSERT_TRUE(WriteCosts(file, model, key).ok());
  const auto read = ReadCosts(file, key);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->prices(), model.prices());
  EXPECT_EQ(read->team(), model.team());
}

// When servers start at the same time, all use the model of the first one.
TEST_F(CostFileTest, TheFirstOneStays) {
  const std::string file = folder_ / "costs";
  const CostModel first = RandomModel(random_);
  ASSERT_TRUE(WriteCosts(file, first, "key").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(WriteCosts(file, RandomModel(random_), "key")));
  EXPECT_EQ(ReadCosts(file, "key")->prices(), first.prices());
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    EXPECT_EQ(entry.path(), file) << "a temporary file was left";
    ++files;
  }
  EXPECT_EQ(files, 1u);
}

TEST_F(CostFileTest, IsRefusedForAnotherDeviceOrBuild) {
  const std::string file = folder_ / "costs";
  ASSERT_TRUE(WriteCosts(file, RandomModel(random_), "this device").ok());
  const auto read = ReadCosts(file, "another device");
  EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss) << read.status();
}

TEST_F(CostFileTest, EveryDamagedByteIsNoticed) {
  const std::string text = FormatCosts(RandomModel(random_), "key");
  ASSERT_TRUE(ParseCosts(text, "key").ok());
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (random_() % 7)));
    EXPECT_FALSE(ParseCosts(damaged, "key").ok()) << "byte " << i;
    EXPECT_FALSE(ParseCosts(text.substr(0, i), "key").ok()) << "cut at " << i;
  }
  EXPECT_FALSE(ParseCosts(text + " ", "key").ok());
  EXPECT_FALSE(ParseCosts("", "key").ok());
  EXPECT_FALSE(ParseCosts(FormatCosts(CostModel(), "key"), "key").ok()) << "no kernel in it";
}

TEST_F(CostFileTest, FoldersAndForbiddenPlacesAreErrors) {
  const std::string file = folder_ / "costs";
  std::filesystem::create_directory(file);
  EXPECT_FALSE(ReadCosts(file, "key").ok());
  EXPECT_FALSE(WriteCosts(file, RandomModel(random_), "key").ok());
  EXPECT_FALSE(WriteCosts("/proc/castor/costs", RandomModel(random_), "key").ok());
  std::filesystem::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);  // opening it to read would wait for a writer
  EXPECT_EQ(ReadCosts(file, "key").status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace castor::attention
