// Rerankers that put pairs into a text of their own: directories as sentence-transformers saves
// them give its scores (tests/golden/encoder/make_rerankers.py), and none is served without its
// text in silence.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/error.h"
#include "engine/encoder/model.h"
#include "engine/encoder/text/chat_template.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr char kTokens[] = R"({"true_token": "yes", "false_token": "no"})";

std::string Role(const std::string& role) {
  return "messages | selectattr('role', 'eq', '" + role + "') | map(attribute='content') | first";
}
std::string Place(const std::string& role) { return "{{ " + Role(role) + " }}"; }

EncodeRequest RequestOf(const std::string& query, const std::string& document) {
  EncodeRequest request;
  static std::vector<std::unique_ptr<std::string>> kept;  // texts are views
  const auto keep = [](const std::string& text) -> std::string_view {
    return *kept.emplace_back(std::make_unique<std::string>(text));
  };
  request.input = TextInput{{keep(query)}, {keep(document)}, false};
  request.output = EncodeOutput::kLogits;
  return request;
}

absl::StatusOr<float> Score(const std::shared_ptr<Model>& model, const EncodeRequest& request,
                            std::vector<int64_t>* ids = nullptr) {
  if (absl::Status s = model->CheckInput(request, 8, 1 << 20); !s.ok()) return s;
  const absl::StatusOr<Prepared> prepared = Prepare(request, *model);
  if (!prepared.ok()) return prepared.status();
  if (ids != nullptr) *ids = prepared->ids;
  const auto rows = RowsOf(model, request, *prepared);
  if (!rows.ok()) return rows.status();
  return rows->front();
}

class RerankersTest : public testing::TestWithParam<std::string> {};

TEST_P(RerankersTest, ScoreAsTheLibrary) {
  const std::string path = "rerankers/" + GetParam();
  const json golden = json::parse(ReadFile(GoldenDirectory() + "/" + path + "/variants.json"));
  int scored = 0;
  for (const json& variant : golden["variants"]) {
    TinyModel files(path);
    for (const auto& [name, text] : variant["files"].items()) WriteFile(files / name, text);
    const auto model = files.Load();
    ASSERT_TRUE(model.ok()) << variant["name"] << model.status();
    for (const json& expected : variant["cases"]) {
      SCOPED_TRACE(
          absl::StrCat(variant["name"].get<std::string>(), " ", expected.dump().substr(0, 200)));
      EncodeRequest request = RequestOf(expected["query"], expected["document"]);
      if (!expected["instruction"].is_null()) request.prompt = expected["instruction"];
      std::vector<int64_t> ids;
      if (request.prompt.has_value() && !(*model)->info().takes_instruction) {
        EXPECT_EQ(FieldOf(Score(*model, request).status()), "prompt");
        continue;
      }
      // The library reads special tokens in texts as special tokens.
      const std::vector<int64_t> theirs = expected["ids"];
      if (expected.contains("ids_as_text")) {
        ASSERT_TRUE(Score(*model, request, &ids).ok());
        EXPECT_EQ(ids, expected["ids_as_text"].get<std::vector<int64_t>>());
        EXPECT_NE(ids, theirs);
      }
      std::get<TextInput>(request.input).allow_special_tokens = true;
      EXPECT_GE((*model)->EstimateTokens(request), std::ssize(theirs));
      const auto logit = Score(*model, request, &ids);
      ASSERT_TRUE(logit.ok()) << logit.status();
      EXPECT_EQ(ids, theirs);
      EXPECT_NEAR(*logit, expected["logit"].get<float>(), 2e-5);
      request.output = EncodeOutput::kScores;
      EXPECT_NEAR(*Score(*model, request), expected["score"].get<float>(), 2e-5);
      ++scored;
    }
  }
  EXPECT_GE(scored, 16);
}

INSTANTIATE_TEST_SUITE_P(All, RerankersTest,
                         testing::Values("qwen3", "qwen2", "qwen3_classifier", "qwen2_older"));

