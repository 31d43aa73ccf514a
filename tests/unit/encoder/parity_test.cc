// Small random checkpoints of every family and head against transformers and sentence-transformers,
// whose rows are computed in padded batches (tests/golden/encoder/make_{families,heads}.py), and
// those with CAST layers against the paper's definition (make_cast.py): the same ids, and every
// output within 2e-5.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/attention/variants.h"
#include "engine/encoder/model.h"
#include "engine/encoder/network/network.h"
#include "engine/encoder/text/output_types.h"
#include "engine/encoder/text/prepare.h"
#include "tests/support/attention/spec.h"
#include "tests/support/sanitizer.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

// One output of one text.
struct Expected {
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
  for (const auto& [name, ids] :
       {std::pair{"ids", &prepared->ids}, std::pair{"type_ids", &prepared->type_ids}}) {
    if (!expected.contains(name)) continue;
    EXPECT_EQ(*ids, expected[name].get<std::vector<int64_t>>()) << first;
  }
  return *prepared;
}

class ParityTest : public testing::TestWithParam<std::string> {
 protected:
  std::string Directory() const { return GoldenDirectory() + "/" + GetParam(); }

  void Read(DType dtype) {
    auto model = LoadOnCpu(Directory(), dtype);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
    const auto file = nlohmann::json::parse(ReadFile(Directory() + "/expected.json"));
    // A family has a list with the rows of tokens.
    if (file.is_array()) {
      golden_["cases"] = file;
    } else {
      golden_ = file;
    }
    for (const auto& expected : golden_["cases"]) {
      Prepared input = PrepareText(expected, *model_);
      longest_ = std::max(longest_, input.tokens());
      if (expected.contains("rows")) {
        AddCase(input, EncodeOutput::kTokenEmbeddings, expected["rows"]);
      }
      for (const EncodeOutput output : kAllOutputs) {
        const std::string name(OutputName(output));
        if (expected.contains(name)) AddCase(input, output, expected[name]);
      }
    }
    ASSERT_GE(cases_.size(), 6U);
  }

  void AddCase(const Prepared& input, EncodeOutput output, const nlohmann::json& rows) {
    cases_.push_back({.input = input, .output = output, .rows = {}});
    for (const auto& row : rows) {
      cases_.back().rows.insert(cases_.back().rows.end(), row.begin(), row.end());
    }
  }

