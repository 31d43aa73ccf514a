#include "engine/encoder/directory/directory_keys.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace castor::encoder {
namespace {

constexpr Key Read(File file, std::string_view reader, std::string_view names) {
  return {file, names, Use::kRead, reader, "", ""};
}
constexpr Key Ignored(File file, std::string_view reader, std::string_view names) {
  return {file, names, Use::kIgnored, reader, "", ""};
}
constexpr Key Refused(File file, std::string_view reader, std::string_view names,
                      std::string_view neutral, std::string_view why) {
  return {file, names, Use::kRefused, reader, neutral, why};
}

constexpr std::string_view kOnlyEncoders = "only encoders are served";
constexpr std::string_view kAny = "PreTrainedConfig";
constexpr std::string_view kTokenizer = "PreTrainedTokenizerBase";
constexpr std::string_view kTraining = "training";
constexpr std::string_view kMerge = "merge the adapter into the weights (merge_and_unload)";

}  // namespace

bool IsAmong(std::string_view words, std::string_view word) {
  if (word.find(' ') != std::string_view::npos) return false;
  for (size_t at = 0; (at = words.find(word, at)) != std::string_view::npos; ++at) {
    const std::string_view rest = words.substr(at + word.size());
    if ((at == 0 || words[at - 1] == ' ') && (rest.empty() || rest[0] == ' ')) return true;
  }
  return false;
}