TEST(RerankersTest, OnlyTheDocumentIsCut) {
  const auto model = TinyModel("rerankers/qwen3").Load();
  ASSERT_TRUE(model.ok()) << model.status();
  std::string document;
  for (int i = 0; i < 300; ++i) document += "the mill ";
  EncodeRequest request = RequestOf("the river", document);
  std::vector<int64_t> whole, cut;
  ASSERT_TRUE(Score(*model, RequestOf("the river", ""), &whole).ok());
  request.max_tokens = std::ssize(whole) + 3;
  ASSERT_TRUE(Score(*model, request, &cut).ok());
  EXPECT_EQ(std::ssize(cut), request.max_tokens);
  EXPECT_TRUE(std::equal(whole.rbegin(), whole.rbegin() + 20, cut.rbegin()));
  EXPECT_TRUE(std::equal(whole.begin(), whole.end() - 40, cut.begin()));
  EXPECT_TRUE(Prepare(request, **model)->truncated[0]);

  request.max_tokens = std::ssize(whole);
  EXPECT_EQ(FieldOf(Score(*model, request).status()), "query");
  request = RequestOf(document, "the river");
  EXPECT_EQ(FieldOf(Score(*model, request).status()), "query");
  request = RequestOf("the river", document);
  request.truncate = false;
  EXPECT_EQ(FieldOf(Score(*model, request).status()), "texts.texts[0]");
  request.truncate = true;
  request.truncation_side = Side::kLeft;
  EXPECT_EQ(FieldOf(Score(*model, request).status()), "truncation_side");
}

TEST(RerankersTest, KeepOneRowOfTheirVocabulary) {
  TinyModel files("rerankers/qwen3");
  constexpr int64_t kRow = 16 * sizeof(float), kVocabulary = 343;
  const auto stored = static_cast<int64_t>(std::filesystem::file_size(files / "model.safetensors"));
  EXPECT_LT((*files.Load())->info().weight_bytes + (kVocabulary - 1) * kRow, stored);
  // The rows of other tokens are not even read.
  files.EditWeights([](auto& tensors) {
    tensors["lm_head.weight"].data.replace(0, 2 * kRow, std::string(2 * kRow, '\xff'));
  });
  EXPECT_EQ(ErrorOf(files), "");
}

TEST(RerankersTest, TakeNothingButPairs) {
  const auto model = TinyModel("rerankers/qwen3").Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EncodeRequest request = RequestOf("the river", "the mill");
  std::get<TextInput>(request.input).pairs.clear();
  for (const EncodeOutput output : {EncodeOutput::kLogits, EncodeOutput::kPooled}) {
    request.output = output;
    EXPECT_EQ(FieldOf(Score(*model, request).status()), "texts.pairs");
  }
  request = RequestOf("the river", "the mill");
  request.output = EncodeOutput::kPooled;
  request.spans.ranges = {{.begin = 0, .end = 1}};
  EXPECT_EQ(FieldOf(Score(*model, request).status()), "spans");
  // A tokenizer's own work has no template in it.
  request = RequestOf("the river", "the mill");
  request.output.reset();
  request.instead = TokenizeOnly{};
  EXPECT_EQ(FieldOf((*model)->CheckInput(request, 8, 100)), "texts.pairs");
}

TEST(RerankersTest, TokenizeTextsWithoutTheDefaultPrompt) {
  std::vector<int64_t> ids[2];
  for (const bool prompted : {false, true}) {
    TinyModel files("rerankers/qwen3");
    files.EditJson("config_sentence_transformers.json", [&](json& config) {
      config["prompts"] = {{"judge", "Judge harshly "}};
      config["default_prompt_name"] = prompted ? json("judge") : json();
    });
    const auto model = files.Load();
    ASSERT_TRUE(model.ok()) << model.status();
    EncodeRequest request;
    request.input = TextInput{{"the mill"}, {}, false};
    request.instead = TokenizeOnly{};
    Tokenized tokenized;
    ASSERT_TRUE((*model)->TokenizeSome(request, {}, &tokenized).ok());
    ids[prompted ? 1 : 0] = tokenized.ids;
  }
  EXPECT_FALSE(ids[0].empty());
  EXPECT_EQ(ids[0], ids[1]);
}

