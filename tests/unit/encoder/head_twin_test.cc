// Heads on random rows, more than a step of them, against plain loops in double; and that what a
// sequence gets does not depend on what else is in the batch.
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "engine/encoder/heads/classifier.h"
#include "engine/encoder/heads/dense.h"
#include "engine/encoder/heads/pooling.h"
#include "engine/encoder/heads/splade.h"
#include "tests/support/seeded.h"

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

}  // namespace
}  // namespace castor::encoder
