// The table of keys: what it says of each, and that it knows every key that the libraries write.
#include "engine/encoder/directory/directory_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

using testing::HasSubstr;

std::string ErrorOf(File file, const nlohmann::json& object) {
  return std::string(CheckKeys(file, object, "file").message());
}

std::vector<std::string> NamesOf(const Key& key) {
  return absl::StrSplit(std::string(key.names), ' ');
}

TEST(DirectoryKeysTest, NamesNoKeyTwice) {
  std::set<std::pair<File, std::string>> seen;
  for (const Key& key : DirectoryKeys()) {
    for (const std::string& name : NamesOf(key)) {
      EXPECT_TRUE(seen.insert({key.file, name}).second) << name;
      EXPECT_EQ(FindKey(key.file, name), &key) << name;
    }
    EXPECT_FALSE(key.reader.empty()) << key.names;
    EXPECT_EQ(key.use == Use::kRefused, !key.why.empty()) << key.names;
  }
  EXPECT_EQ(FindKey(File::kModules, "type path"), nullptr);
  EXPECT_EQ(FindKey(File::kModules, "typ"), nullptr);
  EXPECT_EQ(FindKey(File::kModules, ""), nullptr);
}

TEST(DirectoryKeysTest, RefusesByNameWhatWouldChangeAnswers) {
  for (const Key& key : DirectoryKeys()) {
    if (key.use != Use::kRefused) continue;
    for (const std::string& name : NamesOf(key)) {
      const std::string error = ErrorOf(key.file, {{name, "another value"}});
      EXPECT_THAT(error, HasSubstr("file: " + name + ": is \"another value\""));
      EXPECT_THAT(error, HasSubstr(std::string(key.why)));
    }
  }
  EXPECT_EQ(ErrorOf(File::kConfig, {{"is_decoder", false}, {"quantization_config", nullptr}}), "");
}

TEST(DirectoryKeysTest, UnknownKeysEndTheStartWhereTheyEndTheLibrary) {
  EXPECT_EQ(ErrorOf(File::kConfig, {{"my_own", 1}}), "");
  EXPECT_EQ(ErrorOf(File::kTokenizerConfig, {{"my_own", 1}, {"image_token", "<i>"}}), "");
  EXPECT_THAT(ErrorOf(File::kPooling, {{"my_own", 1}}), HasSubstr("file: my_own: is not known"));
  EXPECT_THAT(ErrorOf(File::kTransformer, {{"my_own", 1}}), HasSubstr("is not known"));
}

// The kind of a directory's file; none: the table has no keys of it.
std::optional<File> FileOf(const std::filesystem::path& path) {
  static const std::map<std::string, File> kNames = {
      {"tokenizer_config.json", File::kTokenizerConfig},
      {"special_tokens_map.json", File::kSpecialTokensMap},
      {"sentence_bert_config.json", File::kTransformer},
      {"config_sentence_transformers.json", File::kSentenceTransformers},
      {"router_config.json", File::kRouter},
  };
  const std::string name = path.filename();
  if (const auto found = kNames.find(name); found != kNames.end()) return found->second;
  if (name != "config.json") return std::nullopt;
  static const std::map<std::string, File> kModules = {
      {"Pooling", File::kPooling},
      {"Dense", File::kDense},
      {"Normalize", File::kNormalize},
      {"SpladePooling", File::kSplade},
      {"LogitScore", File::kLogitScore},
      {"LayerNorm", File::kLayerNorm},
      {"Dropout", File::kDropout},
      {"MultiVectorMask", File::kMultiVectorMask},
      {"SparseStaticEmbedding", File::kSparseStatic},
  };
  const std::string folder = path.parent_path().filename();
  const auto found = kModules.find(folder.substr(folder.rfind('_') + 1));  // "1_Pooling"
  return found == kModules.end() ? File::kConfig : found->second;
}

// Keys that the libraries write and that no answer depends on. A new one must be looked at: what
// changes answers is read, or refused.
constexpr std::string_view kIgnoredOfConfig =
    "label2id transformers_version _name_or_path bos_token_id eos_token_id sep_token_id "
    "cls_token_id mask_token_id use_cache chunk_size_feed_forward output_attentions "
    "output_hidden_states function_to_apply "
    // Castor computes in the type of --model-dtype.
    "dtype torch_dtype "
    // Training.
    "initializer_range initializer_cutoff_factor gradient_checkpointing hidden_dropout_prob "
    "attention_probs_dropout_prob attention_dropout classifier_dropout embedding_dropout "
    "mlp_dropout dropout qa_dropout seq_classif_dropout embd_pdrop attn_pdrop resid_pdrop "
    "sparse_prediction sparse_pred_ignore_index repad_logits_with_grad pretraining_tp "
    "sinusoidal_pos_embds pooler_dropout cls_dropout lora_dropout_p "
    // Parts that are refused, or belong to classes that are.
    "summary_type summary_use_proj summary_activation summary_last_dropout "
    // How the same is computed.
    "attn_implementation _attn_implementation deterministic_flash_attn reference_compile "
    "use_flash_attn fused_bias_fc fused_dropout_add_ln use_xentropy unpad_inputs "
    "use_memory_efficient_attention emb_pooler "
    // Code in the directory, which the libraries run only where they know no class of their own.
    "auto_map "
    // transformers 5 does not prune; what version 4 pruned is missing in the weights.
    "pruned_heads";
constexpr std::string_view kIgnoredOfTokenizerConfig =
    // Special tokens in texts are text here, unless a request allows them.
    "split_special_tokens name_or_path special_tokens_map_file tokenizer_file vocab_file "
    "merges_file is_local local_files_only backend never_split do_basic_tokenize sp_model_kwargs "
    "spaces_between_special_tokens clean_up_tokenization_spaces errors use_default_system_prompt "
    "legacy processor_class auto_map "
    // Lengths of calls that name none, and padding, which is masked.
    "max_length stride truncation_strategy pad_to_multiple_of pad_token_type_id";
constexpr std::string_view kIgnoredOfSentenceTransformers =
    "__version__ requirements keep_in_fp32_modules attend_to_expansion_tokens "
    "attend_to_mask_tokens";

bool IsIgnored(File file, std::string_view name) {
  switch (file) {
    case File::kConfig:
      return IsAmong(kIgnoredOfConfig, name);
    case File::kTokenizerConfig:
      return IsAmong(kIgnoredOfTokenizerConfig, name);
    case File::kSentenceTransformers:
      return IsAmong(kIgnoredOfSentenceTransformers, name);
    default:
      return false;
  }
}

// The directories were written by the versions of the libraries that are pinned.
TEST(DirectoryKeysTest, KnowsEveryKeyThatTheLibrariesWrite) {
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(GoldenDirectory())) {
    const std::optional<File> file = FileOf(entry.path());
    if (!file.has_value()) continue;
    ++files;
    const nlohmann::json json = nlohmann::json::parse(ReadFile(entry.path()));
    for (const auto& [name, value] : json.items()) {
      EXPECT_NE(FindKey(*file, name) != nullptr, IsIgnored(*file, name))
          << entry.path() << ": " << name;
    }
  }
  EXPECT_GE(files, 60);
}

}  // namespace
}  // namespace castor::encoder
