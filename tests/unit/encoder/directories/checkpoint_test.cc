// Forward passes that are interrupted: by another one on the same thread, and ended.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "engine/encoder/network/network.h"
#include "tests/support/checkpoints.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

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
