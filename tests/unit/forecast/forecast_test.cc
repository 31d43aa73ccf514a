// Predictions of device time, and what they learn from runs.
#include "engine/forecast/forecast.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/attention/spec.h"
#include "tests/unit/loop/fake_model.h"

namespace castor {
namespace {

// Launches, 7 us for vanilla, and products, at what they take on the reference processor.
CostModel Priced() {
  CostTerms prices{};
  prices[static_cast<size_t>(CostTerm::kLaunch)] = 1;
  prices[static_cast<size_t>(CostTerm::kScores)] = 1;
  CostModel costs;
  for (const KernelRow& row : kKernels) costs.Set(row.name, DType::kFloat32, prices);
  return costs;
}

Forecast Make(CostModel costs = {}, EncoderPrices encoders = {}) {
  return Forecast({}, /*copies=*/false, std::move(costs), std::move(encoders));
}

// Of `rows` queries that attend to `keys` keys of 8 heads of 64: 8e-6 us for a multiply-add, and
// 170e-6 us for an output's element and each 128 keys.
double ProductsUs(double rows, double keys) {
  return 8 * rows * 128 * (8e-6 * keys + 170e-6 * std::ceil(keys / 128));
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

void Learn(Forecast& forecast, const JobList& jobs, double compute_us) {
  forecast.Learn(forecast.SampleOf(jobs, compute_us));
}

PredictedTime Predict(const Forecast& forecast, const Kernel& kernel, int32_t tokens,
                      const Plan& plan = Plan()) {
  return forecast.Of(plan, ResolvedOf(kernel, tokens)).time;
}

double Alone(const Forecast& forecast, const Kernel& kernel, int32_t tokens) {
  return Predict(forecast, kernel, tokens).alone_us();
}

class GlobalModel : public FakeModel {
 public:
  explicit GlobalModel(int64_t layers) : FakeModel("global"), layers_(layers) {}
  std::vector<encoder::AttentionLayers> attention(const Kernel& kernel) const override {
    return {{encoder::SelfAttentionSpec(DType::kFloat32, 384, 12, kernel), layers_}};
  }

 private:
  const int64_t layers_;
};

LoadedModel ModelOf(uint64_t number) {
  LoadedModel model;
  model.number = number;
  model.info.hidden_size = 384;
  model.info.layers = 6;
  model.info.heads = 12;
  model.info.max_tokens = 256;
  model.info.parameters = 22'000'000;
  model.info.vocabulary_size = 30522;
  model.encoder = std::make_shared<GlobalModel>(6);
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
    layers[1].spec.window = attention::SymmetricWindow(64);
    return layers;
  }
};

PredictedTime Predict(const Forecast& forecast, const LoadedModel& model, const Kernel& kernel,
                      const std::vector<int32_t>& offsets, const EncodeRequest& request = {}) {
  EncodeWork work;
  work.request = request;
  work.model = std::make_shared<const LoadedModel>(model);
  work.kernel = kernel;
  return forecast.Of(work, offsets).time;
}

TEST(ForecastTest, LocalLayersArePricedByTheirLength) {
  const Forecast forecast = Make();
  LoadedModel global = ModelOf(1);
  global.info.layers = 12;
  global.encoder = std::make_shared<GlobalModel>(12);
  LoadedModel local = global;
  local.encoder = std::make_shared<LocalModel>();
  for (const Kernel& kernel : {Kernel(Vanilla{}), Kernel(attention::PlainClusters(100))}) {
    const double all = Predict(forecast, global, kernel, {0, 32768}).alone_us();
    const double some = Predict(forecast, local, kernel, {0, 32768}).alone_us();
    if (std::holds_alternative<Vanilla>(kernel)) {
      // All but a quarter of the layers no longer grows with the square.
      EXPECT_NEAR(some / all, 0.25, 0.05);
    } else {
      EXPECT_NE(some, all) << "local layers stay exact";
    }
  }
}

TEST(ForecastTest, CausalLayersArePricedByWhatTheirTokensSee) {
  const Forecast forecast = Make();
  LoadedModel model = ModelOf(1);
  const double all = Predict(forecast, model, Vanilla{}, {0, 32768}).alone_us();
  const double half = Predict(forecast, model, Vanilla{.causal = true}, {0, 32768}).alone_us();
  EXPECT_NEAR(half / all, 0.5, 0.05);
}

TEST(ForecastTest, AttentionIsPricedByTheKeysThatMasksLeave) {
  const CostModel costs = Priced();
  const auto us = [&](const attention::Spec& spec, int32_t queries, int32_t keys,
                      std::vector<attention::Place> places = {}) {
    const std::vector<int32_t> q = {0, queries};
    const std::vector<int32_t> k = {0, keys};
    return costs.Of(spec, q, k, places).own_us;
  };
  const attention::Spec all = attention::MakeSpec(DType::kFloat32, Vanilla{}, 8, 64, 64);
  attention::Spec causal = all;
  causal.kernel = Vanilla{.causal = true};
  EXPECT_NEAR(us(causal, 4096, 4096) / us(all, 4096, 4096), 0.5, 0.02);
  // The last 1024 of 4096 see all but half of themselves.
  EXPECT_NEAR(us(causal, 1024, 4096) / us(all, 1024, 4096), 0.875, 0.02);
  // The first 3072 of 4096 see none of the keys.
  EXPECT_NEAR(us(causal, 4096, 1024) / us(all, 4096, 1024), 0.125, 0.03);
  EXPECT_NEAR(us(causal, 4096, 4096, {{.shift = 0}}) / us(all, 4096, 4096), 0.5, 0.03);
  EXPECT_NEAR(us(causal, 4096, 1024, {{.shift = 1024}}) / us(all, 4096, 1024), 1, 0.03);
  EXPECT_LT(us(causal, 4096, 4096, {{.shift = -5000}}), 0.01 * us(all, 4096, 4096)) << "all later";
  attention::Spec capped = all;
  capped.softcap = 30;
  const std::vector<int32_t> offsets = {0, 4096};
  constexpr auto kWeights = static_cast<size_t>(CostTerm::kWeights);
  EXPECT_GT(CostTermsOf(capped, offsets, offsets)[kWeights],
            4 * CostTermsOf(all, offsets, offsets)[kWeights]);
  attention::Spec window = causal;
  window.window.left = 256;
  EXPECT_NEAR(us(window, 16384, 16384) / us(window, 4096, 4096), 4, 0.4);
  window.window.always_visible = 1;  // of keys that begin at -16384 all are
  EXPECT_NEAR(
      us(window, 16384, 16384, {{.shift = 16384, .visible = 16384}}) / us(all, 16384, 16384), 1,
      0.03);
}

TEST(ForecastTest, AProbeIsPartOfTheRequest) {
  const Forecast forecast = Make(Priced());
  const double without = Alone(forecast, Clustered{}, 4096);
  const Plan probed(32, true);
  const double probe = Predict(forecast, Clustered{}, 4096, probed).alone_us() - without;
  EXPECT_NEAR(probe, 7 + ProductsUs(32, 4096), 1e-6);
}

TEST(ForecastTest, LearnsForOneKernel) {
  Forecast forecast = Make(Priced());
  const double base = Alone(forecast, Vanilla{}, 1024);
  const double other = Alone(forecast, Clustered{}, 1024);
  for (int i = 0; i < 100; ++i) Learn(forecast, JobsOf(Vanilla{}, {1024}), 2 * base);
  EXPECT_NEAR(Alone(forecast, Vanilla{}, 1024) / base, 2, 0.05);
  EXPECT_EQ(Alone(forecast, Clustered{}, 1024), other);
  const PredictedTime time = Predict(forecast, Vanilla{}, 1024);
  EXPECT_NEAR(time.alone_us() / time.correction, base, 1e-6);
  for (const double us : {0.0, -1.0}) Learn(forecast, JobsOf(Vanilla{}, {1024}), us);
  Learn(forecast, {}, 100);
  EXPECT_EQ(Predict(forecast, Vanilla{}, 1024).alone_us(), time.alone_us());
}

// What is wrong with every size is learned from few runs of each.
TEST(ForecastTest, ARunCountsForSizesNearItsOwn) {
  const Forecast untaught = Make(Priced());
  Forecast forecast = Make(Priced());
  for (int i = 0; i < 10; ++i) {
    Learn(forecast, JobsOf(Vanilla{}, {1024}), 2 * Alone(untaught, Vanilla{}, 1024));
  }
  const auto factor = [&](int32_t tokens) {
    return Alone(forecast, Vanilla{}, tokens) / Alone(untaught, Vanilla{}, tokens);
  };
  EXPECT_GT(factor(2048), 1.2);
  EXPECT_LT(factor(16), 1.1);
}

// A batch pays once for what its requests share.
TEST(ForecastTest, LearnsFromBatches) {
  Forecast forecast = Make(Priced());
  const PredictedTime base = Predict(forecast, Vanilla{}, 64);
  const double batch_us = base.batch_us + 8 * base.own_us;
  const std::vector<int32_t> eight(8, 64);
  for (int i = 0; i < 20; ++i) Learn(forecast, JobsOf(Vanilla{}, eight), batch_us);
  EXPECT_NEAR(Alone(forecast, Vanilla{}, 64), base.alone_us(), 1e-9) << "as predicted";
  for (int i = 0; i < 200; ++i) Learn(forecast, JobsOf(Vanilla{}, eight), 3 * batch_us);
  EXPECT_NEAR(Alone(forecast, Vanilla{}, 64) / base.alone_us(), 3, 0.1);
}

TEST(ForecastTest, WithoutPricesItCountsAndLearnsMore) {
  Forecast forecast = Make();
  for (const Kernel& kernel :
       {Kernel(Vanilla{}), Kernel(Clustered{}), Kernel(ImprovedClustered{}), Kernel(Cast{})}) {
    const double small = Alone(forecast, kernel, 64);
    const double large = Alone(forecast, kernel, 8192);
    EXPECT_GT(small, 1);
    EXPECT_GT(large, 10 * small);
    EXPECT_LT(large, 1e7);
    for (int i = 0; i < 5; ++i) Learn(forecast, JobsOf(kernel, {8192}), 50 * large);
    EXPECT_NEAR(Alone(forecast, kernel, 8192) / large, 50, 1) << "soon";
  }
}

TEST(ForecastTest, AnEncodersOwnPricesCount) {
  const std::vector<int32_t> few = {0, 8};
  const std::vector<int32_t> many = {0, 100, 200};
  const LoadedModel model = ModelOf(1);
  const Forecast assumed = Make();
  EXPECT_GT(Predict(assumed, model, Vanilla{}, few).alone_us(), 10);
  EXPECT_GT(Predict(assumed, model, Vanilla{}, many).alone_us(),
            5 * Predict(assumed, model, Vanilla{}, few).alone_us());
  const Forecast forecast = Make({}, {{1, {100, 10, 2, 0}}});
  const PredictedTime time = Predict(forecast, model, Vanilla{}, many);
  EXPECT_DOUBLE_EQ(time.batch_us, 100);
  EXPECT_DOUBLE_EQ(time.own_us, 2 * 10 + 200 * 2);
  EXPECT_GT(Predict(forecast, model, Clustered{}, many).own_us, time.own_us)
      << "attention, which these prices do not have";
}

// A head that goes through more takes longer, whatever the tokens are.
TEST(ForecastTest, WhatTheHeadReadsCounts) {
  CostModel one_core;
  one_core.SetWorkers(1);
  const Forecast forecast = Make(one_core, {{1, {100, 10, 2, 0}}});
  const LoadedModel model = ModelOf(1);
  const std::vector<int32_t> offsets = {0, 64};
  EncodeRequest request;
  request.input = TokenInput{};
  const double without = Predict(forecast, model, Vanilla{}, offsets, request).alone_us();
  request.spans.ranges.assign(1000, {.sequence = 0, .begin = 0, .end = 64});
  const double with = Predict(forecast, model, Vanilla{}, offsets, request).alone_us();
  EXPECT_NEAR(with - without, 1000 * 64 * 384 / 4e3, 1e-6) << "4e3 elements in a microsecond";
}

TEST(ForecastTest, MaxSimTakesTimeForEachPairOfRows) {
  CostModel one_core;
  one_core.SetWorkers(1);
  const Forecast forecast = Make(one_core, {{1, {100, 10, 2, 0}}});
  LoadedModel model = ModelOf(1);
  model.info.token_size = 120;
  EncodeRequest request;
  request.output = EncodeOutput::kTokenEmbeddings;
  const auto us = [&](int32_t query, int32_t documents) {
    return Predict(forecast, model, Vanilla{}, {0, query, query + 10, query + documents}, request)
        .alone_us();
  };
  const double rows = us(500, 4000);
  request.output = EncodeOutput::kMaxSim;
  EXPECT_NEAR(us(500, 4000) - rows, 500 * 4000 * (120 / 10 + 1) / 4e3, 1)
      << "one element for each pair, and as many as ten products";
}

TEST(ForecastTest, LearnsHowManyTokensTextsHave) {
  Forecast forecast = Make();
  const std::string word(450, 'a');
  const auto work_of = [&](const std::string& tenant, uint64_t model) {
    EncodeWork work;
    work.request.call.tenant = tenant;
    work.request.input = TextInput{{word, word}, {}, false};
    work.model = std::make_shared<const LoadedModel>(ModelOf(model));
    return work;
  };
  EncodeWork work = work_of("a", 1);
  EXPECT_EQ(forecast.ExpectedOffsets(work), (std::vector<int32_t>{0, 102, 204}));
  // Three bytes a token, and a text that was cut, which says nothing.
  work.prepared.cu_seqlens = {0, 152, 408};
  work.prepared.truncated = {false, true};
  for (int i = 0; i < 100; ++i) forecast.LearnTexts(work);
  EXPECT_NEAR(forecast.ExpectedOffsets(work)[1], 152, 2);
  // A query that is padded says nothing either.
  EncodeWork query = work_of("a", 1);
  ModelInfo padding = query.model->info;
  padding.prompts.all = {{.name = "query", .text = "", .padded_to = 152}};
  LoadedModel model = ModelOf(1);
  model.info = padding;
  query.model = std::make_shared<const LoadedModel>(std::move(model));
  query.request.prompt_name = "query";
  query.prepared.cu_seqlens = {0, 400, 800};
  query.prepared.truncated = {false, false};
  for (int i = 0; i < 100; ++i) forecast.LearnTexts(query);
  EXPECT_NEAR(forecast.ExpectedOffsets(work)[1], 152, 2);
  // Other tenants and models keep their own.
  EXPECT_EQ(forecast.ExpectedOffsets(work_of("b", 1))[1], 102);
  EXPECT_EQ(forecast.ExpectedOffsets(work_of("a", 2))[1], 102);
  // No more than the model takes.
  const std::string book(100'000, 'a');
  work.request.input = TextInput{{book}, {}, false};
  EXPECT_EQ(forecast.ExpectedOffsets(work).back(), 256);
}

// Of tokens and embeddings the lengths are known.
TEST(ForecastTest, LongSequencesAreCut) {
  const Forecast forecast = Make();
  EncodeWork work;
  work.model = std::make_shared<const LoadedModel>(ModelOf(1));
  work.request.input = TokenInput{std::vector<int64_t>(306), {}, {6, 300}};
  EXPECT_EQ(forecast.ExpectedOffsets(work), (std::vector<int32_t>{0, 6, 262}));
  work.request.input = TokenInput{std::vector<int64_t>(6), {}, {}};
  EXPECT_EQ(forecast.ExpectedOffsets(work), (std::vector<int32_t>{0, 6}));
  EmbeddingInput rows;
  rows.values.shape = {7, 384};
  work.request.input = rows;
  EXPECT_EQ(forecast.ExpectedOffsets(work), (std::vector<int32_t>{0, 7}));
}

TEST(ForecastTest, ManyThreadsAskWhileOneLearns) {
  Forecast forecast = Make(Priced());
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) EXPECT_GT(Alone(forecast, Vanilla{}, 64 + i), 0);
    });
  }
  for (int i = 0; i < 2000; ++i) Learn(forecast, JobsOf(Vanilla{}, {64 + i}), 100);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace castor
