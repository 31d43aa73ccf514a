// Nomic's BERT, GTE, BERT with ALiBi, EuroBERT, jina-embeddings-v3, EmbeddingGemma, decoders,
// ELECTRA, DeBERTa: what their configs may not say, what their checkpoints must hold, and which
// kernels their layers run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/encoder/layers/attention_layers.h"
#include "engine/encoder/network/network.h"
#include "engine/kernel_table.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(NewerFamiliesTest, NamesTheKeyOfNomicsOwnConfig) {
  ExpectKeysRefused("families/nomic_bert_stretched",
                    {{"num_experts", 8, "needs moe_every_n_layers"},
                     {"expert_choice_router", true, "only experts that tokens choose"},
                     {"moe_normalize_expert_weights", true, "only experts that tokens choose"},
                     {"num_shared_experts", 1, "that all tokens share"},
                     {"ffn_div", 2, "n_inner wide"},
                     {"causal", true, "only encoders"},
                     {"prenorm", true, "only LayerNorms after"},
                     {"parallel_block", true, "only LayerNorms after"},
                     {"use_rms_norm", true, "only LayerNorms after"},
                     {"norm_mlp", true, "only LayerNorms after"},
                     {"rotary_emb_interleaved", true, "a head's halves"},
                     {"rotary_emb_scale_base", 512, "decay"},
                     {"rotary_emb_fraction", 0.5, "must be 0 or 1"},
                     {"rotary_emb_base", 0, "within 1..1e+15"},
                     {"rotary_emb_base", 1e-308, "within 1..1e+15"},
                     {"rotary_scaling_factor", 0.5, "must not be below 1"},
                     {"rotary_scaling_factor", 1e300, "within 0..1e+06"},
                     {"max_trained_positions", 0, "must be an integer"},
                     {"scale_attn_weights", false, "the root of the head's size"},
                     {"scale_attn_by_inverse_layer_idx", true, "not supported"},
                     {"num_heads_kv", 1, "must be n_head"},
                     {"n_head", 5, "does not divide"},
                     {"n_head", 8, "odd size"},
                     {"n_head", 12, "too small for a dynamic rotation"},
                     {"activation_function", "gelu_new", "\"gelu_new\" is not supported"},
                     {"activation_function", "glu", "\"glu\" is not supported"},
                     {"layer_norm_epsilon", -1.0, "within 1.2e-38..1"},
                     {"layer_norm_epsilon", 1e-300, "within 1.2e-38..1"},
                     {"hidden_size", 24, "cannot be combined with n_embd"}});
  // An expert count without experts, as the code's defaults have it.
  TinyModel dense("families/nomic_bert_own");
  dense.EditJson("config.json", [](json& config) {
    config["moe_every_n_layers"] = 0;
    config["num_experts"] = 8;
  });
  EXPECT_EQ(ErrorOf(dense), "");
}

TEST(NewerFamiliesTest, NamesTheKeyOfNomicsConfigInTransformers) {
  const json yarn = {{"rope_type", "yarn"}, {"factor", 2.0}};
  const json partial = {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}};
  ExpectKeysRefused("families/nomic_bert",
                    {{"head_dim", 16, "hidden_size / num_attention_heads"},
                     {"hidden_act", "swiglu", "unknown activation"},
                     {"rope_parameters", yarn, "rope_type: \"yarn\" is not supported"},
                     {"rope_parameters", partial, "partial_rotary_factor: is not supported"},
                     {"rope_parameters", {{"rope_type", "dynamic"}}, "factor: is missing"},
                     {"rope_parameters", 3, "must be an object"},
                     {"rope_scaling", {{"type", "ntk"}}, "combined with rope_parameters"},
                     {"num_experts", 8, "needs moe_every_n_layers"},
                     {"moe_every_n_layers", 2, "published code"}});
}

