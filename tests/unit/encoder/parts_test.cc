// The parts that models are built from, independently of BERT: names and positions of other
// families, rules for texts, and the index block that carries batches to a device.
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "engine/encoder/heads/pooling.h"
#include "engine/encoder/model.h"
#include "engine/encoder/network/network.h"
#include "engine/encoder/network/post_norm.h"
#include "engine/hf/tokenizer.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

using testing::ElementsAre;
using Weights = std::map<std::string, RawTensor>;

// DistilBERT's names of weights; it has no token types.
constexpr std::string_view kOtherPrefixes[] = {"", "distilbert."};
constexpr PostNormNames kOtherNames = {
    .prefixes = kOtherPrefixes,
    .words = "embeddings.word_embeddings",
    .positions = "embeddings.position_embeddings",
    .types = "embeddings.kinds",
    .norm = "embeddings.LayerNorm",
    .layers = "transformer.layer",
    .qkv = {.query = "attention.q_lin", .key = "attention.k_lin", .value = "attention.v_lin"},
    .attention_output = "attention.out_lin",
    .attention_norm = "sa_layer_norm",
    .mlp = {.in = "ffn.lin1", .out = "ffn.lin2"},
    .output_norm = "output_layer_norm",
};

// Renames the tiny BERT's weights to those names.
void Rename(Weights& weights) {
  Weights renamed;
  for (auto& [name, tensor] : weights) {
    renamed["distilbert." +
            absl::StrReplaceAll(name, {{"token_type_embeddings", "kinds"},
                                       {"encoder.layer", "transformer.layer"},
                                       {"attention.self.query", "attention.q_lin"},
                                       {"attention.self.key", "attention.k_lin"},
                                       {"attention.self.value", "attention.v_lin"},
                                       {"attention.output.dense", "attention.out_lin"},
                                       {"attention.output.LayerNorm", "sa_layer_norm"},
                                       {"intermediate.dense", "ffn.lin1"},
                                       {"output.dense", "ffn.lin2"},
                                       {"output.LayerNorm", "output_layer_norm"}})] =
        std::move(tensor);
  }
  weights = std::move(renamed);
}

// The tiny BERT's config.json.
PostNormConfig TinyConfig() {
  return {.info = {.hidden = kHidden, .layers = 2, .heads = 3},
          .words = 25,
          .positions = 32,
          .types = 2,
          .mlp = {.width = 40},
          .epsilon = 1e-6};
}

absl::StatusOr<Network> Build(const TinyModel& files, const PostNormConfig& config,
                              const PostNormNames& names, InputRules rules) {
  auto stored = hf::Safetensors::OpenModel(files.directory());
  if (!stored.ok()) return stored.status();
  WeightReader weights(**stored, files.directory(), at::kFloat, at::Device(at::kCPU));
  auto body = BuildPostNorm(config, names, weights);
  if (!body.ok()) return body.status();
  return Network(std::move(rules), *std::move(body),
                 std::make_unique<PoolingHead>(Pooling::kMean, false), at::Device(at::kCPU),
                 RunOnCpu);
}

// The network's output rows for two sequences.
std::vector<float> Rows(const Network& network) {
  const std::vector<int64_t> ids = {2, 7, 9, 3, 2, 11, 12, 13, 3};
  const std::vector<int64_t> types = {0, 0, 0, 0, 0, 0, 1, 1, 1};
  const std::vector<int32_t> cu_seqlens = {0, 4, 9};
  BatchItem item{.cu_seqlens = cu_seqlens, .ids = ids, .type_ids = types};
  item.output_kind = EncodeOutput::kTokenEmbeddings;
  item.dimensions = kHidden;
  const Batch batch{.model = nullptr, .kernel = Vanilla{}, .items = {item}};
  const Packing packing = Pack(batch);
  std::vector<int64_t> indices(packing.index_elements());
  WriteIndices(batch, packing, network.rules(), indices.data());
  at::Tensor block = at::empty({packing.index_elements()}, at::kLong);
  std::memcpy(block.mutable_data_ptr(), indices.data(), indices.size() * sizeof(int64_t));
  const auto outputs =
      network.Forward(batch, packing, {.indices = block, .embeddings = {}}, RunToEnd());
  if (!outputs.ok()) {
    ADD_FAILURE() << outputs.status();
    return {};
  }
  const auto* rows = static_cast<const float*>(outputs->front().const_data_ptr());
  return {rows, rows + outputs->front().numel()};
}

std::vector<float> BertRows(const TinyModel& files) {
  const auto model = files.Load();
  if (!model.ok()) {
    ADD_FAILURE() << model.status();
    return {};
  }
  return Rows(*(*model)->network());
}

TEST(PostNormTest, FindsTheWeightsByTheFamilysNames) {
  TinyModel files;
  const std::vector<float> expected = BertRows(files);
  ASSERT_EQ(expected.size(), 9u * kHidden);
  files.EditWeights(Rename);
  const auto other = Build(files, TinyConfig(), kOtherNames, {});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(Rows(*other), expected);

  files.EditWeights([](Weights& weights) {
    weights.erase("distilbert.transformer.layer.1.attention.k_lin.bias");
  });
  const absl::Status lacking = Build(files, TinyConfig(), kOtherNames, {}).status();
  EXPECT_THAT(std::string(lacking.message()),
              testing::HasSubstr("\"distilbert.transformer.layer.1.attention.k_lin.bias\""));
}

