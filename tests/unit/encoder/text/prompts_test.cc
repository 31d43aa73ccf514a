// Prompts against sentence-transformers (tests/golden/encoder/make_prompts.py): by name, by
// default, none, pooled with the text and left out.
#include "engine/encoder/text/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/host_memory.h"
#include "engine/encoder/network/network.h"
#include "engine/models/models.h"
#include "engine/requests/staging.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json Golden() { return json::parse(ReadFile(GoldenDirectory() + "/prompts.json")); }

ModelPtr LoadWith(const json& golden, const json& pooling) {
  TinyModel files;
  files.EditJson("1_Pooling/config.json", [&](json& config) {
    config = pooling;
    config["word_embedding_dimension"] = kHidden;
  });
  const json settings = {{"prompts", golden["prompts"]},
                         {"default_prompt_name", golden["default"]}};
  WriteFile(files / "config_sentence_transformers.json", settings.dump());
  auto model = files.Load();
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return nullptr;
  auto loaded = std::make_shared<LoadedModel>();
  loaded->info = (*model)->info();
  loaded->encoder = *model;
  return loaded;
}

// As the engine stages and runs it.
std::vector<float> Embed(const ModelPtr& model, EncodeRequest request) {
  const auto pool = MakeHostPool(SystemMemory(), 0);
  EncodeWork work = OpenEncode(std::move(request), model, Vanilla{});
  if (std::holds_alternative<TextInput>(work.request.input)) CopyTexts(&work);
  const auto prepared = PrepareEncode({}, &work);
  EXPECT_TRUE(prepared.ok() && *prepared) << prepared.status();
  EXPECT_TRUE(StageEncode(*pool, &work).ok());
  const absl::Status status =
      RunOnHost({.model = model->encoder, .kernel = Vanilla{}, .items = work.items()}, RunToEnd());
  EXPECT_TRUE(status.ok()) << status;
  const BatchItem& item = work.outputs.front().item;
  return {item.output, item.output + item.output_rows() * item.dimensions};
}

TEST(PromptsTest, MatchSentenceTransformers) {
  const json golden = Golden();
  const std::vector<std::string> texts = golden["texts"];
  for (const json& expected : golden["cases"]) {
    const std::string pooling = expected["pooling"];
    const ModelPtr model =
        LoadWith(golden, {{pooling, true}, {"include_prompt", expected["include_prompt"]}});
    ASSERT_NE(model, nullptr);
    EncodeRequest request;
    TextInput input;
    input.texts.assign(texts.begin(), texts.end());
    request.input = input;
    if (!expected["prompt"].is_null()) request.prompt_name = expected["prompt"];
    const std::vector<float> rows = Embed(model, request);
    ASSERT_EQ(rows.size(), texts.size() * kHidden);
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_NEAR(rows[i], expected["rows"][i / kHidden][i % kHidden].get<double>(), 5e-6)
          << pooling << ", include_prompt " << expected["include_prompt"] << ", prompt "
          << expected["prompt"] << ", text " << i / kHidden << ", dimension " << i % kHidden;
    }
  }
}

TEST(PromptsTest, AreListedAndChecked) {
  const ModelPtr model =
      LoadWith(Golden(), {{"pooling_mode_mean_tokens", true}, {"include_prompt", false}});
  ASSERT_NE(model, nullptr);
  const Prompts& prompts = model->info.prompts;
  ASSERT_EQ(prompts.all.size(), 4u);
  EXPECT_EQ(prompts.default_name, "dog");
  EXPECT_EQ(prompts.all[0].name, "dog");
  EXPECT_EQ(prompts.all[0].text, "the dog: ");
  EXPECT_EQ(prompts.all[0].left_out, 4);  // [CLS] the dog [UNK]
  EXPECT_EQ(prompts.all[2].left_out, 0);  // empty

  EncodeRequest request;
  TextInput input;
  input.texts = {"a"};
  request.input = input;
  ASSERT_NE(PromptOf(request, prompts), nullptr);
  EXPECT_EQ(PromptOf(request, prompts)->name, "dog");
  request.prompt_name = "cat";
  const absl::Status unknown = model->encoder->CheckInput(request, 8, 100);
  EXPECT_EQ(FieldOf(unknown), "prompt_name");
  EXPECT_THAT(std::string(unknown.message()),
              HasSubstr(R"(known are "dog", "joined", "none", "spaced")"));
  request.prompt_name = "";
  EXPECT_TRUE(model->encoder->CheckInput(request, 8, 100).ok());
  EXPECT_EQ(PromptOf(request, prompts), nullptr);

  request.input = TokenInput{.ids = {2, 3}, .type_ids = {}, .lengths = {}};
  EXPECT_TRUE(model->encoder->CheckInput(request, 8, 100).ok());
  request.prompt_name = "dog";
  EXPECT_EQ(FieldOf(model->encoder->CheckInput(request, 8, 100)), "prompt_name");
  request.prompt_name.reset();
  EXPECT_EQ(PromptOf(request, prompts), nullptr);
}

}  // namespace
}  // namespace castor::encoder