TEST(NewerFamiliesTest, NamesTheKeyOfExperts) {
  ExpectKeysRefused("families/nomic_bert_moe",
                    {{"moe_every_n_layers", -1, "must be an integer"},
                     {"num_experts", nullptr, "is missing"},
                     {"num_experts", 0, "must be an integer within 1..1024"},
                     {"num_experts", 1 << 20, "must be an integer within 1..1024"},
                     {"moe_top_k", nullptr, "is missing"},
                     {"moe_top_k", 0, "must be an integer within 1..5"},
                     {"moe_top_k", 6, "must be an integer within 1..5"},
                     {"activation_function", "swiglu", "experts with a gate"}});
  TinyModel files("families/nomic_bert_moe");
  files.EditJson("config.json", [](json& config) { config["num_experts"] = 4; });
  EXPECT_THAT(ErrorOf(files), AllOf(HasSubstr("mlp.router.layer.weight"), HasSubstr("[5, 24]")));
}

// One text at a time, so that an expert has few rows, or none.
TEST(NewerFamiliesTest, ExpertsOfARowDoNotDependOnOtherRows) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const auto model = LoadOnCpu(GoldenDirectory() + "/families/nomic_bert_moe", dtype);
    ASSERT_TRUE(model.ok()) << model.status();
    std::vector<int64_t> ids;
    for (int i = 0; i < 60; ++i) ids.push_back(i * 7 % 60 + 6);
    const auto rows = [&](const std::vector<int64_t>& of, const std::vector<int32_t>& offsets) {
      std::vector<float> out(of.size() * 24, NAN);
      BatchItem item{.cu_seqlens = offsets, .ids = of};
      item.output_kind = EncodeOutput::kTokenEmbeddings;
      item.dimensions = 24;
      item.output = out.data();
      EXPECT_TRUE(
          RunOnHost({.model = *model, .kernel = Vanilla{}, .items = {item}}, RunToEnd()).ok());
      return out;
    };
    const std::vector<float> together = rows(ids, {0, 1, 29, 60});
    EXPECT_EQ(rows({ids[0]}, {0, 1}), std::vector(together.begin(), together.begin() + 24));
    EXPECT_EQ(rows({ids.begin() + 29, ids.end()}, {0, 31}),
              std::vector(together.begin() + 29 * 24, together.end()));
  }
}

TEST(NewerFamiliesTest, NamesTheKeyOfGtesConfig) {
  const json linear = {{"type", "linear"}, {"factor", 2.0}};
  const json low = {{"type", "ntk"}, {"factor", 0.5}};
  const json more = {{"type", "ntk"}, {"factor", 2.0}, {"beta", 2.0}};
  ExpectKeysRefused("families/new_ntk",
                    {{"rope_scaling", linear, "\"linear\" is not supported"},
                     {"rope_scaling", low, "factor: must be a number within 1..1e+06"},
                     {"rope_scaling", more, "beta: is not supported"},
                     {"rope_scaling", {{"factor", 2.0}}, "names no rope_type"},
                     {"rope_theta", 0, "within 1..1e+15"},
                     {"position_embedding_type", "alibi", "\"rope\", \"absolute\" are"},
                     {"layer_norm_type", "deep_norm", "\"deep_norm\" is not supported"},
                     {"logn_attention_scale", true, "grow with the length"},
                     {"logn_attention_clip1", true, "grow with the length"},
                     {"is_decoder", true, "only encoders"},
                     {"hidden_act", "swiglu", "unknown activation"},
                     {"num_attention_heads", 8, "odd size"},
                     {"type_vocab_size", -1, "must be an integer"},
                     {"pack_qkv", "yes", "true or false"}});
}

TEST(NewerFamiliesTest, NamesTheKeyOfTheConfigWithAlibi) {
  ExpectKeysRefused("families/jina_bert",
                    {{"position_embedding_type", "rotary", "\"absolute\" is"},
                     {"position_embedding_type", "absolute", "needs a position_embedding_type"},
                     {"feed_forward_type", "swiglu", "\"swiglu\" is not supported"},
                     {"feed_forward_type", nullptr, "is missing"},
                     {"hidden_act", "silu", "contradicts feed_forward_type"},
                     {"is_decoder", true, "only encoders"},
                     {"num_attention_heads", 5, "does not divide"}});
}

