// Heads on random rows, more than a step of them, against plain loops in double; and that what a
// sequence gets does not depend on what else is in the batch.

#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "engine/encoder/heads/classifier.h"
#include "engine/encoder/heads/dense.h"
#include "engine/encoder/heads/pooling.h"
#include "engine/encoder/heads/splade.h"
#include "engine/encoder/model.h"
#include "engine/encoder/network/network.h"
#include "tests/support/checkpoints.h"
#include "tests/support/sanitizer.h"
#include "tests/support/seeded.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

constexpr int64_t kRowWidth = 6;  // of the body's rows
constexpr int64_t kHeadOut = 37;  // of what heads make of them
constexpr int64_t kManyRows = 2 * kMostHeadRows + 77;

// [rows, columns], row-major.
using Matrix = std::vector<float>;

at::Tensor TensorOf(const Matrix& matrix, int64_t rows) {
  const auto columns = static_cast<int64_t>(matrix.size()) / rows;
  return at::from_blob(const_cast<float*>(matrix.data()), {rows, columns}, at::kFloat).clone();
}

class HeadTwinTest : public testing::Test, protected Seeded {
 protected:
  Matrix Random(int64_t elements) {
    std::normal_distribution<float> normal;
    Matrix matrix(static_cast<size_t>(elements));
    for (float& element : matrix) element = normal(random_);
    return matrix;
  }

  // Items of these lengths, each with a wish, over the same rows.
  struct Wished {
    std::vector<int32_t> offsets;
    EncodeOutput output;
  };

  // The head's result for each item of the batch.
  std::vector<Matrix> Run(const Head& head, const std::vector<Wished>& wishes, int64_t first,
                          int64_t width, bool token_labels = false) {
    Batch batch{.model = nullptr, .kernel = Vanilla{}, .items = {}};
    for (const Wished& wished : wishes) {
      BatchItem item;
      item.cu_seqlens = wished.offsets;
      item.output_kind = wished.output;
      item.dimensions =
          item.output_kind == EncodeOutput::kMaxSim ? 1
          : item.labels() || item.output_kind == EncodeOutput::kSparse || head.info().token_size > 0
              ? width
              : kRowWidth;
      item.normalize = head.info().normalize;
      item.token_labels = token_labels;
      batch.items.push_back(item);
    }
    const Packing packing = Pack(batch);
    const std::vector<int64_t> offsets(packing.cu_seqlens.begin(), packing.cu_seqlens.end());
    at::Tensor on_device =
        at::from_blob(const_cast<int64_t*>(offsets.data()), {std::ssize(offsets)}, at::kLong);
    const at::Tensor rows = TensorOf(rows_, kManyRows + 100).narrow(0, first, packing.tokens());
    const auto outputs = head.ReadOut({.rows = rows,
                                       .offsets = on_device,
                                       .batch = batch,
                                       .packing = packing,
                                       .control = RunToEnd()});
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    std::vector<Matrix> matrices;
    for (size_t i = 0; outputs.ok() && i < outputs->size(); ++i) {
      const at::Tensor& output = (*outputs)[i];
      EXPECT_TRUE(output.is_contiguous());
      EXPECT_EQ(output.size(0), batch.items[i].output_rows());
      const auto* values = output.const_data_ptr<float>();
      matrices.emplace_back(values, values + output.numel());
    }
    return matrices;
  }

  double Logit(int64_t row, int64_t out) const {
    double sum = bias_[static_cast<size_t>(out)];
    for (int64_t i = 0; i < kRowWidth; ++i) {
      sum += double{rows_[static_cast<size_t>(row * kRowWidth + i)]} *
             weight_[static_cast<size_t>(out * kRowWidth + i)];
    }
    return sum;
  }

  Linear MakeLinear() const {
    return {TensorOf(weight_, kHeadOut), TensorOf(bias_, kHeadOut).squeeze(1)};
  }

  Matrix rows_ = Random((kManyRows + 100) * kRowWidth);
  const Matrix weight_ = Random(kHeadOut * kRowWidth);
  const Matrix bias_ = Random(kHeadOut);
};