TEST(RerankersTest, OfAPublisherNeedTheirTextAndTokens) {
  for (const char* const name : {"rerankers/qwen3", "rerankers/qwen2"}) {
    TinyModel files(name);
    WriteFile(files / "chat_template.jinja", "<|im_start|>{{ " + Role("system") +
                                                 " | default('Judge') }}\n" + Place("query") +
                                                 ": " + Place("document") + "<|im_end|>");
    EncodeRequest request = RequestOf("the mill", "the river");
    const float saved = *Score(*files.Load(), request);
    std::filesystem::remove(files / "modules.json");
    std::filesystem::remove_all(files / "1_LogitScore");
    EXPECT_THAT(ErrorOf(files),
                AllOf(HasSubstr("config.json: architectures"), HasSubstr("castor_rerank.json")));
    WriteFile(files / "castor_rerank.json", kTokens);
    const auto model = files.Load();
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->info().labels.size(), 1);
    EXPECT_EQ(*Score(*model, request), saved);
    request.prompt = "Judge";
    EXPECT_EQ(*Score(*model, request), saved);
    request.prompt = "Judge not";
    EXPECT_NE(*Score(*model, request), saved);
  }
  TinyModel files("rerankers/qwen3_classifier");
  const float saved = *Score(*files.Load(), RequestOf("the mill", "the river"));
  std::filesystem::remove(files / "modules.json");
  EXPECT_EQ(*Score(*files.Load(), RequestOf("the mill", "the river")), saved);
}

TEST(RerankersTest, OfAPublisherAreRefusedByName) {
  const auto error_of = [](const json& tokens, const std::string& text) {
    TinyModel files("rerankers/qwen3");
    std::filesystem::remove(files / "modules.json");
    WriteFile(files / "castor_rerank.json", tokens.dump());
    std::filesystem::remove(files / "chat_template.jinja");
    if (!text.empty()) WriteFile(files / "chat_template.jinja", text);
    return ErrorOf(files);
  };
  const std::string query = Place("query"), document = Place("document");
  const json tokens = json::parse(kTokens);
  EXPECT_EQ(error_of(tokens, query + document), "");
  EXPECT_THAT(error_of(tokens, ""), HasSubstr("chat_template: is missing"));
  for (const std::string& text : {query, document, document + query, query + document + document,
                                  query + document + query, std::string("text")}) {
    EXPECT_THAT(error_of(tokens, text), HasSubstr("must put the query into the text")) << text;
  }
  EXPECT_THAT(error_of(tokens, "\1q" + query + document), HasSubstr("control character"));
  const std::pair<json, const char*> kCases[] = {
      {{{"true_token", "the millstones"}}, "\"the millstones\" is not one token"},
      {{{"true_token", "yes"}, {"false_token", "?!?"}}, "\"?!?\" is not one token"},
      {{{"true_token", ""}}, "is not one token"},
      {{{"false_token", "no"}}, "true_token: is missing"},
      {{{"true_token", "yes"}, {"prefix", ""}}, "prefix: is not known"},
      {{{"true_token", 7}}, "true_token: must be a string"},
  };
  for (const auto& [file, says] : kCases) {
    EXPECT_THAT(error_of(file, query + document),
                AllOf(HasSubstr("castor_rerank.json"), HasSubstr(says)));
  }
  for (const char* const other : {"rerankers/qwen3", "rerankers/qwen3_classifier", "tiny_bert"}) {
    TinyModel files(other);
    WriteFile(files / "castor_rerank.json", kTokens);
    EXPECT_THAT(ErrorOf(files), HasSubstr("castor_rerank.json: is only for"));
  }
}