TEST(NewerFamiliesTest, NamesTheKeyOfEuroBertsConfig) {
  ExpectKeysRefused("families/eurobert",
                    {{"num_key_value_heads", 4, "does not divide num_attention_heads"},
                     {"num_key_value_heads", 0, "must be an integer"},
                     {"num_attention_heads", 8, "head_dim"},
                     {"head_dim", 8, "hidden_size / num_attention_heads"},
                     {"rope_parameters", {{"rope_type", "dynamic"}}, "is not supported"},
                     {"rms_norm_eps", -1.0, "within 1.2e-38..1"},
                     {"hidden_act", "swiglu", "unknown activation"},
                     {"is_decoder", true, "only encoders"},
                     {"mlp_bias", "no", "true or false"}});
}

TEST(NewerFamiliesTest, NamesTheKeyOfTheConfigWithAdapters) {
  ExpectKeysRefused("adapters/jina_v3", {{"load_trained_adapters", nullptr, "must be true"},
                                         {"rotary_emb_base", 0, "within 1..1e+12"}});
  ExpectKeysRefused("families/jina_v3",
                    {{"lora_adaptations", json::array(), "names no task"},
                     {"rope_parameters", {{"rope_type", "linear"}}, "is not supported"},
                     {"hidden_act", "swiglu", "unknown activation"}});
}

TEST(NewerFamiliesTest, NamesTheKeyOfGemmasConfig) {
  ExpectKeysRefused("families/gemma",
                    {{"use_bidirectional_attention", 1, "true or false"},
                     {"is_causal", true, "contradicts use_bidirectional_attention"},
                     {"attn_logit_softcapping", 50.0, "is not supported"},
                     {"final_logit_softcapping", 30.0, "is not supported"},
                     {"head_dim", 7, "odd size"},
                     {"num_attention_heads", 5, "does not divide"},
                     {"num_key_value_heads", 2, "does not divide"},
                     {"query_pre_attn_scalar", 0, "within 0.001..1e+09"},
                     {"query_pre_attn_scalar", 1e-300, "within 0.001..1e+09"},
                     {"layer_types", {"full_attention"}, "does not name num_hidden_layers"},
                     {"rope_scaling", {{"rope_type", "linear"}}, "\"linear\" is not supported"},
                     {"hidden_activation", "swiglu", "unknown activation"}});
  ExpectKeysRefused("families/gemma_causal",
                    {{"is_causal", false, "contradicts use_bidirectional_attention"},
                     {"sliding_window", 0, "must be an integer"},
                     {"sliding_window", nullptr, "must not be null"}});
  for (const char* family : {"families/gemma1", "families/gemma2"}) {
    ExpectKeysRefused(family, {{"is_causal", false, "must be true in this family"},
                               {"use_bidirectional_attention", true, "must be false"},
                               {"rope_parameters", {{"rope_type", "yarn"}}, "is not supported"},
                               {"num_key_value_heads", 3, "does not divide"},
                               {"head_dim", 7, "odd size"}});
  }
  ExpectKeysRefused("families/gemma2",
                    {{"attn_logit_softcapping", 0, "within 0.001..1e+09"},
                     {"attn_logit_softcapping", -50.0, "within 0.001..1e+09"},
                     {"sliding_window", nullptr, "must not be null"},
                     {"layer_types", {"full_attention"}, "does not name num_hidden_layers"}});
}

