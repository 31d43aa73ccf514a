// Predictions of device time, and what they learn from runs.
#include "engine/jobs/predictor.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/attention/cost/automatic.h"
#include "engine/attention/cost/typical_prices.h"
#include "tests/support/attention/spec.h"
#include "tests/unit/loop/fake_model.h"

namespace castor {
namespace {

using attention::CostTerm;
using attention::CostTerms;

// 10 us for each batch, 1 us for each million products.
attention::CostModel Priced() {
  CostTerms prices{};
  prices[static_cast<size_t>(CostTerm::kLaunch)] = 10;
  prices[static_cast<size_t>(CostTerm::kScores)] = 1;
  attention::CostModel costs;
  for (const KernelRow& row : kKernels) costs.Set(row.name, DType::kFloat32, prices);
  return costs;
}

attention::Resolved ResolvedOf(const Kernel& kernel, int32_t tokens) {
  attention::Resolved resolved;
  resolved.spec = attention::MakeSpec(DType::kFloat32, kernel, 8, 64, 64, 16);
  resolved.cu_seqlens_q = resolved.cu_seqlens_k = {0, tokens};
  resolved.query_tokens = resolved.key_tokens = tokens;
  return resolved;
}

JobList JobsOf(const Kernel& kernel, const std::vector<int32_t>& tokens) {
  JobList jobs;
  for (const int32_t n : tokens) {
    auto job = std::make_unique<Job>();
    AttentionWork work;
    work.resolved = ResolvedOf(kernel, n);
    job->work = std::move(work);
    job->kernel = NameOf(kernel);
    jobs.push_back(std::move(job));
  }
  return jobs;
}

void Learn(Predictor& predictor, const JobList& jobs, double compute_us) {
  predictor.Learn(predictor.LessonOf(jobs, compute_us));
}

double Alone(const Predictor& predictor, const Kernel& kernel, int32_t tokens) {
  return predictor.Predict(Plan(), ResolvedOf(kernel, tokens)).alone_us();
}

LoadedModel ModelOf(uint64_t generation) {
  LoadedModel model;
  model.generation = generation;
  model.info.hidden_size = 384;
  model.info.layers = 6;
  model.info.heads = 12;
  model.info.max_tokens = 256;
  model.info.parameters = 22'000'000;
  model.info.vocabulary_size = 30522;
  return model;
}

// Of 12 layers, 9 see 64 tokens on each side.
class LocalModel : public FakeModel {
 public:
  LocalModel() : FakeModel("local") {}
  std::vector<encoder::AttentionLayers> attention(const Kernel& kernel) const override {
    std::vector<encoder::AttentionLayers> layers(2);
    layers[0] = {encoder::SelfAttentionSpec(DType::kFloat32, 384, 12, kernel), 3};
    layers[1] = {encoder::SelfAttentionSpec(DType::kFloat32, 384, 12, Vanilla{}), 9};
    layers[1].spec.window = 64;
    return layers;
  }
};

TEST(PredictorTest, LocalLayersArePricedByTheirLength) {
  const Predictor predictor(attention::CostModel(), 1);
  LoadedModel global = ModelOf(1);
  global.info.layers = 12;
  LoadedModel local = global;
  local.encoder = std::make_shared<LocalModel>();
  for (const Kernel& kernel : {Kernel(Vanilla{}), Kernel(attention::PlainClusters(100))}) {
    const auto us = [&](const LoadedModel& model, int32_t tokens) {
      return predictor.Predict(model, kernel, std::vector<int32_t>{0, tokens}).alone_us();
    };
    EXPECT_LT(us(local, 32768), us(global, 32768));
    const double rows = us(global, 32768) - us(local, 32768);
    if (std::holds_alternative<Vanilla>(kernel)) {
      // All but a quarter of the layers no longer grows with the square.
      EXPECT_NEAR(rows / us(global, 32768), 0.75, 0.05);
    }
  }
}

TEST(PredictorTest, SaysWhatThePricesSayAtFirst) {
  const Predictor predictor(Priced(), 1);
  const PredictedTime time = predictor.Predict(Plan(), ResolvedOf(Vanilla{}, 1024));
  EXPECT_DOUBLE_EQ(time.batch_us, 10);
  // Six tiles of 170 or 171 queries, in eleven vectors each.
  EXPECT_NEAR(time.own_us, 8 * 6 * 176 * 1024 * 128 * 1e-6, 1e-6);
  EXPECT_EQ(time.correction, 1);
  EXPECT_DOUBLE_EQ(time.alone_us(), time.batch_us + time.own_us);
}

TEST(PredictorTest, AProbeIsPartOfTheRequest) {
  const Predictor predictor(Priced(), 1);
  const attention::Resolved resolved = ResolvedOf(Clustered{}, 4096);
  const double without = predictor.Predict(Plan(), resolved).alone_us();
  const Plan probed(std::nullopt, 32, true);
  const double probe = predictor.Predict(probed, resolved).alone_us() - without;
  EXPECT_NEAR(probe, 10 + 8 * 32 * 4096 * 128 * 1e-6, 1e-6);
}

TEST(PredictorTest, LearnsForOneKernel) {
  Predictor predictor(Priced(), 1);
  const double base = Alone(predictor, Vanilla{}, 1024);
  const double other = Alone(predictor, Clustered{}, 1024);
  for (int i = 0; i < 100; ++i) Learn(predictor, JobsOf(Vanilla{}, {1024}), 2 * base);
  EXPECT_NEAR(Alone(predictor, Vanilla{}, 1024) / base, 2, 0.05);
  EXPECT_EQ(Alone(predictor, Clustered{}, 1024), other);
  const PredictedTime time = predictor.Predict(Plan(), ResolvedOf(Vanilla{}, 1024));
  EXPECT_NEAR(time.alone_us() / time.correction, base, 1e-6);
  for (const double us : {0.0, -1.0}) Learn(predictor, JobsOf(Vanilla{}, {1024}), us);
  Learn(predictor, {}, 100);
  EXPECT_EQ(predictor.Predict(Plan(), ResolvedOf(Vanilla{}, 1024)).alone_us(), time.alone_us());
}

// A batch pays once for what its requests share.
TEST(PredictorTest, LearnsFromBatches) {
  Predictor predictor(Priced(), 1);
  const PredictedTime base = predictor.Predict(Plan(), ResolvedOf(Vanilla{}, 64));
  const double batch_us = base.batch_us + 8 * base.own_us;
  const std::vector<int32_t> eight(8, 64);
  for (int i = 0; i < 20; ++i) Learn(predictor, JobsOf(Vanilla{}, eight), batch_us);
  EXPECT_NEAR(Alone(predictor, Vanilla{}, 64), base.alone_us(), 1e-9) << "as predicted";
  for (int i = 0; i < 200; ++i) Learn(predictor, JobsOf(Vanilla{}, eight), 3 * batch_us);
  // Of such batches. How much of it is the launch, only batches of other sizes tell.
  const PredictedTime learned = predictor.Predict(Plan(), ResolvedOf(Vanilla{}, 64));
  EXPECT_NEAR((learned.batch_us + 8 * learned.own_us) / batch_us, 3, 0.1);
  for (int i = 0; i < 200; ++i) {
    Learn(predictor, JobsOf(Vanilla{}, eight), 3 * batch_us);
    Learn(predictor, JobsOf(Vanilla{}, {64}), 3 * base.alone_us());
  }
  EXPECT_NEAR(Alone(predictor, Vanilla{}, 64) / base.alone_us(), 3, 0.1);
}

TEST(PredictorTest, WithoutPricesItCountsAndLearnsMore) {
  Predictor predictor({}, 2);
  for (const Kernel& kernel :
       {Kernel(Vanilla{}), Kernel(Clustered{}), Kernel(ImprovedClustered{}), Kernel(Cast{})}) {
    const double small = Alone(predictor, kernel, 64);
    const double large = Alone(predictor, kernel, 8192);
    EXPECT_GT(small, 1);
    EXPECT_GT(large, 10 * small);
    EXPECT_LT(large, 1e7);
    for (int i = 0; i < 300; ++i) Learn(predictor, JobsOf(kernel, {8192}), 50 * large);
    EXPECT_NEAR(Alone(predictor, kernel, 8192) / large, 50, 5);
  }
}

TEST(PredictorTest, WithoutPricesTheyStandAsUsual) {
  const Predictor predictor({}, 1);
  const auto times_of = [&](const Kernel& kernel) {
    const attention::Resolved resolved = ResolvedOf(kernel, 1000);
    const CostTerms terms =
        attention::CostTermsOf(resolved.spec, resolved.cu_seqlens_q, resolved.cu_seqlens_k);
    const double usual =
        attention::CostsOf(terms, attention::TypicalPrices(NameOf(kernel))).total_us();
    return predictor.Predict(Plan(), resolved).alone_us() / usual;
  };
  const double slower = times_of(Vanilla{});
  EXPECT_GE(slower, 1) << "the usual processor is a fast one";
  EXPECT_LE(slower, 4);
  EXPECT_DOUBLE_EQ(times_of(ImprovedClustered{}), slower);
  EXPECT_DOUBLE_EQ(times_of(Cast{}), slower);
}

TEST(PredictorTest, AnEncodersOwnPricesCount) {
  const Predictor predictor({}, 1);
  LoadedModel model = ModelOf(1);
  const std::vector<int32_t> few = {0, 8};
  const std::vector<int32_t> many = {0, 100, 200};
  const double assumed = predictor.Predict(model, Vanilla{}, few).alone_us();
  EXPECT_GT(assumed, 10);
  EXPECT_GT(predictor.Predict(model, Vanilla{}, many).alone_us(), 5 * assumed);
  model.costs = {.prices = {100, 10, 2, 0}, .measured = true};
  const PredictedTime time = predictor.Predict(model, Vanilla{}, many);
  EXPECT_DOUBLE_EQ(time.batch_us, 100);
  EXPECT_DOUBLE_EQ(time.own_us, 2 * 10 + 200 * 2);
  EXPECT_GT(predictor.Predict(model, Clustered{}, many).own_us, time.own_us)
      << "attention, which these prices do not have";
}

// A head that goes through more takes longer, whatever the tokens are.
TEST(PredictorTest, WhatTheHeadReadsCounts) {
  const Predictor predictor({}, 1);
  LoadedModel model = ModelOf(1);
  model.costs = {.prices = {100, 10, 2, 0}, .measured = true};
  const std::vector<int32_t> offsets = {0, 64};
  const double without = predictor.Predict(model, Vanilla{}, offsets).alone_us();
  EXPECT_DOUBLE_EQ(predictor.Predict(model, Vanilla{}, offsets, 1.6e9).alone_us(),
                   without + encoder::ReadOutUs(1.6e9, 1));
}

TEST(PredictorTest, LearnsHowManyTokensTextsHave) {
  Predictor predictor({}, 1);
  const LoadedModel model = ModelOf(1);
  const std::string word(450, 'a');
  TextInput input;
  input.texts = {word, word};
  EXPECT_EQ(predictor.ExpectedOffsets("a", model, input), (std::vector<int32_t>{0, 102, 204}));
  // Three bytes a token, and a text that was cut, which says nothing.
  encoder::Prepared prepared;
  prepared.cu_seqlens = {0, 152, 408};
  prepared.truncated = {false, true};
  for (int i = 0; i < 100; ++i) predictor.LearnTexts("a", model, input, prepared);
  const std::vector<int32_t> offsets = predictor.ExpectedOffsets("a", model, input);
  EXPECT_NEAR(offsets[1], 152, 2);
  // Other tenants and models keep their own.
  EXPECT_EQ(predictor.ExpectedOffsets("b", model, input)[1], 102);
  EXPECT_EQ(predictor.ExpectedOffsets("a", ModelOf(2), input)[1], 102);
  // No more than the model takes.
  const std::string book(100'000, 'a');
  input.texts = {book};
  EXPECT_EQ(predictor.ExpectedOffsets("a", model, input).back(), 256);
}

TEST(PredictorTest, ForgetsTheTextsOfTheOldestModelsOfWhoHasMost) {
  Predictor predictor({}, 1);
  const std::string word(450, 'a');
  TextInput input;
  input.texts = {word};
  encoder::Prepared prepared;
  prepared.cu_seqlens = {0, 152};
  prepared.truncated = {false};
  predictor.LearnTexts("b", ModelOf(1), input, prepared);
  for (uint64_t generation = 1; generation <= 300; ++generation) {
    predictor.LearnTexts("a", ModelOf(generation), input, prepared);
  }
  const auto expected = [&](const std::string& tenant, uint64_t generation) {
    return predictor.ExpectedOffsets(tenant, ModelOf(generation), input)[1];
  };
  EXPECT_EQ(expected("a", 1), 102);
  EXPECT_GT(expected("a", 300), 102);
  EXPECT_GT(expected("b", 1), 102);
}

TEST(PredictorTest, ForgetsTheOldestOfManyModels) {
  Predictor predictor({}, 1);
  const std::vector<int32_t> offsets = {0, 64};
  const auto learn = [&](const std::shared_ptr<const LoadedModel>& model) {
    JobList jobs;
    jobs.push_back(std::make_unique<Job>());
    jobs.back()->operation = Operation::kEncode;
    EncodeWork work;
    work.model = model;
    work.item.cu_seqlens = offsets;
    jobs.back()->work = std::move(work);
    const double base = predictor.Base(*model, Vanilla{}, offsets).alone_us();
    for (int i = 0; i < 50; ++i) Learn(predictor, jobs, 3 * base);
  };
  const auto correction = [&](const LoadedModel& model) {
    return predictor.Predict(model, Vanilla{}, offsets).correction;
  };
  for (uint64_t generation = 1; generation <= 300; ++generation) {
    learn(std::make_shared<LoadedModel>(ModelOf(generation)));
  }
  EXPECT_EQ(correction(ModelOf(1)), 1);
  EXPECT_NEAR(correction(ModelOf(300)), 3, 0.2);
}

TEST(PredictorTest, ManyThreadsAskWhileOneLearns) {
  Predictor predictor(Priced(), 1);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) EXPECT_GT(Alone(predictor, Vanilla{}, 64 + i), 0);
    });
  }
  for (int i = 0; i < 2000; ++i) Learn(predictor, JobsOf(Vanilla{}, {64 + i}), 100);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace castor
