// The parts that models are built from, independently of BERT: rules for texts, and the index block
// that carries batches to a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/encoder/network/packing.h"
#include "engine/encoder/text/prepare.h"
#include "engine/hf/tokenizer.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

using testing::ElementsAre;

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