TEST(NewerFamiliesTest, Gemma2CapsTheScoresOfEveryLayer) {
  const auto caps = [](const TinyModel& files) {
    std::vector<double> caps;
    const auto model = files.Load();
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return caps;
    for (const AttentionLayers& alike : (*model)->attention(Vanilla{})) {
      caps.push_back(alike.spec.softcap);
    }
    return caps;
  };
  TinyModel files("families/gemma2");
  EXPECT_THAT(caps(files), ElementsAre(1.5, 1.5));
  files.EditJson("config.json", [](json& config) { config.erase("attn_logit_softcapping"); });
  EXPECT_THAT(caps(files), ElementsAre(50, 50));
  EXPECT_THAT(caps(TinyModel("families/gemma2_uncapped")), ElementsAre(0, 0));
}

TEST(NewerFamiliesTest, NamesTheKeyOfADecodersConfig) {
  for (const char* family :
       {"families/qwen3", "families/qwen2", "families/mistral", "families/llama"}) {
    ExpectKeysRefused(
        family,
        {{"is_causal", "no", "true or false"},
         {"use_bidirectional_attention", 1, "true or false"},
         {"num_key_value_heads", 3, "does not divide num_attention_heads"},
         {"head_dim", 7, "odd size"},
         {"rope_scaling", {{"type", "yarn"}, {"factor", 2.0}}, "combined with rope_parameters"},
         {"rope_parameters", {{"rope_type", "yarn"}}, "\"yarn\" is not supported"},
         {"hidden_act", "swiglu", "unknown activation"},
         {"rms_norm_eps", -1.0, "within 1.2e-38..1"},
         {"rms_norm_eps", 0, "within 1.2e-38..1"},
         {"rms_norm_eps", 1e-300, "within 1.2e-38..1"},
         {"rms_norm_eps", 1e300, "within 1.2e-38..1"},
         {"rope_parameters",
          {{"rope_type", "default"}, {"rope_theta", 1e-308}},
          "rope_theta: must be a number within 1..1e+15"},
         {"rope_parameters",
          {{"rope_type", "default"}, {"rope_theta", 1e300}},
          "rope_theta: must be a number within 1..1e+15"},
         {"is_decoder", true, "only encoders"},
         {"layer_types", {"full_attention"}, "does not name num_hidden_layers"},
         {"layer_types", {"full_attention", "chunked_attention"}, "is not known"}});
  }
  const json llama3 = {{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0}};
  json equal = llama3, low = llama3, more = llama3, endless = llama3;
  equal["high_freq_factor"] = 1.0;
  more["high_freq_factor"] = low["high_freq_factor"] = endless["high_freq_factor"] = 4.0;
  low["factor"] = 0.5;
  more["beta_fast"] = 32;
  endless["original_max_position_embeddings"] = 1e300;
  ExpectKeysRefused("families/llama",
                    {{"rope_parameters", llama3, "high_freq_factor: is missing"},
                     {"rope_parameters", equal, "must be greater than low_freq_factor"},
                     {"rope_parameters", low, "factor: must be a number within 1..1e+06"},
                     {"rope_parameters", more, "beta_fast: is not supported"},
                     {"rope_parameters", endless, "original_max_position_embeddings: must be"},
                     {"attention_bias", "no", "true or false"},
                     {"mlp_bias", 1, "true or false"}});
  ExpectKeysRefused("heads/llama_bidirec_sequences",
                    {{"pooling", "max", "\"max\" is not known; \"avg\", \"cls\", \"last\" are"},
                     {"temperature", 0, "within 1e-06..1e+06"},
                     {"use_bidirectional_attention", false, "use_bidirectional_attention: must be"},
                     {"is_causal", true, "contradicts is_causal"}});
  ExpectKeysRefused("families/qwen3_windows",
                    {{"sliding_window", 0, "must be an integer"},
                     {"sliding_window", nullptr, "layer_types: has local layers"},
                     {"max_window_layers", -1, "must be an integer"},
                     {"attention_bias", "no", "true or false"}});
  ExpectKeysRefused("families/mistral", {{"sliding_window", 0, "must be an integer"}});
  TinyModel contradiction("families/qwen2");
  contradiction.EditJson("config.json", [](json& config) {
    config["is_causal"] = true;
    config["use_bidirectional_attention"] = true;
  });
  EXPECT_THAT(ErrorOf(contradiction), HasSubstr("use_bidirectional_attention: contradicts"));
}