TEST_F(HeadTwinTest, SpladeKeepsTheGreatestOrTheSumOfAllTokens) {
  const auto end = static_cast<int32_t>(kManyRows);
  const std::vector<Wished> wishes = {{{0, 5, 9}, EncodeOutput::kSparse},
                                      {{0, 7}, EncodeOutput::kPooled},
                                      {{0, 3, 3 + end}, EncodeOutput::kSparse},
                                      {{0, 1}, EncodeOutput::kSparse}};
  for (const bool sum : {false, true}) {
    for (const bool twice : {false, true}) {
      const SpladeHead head({.sum = sum, .twice = twice}, {}, MakeLinear());
      const std::vector<Matrix> outputs = Run(head, wishes, 0, kHeadOut);
      ASSERT_EQ(outputs.size(), wishes.size());
      EXPECT_EQ(outputs[1].size(), static_cast<size_t>(kRowWidth));
      int64_t token = 0;
      for (size_t i = 0; i < wishes.size(); ++i) {
        const std::vector<int32_t>& offsets = wishes[i].offsets;
        for (size_t s = 0; s + 1 < offsets.size(); ++s) {
          for (int64_t out = 0; out < kHeadOut && wishes[i].output == EncodeOutput::kSparse;
               ++out) {
            double expected = 0;
            for (int32_t t = offsets[s]; t < offsets[s + 1]; ++t) {
              double weight = std::log1p(std::max(0.0, Logit(token + t, out)));
              if (twice) weight = std::log1p(weight);
              expected = sum ? expected + weight : std::max(expected, weight);
            }
            EXPECT_NEAR(outputs[i][s * kHeadOut + static_cast<size_t>(out)], expected,
                        1e-5 * std::max(1.0, expected));
          }
        }
        token += offsets.back();
      }
      // The long sequence alone: the same bits.
      const std::vector<Matrix> alone =
          Run(head, {{{0, end}, EncodeOutput::kSparse}}, 9 + 7 + 3, kHeadOut);
      const Matrix together(outputs[2].begin() + kHeadOut, outputs[2].end());
      EXPECT_EQ(alone.front(), together);
    }
  }
}

// The query has more rows than a step, and a document reaches from one step into the next.
TEST_F(HeadTwinTest, MaxSimSumsTheGreatestProductsWithEachDocument) {
  constexpr int32_t kQuery = 520, kLong = kMostHeadRows + 1500;
  const std::vector<int32_t> first = {0, 2, 3, 5};
  const std::vector<int32_t> second = {0, kQuery, kQuery + 3, kQuery + kLong, kQuery + kLong + 7};
  const std::vector<Wished> wishes = {{first, EncodeOutput::kMaxSim},
                                      {{0, 4}, EncodeOutput::kTokenEmbeddings},
                                      {second, EncodeOutput::kMaxSim},
                                      {{0, 3}, EncodeOutput::kMaxSim}};
  for (const bool projects : {false, true}) {
    std::vector<DenseLayer> layers;
    if (projects) layers.push_back({.linear = MakeLinear(), .activation = {}});
    const PoolingHead head({}, kRowWidth, /*normalize=*/true, {}, DenseStack(std::move(layers)));
    const int64_t width = projects ? kHeadOut : kRowWidth;
    const auto row = [&](int64_t token) {
      std::vector<double> elements;
      double squares = 0;
      for (int64_t i = 0; i < width; ++i) {
        elements.push_back(projects ? Logit(token, i)
                                    : rows_[static_cast<size_t>(token * kRowWidth + i)]);
        squares += elements.back() * elements.back();
      }
      for (double& element : elements) element /= std::sqrt(squares);
      return elements;
    };
    const std::vector<Matrix> outputs = Run(head, wishes, 0, width);
    ASSERT_EQ(outputs.size(), wishes.size());
    EXPECT_EQ(outputs[1].size(), static_cast<size_t>(4 * width));
    EXPECT_TRUE(outputs[3].empty());
    int64_t begin = 0;
    for (size_t i = 0; i < wishes.size(); ++i) {
      const std::vector<int32_t>& offsets = wishes[i].offsets;
      std::vector<std::vector<double>> all;
      for (int32_t t = 0; t < offsets.back(); ++t) all.push_back(row(begin + t));
      begin += offsets.back();
      if (wishes[i].output != EncodeOutput::kMaxSim) continue;
      for (size_t s = 1; s + 1 < offsets.size(); ++s) {
        double sum = 0;
        for (int32_t q = 0; q < offsets[1]; ++q) {
          double most = -INFINITY;
          for (int32_t t = offsets[s]; t < offsets[s + 1]; ++t) {
            most = std::max(most,
                            std::inner_product(all[q].begin(), all[q].end(), all[t].begin(), 0.0));
          }
          sum += most;
        }
        EXPECT_NEAR(outputs[i][s - 1], sum, 2e-6 * offsets[1] + 1e-6) << i << " " << s;
      }
    }
    // The same bits without the other requests, and without the other documents.
    EXPECT_EQ(Run(head, {{second, EncodeOutput::kMaxSim}}, 9, width).front(), outputs[2]);
    EXPECT_EQ(Run(head, {{{0, kQuery, kQuery + 3}, EncodeOutput::kMaxSim}}, 9, width).front(),
              Matrix(1, outputs[2].front()));
  }
}