TEST(RerankersTest, WithoutTheirTemplateAreNotServed) {
  const auto error_of = [](const char* file, const std::string& text) {
    TinyModel files("rerankers/qwen3");
    std::filesystem::remove(files / file);
    if (!text.empty()) WriteFile(files / file, text);
    return ErrorOf(files);
  };
  const auto way_out = HasSubstr("a reranker needs a chat_template.jinja");
  EXPECT_THAT(error_of("chat_template.jinja", ""), AllOf(HasSubstr("is missing"), way_out));
  const std::string plain =
      R"({"transformer_task": "text-generation", "module_output_name": "causal_logits",
          "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}}})";
  EXPECT_THAT(error_of("sentence_bert_config.json", plain),
              AllOf(HasSubstr("does not apply"), HasSubstr("\"message\""), way_out));
  EXPECT_THAT(error_of("chat_template.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}"),
              AllOf(HasSubstr("chat_template.jinja: line 1: \"for m in"), way_out));
  EXPECT_THAT(error_of("chat_template.jinja", "{{ bos_token }}"),
              HasSubstr("\"bos_token\" is not"));
  EXPECT_THAT(error_of("chat_template.jinja", "hello"),
              HasSubstr("must put the query into the text"));
  EXPECT_THAT(error_of("sentence_bert_config.json", ""), HasSubstr("contradicts"));
  for (const char* const file : {"sentence_bert_config.json", "chat_template.jinja"}) {
    EXPECT_EQ(error_of(file, plain).find("remove"), std::string::npos);
  }
}

std::string RenderError(const std::string& text) {
  const auto rendered = RenderChatTemplate(text, {});
  return rendered.ok() ? "" : std::string(rendered.status().message());
}

TEST(ChatTemplateTest, IsJinjasSpacing) {
  const auto render = [](std::string_view text) {
    return RenderChatTemplate(text, {.variables = {{"bos_token", "<s>"}}}).value();
  };
  EXPECT_EQ(render("a\n  {% set x = 'b' %}\nc {{ x }}\n\n"), "a\nc b\n");
  EXPECT_EQ(render("a {%- set x = 'b' -%} \n c {{- x -}} \n d"), "acbd");
  EXPECT_EQ(render("a {% set x = 'b' %}\nc"), "a c");
  EXPECT_EQ(render("  {%+ set x = 'b' +%}\nc\r\n"), "  \nc");
  EXPECT_EQ(render("a {# no {{ x }} #}\nb {#- no -#} c"), "a bc");
  EXPECT_EQ(render(R"({{ "}}" }}{{ '\'\n"' }}{{ "{%" }})"), "}}'\n\"{%");
  EXPECT_EQ(render("{{ bos_token }}{{ a | default(b | default('c'), true) }}"), "<s>c");
  EXPECT_EQ(render("{% set e = '' %}{{ e | default('x') }}|{{ e | default('x', true) }}"), "|x");
  EXPECT_EQ(render("{{ messages | selectattr('role', 'eq', 'system') | map(attribute='content') "
                   "| first }}"),
            "");
}

TEST(ChatTemplateTest, HasJinjasConditions) {
  const auto render = [](std::string_view text, bool instruction = false) {
    const auto rendered = RenderChatTemplate(text, {.instruction = instruction});
    return rendered.ok() ? *rendered : std::string(rendered.status().message());
  };
  EXPECT_EQ(render("{{ 'a' if x else 'b' if not x else 'c' }}{{ 'd' if x }}"), "b");
  EXPECT_EQ(render("{{ messages[0].content }}{{ messages[1]['content'] }}"), "\1q\1d");
  EXPECT_EQ(render("{{ messages[0].content }}", true), "\1i");
  EXPECT_EQ(render("{{ 'a' if messages[0].content and true else 'b' }}", true), "a");
  EXPECT_EQ(render("{{ 'a' if 'q' + messages[0].content else 'b' }}"), "a");
  EXPECT_EQ(render("{{ 'a' if messages[2] is defined or messages[2] else 'b' }}"), "b");
  EXPECT_EQ(render("{{ 'a' if x is not defined and messages is not string else y.z }}"), "a");
  EXPECT_EQ(render("{{ x.y if x else ' b ' | trim + 'c' }}"), "bc");
  EXPECT_EQ(render("a\n{% if x %}\nb\n{% elif messages %}\nc\n{% else %}\nd\n{% endif %}\ne"),
            "a\nc\ne");
  EXPECT_EQ(render("{% if x %}{% if y %}a{% else %}b{% endif %}{{ z() }}{% else %}c{% endif %}"),
            "c");
  EXPECT_EQ(render("{% if messages %}{% set a = 'b' %}{% endif %}{{ a }}"), "b");
  // An empty generator is true, an empty list is not.
  EXPECT_EQ(render("{% if messages | selectattr('role', 'eq', 'x') %}a{% endif %}"), "a");
  EXPECT_EQ(render("{% if messages | selectattr('role', 'eq', 'x') | list %}a{% endif %}b"), "b");
  EXPECT_EQ(render("{% if x and x.y or tools or add_generation_prompt %}a{% endif %}b"), "b");
}

