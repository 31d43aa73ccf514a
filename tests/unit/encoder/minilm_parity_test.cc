// all-MiniLM-L6-v2 against sentence-transformers: the same ids, and embeddings within 2e-5, on 200
// texts of many scripts (tests/golden/encoder/make_minilm.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/encoder/model.h"
#include "engine/encoder/network/network.h"
#include "engine/encoder/text/prepare.h"
#include "tests/support/sanitizer.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

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
