// What the tiny BERT computes in batches, compared with alone, and with every option of a request.
// Parity with transformers is parity_test.cc's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/run_control.h"
#include "engine/encoder/model.h"
#include "engine/encoder/network/network.h"
#include "tests/support/seeded.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

// A BatchItem that owns the memory it points to.
struct Work {
  std::vector<int64_t> ids = {};
  std::vector<int64_t> type_ids = {};
  std::vector<int32_t> cu_seqlens = {0};
  std::vector<float> embeddings = {};
  EncodeOutput output_kind = EncodeOutput::kTokenEmbeddings;
  Pooling pooling = Pooling::kMean;
  bool normalize = false;
  int64_t dimensions = kHidden;
  std::vector<float> output = {};

  BatchItem Item() {
    BatchItem item{.cu_seqlens = cu_seqlens, .ids = ids, .type_ids = type_ids};
    if (!embeddings.empty()) {
      item.embeddings = reinterpret_cast<const std::byte*>(embeddings.data());
    }
    item.output_kind = output_kind;
    item.pooling = pooling;
    item.normalize = normalize;
    item.dimensions = dimensions;
    output.assign(item.output_rows() * dimensions, NAN);
    item.output = output.data();
    return item;
  }
};

void Compute(std::shared_ptr<const Model> model, const std::vector<Work*>& works,
             Kernel kernel = Vanilla{}) {
  Batch batch{.model = std::move(model), .kernel = std::move(kernel), .items = {}};
  for (Work* work : works) batch.items.push_back(work->Item());
  const absl::Status status = RunOnHost(batch, RunToEnd());
  ASSERT_TRUE(status.ok()) << status;
}

double MaxDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(double{a[i]} - b[i]);
    worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
  }
  return worst;
}

Work RandomWork(std::mt19937& rng, int sequences) {
  Work work;
  for (int s = 0; s < sequences; ++s) {
    const int tokens = std::uniform_int_distribution(1, 32)(rng);
    for (int t = 0; t < tokens; ++t) {
      work.ids.push_back(std::uniform_int_distribution(0, 24)(rng));
      work.type_ids.push_back(std::uniform_int_distribution(0, 1)(rng));
    }
    work.cu_seqlens.push_back(static_cast<int32_t>(work.ids.size()));
  }
  return work;
}

class ForwardTest : public testing::Test {
 protected:
  void SetUp() override {
    auto model = LoadOnCpu(GoldenDirectory() + "/tiny_bert");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    rng_.seed(seed_);
    RecordProperty("seed", static_cast<int>(seed_));
  }

  std::shared_ptr<Model> model_;
  const unsigned seed_ = TestSeed();
  std::mt19937 rng_;
};

// Lets a watchdog tell a long batch from one that hangs.
TEST_F(ForwardTest, BeatsInEveryLayer) {
  Heartbeat heartbeat;
  const BoundHeartbeat bound(heartbeat);
  Work work = RandomWork(rng_, 3);
  Compute(model_, {&work});
  EXPECT_GE(heartbeat.Read().beats, 2 * static_cast<uint64_t>(model_->info().layers));
}

// More tokens than the CPU projects at a time.
TEST_F(ForwardTest, AnEnormousBatchGivesWhatASequenceGivesAlone) {
  Work many = RandomWork(rng_, 1500);
  ASSERT_GT(many.ids.size(), 16384U);
  Compute(model_, {&many});
  for (const size_t s : {size_t{0}, many.cu_seqlens.size() / 2, many.cu_seqlens.size() - 2}) {
    const int32_t begin = many.cu_seqlens[s];
    const int32_t end = many.cu_seqlens[s + 1];
    Work one{.ids = {many.ids.begin() + begin, many.ids.begin() + end},
             .type_ids = {many.type_ids.begin() + begin, many.type_ids.begin() + end},
             .cu_seqlens = {0, end - begin}};
    Compute(model_, {&one});
    const std::vector<float> rows(many.output.begin() + begin * kHidden,
                                  many.output.begin() + end * kHidden);
    EXPECT_LE(MaxDifference(one.output, rows), 5e-6) << s;
  }
}

TEST_F(ForwardTest, ABatchGivesWhatEachSequenceGivesAlone) {
  std::vector<Work> works;
  // More tokens than the row-wise half of a layer processes at a time on the CPU.
  for (const int sequences : {1, 3, 90, 2}) works.push_back(RandomWork(rng_, sequences));
  std::vector<Work*> all;
  for (Work& work : works) all.push_back(&work);
  Compute(model_, all);
  for (const Work& work : works) {
    for (size_t s = 0; s + 1 < work.cu_seqlens.size(); ++s) {
      const int32_t begin = work.cu_seqlens[s], end = work.cu_seqlens[s + 1];
      Work alone{.ids = {work.ids.begin() + begin, work.ids.begin() + end},
                 .type_ids = {work.type_ids.begin() + begin, work.type_ids.begin() + end},
                 .cu_seqlens = {0, end - begin}};
      Compute(model_, {&alone});
      const std::vector<float> rows(work.output.begin() + begin * kHidden,
                                    work.output.begin() + end * kHidden);
      EXPECT_LE(MaxDifference(rows, alone.output), 5e-6) << "seed " << seed_;
    }
  }
}