TEST(NewerFamiliesTest, NamesTheKeyOfDebertasConfig) {
  ExpectKeysRefused("families/deberta",
                    {{"conv_kernel_size", -1, "must be an integer within 0..1024"},
                     {"attention_head_size", 4, "hidden_size / num_attention_heads"},
                     {"embedding_size", 12, "must be hidden_size"},
                     {"pos_att_type", {"c2p", "p2p"}, "\"p2p\" is not known"},
                     {"pos_att_type", 3, "must be a list of strings"},
                     {"position_buckets", 1, "must not be 1"},
                     {"max_relative_positions", 5, "leaves no distances"},
                     {"norm_rel_ebd", true, "must be a string"},
                     {"share_att_key", "yes", "true or false"},
                     {"type_vocab_size", -1, "must be an integer"},
                     {"is_decoder", true, "only encoders"},
                     {"num_attention_heads", 5, "does not divide"}});
}

TEST(NewerFamiliesTest, NamesTheKeyOfDebertasConvolution) {
  ExpectKeysRefused("families/deberta_conv", {{"conv_kernel_size", 4, "must be odd"},
                                              {"conv_kernel_size", 1 << 20, "within 0..1024"},
                                              {"conv_groups", 2, "must be 1"},
                                              {"conv_act", "swiglu", "unknown activation"}});
}

TEST(NewerFamiliesTest, NarrowEmbeddingsAreNotTakenFromRequests) {
  const std::vector<float> rows(24);
  EncodeRequest request;
  request.input = EmbeddingInput{.values = {.dtype = DType::kFloat32,
                                            .shape = {1, 24},
                                            .pieces = {std::as_bytes(std::span(rows))}},
                                 .lengths = {}};
  const auto wide = TinyModel("families/electra_wide").Load();
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_TRUE((*wide)->CheckInput(request, 8, 1 << 20).ok());
  const auto narrow = TinyModel("families/electra").Load();
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  const absl::Status status = (*narrow)->CheckInput(request, 8, 1 << 20);
  EXPECT_EQ(FieldOf(status), "embeddings") << status;
}

// The same function, as transformers' key says it and as publishers' code has it.
TEST(NewerFamiliesTest, ADecoderThatLooksBothWaysRunsEveryKernel) {
  for (const char* key : {"is_causal", "use_bidirectional_attention"}) {
    TinyModel files("families/qwen2");
    files.EditJson("config.json", [&](json& config) { config[key] = key[0] == 'u'; });
    const auto model = files.Load();
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->info().kernels, SoftmaxKernels());
    EXPECT_FALSE(std::get<Vanilla>((*model)->info().kernel).causal);
    EXPECT_EQ((*model)->attention(Clustered{}).front().spec.kernel.index(),
              Kernel(Clustered{}).index());
  }
  TinyModel bert("tiny_bert");
  bert.EditJson("config.json", [](json& config) { config["is_causal"] = true; });
  EXPECT_THAT(ErrorOf(bert),
              HasSubstr("config.json: is_causal: this family has no causal attention"));
}

TEST(NewerFamiliesTest, ADecodersLayersAreCausalWhateverIsAskedFor) {
  const auto model = TinyModel("families/qwen3_windows").Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT((*model)->info().kernels, ElementsAre(KernelName::kVanilla));
  EXPECT_TRUE(std::get<Vanilla>((*model)->info().kernel).causal);
  const auto layers = (*model)->attention(Vanilla{});
  ASSERT_EQ(layers.size(), 2U);
  for (const AttentionLayers& alike : layers) {
    EXPECT_EQ(alike.layers, 2);
    EXPECT_EQ(alike.spec.head_dim, 4);
    EXPECT_TRUE(std::get<Vanilla>(alike.spec.kernel).causal);
  }
  EXPECT_EQ(layers[1].spec.window,
            attention::SymmetricWindow(5));  // a token and the five before it
}