std::span<const Key> DirectoryKeys() {
  using enum File;
  static constexpr Key kKeys[] = {
      // ---- config.json: what every family has
      Read(kConfig, "AutoConfig", "model_type"),
      Read(kConfig, "AutoModel", "architectures"),
      Read(kConfig, "AutoTokenizer", "tokenizer_class"),
      Read(kConfig, kAny, "id2label num_labels tie_word_embeddings"),
      Read(kConfig, "TextClassificationPipeline", "problem_type"),
      Read(kConfig, "CrossEncoder", "sentence_transformers sbert_ce_default_activation_function"),
      Read(kConfig, "RobertaModel, Gemma3TextForSequenceClassification", "pad_token_id"),
      Refused(kConfig, kAny, "is_decoder add_cross_attention is_encoder_decoder", "false null",
              kOnlyEncoders),
      Refused(kConfig, "NomicBertModel", "causal", "false null", kOnlyEncoders),
      Refused(kConfig, kAny, "quantization_config", "null",
              "save the model unquantized; --model-dtype int8 quantizes it here"),
      Refused(kConfig, kAny, "per_layer_config", "null", "layers must all be alike"),
      Refused(kConfig, kAny, "use_return_dict", "", "transformers refuses it: remove it"),
      Refused(kConfig, kAny, "return_dict", "true null", "remove it"),

      // ---- config.json: of families
      Read(kConfig, "every family",
           "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size "
           "max_position_embeddings"),
      Read(kConfig, "BertModel and relatives", "type_vocab_size hidden_act layer_norm_eps"),
      Read(kConfig, "BertModel, NewModel, JinaBertModel", "position_embedding_type"),
      Read(kConfig, "ElectraModel, DebertaV2Model", "embedding_size"),
      Read(kConfig, "MPNetModel", "relative_attention_num_buckets"),
      Read(kConfig, "DebertaV2Model",
           "relative_attention max_relative_positions position_buckets norm_rel_ebd "
           "pos_att_type share_att_key position_biased_input conv_kernel_size "
           "conv_act conv_groups attention_head_size"),
      Read(kConfig, "classifiers of DeBERTa", "pooler_hidden_act pooler_hidden_size"),
      Read(kConfig, "DebertaV2ForMaskedLM", "legacy"),
      Read(kConfig, "DistilBertModel", "dim n_layers n_heads hidden_dim activation"),
      Read(kConfig, "JinaBertModel", "feed_forward_type"),
      Read(kConfig, "ModernBertModel, EuroBertModel, Gemma3TextModel, Qwen3Model, LlamaModel",
           "attention_bias"),
      Read(kConfig, "ModernBertModel, EuroBertModel, LlamaModel", "mlp_bias"),
      Read(kConfig, "ModernBertModel", "norm_bias norm_eps"),
      Read(kConfig, "ModernBertModel, Gemma2Model, Gemma3TextModel", "hidden_activation"),
      Read(kConfig, "ModernBertForMaskedLM", "decoder_bias"),
      Read(kConfig, "classifiers of ModernBERT and EuroBERT", "classifier_pooling"),
      Read(kConfig, "LlamaBidirectionalForSequenceClassification", "pooling temperature"),
      Read(kConfig, "classifiers of ModernBERT", "classifier_bias classifier_activation"),
      Read(kConfig, "ModernBertModel, Gemma3TextModel, Qwen3Model", "layer_types"),
      Read(kConfig, "ModernBertConfig",
           "global_attn_every_n_layers local_attention global_rope_theta local_rope_theta"),
      Read(kConfig, "ModernBertModel, Gemma3TextModel, decoders", "sliding_window"),
      Read(kConfig, "Qwen2Config, Qwen3Config", "use_sliding_window max_window_layers"),
      Read(kConfig, "Gemma3TextConfig",
           "sliding_window_pattern _sliding_window_pattern rope_local_base_freq"),
      Read(kConfig, "rotary embeddings",
           "rope_theta rope_scaling rope_parameters original_max_position_embeddings"),
      Read(kConfig, "EuroBertModel, Gemma3TextModel, decoders", "rms_norm_eps num_key_value_heads"),
      Read(kConfig, "EuroBertModel, Gemma3TextModel, NomicBertModel, decoders", "head_dim"),
      Read(kConfig, "Gemma3TextModel",
           "query_pre_attn_scalar attn_logit_softcapping final_logit_softcapping"),
      Read(kConfig, "Gemma3TextModel, publishers' decoders", "use_bidirectional_attention"),
      Read(kConfig, "masks of decoders, SentenceTransformer", "is_causal"),
      Read(kConfig, "XLMRobertaLoRA",
           "lora_adaptations lora_rank lora_alpha load_trained_adapters task_instructions"),
      Read(kConfig, "JinaEmbeddingsV5Model", "task_names"),
      Read(kConfig, "NewModel",
           "layer_norm_type pack_qkv logn_attention_scale logn_attention_clip1"),
      // nomic-embed's own code.
      Read(kConfig, "NomicBertModel",
           "n_embd n_layer n_head num_heads_kv n_inner n_positions pad_vocab_size_multiple "
           "layer_norm_epsilon activation_function mlp_fc1_bias mlp_fc2_bias qkv_proj_bias "
           "rotary_emb_fraction rotary_emb_base rotary_scaling_factor max_trained_positions "
           "moe_every_n_layers num_experts moe_top_k expert_choice_router "
           "moe_normalize_expert_weights num_shared_experts prenorm parallel_block use_rms_norm "
           "norm_mlp "
           "rotary_emb_interleaved rotary_head_dim rotary_emb_scale_base "
           "scale_attn_by_inverse_layer_idx scale_attn_weights"),
      Refused(kConfig, "NomicBertModel", "ffn_div", "1 1.0 null", "experts must be n_inner wide"),
      // Castor's own format.
      Read(kConfig, "castor_cast",
           "cast_clusters cast_cluster_size cast_clustering cast_attention_function "
           "cast_gate_temperature cast_head_clustering"),

      // ---- tokenizer_config.json
      Read(kTokenizerConfig, "AutoTokenizer", "tokenizer_class"),
      Read(kTokenizerConfig, kTokenizer,
           "truncation_side padding_side model_max_length max_len model_input_names "
           "added_tokens_decoder additional_special_tokens extra_special_tokens "
           "model_specific_special_tokens"),
      Read(kTokenizerConfig, kTokenizer, "*_token"),
      Read(kTokenizerConfig, "Transformer.infer_modalities", "chat_template"),
      Read(kTokenizerConfig, "TokenizersBackend", "add_bos_token add_eos_token"),
      Read(kTokenizerConfig, "BertTokenizer, MPNetTokenizer, DebertaV2Tokenizer", "do_lower_case"),
      Read(kTokenizerConfig, "BertTokenizer, MPNetTokenizer",
           "strip_accents tokenize_chinese_chars"),
      Read(kTokenizerConfig, "RobertaTokenizer, XLMRobertaTokenizer and others",
           "add_prefix_space"),
      Read(kTokenizerConfig, "RobertaTokenizer", "trim_offsets"),
      Read(kTokenizerConfig, "DebertaV2Tokenizer", "split_by_punct unk_id"),
      Refused(kTokenizerConfig, kTokenizer, "fast_tokenizer_files", "null []",
              "rename the newest of these files to tokenizer.json, and remove the key"),
      Refused(kTokenizerConfig, kTokenizer, "init_inputs", "null []",
              "replace it by keys named after the arguments"),

      // ---- special_tokens_map.json
      Read(kSpecialTokensMap, kTokenizer, "*_token"),
      Read(kSpecialTokensMap, kTokenizer, "additional_special_tokens extra_special_tokens"),

      // ---- modules.json
      Read(kModules, "BaseModel", "type path name"),
      Refused(kModules, "BaseModel", "kwargs", "null [] [\"task\"] [\"task\",\"truncate_dim\"]",
              "arguments of calls are not passed on to modules"),

      // ---- router_config.json
      Read(kRouter, "Router", "types structure parameters"),

      // ---- sentence_bert_config.json
      Read(kTransformer, "Transformer",
           "max_seq_length do_lower_case transformer_task module_output_name modality_config "
           "query_length document_length query_expansion"),
      Ignored(kTransformer, "Transformer", "unpad_inputs"),
      Refused(kTransformer, "Transformer", "model_args model_kwargs", "null {}",
              "save the model with these arguments applied"),
      Refused(kTransformer, "Transformer", "tokenizer_args processor_kwargs", "null {}",
              "move its keys to tokenizer_config.json"),
      Refused(kTransformer, "Transformer", "config_args config_kwargs", "null {}",
              "move its keys to config.json"),
      Refused(kTransformer, "Transformer", "processing_kwargs", "null {}",
              "use max_tokens and truncation_side of requests"),
      Refused(kTransformer, "Transformer", "tokenizer_name_or_path", "null",
              "put that tokenizer's files into this directory"),

      // ---- config_sentence_transformers.json
      Read(kSentenceTransformers, "BaseModel", "model_type prompts default_prompt_name"),
      Read(kSentenceTransformers, "SentenceTransformer, SparseEncoder", "truncate_dim"),
      Read(kSentenceTransformers, "CrossEncoder", "activation_fn"),
      Read(kSentenceTransformers, "clients, who compare vectors", "similarity_fn_name"),
      Refused(kSentenceTransformers, "SparseEncoder", "max_active_dims", "null",
              "answers hold all weights: set it to null and keep the largest when comparing"),
      Read(kSentenceTransformers, "PyLate's queries",
           "query_length query_prefix query_expansion do_query_expansion "
           "attend_to_expansion_tokens attend_to_mask_tokens"),
      Read(kSentenceTransformers, "PyLate's documents",
           "document_length document_prefix skiplist_words"),

      // ---- modules
      Read(kPooling, "Pooling",
           "pooling_mode pooling_mode_cls_token pooling_mode_max_tokens "
           "pooling_mode_mean_tokens pooling_mode_mean_sqrt_len_tokens "
           "pooling_mode_weightedmean_tokens pooling_mode_lasttoken embedding_dimension "
           "word_embedding_dimension include_prompt"),
      Read(kDense, "Dense",
           "in_features out_features bias activation_function module_input_name "
           "module_output_name use_residual"),
      Read(kLayerNorm, "LayerNorm", "dimension"),
      Ignored(kDropout, kTraining, "dropout"),
      Read(kNormalize, "Normalize", "module_input_name module_output_name"),
      Read(kSplade, "SpladePooling", "pooling_strategy activation_function"),
      Ignored(kSplade, "SpladePooling", "embedding_dimension word_embedding_dimension chunk_size"),
      Ignored(kSparseStatic, kTraining, "frozen"),
      Refused(kSparseStatic, "SparseStaticEmbedding", "path", "null",
              "load the model with sentence-transformers and save it, which writes the weights"),
      Read(kLogitScore, "LogitScore", "true_token_id false_token_id module_input_name"),
      Read(kMultiVectorMask, "MultiVectorMask", "skiplist_words skiplist_tasks"),
      Refused(kMultiVectorMask, "MultiVectorMask", "keep_only_token_ids", "null",
              "answers hold a row for each token: set it to null and drop the other rows when "
              "comparing"),
      Read(kRerank, "castor_rerank.json", "true_token false_token"),

      // ---- adapter_config.json. An unknown key is refused, unless its value says nothing.
      Read(kAdapter, "LoraConfig",
           "peft_type r lora_alpha use_rslora rank_pattern alpha_pattern target_modules"),
      Ignored(kAdapter, "LoraConfig",
              "auto_mapping base_model_name_or_path inference_mode revision task_type "
              "lora_dropout layers_pattern layers_to_transform exclude_modules megatron_core "
              "loftq_config eva_config qalora_group_size peft_version runtime_config"),
      Refused(kAdapter, "LoraConfig", "bias", "\"none\" null", kMerge),
      Refused(kAdapter, "LoraConfig", "init_lora_weights",
              "true false null \"gaussian\" \"orthogonal\" \"eva\"",
              "it changes the model's own weights; convert the adapter (PEFT's "
              "path_initial_model_for_weight_conversion) or merge it into the weights"),

      // ---- artifact.metadata
      Read(kArtifact, "Stanford's ColBERT",
           "query_token_id doc_token_id query_maxlen doc_maxlen mask_punctuation "
           "attend_to_mask_tokens"),
  };
  return kKeys;
}