// Pooling, truncation and normalisation from their definitions, in double precision.
std::vector<float> ReadOutTwin(const Work& work, const std::vector<float>& rows) {
  std::vector<float> result;
  const auto append = [&](std::vector<double> row) {
    row.resize(work.dimensions);
    double norm = 1;
    if (work.normalize) {
      norm = 0;
      for (const double x : row) norm += x * x;
      norm = std::max(std::sqrt(norm), 1e-12);
    }
    for (const double x : row) result.push_back(static_cast<float>(x / norm));
  };
  for (size_t s = 0; s + 1 < work.cu_seqlens.size(); ++s) {
    const int32_t begin = work.cu_seqlens[s], end = work.cu_seqlens[s + 1];
    std::vector<double> pooled(kHidden);
    for (int32_t t = begin; t < end; ++t) {
      const std::vector<double> row(rows.begin() + t * kHidden, rows.begin() + (t + 1) * kHidden);
      if (work.output_kind == EncodeOutput::kTokenEmbeddings) append(row);
      const double n = end - begin;
      for (int64_t d = 0; d < kHidden; ++d) {
        switch (work.pooling) {
          case Pooling::kMean:
            pooled[d] += row[d] / n;
            break;
          case Pooling::kCls:
            if (t == begin) pooled[d] = row[d];
            break;
          case Pooling::kLastToken:
            pooled[d] = row[d];
            break;
          case Pooling::kMaximum:
            pooled[d] = t == begin ? row[d] : std::max(pooled[d], row[d]);
            break;
          case Pooling::kWeightedMean:
            pooled[d] += row[d] * (t - begin + 1) / (n * (n + 1) / 2);
            break;
          case Pooling::kMeanSqrtLength:
            pooled[d] += row[d] / std::sqrt(n);
            break;
          case Pooling::kSeveral:
            break;
        }
      }
    }
    if (work.output_kind == EncodeOutput::kPooled) append(pooled);
  }
  return result;
}

TEST_F(ForwardTest, ItemsOfOneBatchMayAskForDifferentOutputs) {
  std::vector<Work> works;
  for (int i = 0; i < 24; ++i) {
    Work work = RandomWork(rng_, std::uniform_int_distribution(1, 4)(rng_));
    work.output_kind = i % 3 == 0 ? EncodeOutput::kTokenEmbeddings : EncodeOutput::kPooled;
    work.pooling = kAllPoolings[i % std::size(kAllPoolings)];
    work.normalize = i % 5 < 3;
    work.dimensions = i % 4 == 0 ? 10 : kHidden;
    works.push_back(std::move(work));
  }
  std::vector<Work*> all;
  for (Work& work : works) all.push_back(&work);
  Compute(model_, all);
  for (const Work& work : works) {
    Work plain{.ids = work.ids, .type_ids = work.type_ids, .cu_seqlens = work.cu_seqlens};
    Compute(model_, {&plain});
    EXPECT_LE(MaxDifference(work.output, ReadOutTwin(work, plain.output)), 5e-6)
        << "seed " << seed_;
  }
}

TEST_F(ForwardTest, EmbeddingsStandForTheWordRows) {
  std::map<std::string, RawTensor> weights;
  TinyModel files;
  files.EditWeights([&](std::map<std::string, RawTensor>& all) { weights = all; });
  const std::string& table = weights["embeddings.word_embeddings.weight"].data;
  Work ids = RandomWork(rng_, 3);
  std::fill(ids.type_ids.begin(), ids.type_ids.end(), 0);
  Work given{.ids = {}, .type_ids = {}, .cu_seqlens = ids.cu_seqlens};
  given.embeddings.resize(ids.ids.size() * kHidden);
  for (size_t t = 0; t < ids.ids.size(); ++t) {
    std::memcpy(&given.embeddings[t * kHidden], table.data() + ids.ids[t] * kHidden * 4,
                kHidden * 4);
  }
  Work other = RandomWork(rng_, 2);
  Compute(model_, {&other, &given, &ids});
  EXPECT_EQ(given.output, ids.output) << "seed " << seed_;
}

TEST_F(ForwardTest, EveryLayerRunsTheKernelOfTheRequest) {
  Work exact = RandomWork(rng_, 4);
  Work approximate = exact;
  Compute(model_, {&exact});
  // With every key a top key, nothing is approximate.
  ImprovedClustered improved;
  improved.clusters = 2;
  improved.topk = 64;
  Compute(model_, {&approximate}, improved);
  EXPECT_LE(MaxDifference(exact.output, approximate.output), 1e-4);
  Compute(model_, {&approximate}, Clustered{.clusters = 1});
  EXPECT_GT(MaxDifference(exact.output, approximate.output), 1e-3);
}

TEST_F(ForwardTest, KnowsEveryActivation) {
  // Each must give another output of the model than the others, except synonyms.
  const std::vector<std::vector<std::string>> synonyms = {
      {"gelu", "gelu_python"},
      {"gelu_new", "gelu_fast", "gelu_pytorch_tanh"},
      {"quick_gelu"},
      {"relu"},
      {"silu", "swish"},
      {"tanh"},
      {"mish"}};
  Work work = RandomWork(rng_, 2);
  std::vector<std::vector<float>> seen;
  for (const auto& names : synonyms) {
    std::vector<float> first;
    for (const std::string& name : names) {
      TinyModel files;
      files.EditJson("config.json", [&](nlohmann::json& config) { config["hidden_act"] = name; });
      auto model = files.Load();
      ASSERT_TRUE(model.ok()) << model.status();
      Compute(*model, {&work});
      if (first.empty()) first = work.output;
      EXPECT_EQ(work.output, first) << name;
    }
    for (const std::vector<float>& other : seen) EXPECT_NE(first, other) << names.front();
    seen.push_back(first);
  }
}

}  // namespace
}  // namespace castor::encoder
