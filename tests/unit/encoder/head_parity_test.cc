// Small random checkpoints with heads against transformers and sentence-transformers, whose rows
// are computed in padded batches (tests/golden/encoder/make_heads.py), and those with CAST layers
// against the paper's definition (make_cast.py): every output within 2e-5.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/encoder/model.h"
#include "engine/encoder/network/network.h"
#include "engine/encoder/text/output_types.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

constexpr EncodeOutput kAllOutputs[] = {EncodeOutput::kPooled, EncodeOutput::kTokenEmbeddings,
                                        EncodeOutput::kLogits, EncodeOutput::kScores,
                                        EncodeOutput::kSparse};

// One output of one text.
struct HeadCase {
  Prepared input;
  EncodeOutput output;
  std::vector<float> rows;
};

Prepared PrepareText(const nlohmann::json& expected, const Model& model) {
  EncodeRequest request;
  const std::string first = expected["text"].is_null() ? "" : expected["text"];
  const std::string second = expected["pair"].is_null() ? "" : expected["pair"];
  if (expected["text"].is_null()) {
    request.input = TokenInput{
        .ids = expected["ids"].get<std::vector<int64_t>>(), .type_ids = {}, .lengths = {}};
  } else {
    TextInput input;
    input.texts = {first};
    if (!expected["pair"].is_null()) input.pairs = {second};
    request.input = input;
  }
  const auto prepared = Prepare(request, model);
  EXPECT_TRUE(prepared.ok()) << prepared.status();
  if (!prepared.ok()) return {};
  if (expected.contains("ids")) {
    EXPECT_EQ(prepared->ids, expected["ids"].get<std::vector<int64_t>>());
  }
  return *prepared;
}

class HeadParityTest : public testing::TestWithParam<std::string> {
 protected:
  std::string Directory() const { return GoldenDirectory() + "/" + GetParam(); }

  void Read(DType dtype) {
    auto model = LoadOnCpu(Directory(), dtype);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
    golden_ = nlohmann::json::parse(ReadFile(Directory() + "/expected.json"));
    for (const auto& expected : golden_["cases"]) {
      for (const EncodeOutput output : kAllOutputs) {
        const std::string name(OutputName(output));
        if (!expected.contains(name)) continue;
        HeadCase one{.input = PrepareText(expected, *model_), .output = output, .rows = {}};
        for (const auto& row : expected[name]) {
          one.rows.insert(one.rows.end(), row.begin(), row.end());
        }
        cases_.push_back(std::move(one));
      }
    }
    ASSERT_GE(cases_.size(), 7U);
  }

  // Of all cases in one ragged batch, outputs of every kind side by side.
  double GreatestDifference() {
    std::vector<std::vector<float>> outputs;
    Batch batch{.model = model_, .kernel = Vanilla{}, .items = {}};
    const ModelInfo& info = model_->info();
    for (const HeadCase& one : cases_) {
      BatchItem item{
          .cu_seqlens = one.input.cu_seqlens, .ids = one.input.ids, .type_ids = one.input.type_ids};
      item.output_kind = one.output;
      item.pooling = info.pooling;
      item.normalize = info.normalize;
      item.dimensions = WidthOf(info, one.output);
      item.token_labels = info.token_labels;
      outputs.emplace_back(one.rows.size(), NAN);
      if (item.output_rows() * item.dimensions != static_cast<int64_t>(one.rows.size())) {
        return INFINITY;
      }
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

  std::shared_ptr<Model> model_;
  nlohmann::json golden_;
  std::vector<HeadCase> cases_;
};

TEST_P(HeadParityTest, MatchesWhatMadeIt) {
  Read(DType::kFloat32);
  if (HasFatalFailure()) return;
  EXPECT_EQ(model_->info().labels,
            golden_.value("labels", nlohmann::json::array()).get<std::vector<std::string>>());
  EXPECT_EQ(model_->info().token_labels, GetParam().ends_with("_tokens"));
  const double worst = GreatestDifference();
  EXPECT_LE(worst, 2e-5);
  std::cout << "greatest difference " << worst << "\n";
}

// bfloat16 keeps eight bits, of values around 1; SPLADE's sums are larger.
TEST_P(HeadParityTest, MatchesWhatMadeItInBfloat16) {
  if (GetParam().starts_with("cast/")) GTEST_SKIP() << "tokens change clusters with the last bits";
  Read(DType::kBFloat16);
  if (HasFatalFailure()) return;
  const double worst = GreatestDifference();
  double greatest = 1;
  for (const HeadCase& one : cases_) {
    greatest = std::max<double>(greatest, *std::max_element(one.rows.begin(), one.rows.end()));
  }
  EXPECT_LE(worst, 0.15 * greatest);
  std::cout << "greatest difference " << worst << "\n";
}

std::vector<std::string> Heads() {
  std::vector<std::string> names;
  for (const std::string folder : {"heads", "cast"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(GoldenDirectory() + "/" + folder)) {
      names.push_back(folder + "/" + entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, HeadParityTest, testing::ValuesIn(Heads()), [](const auto& each) {
  std::string name = each.param;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
});

}  // namespace
}  // namespace castor::encoder