// Without modules.json it is a generator or a reranker, with or without a chat template. No error
// suggests to remove the template.
TEST(NewerFamiliesTest, ALanguageModelIsNoEmbeddingModel) {
  for (const auto& [family, name] :
       {std::pair{"qwen3_windows", "Qwen3ForCausalLM"},
        std::pair{"mistral_whole", "MistralForCausalLM"}, std::pair{"qwen2", "Qwen2ForCausalLM"},
        std::pair{"llama", "LlamaForCausalLM"}, std::pair{"gemma2", "Gemma2ForCausalLM"}}) {
    TinyModel files("families/" + std::string(family));
    files.EditJson("config.json", [&](json& config) { config["architectures"] = {name}; });
    for (const char* const file : {"", "tokenizer_config.json", "chat_template.jinja"}) {
      if (*file != 0) WriteFile(files / file, R"({"chat_template": "{{ messages }}"})");
      EXPECT_THAT(ErrorOf(files), AllOf(HasSubstr("config.json: architectures: \"" +
                                                  std::string(name) + "\" without a modules.json"),
                                        HasSubstr("reranker"), Not(HasSubstr("remove"))))
          << file;
    }
  }
  EXPECT_TRUE(TinyModel("families/qwen2_both_ways").Load().ok());  // a class for it, but no mask
  EXPECT_TRUE(TinyModel("families/qwen3").Load().ok());            // saved as a body
  TinyModel body("families/qwen3");
  WriteFile(body / "chat_template.jinja", "{{ messages }}");
  EXPECT_THAT(ErrorOf(body), AllOf(HasSubstr("chat_template"), HasSubstr("needs a modules.json"),
                                   Not(HasSubstr("remove"))));
}

// EmbeddingGemma's config.json is of transformers 4.
TEST(NewerFamiliesTest, GemmasOlderKeysMeanTheSame) {
  TinyModel files("families/gemma_biases");
  files.EditJson("config.json", [](json& config) {
    config.erase("rope_parameters");
    config.erase("layer_types");
    config["rope_theta"] = 5000.0;
    config["rope_local_base_freq"] = 500.0;
    config["sliding_window_pattern"] = 3;
  });
  const auto model = files.Load();
  ASSERT_TRUE(model.ok()) << model.status();
  const auto layers = (*model)->attention(Vanilla{});
  ASSERT_EQ(layers.size(), 2U);
  EXPECT_EQ(layers[0].layers, 1);
  EXPECT_NEAR(layers[0].spec.softmax_scale, 1 / std::sqrt(6.0), 1e-12);
  EXPECT_EQ(layers[1].layers, 2);
  EXPECT_EQ(layers[1].spec.window, attention::SymmetricWindow(7));
}

