// Pooling of sequences and of spans against sums over the rows that the same network returns, for
// every pooling, overlapping and empty ranges, and items that ask for other things in one batch.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "engine/encoder/heads/pooling.h"
#include "engine/encoder/model.h"
#include "engine/encoder/network/network.h"
#include "tests/support/checkpoints.h"
#include "tests/support/sanitizer.h"
#include "tests/support/seeded.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

struct Item {
  std::vector<int32_t> cu_seqlens = {0};
  std::vector<int64_t> ids = {};
  std::vector<RowRange> spans = {};
  EncodeOutput kind = EncodeOutput::kPooled;
  Pooling pooling = Pooling::kMean;
  bool normalize = false;
  int64_t dimensions = kHidden;
  std::vector<float> output = {};
};

// The slow twin: a row of the range at a time, in double.
std::vector<double> PooledRow(const std::vector<float>& rows, const RowRange& range,
                              const Item& item) {
  std::vector<double> row(static_cast<size_t>(item.dimensions), 0);
  const auto at = [&](int32_t t, size_t d) { return double{rows[t * kHidden + d]}; };
  double weights = 0;
  for (int32_t t = range.begin; t < range.end; ++t) {
    const double weight = item.pooling == Pooling::kWeightedMean ? t - range.begin + 1 : 1;
    weights += weight;
    for (size_t d = 0; d < row.size(); ++d) {
      switch (item.pooling) {
        case Pooling::kMean:
        case Pooling::kWeightedMean:
        case Pooling::kMeanSqrtLength:
        case Pooling::kSeveral:
          row[d] += weight * at(t, d);
          break;
        case Pooling::kMaximum:
          row[d] = t == range.begin ? at(t, d) : std::max(row[d], at(t, d));
          break;
        case Pooling::kCls:
          row[d] = at(range.begin, d);
          break;
        case Pooling::kLastToken:
          row[d] = at(range.end - 1, d);
          break;
      }
    }
  }
  double norm = 0;
  for (double& x : row) {
    if (item.pooling == Pooling::kMean || item.pooling == Pooling::kWeightedMean) {
      x = weights > 0 ? x / weights : 0;
    }
    if (item.pooling == Pooling::kMeanSqrtLength) x = weights > 0 ? x / std::sqrt(weights) : 0;
    norm += x * x;
  }
  if (item.normalize && norm > 0) {
    for (double& x : row) x /= std::sqrt(norm);
  }
  return row;
}

// The rows that each row of the item's output is made of.
std::vector<RowRange> RangesOf(const Item& item) {
  if (!item.spans.empty()) return item.spans;
  std::vector<RowRange> ranges;
  if (item.kind == EncodeOutput::kTokenEmbeddings) {
    for (int32_t t = 0; t < item.cu_seqlens.back(); ++t) ranges.push_back({t, t + 1});
    return ranges;
  }
  for (size_t s = 1; s < item.cu_seqlens.size(); ++s) {
    ranges.push_back({item.cu_seqlens[s - 1], item.cu_seqlens[s]});
  }
  return ranges;
}

class SpanPoolingTest : public testing::TestWithParam<DType>, protected Seeded {
 protected:
  Item AnyItem() {
    Item item;
    for (int64_t s = UpTo(4); s > 0; --s) {
      for (int64_t t = UpTo(32); t > 0; --t) item.ids.push_back(Uniform(0, 24));
      item.cu_seqlens.push_back(static_cast<int32_t>(item.ids.size()));
    }
    item.kind = Uniform(0, 4) == 0 ? EncodeOutput::kTokenEmbeddings : EncodeOutput::kPooled;
    item.pooling = kAllPoolings[Uniform(0, std::ssize(kAllPoolings) - 1)];
    item.normalize = Uniform(0, 1) == 0;
    item.dimensions = Uniform(1, kHidden);
    if (item.kind != EncodeOutput::kPooled || Uniform(0, 2) == 0) return item;
    const int64_t ranges = UpTo(40);
    for (int64_t i = 0; i < ranges; ++i) {
      const auto begin = static_cast<int32_t>(Uniform(0, item.cu_seqlens.back() - 1));
      const auto end = static_cast<int32_t>(Uniform(begin, item.cu_seqlens.back()));
      item.spans.push_back(begin == end ? RowRange{} : RowRange{begin, end});
    }
    return item;
  }