  // The greatest difference of all cases, in one ragged batch with outputs of every kind.
  double GreatestDifference() {
    std::vector<std::vector<float>> outputs;
    Batch batch{.model = model_, .kernel = Vanilla{}, .items = {}};
    const ModelInfo& info = model_->info();
    for (const Expected& one : cases_) {
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
  std::vector<Expected> cases_;
  int64_t longest_ = 0;
};

TEST_P(ParityTest, MatchesWhatMadeIt) {
  Read(DType::kFloat32);
  if (HasFatalFailure()) return;
  if (GetParam().starts_with("families/")) {
    EXPECT_EQ(model_->info().max_tokens, longest_) << "there is a text that was cut";
  } else {
    EXPECT_EQ(model_->info().labels,
              golden_.value("labels", nlohmann::json::array()).get<std::vector<std::string>>());
    EXPECT_EQ(model_->info().token_labels, GetParam().ends_with("_tokens"));
  }
  const double worst = GreatestDifference();
  EXPECT_LE(worst, GetParam() == "tiny_bert" ? 5e-6 : 2e-5);
  std::cout << "greatest difference " << worst << "\n";
}

// bfloat16 keeps eight bits, of values around 1 or a few; SPLADE's sums are larger.
TEST_P(ParityTest, MatchesWhatMadeItInBfloat16) {
  if (GetParam().starts_with("cast/")) GTEST_SKIP() << "tokens change clusters with the last bits";
  Read(DType::kBFloat16);
  if (HasFatalFailure()) return;
  const double worst = GreatestDifference();
  const attention::Spec spec = attention::MakeSpec(DType::kBFloat16, Vanilla{}, 1, 1, 1);
  const bool rounds_weights =
      attention::FindVariant(attention::CpuVariants(), spec)->backend == "cpu-avx512-bf16";
  double allowed = rounds_weights ? 0.25 : 0.2;
  if (GetParam().starts_with("heads/")) {
    double greatest = 1;
    for (const Expected& one : cases_) {
      greatest = std::max<double>(greatest, *std::max_element(one.rows.begin(), one.rows.end()));
    }
    allowed = 0.15 * greatest;
  }
  EXPECT_LE(worst, allowed);
  std::cout << "greatest difference " << worst << "\n";
}

std::vector<std::string> Checkpoints() {
  std::vector<std::string> names = {"tiny_bert"};
  for (const std::string folder : {"families", "heads", "cast"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(GoldenDirectory() + "/" + folder)) {
      names.push_back(folder + "/" + entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, ParityTest, testing::ValuesIn(Checkpoints()), [](const auto& each) {
  std::string name = each.param;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
});

// all-MiniLM-L6-v2 against sentence-transformers: the same ids, and embeddings within 2e-5, on 200
// texts of many scripts (tests/golden/encoder/make_minilm.py).

constexpr size_t kGoldenTexts = 200;
constexpr size_t kTexts = kSanitized ? 50 : kGoldenTexts;  // compared, from the first
constexpr size_t kWidth = 384;
constexpr double kTolerance = 2e-5;

struct Golden {
  std::vector<std::string> texts;
  std::vector<std::vector<int64_t>> ids;
  std::vector<float> embeddings;  // [kGoldenTexts, kWidth]
};

Golden ReadGolden() {
  Golden golden;
  for (const auto& entry : nlohmann::json::parse(ReadFile(GoldenDirectory() + "/minilm.json"))) {
    golden.texts.push_back(entry["text"]);
    golden.ids.push_back(entry["ids"]);
  }
  const std::string bytes = ReadFile(GoldenDirectory() + "/minilm.f32");
  golden.embeddings.resize(bytes.size() / sizeof(float));
  std::memcpy(golden.embeddings.data(), bytes.data(), golden.embeddings.size() * sizeof(float));
  return golden;
}

TEST(MiniLmParityTest, MatchesSentenceTransformers) {
  const std::string directory = CASTOR_MINILM_DIR;
  ASSERT_TRUE(std::filesystem::exists(directory + "/model.safetensors"))
      << "no model in " << directory << ": run deploy/setup.sh --model";
  auto model = LoadOnCpu(directory);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->info().max_tokens, 256);
  EXPECT_EQ((*model)->info().pooling, Pooling::kMean);
  EXPECT_TRUE((*model)->info().normalize);

  Golden golden = ReadGolden();
  ASSERT_EQ(golden.texts.size(), kGoldenTexts);
  ASSERT_EQ(golden.embeddings.size(), kGoldenTexts * kWidth);
  golden.texts.resize(kTexts);

  EncodeRequest request;
  TextInput input;
  input.texts.assign(golden.texts.begin(), golden.texts.end());
  request.input = input;
  const auto prepared = Prepare(request, **model);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  for (size_t i = 0; i < kTexts; ++i) {
    const std::vector<int64_t> ids(prepared->ids.begin() + prepared->cu_seqlens[i],
                                   prepared->ids.begin() + prepared->cu_seqlens[i + 1]);
    EXPECT_EQ(ids, golden.ids[i]) << "text " << i << ": " << golden.texts[i];
  }

  std::vector<float> output(kTexts * kWidth, NAN);
  BatchItem item{
      .cu_seqlens = prepared->cu_seqlens, .ids = prepared->ids, .type_ids = prepared->type_ids};
  item.normalize = true;
  item.dimensions = kWidth;
  item.output = output.data();
  const absl::Status status =
      RunOnHost({.model = *model, .kernel = Vanilla{}, .items = {item}}, RunToEnd());
  ASSERT_TRUE(status.ok()) << status;
  double worst = 0;
  for (size_t i = 0; i < output.size(); ++i) {
    const double difference = std::abs(double{output[i]} - golden.embeddings[i]);
    if (!(difference <= kTolerance)) {
      ADD_FAILURE() << "text " << i / kWidth << ", dimension " << i % kWidth << ": " << output[i]
                    << ", sentence-transformers " << golden.embeddings[i];
    }
    worst = std::max(worst, difference);
  }
  std::cout << "greatest difference " << worst << ", allowed " << kTolerance << "\n";
}

}  // namespace
}  // namespace castor::encoder