TEST(NewerFamiliesTest, NamesTheTensorThatIsMissing) {
  for (const auto& [family, name] :
       {std::pair{"nomic_bert", "encoder.layers.1.mlp.fc12.weight"},
        std::pair{"nomic_bert_moe", "encoder.layers.1.mlp.router.layer.weight"},
        std::pair{"nomic_bert_moe", "encoder.layers.3.mlp.experts.mlp.w2"},
        std::pair{"nomic_bert_moe", "encoder.layers.3.mlp.experts.bias"},
        std::pair{"nomic_bert_moe", "encoder.layers.2.mlp.fc1.bias"},
        std::pair{"nomic_bert_stretched", "encoder.layers.0.attn.Wqkv.bias"},
        std::pair{"new_ntk", "new.encoder.layer.1.mlp.up_gate_proj.weight"},
        std::pair{"new_mixed", "encoder.layer.0.attention.k_proj.bias"},
        std::pair{"jina_bert", "encoder.layer.0.mlp.layernorm.bias"},
        std::pair{"jina_bert_code", "encoder.layer.1.attention.self.layer_norm_k.weight"},
        std::pair{"jina_bert_code", "encoder.layer.1.layer_norm_1.weight"},
        std::pair{"eurobert", "layers.0.self_attn.v_proj.weight"},
        std::pair{"gemma", "layers.2.self_attn.q_norm.weight"},
        std::pair{"gemma", "layers.3.post_feedforward_layernorm.weight"},
        std::pair{"gemma1", "layers.1.post_attention_layernorm.weight"},
        std::pair{"gemma1_biases", "model.layers.0.self_attn.o_proj.bias"},
        std::pair{"gemma2", "layers.3.pre_feedforward_layernorm.weight"},
        std::pair{"qwen3", "layers.1.self_attn.k_norm.weight"},
        std::pair{"qwen3_windows", "model.layers.1.self_attn.o_proj.bias"},
        std::pair{"qwen2", "layers.0.self_attn.v_proj.bias"},
        std::pair{"mistral", "layers.1.post_attention_layernorm.weight"},
        std::pair{"llama", "layers.1.self_attn.k_proj.weight"},
        std::pair{"llama_biases", "model.layers.0.mlp.down_proj.bias"},
        std::pair{"electra", "electra.embeddings_project.weight"},
        std::pair{"deberta", "encoder.rel_embeddings.weight"},
        std::pair{"deberta", "encoder.LayerNorm.bias"},
        std::pair{"deberta_conv", "encoder.conv.conv.weight"},
        std::pair{"deberta_conv_wide", "deberta.encoder.conv.LayerNorm.weight"},
        std::pair{"deberta_own", "deberta.encoder.layer.1.attention.self.pos_key_proj.weight"},
        std::pair{"eurobert_biases", "model.layers.1.mlp.up_proj.bias"}}) {
    ExpectTensorsNeeded("families/" + std::string(family), {name});
  }
}

TEST(NewerFamiliesTest, ListTheKernelsThatTheirLayersCanRun) {
  const auto kernels = [](const TinyModel& files) {
    const auto model = files.Load();
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? (*model)->info().kernels : std::vector<KernelName>{};
  };
  for (const std::string family :
       {"nomic_bert", "nomic_bert_plain", "gte", "new_absolute", "jina_v3", "eurobert", "electra",
        "deberta_absolute", "modernbert"}) {
    EXPECT_EQ(kernels(TinyModel("families/" + family)), SoftmaxKernels()) << family;
  }
  for (const std::string family :
       {"jina_bert", "jina_bert_code", "deberta", "deberta_own", "mpnet"}) {
    EXPECT_THAT(kernels(TinyModel("families/" + family)), ElementsAre(KernelName::kVanilla))
        << family;
  }
  TinyModel local("families/modernbert");
  local.EditJson("config.json", [](json& config) {
    config["layer_types"] = std::vector<std::string>(4, "sliding_attention");
  });
  EXPECT_THAT(kernels(local), ElementsAre(KernelName::kVanilla)) << "no layer sees all tokens";
}

TEST(NewerFamiliesTest, KeysThatHeadsShareAreInMemoryOnce) {
  const auto model = TinyModel("families/eurobert").Load();
  ASSERT_TRUE(model.ok()) << model.status();
  const ModelInfo& info = (*model)->info();
  const int64_t layer = 2 * 24 * 24 + 2 * 8 * 24 + 3 * 24 * 40 + 2 * 24;
  EXPECT_EQ(info.parameters, info.vocabulary_size * 24 + 2 * layer + 24);
  EXPECT_EQ(info.weight_bytes, 4 * info.parameters);
  const auto layers = (*model)->attention(Vanilla{});
  ASSERT_EQ(layers.size(), 1U);
  EXPECT_EQ(layers[0].spec.heads, 6);
  EXPECT_EQ(layers[0].spec.kv_heads, 2);
}

}  // namespace
}  // namespace castor::encoder
