// What a batch of an encoder costs: its terms, and prices from a few runs.
#include "engine/encoder/network/cost_model.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/support/seeded.h"

namespace castor::encoder {
namespace {

TEST(EncoderCostTest, TermsCountRowsAndPairs) {
  const std::vector<int32_t> offsets = {0, 10, 42};
  EXPECT_EQ(CostTermsOf(offsets), (CostTerms{1, 2, 42, (16 * 10 + 32 * 32) * 1e-3}));
}

// What requests decide beside their tokens.
TEST(EncoderCostTest, ReadingOutCountsSpansAndWideRows) {
  ModelInfo info;
  info.vocabulary_size = 1000;
  info.hidden_size = 24;
  info.outputs = {EncodeOutput::kPooled, EncodeOutput::kSparse};
  info.labels = {"a", "b"};
  const std::vector<int32_t> offsets = {0, 10, 42};
  EncodeRequest request;
  request.input = TokenInput{};
  EXPECT_EQ(ReadOutElements(request, info, offsets), 0);
  request.output = EncodeOutput::kSparse;
  EXPECT_EQ(ReadOutElements(request, info, offsets), 2 * 1000);
  request.output = EncodeOutput::kLogits;
  EXPECT_EQ(ReadOutElements(request, info, offsets), 2 * 2);
  request.output = std::nullopt;
  request.spans.ranges = {{.sequence = 0, .begin = 0, .end = 10},
                          {.sequence = 1, .begin = 5, .end = 25},
                          {.sequence = 1, .begin = 0, .end = int64_t{1} << 62}};
  EXPECT_EQ(ReadOutElements(request, info, offsets), (10 + 20 + 32) * 24);
  request.input = TextInput{};
  EXPECT_EQ(ReadOutElements(request, info, offsets), (2.5 + 5 + 32) * 24) << "of characters";

  BatchItem item{.cu_seqlens = offsets};
  EXPECT_EQ(ReadOutElements(item, info), 0);
  const std::vector<RowRange> spans = {{0, 10}, {15, 35}, {}};
  item.spans = spans;
  EXPECT_EQ(ReadOutElements(item, info), (10 + 20) * 24);
  item.pooling = request.pooling.emplace(Pooling::kLastToken);
  EXPECT_EQ(ReadOutElements(item, info), 2 * 24) << "one row of each that is not empty";
  EXPECT_EQ(ReadOutElements(request, info, offsets), 3 * 24);
  item.spans = {};
  item.output_kind = EncodeOutput::kSparse;
  EXPECT_EQ(ReadOutElements(item, info), 2 * 1000);
  EXPECT_GT(ReadOutUs(4e6, 1), 3 * ReadOutUs(1e6, 1));
  EXPECT_GT(ReadOutUs(4e6, 1), ReadOutUs(4e6, 2));
  EXPECT_GT(ReadOutUs(4e6, 8), ReadOutUs(4e6, 0)) << "no threads: an accelerator";
}

// A model of two layers in three that see 64 tokens on each side.
TEST(EncoderCostTest, LocalLayersTakeTimeByTheirLength) {
  std::vector<AttentionLayers> layers(2);
  layers[0].layers = 1;
  layers[1].layers = 2;
  layers[1].spec.window = 64;
  const auto pairs = [&](int32_t tokens) {
    return CostTermsOf(std::vector<int32_t>{0, tokens},
                       layers)[static_cast<size_t>(CostTerm::kPairs)];
  };
  EXPECT_DOUBLE_EQ(pairs(8192), 8192e-3 * (8192 + 2 * (128 + 48)) / 3);
  EXPECT_DOUBLE_EQ(pairs(64), 64e-3 * 64);
  layers.erase(layers.begin());
  EXPECT_DOUBLE_EQ(pairs(1 << 20) / pairs(1 << 17), 8);
}

// 16 clusters by default, each of a sixteenth: a token is in one of them, and meets 16 surrogates
// twice and 16 summaries.
TEST(EncoderCostTest, CastLayersComputeWithClusters) {
  std::vector<AttentionLayers> layers(1);
  layers[0] = {.spec = {.kernel = Cast{}, .surrogates = 16}, .layers = 3};
  const auto pairs = [&](int32_t tokens) {
    return CostTermsOf(std::vector<int32_t>{0, tokens},
                       layers)[static_cast<size_t>(CostTerm::kPairs)];
  };
  EXPECT_DOUBLE_EQ(pairs(4096), 4096e-3 * (256 + 3 * 16));
  EXPECT_DOUBLE_EQ(pairs(1), 16e-3 * (16 + 3 * 16));
}

double TimeOf(const CostTerms& terms, const CostTerms& prices) {
  double us = 0;
  for (size_t t = 0; t < kCostTerms; ++t) us += terms[t] * prices[t];
  return us;
}

TEST(EncoderCostTest, AFewRunsTellThePrices) {
  const CostTerms truth = {500, 20, 90, 300};
  const CostModel assumed = {.prices = {1000, 40, 180, 400}};
  std::vector<CostSample> samples;
  for (const std::vector<int32_t>& offsets :
       {std::vector<int32_t>{0, 8}, {0, 64, 128}, {0, 256}, {0, 1, 2, 3, 4, 5, 6, 7, 8}, {0, 32}}) {
    EXPECT_FALSE(samples.size() < kCostTerms && FitCosts(samples, assumed).has_value());
    const CostTerms terms = CostTermsOf(offsets);
    samples.push_back({terms, TimeOf(terms, truth)});
  }
  const auto fitted = FitCosts(samples, assumed);
  ASSERT_TRUE(fitted.has_value());
  EXPECT_TRUE(fitted->measured);
  const CostTerms other = CostTermsOf(std::vector<int32_t>{0, 100, 150, 151});
  const double us = fitted->batch_us(other) + fitted->rows_us(other) + fitted->pairs_us(other);
  EXPECT_NEAR(us / TimeOf(other, truth), 1, 0.02);
}

// What a start runs may take half as long again, and of a model of base size it runs no text of
// more than 64 tokens. Once a document of 8,192 was refused for the 1,400 s that it would take; it
// took 26.
TEST(EncoderCostTest, ShortRunsThatVaryDoNotMisjudgeALongText) {
  const CostTerms truth = {2'000, 30, 1'200, 240};
  const CostModel assumed = {.prices = {16'000, 14, 2'100, 520}};
  const CostTerms document = CostTermsOf(std::vector<int32_t>{0, 8192});
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> slower(0, 0.6);
  for (int round = 0; round < 200; ++round) {
    std::vector<CostSample> samples;
    for (const std::vector<int32_t>& offsets : {std::vector<int32_t>{0, 8},
                                                {0, 5, 36, 100, 101, 120},
                                                {0, 32},
                                                {0, 4, 8, 12, 16},
                                                {0, 1}}) {
      const CostTerms terms = CostTermsOf(offsets);
      samples.push_back({terms, TimeOf(terms, truth) * (1 + slower(random))});
    }
    const double ratio =
        TimeOf(document, FitCosts(samples, assumed)->prices) / TimeOf(document, truth);
    EXPECT_GT(ratio, 0.5);
    EXPECT_LT(ratio, 2);
  }
}

TEST(EncoderCostTest, AModelThatWasNeverMeasuredHasUsablePrices) {
  ModelInfo info;
  EXPECT_FALSE(AssumedCosts(info, 1).measured);
  info.hidden_size = 384;
  info.layers = 6;
  info.heads = 12;
  info.vocabulary_size = 30522;
  info.parameters = 22'700'000;
  const CostTerms terms = CostTermsOf(std::vector<int32_t>{0, 128});
  const CostModel one = AssumedCosts(info, 1);
  const CostModel four = AssumedCosts(info, 4);
  EXPECT_GT(one.rows_us(terms), 1'000);
  EXPECT_LT(one.rows_us(terms), 1'000'000);
  EXPECT_LT(four.rows_us(terms), one.rows_us(terms));
}

}  // namespace
}  // namespace castor::encoder
