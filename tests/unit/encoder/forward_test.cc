// The tiny BERT computes the same in batches as alone. parity_test.cc compares it with
// transformers, heads_test.cc the rows that requests may ask for with their definitions.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/run_control.h"
#include "engine/encoder/model.h"
#include "engine/encoder/network/network.h"
#include "tests/support/checkpoints.h"
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
  std::vector<float> output = {};

  BatchItem Item() {
    BatchItem item{.cu_seqlens = cu_seqlens, .ids = ids, .type_ids = type_ids};
    if (!embeddings.empty()) {
      item.embeddings = reinterpret_cast<const std::byte*>(embeddings.data());
    }
    item.output_kind = EncodeOutput::kTokenEmbeddings;
    item.dimensions = kHidden;
    output.assign(item.output_rows() * kHidden, NAN);
    item.output = output.data();
    return item;
  }
};

void Compute(std::shared_ptr<const Model> model, const std::vector<Work*>& works) {
  Batch batch{.model = std::move(model), .kernel = Vanilla{}, .items = {}};
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

TEST_F(ForwardTest, ABatchGivesWhatEachSequenceGivesAlone) {
  std::vector<Work> works;
  // More tokens than a step projects on the CPU, and than one processes row by row.
  for (const int sequences : {1, 3, 1500, 2}) works.push_back(RandomWork(rng_, sequences));
  ASSERT_GT(works[2].ids.size(), 16384U);
  std::vector<Work*> all;
  for (Work& work : works) all.push_back(&work);
  Compute(model_, all);
  for (const Work& work : works) {
    // Of many sequences, only some are compared, the last one included.
    const size_t sequences = work.cu_seqlens.size() - 1, step = 1 + sequences / 100;
    for (size_t s = (sequences - 1) % step; s < sequences; s += step) {
      const int32_t begin = work.cu_seqlens[s], end = work.cu_seqlens[s + 1];
      Work alone{.ids = {work.ids.begin() + begin, work.ids.begin() + end},
                 .type_ids = {work.type_ids.begin() + begin, work.type_ids.begin() + end},
                 .cu_seqlens = {0, end - begin}};
      Compute(model_, {&alone});
      const std::vector<float> rows(work.output.begin() + begin * kHidden,
                                    work.output.begin() + end * kHidden);
      EXPECT_LE(MaxDifference(rows, alone.output), 5e-6) << "seed " << seed_ << ", " << s;
    }
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

// Forward passes that are interrupted: by another one on the same thread, and ended.

// Some texts and their pooled embeddings.
struct Texts {
  Texts(std::shared_ptr<Model> of, std::vector<int32_t> lengths) : model(std::move(of)) {
    for (const int32_t length : lengths) {
      for (int32_t i = 0; i < length; ++i) {
        ids.push_back(static_cast<int64_t>(ids.size() * 7 % 25));
      }
      offsets.push_back(static_cast<int32_t>(ids.size()));
    }
  }

  absl::Status Encode(RunControl& control) {
    rows.assign((offsets.size() - 1) * model->info().hidden_size, NAN);
    BatchItem item;
    item.cu_seqlens = offsets;
    item.ids = ids;
    item.dimensions = model->info().hidden_size;
    item.output = rows.data();
    return RunOnHost({.model = model, .kernel = Vanilla{}, .items = {item}}, control);
  }

  std::shared_ptr<Model> model;
  std::vector<int64_t> ids;
  std::vector<int32_t> offsets = {0};
  std::vector<float> rows;
};

class EncoderCheckpointTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto model = TinyModel(GetParam()).Load();
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  std::shared_ptr<Model> model_;
};

TEST_P(EncoderCheckpointTest, AnotherForwardPassAtACheckpointChangesNoBytes) {
  Texts long_texts(model_, std::vector<int32_t>(100, 32));
  Texts short_texts(model_, {5, 1});
  ASSERT_TRUE(long_texts.Encode(RunToEnd()).ok());
  ASSERT_TRUE(short_texts.Encode(RunToEnd()).ok());
  const std::vector<float> long_rows = long_texts.rows;
  const std::vector<float> short_rows = short_texts.rows;
  AtEvery control([&] {
    EXPECT_TRUE(short_texts.Encode(RunToEnd()).ok());
    EXPECT_EQ(short_texts.rows, short_rows);
    return absl::OkStatus();
  });
  ASSERT_TRUE(long_texts.Encode(control).ok());
  EXPECT_EQ(long_texts.rows, long_rows);
  // One for the embeddings; per layer: attention, the part after it, and 3200 rows in four pieces.
  EXPECT_GE(control.count(), 1 + 6 * static_cast<int>(model_->info().layers));
}

TEST_P(EncoderCheckpointTest, AForwardPassEndsAtAnyCheckpoint) {
  Texts texts(model_, std::vector<int32_t>(100, 32));
  ASSERT_TRUE(texts.Encode(RunToEnd()).ok());
  const std::vector<float> rows = texts.rows;
  // How many checkpoints a run comes to depends on how its threads share the tasks.
  bool ended = true;
  for (int last = 1; ended; ++last) {
    AtEvery control(
        [&] { return control.count() < last ? absl::OkStatus() : absl::AbortedError("enough"); });
    const absl::Status status = texts.Encode(control);
    ended = !status.ok();
    EXPECT_EQ(control.count() == last, ended) << "it went on, or ended by itself";
    if (ended) {
      EXPECT_EQ(status, absl::AbortedError("enough"));
    } else {
      EXPECT_GT(last, 6 * static_cast<int>(model_->info().layers));
    }
  }
  ASSERT_TRUE(texts.Encode(RunToEnd()).ok());
  EXPECT_EQ(texts.rows, rows);
}

INSTANTIATE_TEST_SUITE_P(Models, EncoderCheckpointTest,
                         testing::Values("tiny_bert", "families/mpnet", "families/modernbert"));

}  // namespace
}  // namespace castor::encoder