TEST(PostNormTest, AFamilyMayHaveNoTokenTypes) {
  TinyModel files;
  files.EditWeights([](Weights& weights) {
    std::string& types = weights["embeddings.token_type_embeddings.weight"].data;
    types.assign(types.size(), '\0');
  });
  const std::vector<float> expected = BertRows(files);
  files.EditWeights(Rename);
  files.EditWeights(
      [](Weights& weights) { ASSERT_EQ(weights.erase("distilbert.embeddings.kinds.weight"), 1u); });
  PostNormNames names = kOtherNames;
  names.types = {};
  const auto other = Build(files, TinyConfig(), names, {});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(Rows(*other), expected);
}

TEST(PostNormTest, PositionsBeginWhereTheRulesSay) {
  TinyModel files;
  const std::vector<float> expected = BertRows(files);
  files.EditWeights(Rename);
  files.EditWeights([](Weights& weights) {
    RawTensor& positions = weights["distilbert.embeddings.position_embeddings.weight"];
    positions.shape[0] += 2;
    positions.data.insert(0, 2 * kHidden * sizeof(float), '\x3f');
  });
  PostNormConfig config = TinyConfig();
  config.positions += 2;
  const auto other = Build(files, config, kOtherNames, {.first_position = 2});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(Rows(*other), expected);
}

TEST(PackingTest, TheIndexBlockHoldsIdsTypesPositionsAndOffsets) {
  const std::vector<int64_t> ids = {5, 6, 7}, types = {0, 1, 1};
  const std::vector<int32_t> two = {0, 2, 3}, one = {0, 2};
  const BatchItem texts{.cu_seqlens = two, .ids = ids, .type_ids = types};
  const BatchItem embeddings{.cu_seqlens = one, .ids = {}, .type_ids = {}};
  const Batch batch{.model = nullptr, .kernel = Vanilla{}, .items = {texts, embeddings}};
  const Packing packing = Pack(batch);
  std::vector<int64_t> indices(packing.index_elements());
  WriteIndices(batch, packing, {.first_position = 2}, indices.data());
  EXPECT_THAT(indices, ElementsAre(5, 6, 7, 0, 0, 0, 1, 1, 0, 0, 2, 3, 2, 2, 3, 0, 2, 3, 5));
}

// As RoBERTa counts; what comes as embeddings holds no padding.
TEST(PackingTest, PaddingTakesThePositionBeforeTheFirst) {
  const std::vector<int64_t> ids = {5, 1, 7, 1, 1, 8};
  const std::vector<int32_t> two = {0, 3, 6}, one = {0, 2};
  const BatchItem texts{.cu_seqlens = two, .ids = ids, .type_ids = {}};
  const BatchItem embeddings{.cu_seqlens = one, .ids = {}, .type_ids = {}};
  const Batch batch{.model = nullptr, .kernel = Vanilla{}, .items = {embeddings, texts}};
  const Packing packing = Pack(batch);
  for (const int64_t padding : {1, 0}) {
    std::vector<int64_t> indices(packing.index_elements());
    WriteIndices(batch, packing, {.first_position = 2, .padding = padding}, indices.data());
    const std::vector<int64_t> positions(indices.begin() + 16, indices.begin() + 24);
    if (padding == 1) {
      EXPECT_THAT(positions, ElementsAre(2, 3, 2, 1, 3, 1, 1, 2));
    } else {
      EXPECT_THAT(positions, ElementsAre(2, 3, 2, 3, 4, 2, 3, 4));
    }
  }
}

class RulesTest : public testing::Test {
 protected:
  void SetUp() override {
    auto tokenizer = hf::Tokenizer::OpenFile(GoldenDirectory() + "/tiny_bert/tokenizer.json");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
  }

  Prepared Prepare(std::string_view text, std::optional<std::string_view> pair,
                   const InputRules& rules, const Prompts& prompts = {}) {
    EncodeRequest request;
    TextInput input;
    input.texts = {text};
    if (pair) input.pairs = {*pair};
    request.input = input;
    Prepared prepared;
    const auto done = PrepareSome(request, rules, prompts, *tokenizer_, {}, &prepared);
    EXPECT_TRUE(done.ok() && *done) << done.status();
    EXPECT_LE(prepared.tokens(), EstimateTokens(request, rules, prompts));
    return prepared;
  }

  std::unique_ptr<hf::Tokenizer> tokenizer_;
};

TEST_F(RulesTest, ThePromptStandsBeforeEveryText) {
  const InputRules plain{.vocabulary = 25, .types = 2, .max_tokens = 32};
  const Prompts prompts{.all = {{.name = "it", .text = "the cat sat on the mat "}},
                        .default_name = "it"};
  EXPECT_EQ(Prepare("sat", std::nullopt, plain, prompts).ids,
            Prepare("the cat sat on the mat sat", std::nullopt, plain).ids);
  EXPECT_EQ(Prepare("sat", "mat", plain, prompts).ids,
            Prepare("the cat sat on the mat sat", "mat", plain).ids);
  EXPECT_EQ(Prepare("", std::nullopt, plain, prompts).ids.size(),
            Prepare("the cat sat on the mat", std::nullopt, plain).ids.size());
}

TEST_F(RulesTest, AModelOfOneTypeIsNotToldOfPairs) {
  const InputRules two{.vocabulary = 25, .types = 2, .max_tokens = 32};
  const InputRules one{.vocabulary = 25, .types = 1, .max_tokens = 32};
  EXPECT_EQ(Prepare("the cat", "the mat", two).type_ids.back(), 1);
  EXPECT_TRUE(Prepare("the cat", "the mat", one).type_ids.empty());
}

TEST_F(RulesTest, TextsAreCutToTheMaximum) {
  const InputRules five{.vocabulary = 25, .types = 2, .max_tokens = 5};
  const Prepared prepared = Prepare("the cat sat on the mat", std::nullopt, five);
  EXPECT_EQ(prepared.tokens(), 5);
  EXPECT_THAT(prepared.truncated, ElementsAre(true));
}

}  // namespace
}  // namespace castor::encoder
