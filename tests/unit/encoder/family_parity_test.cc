// Small random checkpoints of every family against transformers: the same ids, and rows within
// 2e-5, theirs computed in padded batches (tests/golden/encoder/make_families.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "engine/encoder/model.h"
#include "engine/encoder/network/network.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

struct Case {
  Prepared input;
  std::vector<int64_t> ids;  // as transformers' tokenizer has them
  std::vector<float> rows;   // [tokens, hidden]
};

Prepared PrepareCase(const nlohmann::json& expected, const Model& model) {
  EncodeRequest request;
  const bool text = !expected["text"].is_null();
  const std::string first = text ? expected["text"] : "";
  const std::string second = expected["pair"].is_null() ? "" : expected["pair"];
  if (text) {
    TextInput input;
    input.texts = {first};
    if (!expected["pair"].is_null()) input.pairs = {second};
    request.input = input;
  } else {
    request.input = TokenInput{
        .ids = expected["ids"].get<std::vector<int64_t>>(), .type_ids = {}, .lengths = {}};
  }
  const auto prepared = Prepare(request, model);
  EXPECT_TRUE(prepared.ok()) << prepared.status();
  return prepared.ok() ? *prepared : Prepared{};
}

class FamilyParityTest : public testing::TestWithParam<std::string> {
 protected:
  std::string Directory() const { return GoldenDirectory() + "/families/" + GetParam(); }

  std::shared_ptr<Model> Load(DType dtype) {
    auto model = LoadOnCpu(Directory(), dtype);
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? *model : nullptr;
  }

  void ReadCases(const Model& model) {
    const auto golden = nlohmann::json::parse(ReadFile(Directory() + "/expected.json"));
    for (const auto& expected : golden) {
      Case one{.input = PrepareCase(expected, model),
               .ids = expected["ids"].get<std::vector<int64_t>>(),
               .rows = {}};
      for (const auto& row : expected["rows"]) {
        one.rows.insert(one.rows.end(), row.begin(), row.end());
      }
      cases_.push_back(std::move(one));
    }
    ASSERT_GE(cases_.size(), 10U);
  }

  // The greatest difference from transformers', of all cases in one ragged batch.
  double GreatestDifference(std::shared_ptr<const Model> model) {
    std::vector<std::vector<float>> outputs;
    Batch batch{.model = std::move(model), .kernel = Vanilla{}, .items = {}};
    for (const Case& one : cases_) {
      BatchItem item{
          .cu_seqlens = one.input.cu_seqlens, .ids = one.input.ids, .type_ids = one.input.type_ids};
      item.output_kind = EncodeOutput::kTokenEmbeddings;
      item.dimensions = kHidden;
      outputs.emplace_back(one.rows.size(), NAN);
      if (item.tokens() * kHidden != static_cast<int64_t>(one.rows.size())) return INFINITY;
      item.output = outputs.back().data();
      batch.items.push_back(item);
    }
    const absl::Status status = RunOnHost(batch, RunToEnd());
    EXPECT_TRUE(status.ok()) << status;
    double worst = 0;
    for (size_t c = 0; c < cases_.size(); ++c) {
      for (size_t i = 0; i < outputs[c].size(); ++i) {
        const double difference = std::abs(double{outputs[c][i]} - cases_[c].rows[i]);
        worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
      }
    }
    return worst;
  }

  std::vector<Case> cases_;
};

TEST_P(FamilyParityTest, MatchesTransformers) {
  const std::shared_ptr<Model> model = Load(DType::kFloat32);
  ASSERT_NE(model, nullptr);
  ReadCases(*model);
  size_t longest = 0;  // a text that was cut
  for (const Case& one : cases_) {
    EXPECT_EQ(one.input.ids, one.ids);
    longest = std::max(longest, one.ids.size());
  }
  EXPECT_EQ(model->info().max_tokens, static_cast<int64_t>(longest));
  const double worst = GreatestDifference(model);
  EXPECT_LE(worst, 2e-5);
  std::cout << "greatest difference " << worst << "\n";
}

// Rows are normalised, so they are of size 1; bfloat16 keeps eight bits, and there are two to five
// layers.
TEST_P(FamilyParityTest, MatchesTransformersInBfloat16) {
  const std::shared_ptr<Model> model = Load(DType::kBFloat16);
  ASSERT_NE(model, nullptr);
  ReadCases(*model);
  const double worst = GreatestDifference(model);
  EXPECT_LE(worst, 0.2);
  std::cout << "greatest difference " << worst << "\n";
}

std::vector<std::string> Families() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(GoldenDirectory() + "/families")) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, FamilyParityTest, testing::ValuesIn(Families()),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace castor::encoder