  void Compute(std::vector<Item*> items) {
    Batch batch{.model = model_, .kernel = Vanilla{}, .items = {}};
    for (Item* item : items) {
      BatchItem one{.cu_seqlens = item->cu_seqlens, .ids = item->ids, .type_ids = {}};
      one.spans = item->spans;
      one.output_kind = item->kind;
      one.pooling = item->pooling;
      one.normalize = item->normalize;
      one.dimensions = item->dimensions;
      item->output.assign(one.output_rows() * one.dimensions, NAN);
      one.output = item->output.data();
      batch.items.push_back(one);
    }
    const absl::Status status = RunOnHost(batch, RunToEnd());
    ASSERT_TRUE(status.ok()) << status;
  }

  std::shared_ptr<const Model> model_;
};

TEST_P(SpanPoolingTest, IsTheSumOverTheRows) {
  auto model = LoadOnCpu(GoldenDirectory() + "/tiny_bert", GetParam());
  ASSERT_TRUE(model.ok()) << model.status();
  model_ = *std::move(model);
  for (int round = 0; round < Scaled(60) && !HasFailure(); ++round) {
    std::vector<Item> items(static_cast<size_t>(UpTo(6)));
    std::vector<Item*> batch;
    for (Item& item : items) {
      item = AnyItem();
      batch.push_back(&item);
    }
    Compute(batch);
    for (const Item& item : items) {
      Item rows{
          .cu_seqlens = item.cu_seqlens, .ids = item.ids, .kind = EncodeOutput::kTokenEmbeddings};
      Compute({&rows});
      const std::vector<RowRange> ranges = RangesOf(item);
      ASSERT_EQ(item.output.size(), ranges.size() * static_cast<size_t>(item.dimensions));
      for (size_t i = 0; i < ranges.size(); ++i) {
        const std::vector<double> expected = PooledRow(rows.output, ranges[i], item);
        for (size_t d = 0; d < expected.size(); ++d) {
          ASSERT_NEAR(item.output[i * expected.size() + d], expected[d], 1e-5)
              << "range " << i << " of rows " << ranges[i].begin << " to " << ranges[i].end
              << ", pooling " << static_cast<int>(item.pooling) << ", dimension " << d;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, SpanPoolingTest,
                         testing::Values(DType::kFloat32, DType::kBFloat16));

// One row may be read by any number of spans: that is long work.
TEST(PoolSpansTest, ChecksTheControlBetweenSteps) {
  constexpr int64_t kSpans = 20'000, kRows = 64, kWidth = 256;
  const at::Tensor rows = at::ones({kRows, kWidth});
  const at::Tensor spans = at::zeros({2, kSpans}, at::kLong);
  spans.select(0, 1).fill_(kRows);
  for (const Pooling pooling : {Pooling::kMean, Pooling::kMaximum}) {
    AtEvery control;
    const auto pooled = PoolSpans(pooling, rows, spans, kSpans * kRows, control);
    ASSERT_TRUE(pooled.ok()) << pooled.status();
    EXPECT_TRUE(pooled->eq(1).all().item<bool>());
    EXPECT_GT(control.count(), 5);
    AtEvery ends([] { return absl::CancelledError("by the test"); });
    EXPECT_EQ(PoolSpans(pooling, rows, spans, kSpans * kRows, ends).status().message(),
              "by the test");
  }
}

// A mean over a whole book is as good as one over a sentence.
TEST(PoolSpansTest, SumsOfManyRowsAreNotRoundedAway) {
  constexpr int64_t kRows = 300'000;
  at::Tensor rows = at::full({kRows, 2}, 0.1f);
  at::Tensor spans = at::zeros({2, 1}, at::kLong);
  spans.select(0, 1).fill_(kRows);
  for (const Pooling pooling : {Pooling::kMean, Pooling::kWeightedMean}) {
    const auto pooled = PoolSpans(pooling, rows, spans, kRows, RunToEnd());
    ASSERT_TRUE(pooled.ok());
    EXPECT_NEAR((*pooled)[0][1].item<double>(), 0.1, 1e-7);
  }
}

// A value that is no number is in the maximum, wherever it stands.
TEST(PoolSpansTest, MaximaKeepWhatIsNoNumber) {
  const at::Tensor spans = at::tensor({0, 3}, at::kLong).view({2, 1});
  for (int64_t at = 0; at < 3; ++at) {
    at::Tensor rows = at::zeros({3, 2});
    rows[at][1] = NAN;
    const auto pooled = PoolSpans(Pooling::kMaximum, rows, spans, 3, RunToEnd());
    ASSERT_TRUE(pooled.ok());
    EXPECT_EQ((*pooled)[0][0].item<float>(), 0);
    EXPECT_TRUE(std::isnan((*pooled)[0][1].item<float>())) << at;
  }
}

}  // namespace
}  // namespace castor::encoder