TEST_F(HeadTwinTest, MaxSimIsNotANumberWhereAProductIsNot) {
  const PoolingHead head({}, kRowWidth, /*normalize=*/false);
  rows_[3 * kRowWidth] = NAN;  // of the first document, whose other rows come before and after
  const Matrix scores = Run(head, {{{0, 2, 6, 8}, EncodeOutput::kMaxSim}}, 0, kRowWidth).front();
  ASSERT_EQ(scores.size(), 2U);
  EXPECT_TRUE(std::isnan(scores[0]));
  EXPECT_FALSE(std::isnan(scores[1]));
}

// A vector's last elements may be rounded otherwise than the rest.
TEST_F(HeadTwinTest, AScoreHasTheSameBitsInAnyCompany) {
  constexpr int32_t kTokens = 77;
  const ClassifierHead head({.labels = {"x"}, .scoring = Scoring::kSigmoid, .tokens = true}, {},
                            Linear(TensorOf(Random(kRowWidth), 1), at::Tensor()));
  const auto scores = [&](int32_t tokens, int64_t first) {
    return Run(head, {{{0, tokens}, EncodeOutput::kScores}}, first, 1, /*token_labels=*/true)
        .front();
  };
  const Matrix together = scores(kTokens, 0);
  ASSERT_EQ(together.size(), static_cast<size_t>(kTokens));
  for (int32_t t = 0; t < kTokens; ++t) {
    EXPECT_EQ(scores(1, t).front(), together[static_cast<size_t>(t)]) << t;
  }
}

TEST_F(HeadTwinTest, ClassifiersGiveLogitsAndScoresOfSequencesAndTokens) {
  const auto end = static_cast<int32_t>(kManyRows);
  ClassifierConfig config{.labels = std::vector<std::string>(kHeadOut, "x")};
  const std::vector<Wished> wishes = {{{0, 5, 9}, EncodeOutput::kScores},
                                      {{0, end}, EncodeOutput::kLogits},
                                      {{0, 4}, EncodeOutput::kTokenEmbeddings},
                                      {{0, 2}, EncodeOutput::kScores}};
  for (const bool tokens : {false, true}) {
    config.tokens = tokens;
    const ClassifierHead head(config, {}, MakeLinear());
    const std::vector<Matrix> outputs = Run(head, wishes, 0, kHeadOut, tokens);
    ASSERT_EQ(outputs.size(), wishes.size());
    int64_t token = 0;
    for (size_t i = 0; i < wishes.size(); ++i) {
      const std::vector<int32_t>& offsets = wishes[i].offsets;
      std::vector<int64_t> rows;  // that labels are of
      for (size_t s = 0; s + 1 < offsets.size(); ++s) rows.push_back(token + offsets[s]);
      if (tokens) {
        rows.clear();
        for (int64_t t = 0; t < offsets.back(); ++t) rows.push_back(token + t);
      }
      token += offsets.back();
      if (wishes[i].output == EncodeOutput::kTokenEmbeddings) continue;
      ASSERT_EQ(outputs[i].size(), rows.size() * kHeadOut);
      for (size_t r = 0; r < rows.size(); ++r) {
        double all = 0;
        for (int64_t out = 0; out < kHeadOut; ++out) all += std::exp(Logit(rows[r], out));
        for (int64_t out = 0; out < kHeadOut; ++out) {
          const double logit = Logit(rows[r], out);
          const bool scores = wishes[i].output == EncodeOutput::kScores;
          EXPECT_NEAR(outputs[i][r * kHeadOut + static_cast<size_t>(out)],
                      scores ? std::exp(logit) / all : logit, 2e-5);
        }
      }
    }
  }
}

// Pooling of sequences and of spans against sums over the rows that the same network returns, for
// every pooling, overlapping and empty ranges, and items that ask for other things in one batch.

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