TEST(ChatTemplateTest, RefusesWhatItCannotRead) {
  for (const char* const text :
       {"{{ x }}",
        "\n{{ x | upper }}",
        "{{ 'a' 'b' }}",
        "{{ 'a",
        "{{ 'a' ",
        "{{ }}",
        "{{ 'a\\x' }}",
        "{% set x %}a{% endset %}",
        "{% raw %}{% endraw %}",
        "{#",
        "{% include 'x' %}",
        "{{ messages }}",
        "{{ 'a' + x }}",
        "{{ x | trim }}",
        "{{ messages[0].content | trim }}",
        "{{ messages[0].content.strip() }}",
        "{{ messages[0].content[0].text }}",
        "{{ messages[3].content }}",
        "{{ messages.content }}",
        "{{ 'a' if messages[0].content else 'c' }}",
        "{{ messages[0].content | default('a', true) }}",
        "{{ 'a' == 'a' }}",
        "{% set x = messages | map(attribute='content') %}{{ x | first }}",
        "{% set x = messages[3].content %}",
        "{% if 'a' if 'b' else 'c' %}{% endif %}",
        "{{ none is defined }}",
        "{{ 'a' is iterable }}",
        "{{ ('a' }}",
        "{{ 'a' if }}",
        "{{ not }}",
        "{% if messages %}",
        "{% if messages %}{% endfor %}",
        "{% if messages %}{% else %}{% else %}{% endif %}",
        "{% if messages %}{% else %}{% elif x %}{% endif %}",
        "{% if x %}{% for m in messages %}{% endfor %}{% endif %}",
        "{% if x %}{% set y %}{% endset %}{% endif %}",
        "{% if messages | first is not string or %}{% endif %}",
        "{% endif %}",
        "{% elif x %}",
        "{{ x() }}",
        "{% set x = y %}{{ x }}",
        "{{ 1 }}",
        "{{ (messages | selectattr('role', 'eq', 'system') | first).content }}",
        "{{ messages | selectattr('role', 'ne', 'query') | map(attribute='content') | first }}",
        "{{ messages | selectattr('role', 'eq', 'query') | map(attribute='content') | list }}",
        "\1q",
        "a\2",
        "{{",
        "{%",
        "{% set = 'a' %}{{ }}",
        "{% set a b = 'c' %}{{ a b }}{{ x }}"}) {
    EXPECT_NE(RenderError(text), "") << text;
  }
  for (const char* const part : {"not ", "(", "'a' if x else ", "'a' + ", "{% if messages %}"}) {
    std::string many = *part == '{' ? "" : "{{ ";
    for (int i = 0; i < 4000; ++i) many += part;
    EXPECT_NE(RenderError(many + (*part == '{' ? "" : "x }}")), "") << part;
  }
  EXPECT_THAT(RenderError("a\nb {{ x | upper }}"), StartsWith("line 2: "));
}

TEST(ChatTemplateTest, IsBounded) {
  std::string nested = "{{ ", many = "{% set a = '" + std::string(5000, 'a') + "' %}";
  for (int i = 0; i < 2000; ++i) nested += "x|default(";
  for (int i = 0; i < 5000; ++i) many += "{{ a }}";
  EXPECT_THAT(RenderError(nested + "'a'" + std::string(2000, ')') + " }}"), HasSubstr("line 1"));
  EXPECT_THAT(RenderError(nested), HasSubstr("without an end"));
  EXPECT_THAT(RenderError(many), HasSubstr("too long"));
  EXPECT_THAT(RenderError(std::string(70'000, 'a')), HasSubstr("64 KiB"));
  EXPECT_NE(RenderError("{{ " + std::string(60'000, '(') + " }}"), "");
}

}  // namespace
}  // namespace castor::encoder