const Key* FindKey(File file, std::string_view name) {
  const Key* by_ending = nullptr;
  for (const Key& key : DirectoryKeys()) {
    if (key.file != file) continue;
    if (IsAmong(key.names, name)) return &key;
    if (key.names.starts_with('*') && name.ends_with(key.names.substr(1))) by_ending = &key;
  }
  return by_ending;
}

bool RefusesUnknown(File file) {
  return file == File::kTransformer || file == File::kPooling || file == File::kSplade ||
         file == File::kLogitScore || file == File::kLayerNorm || file == File::kDropout ||
         file == File::kMultiVectorMask || file == File::kRerank || file == File::kSparseStatic;
}

absl::Status CheckKeys(File file, const nlohmann::json& object, const std::string& path) {
  for (const auto& [name, value] : object.items()) {
    const Key* key = FindKey(file, name);
    const std::string where = absl::StrCat(path, ": ", name, ": ");
    if (key == nullptr && file == File::kAdapter) {
      if (value.empty() || value == false) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(where, "is not supported: ", std::string(kMerge)));
    }
    if (key == nullptr) {
      if (!RefusesUnknown(file)) continue;
      return absl::InvalidArgumentError(
          where + "is not known, and sentence-transformers refuses unknown keys: remove it");
    }
    if (key->use != Use::kRefused) continue;
    const std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    if (IsAmong(key->neutral, text)) continue;
    constexpr size_t kShown = 60;  // bytes
    return absl::InvalidArgumentError(
        absl::StrCat(where, "is ", text.size() > kShown ? text.substr(0, kShown) + "..." : text,
                     ", which is not supported: ", std::string(key->why)));
  }
  return absl::OkStatus();
}

}  // namespace castor::encoder
