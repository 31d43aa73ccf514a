#include "engine/encoder/directory/directory_keys.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace castor::encoder {
namespace {

constexpr Key Read(File file, std::string_view name, std::string_view reader) {
  return {file, name, Use::kRead, reader, "", ""};
}
constexpr Key Ignored(File file, std::string_view name, std::string_view reader) {
  return {file, name, Use::kIgnored, reader, "", ""};
}
constexpr Key Refused(File file, std::string_view name, std::string_view reader,
                      std::string_view neutral, std::string_view why) {
  return {file, name, Use::kRefused, reader, neutral, why};
}

constexpr std::string_view kOnlyEncoders = "only encoders are served";
constexpr std::string_view kAny = "PreTrainedConfig";
constexpr std::string_view kTokenizer = "PreTrainedTokenizerBase";
constexpr std::string_view kTraining = "training";

constexpr Key kKeys[] = {
    // ---- config.json: what every family has
    Read(File::kConfig, "model_type", "AutoConfig"),
    Read(File::kConfig, "architectures", "AutoModel"),
    Read(File::kConfig, "tokenizer_class", "AutoTokenizer"),
    Read(File::kConfig, "id2label", kAny),
    Read(File::kConfig, "num_labels", kAny),
    Read(File::kConfig, "problem_type", "TextClassificationPipeline"),
    Read(File::kConfig, "sentence_transformers", "CrossEncoder"),
    Read(File::kConfig, "sbert_ce_default_activation_function", "CrossEncoder"),
    Read(File::kConfig, "tie_word_embeddings", kAny),
    Read(File::kConfig, "pad_token_id", "RobertaModel, Gemma3TextForSequenceClassification"),
    Ignored(File::kConfig, "label2id", kAny),
    Ignored(File::kConfig, "function_to_apply", "a branch that is never reached"),
    // Castor computes in the type that --model asks for, float32 unless it does.
    Ignored(File::kConfig, "dtype", kAny),
    Ignored(File::kConfig, "torch_dtype", kAny),
    Ignored(File::kConfig, "transformers_version", kAny),
    Ignored(File::kConfig, "_name_or_path", kAny),
    Ignored(File::kConfig, "bos_token_id", kAny),
    Ignored(File::kConfig, "eos_token_id", kAny),
    Ignored(File::kConfig, "cls_token_id", "ModernBertConfig"),
    Ignored(File::kConfig, "sep_token_id", kAny),
    Ignored(File::kConfig, "mask_token_id", "EuroBertConfig"),
    Ignored(File::kConfig, "use_cache", "decoders"),
    Ignored(File::kConfig, "chunk_size_feed_forward", kAny),
    Ignored(File::kConfig, "output_attentions", kAny),
    Ignored(File::kConfig, "output_hidden_states", kAny),
    Ignored(File::kConfig, "initializer_range", kTraining),
    Ignored(File::kConfig, "initializer_cutoff_factor", kTraining),
    Ignored(File::kConfig, "gradient_checkpointing", kTraining),
    Ignored(File::kConfig, "hidden_dropout_prob", kTraining),
    Ignored(File::kConfig, "attention_probs_dropout_prob", kTraining),
    Ignored(File::kConfig, "attention_dropout", kTraining),
    Ignored(File::kConfig, "classifier_dropout", kTraining),
    Ignored(File::kConfig, "embedding_dropout", kTraining),
    Ignored(File::kConfig, "mlp_dropout", kTraining),
    Ignored(File::kConfig, "dropout", kTraining),
    Ignored(File::kConfig, "qa_dropout", kTraining),
    Ignored(File::kConfig, "seq_classif_dropout", kTraining),
    Ignored(File::kConfig, "embd_pdrop", kTraining),
    Ignored(File::kConfig, "attn_pdrop", kTraining),
    Ignored(File::kConfig, "resid_pdrop", kTraining),
    Ignored(File::kConfig, "sparse_prediction", kTraining),
    Ignored(File::kConfig, "sparse_pred_ignore_index", kTraining),
    Ignored(File::kConfig, "repad_logits_with_grad", kTraining),
    Ignored(File::kConfig, "pretraining_tp", kTraining),
    Ignored(File::kConfig, "sinusoidal_pos_embds", kTraining),
    Ignored(File::kConfig, "pooler_dropout", kTraining),
    Ignored(File::kConfig, "cls_dropout", kTraining),
    // Of what is refused.
    Ignored(File::kConfig, "conv_act", "the convolution of DebertaV2Encoder"),
    Ignored(File::kConfig, "conv_groups", "the convolution of DebertaV2Encoder"),
    Ignored(File::kConfig, "summary_type", "ElectraForMultipleChoice"),
    Ignored(File::kConfig, "summary_use_proj", "ElectraForMultipleChoice"),
    Ignored(File::kConfig, "summary_activation", "ElectraForMultipleChoice"),
    Ignored(File::kConfig, "summary_last_dropout", kTraining),
    // How the same is computed.
    Ignored(File::kConfig, "attn_implementation", kAny),
    Ignored(File::kConfig, "_attn_implementation", kAny),
    Ignored(File::kConfig, "deterministic_flash_attn", "ModernBertModel"),
    Ignored(File::kConfig, "reference_compile", "ModernBertModel"),
    Ignored(File::kConfig, "use_flash_attn", "NomicBertModel"),
    Ignored(File::kConfig, "fused_bias_fc", "NomicBertModel"),
    Ignored(File::kConfig, "fused_dropout_add_ln", "NomicBertModel"),
    Ignored(File::kConfig, "use_xentropy", "NomicBertModel"),
    Ignored(File::kConfig, "unpad_inputs", "NewModel"),
    Ignored(File::kConfig, "use_memory_efficient_attention", "NewModel"),
    Ignored(File::kConfig, "emb_pooler", "JinaBertModel"),
    // Code in the directory, which the libraries run only where they know no class of their own.
    Ignored(File::kConfig, "auto_map", "AutoModel"),
    // transformers 5 does not prune; what version 4 pruned is missing in the weights.
    Ignored(File::kConfig, "pruned_heads", kAny),
    Refused(File::kConfig, "is_decoder", kAny, "false null", kOnlyEncoders),
    Refused(File::kConfig, "add_cross_attention", kAny, "false null", kOnlyEncoders),
    Refused(File::kConfig, "is_encoder_decoder", kAny, "false null", kOnlyEncoders),
    Refused(File::kConfig, "causal", "NomicBertModel", "false null", kOnlyEncoders),
    Refused(File::kConfig, "quantization_config", kAny, "null",
            "save the model unquantized; --model-dtype int8 quantizes it here"),
    Refused(File::kConfig, "per_layer_config", kAny, "null", "layers must all be alike"),
    Refused(File::kConfig, "use_return_dict", kAny, "", "transformers refuses it: remove it"),
    Refused(File::kConfig, "return_dict", kAny, "true null", "remove it"),

    // ---- config.json: of families
    Read(File::kConfig, "vocab_size", "every family"),
    Read(File::kConfig, "hidden_size", "every family"),
    Read(File::kConfig, "num_hidden_layers", "every family"),
    Read(File::kConfig, "num_attention_heads", "every family"),
    Read(File::kConfig, "intermediate_size", "every family"),
    Read(File::kConfig, "max_position_embeddings", "every family"),
    Read(File::kConfig, "type_vocab_size", "BertModel and relatives"),
    Read(File::kConfig, "hidden_act", "BertModel and relatives"),
    Read(File::kConfig, "layer_norm_eps", "BertModel and relatives"),
    Read(File::kConfig, "position_embedding_type", "BertModel, NewModel, JinaBertModel"),
    Read(File::kConfig, "embedding_size", "ElectraModel, DebertaV2Model"),
    Read(File::kConfig, "relative_attention_num_buckets", "MPNetModel"),
    Read(File::kConfig, "relative_attention", "DebertaV2Model"),
    Read(File::kConfig, "max_relative_positions", "DebertaV2Model"),
    Read(File::kConfig, "position_buckets", "DebertaV2Model"),
    Read(File::kConfig, "norm_rel_ebd", "DebertaV2Model"),
    Read(File::kConfig, "pos_att_type", "DebertaV2Model"),
    Read(File::kConfig, "share_att_key", "DebertaV2Model"),
    Read(File::kConfig, "position_biased_input", "DebertaV2Model"),
    Read(File::kConfig, "conv_kernel_size", "DebertaV2Model"),
    Read(File::kConfig, "attention_head_size", "DebertaV2Model"),
    Read(File::kConfig, "pooler_hidden_act", "classifiers of DeBERTa"),
    Read(File::kConfig, "pooler_hidden_size", "classifiers of DeBERTa"),
    Read(File::kConfig, "legacy", "DebertaV2ForMaskedLM"),
    Read(File::kConfig, "dim", "DistilBertModel"),
    Read(File::kConfig, "n_layers", "DistilBertModel"),
    Read(File::kConfig, "n_heads", "DistilBertModel"),
    Read(File::kConfig, "hidden_dim", "DistilBertModel"),
    Read(File::kConfig, "activation", "DistilBertModel"),
    Read(File::kConfig, "feed_forward_type", "JinaBertModel"),
    Read(File::kConfig, "attention_bias",
         "ModernBertModel, EuroBertModel, Gemma3TextModel, Qwen3Model"),
    Read(File::kConfig, "mlp_bias", "ModernBertModel, EuroBertModel"),
    Read(File::kConfig, "norm_bias", "ModernBertModel"),
    Read(File::kConfig, "norm_eps", "ModernBertModel"),
    Read(File::kConfig, "hidden_activation", "ModernBertModel, Gemma3TextModel"),
    Read(File::kConfig, "decoder_bias", "ModernBertForMaskedLM"),
    Read(File::kConfig, "classifier_pooling", "classifiers of ModernBERT and EuroBERT"),
    Read(File::kConfig, "classifier_bias", "classifiers of ModernBERT"),
    Read(File::kConfig, "classifier_activation", "classifiers of ModernBERT"),
    Read(File::kConfig, "layer_types", "ModernBertModel, Gemma3TextModel, Qwen3Model"),
    Read(File::kConfig, "global_attn_every_n_layers", "ModernBertConfig"),
    Read(File::kConfig, "local_attention", "ModernBertConfig"),
    Read(File::kConfig, "sliding_window", "ModernBertModel, Gemma3TextModel, decoders"),
    Read(File::kConfig, "use_sliding_window", "Qwen2Config, Qwen3Config"),
    Read(File::kConfig, "max_window_layers", "Qwen2Config, Qwen3Config"),
    Read(File::kConfig, "sliding_window_pattern", "Gemma3TextConfig"),
    Read(File::kConfig, "_sliding_window_pattern", "Gemma3TextConfig"),
    Read(File::kConfig, "global_rope_theta", "ModernBertConfig"),
    Read(File::kConfig, "local_rope_theta", "ModernBertConfig"),
    Read(File::kConfig, "rope_local_base_freq", "Gemma3TextConfig"),
    Read(File::kConfig, "rope_theta", "rotary embeddings"),
    Read(File::kConfig, "rope_scaling", "rotary embeddings"),
    Read(File::kConfig, "rope_parameters", "rotary embeddings"),
    Read(File::kConfig, "rms_norm_eps", "EuroBertModel, Gemma3TextModel, decoders"),
    Read(File::kConfig, "num_key_value_heads", "EuroBertModel, Gemma3TextModel, decoders"),
    Read(File::kConfig, "head_dim", "EuroBertModel, Gemma3TextModel, NomicBertModel, decoders"),
    Read(File::kConfig, "query_pre_attn_scalar", "Gemma3TextModel"),
    Read(File::kConfig, "use_bidirectional_attention", "Gemma3TextModel, publishers' decoders"),
    Read(File::kConfig, "is_causal", "masks of decoders, SentenceTransformer"),
    Read(File::kConfig, "attn_logit_softcapping", "Gemma3TextModel"),
    Read(File::kConfig, "final_logit_softcapping", "Gemma3TextModel"),
    Read(File::kConfig, "lora_adaptations", "XLMRobertaLoRA"),
    Read(File::kConfig, "layer_norm_type", "NewModel"),
    Read(File::kConfig, "pack_qkv", "NewModel"),
    Read(File::kConfig, "logn_attention_scale", "NewModel"),
    Read(File::kConfig, "logn_attention_clip1", "NewModel"),
    // nomic-embed's own code.
    Read(File::kConfig, "n_embd", "NomicBertModel"),
    Read(File::kConfig, "n_layer", "NomicBertModel"),
    Read(File::kConfig, "n_head", "NomicBertModel"),
    Read(File::kConfig, "num_heads_kv", "NomicBertModel"),
    Read(File::kConfig, "n_inner", "NomicBertModel"),
    Read(File::kConfig, "n_positions", "NomicBertModel"),
    Read(File::kConfig, "pad_vocab_size_multiple", "NomicBertModel"),
    Read(File::kConfig, "layer_norm_epsilon", "NomicBertModel"),
    Read(File::kConfig, "activation_function", "NomicBertModel"),
    Read(File::kConfig, "mlp_fc1_bias", "NomicBertModel"),
    Read(File::kConfig, "mlp_fc2_bias", "NomicBertModel"),
    Read(File::kConfig, "qkv_proj_bias", "NomicBertModel"),
    Read(File::kConfig, "rotary_emb_fraction", "NomicBertModel"),
    Read(File::kConfig, "rotary_emb_base", "NomicBertModel"),
    Read(File::kConfig, "rotary_scaling_factor", "NomicBertModel"),
    Read(File::kConfig, "max_trained_positions", "NomicBertModel"),
    Read(File::kConfig, "moe_every_n_layers", "NomicBertModel"),
    Read(File::kConfig, "num_experts", "NomicBertModel"),
    Read(File::kConfig, "prenorm", "NomicBertModel"),
    Read(File::kConfig, "parallel_block", "NomicBertModel"),
    Read(File::kConfig, "use_rms_norm", "NomicBertModel"),
    Read(File::kConfig, "norm_mlp", "NomicBertModel"),
    Read(File::kConfig, "rotary_emb_interleaved", "NomicBertModel"),
    Read(File::kConfig, "rotary_head_dim", "NomicBertModel"),
    Read(File::kConfig, "rotary_emb_scale_base", "NomicBertModel"),
    Read(File::kConfig, "scale_attn_by_inverse_layer_idx", "NomicBertModel"),
    Read(File::kConfig, "scale_attn_weights", "NomicBertModel"),
    // Castor's own format.
    Read(File::kConfig, "cast_clusters", "castor_cast"),
    Read(File::kConfig, "cast_cluster_size", "castor_cast"),
    Read(File::kConfig, "cast_clustering", "castor_cast"),
    Read(File::kConfig, "cast_attention_function", "castor_cast"),
    Read(File::kConfig, "cast_gate_temperature", "castor_cast"),
    Read(File::kConfig, "cast_head_clustering", "castor_cast"),

    // ---- tokenizer_config.json
    Read(File::kTokenizerConfig, "tokenizer_class", "AutoTokenizer"),
    Read(File::kTokenizerConfig, "truncation_side", kTokenizer),
    Read(File::kTokenizerConfig, "padding_side", kTokenizer),
    Read(File::kTokenizerConfig, "model_max_length", kTokenizer),
    Read(File::kTokenizerConfig, "max_len", kTokenizer),
    Read(File::kTokenizerConfig, "model_input_names", kTokenizer),
    Read(File::kTokenizerConfig, "chat_template", "Transformer.infer_modalities"),
    Read(File::kTokenizerConfig, "added_tokens_decoder", kTokenizer),
    Read(File::kTokenizerConfig, "additional_special_tokens", kTokenizer),
    Read(File::kTokenizerConfig, "extra_special_tokens", kTokenizer),
    Read(File::kTokenizerConfig, "model_specific_special_tokens", kTokenizer),
    Read(File::kTokenizerConfig, "add_bos_token", "TokenizersBackend"),
    Read(File::kTokenizerConfig, "add_eos_token", "TokenizersBackend"),
    Read(File::kTokenizerConfig, "do_lower_case",
         "BertTokenizer, MPNetTokenizer, DebertaV2Tokenizer"),
    Read(File::kTokenizerConfig, "strip_accents", "BertTokenizer, MPNetTokenizer"),
    Read(File::kTokenizerConfig, "tokenize_chinese_chars", "BertTokenizer, MPNetTokenizer"),
    Read(File::kTokenizerConfig, "add_prefix_space",
         "RobertaTokenizer, XLMRobertaTokenizer and others"),
    Read(File::kTokenizerConfig, "trim_offsets", "RobertaTokenizer"),
    Read(File::kTokenizerConfig, "split_by_punct", "DebertaV2Tokenizer"),
    Read(File::kTokenizerConfig, "unk_id", "DebertaV2Tokenizer"),
    Read(File::kTokenizerConfig, "*_token", kTokenizer),
    // Special tokens in texts are text here, unless a request allows them.
    Ignored(File::kTokenizerConfig, "split_special_tokens", kTokenizer),
    Ignored(File::kTokenizerConfig, "never_split", "the Python tokenizers of version 4"),
    Ignored(File::kTokenizerConfig, "do_basic_tokenize", "the Python tokenizers of version 4"),
    Ignored(File::kTokenizerConfig, "sp_model_kwargs", "the Python tokenizers of version 4"),
    Ignored(File::kTokenizerConfig, "spaces_between_special_tokens", "decoding"),
    Ignored(File::kTokenizerConfig, "clean_up_tokenization_spaces", "decoding"),
    Ignored(File::kTokenizerConfig, "errors", "decoding"),
    Ignored(File::kTokenizerConfig, "use_default_system_prompt", "chat templates"),
    Ignored(File::kTokenizerConfig, "legacy", "LlamaTokenizer"),
    Ignored(File::kTokenizerConfig, "name_or_path", kTokenizer),
    Ignored(File::kTokenizerConfig, "special_tokens_map_file", kTokenizer),
    Ignored(File::kTokenizerConfig, "tokenizer_file", kTokenizer),
    Ignored(File::kTokenizerConfig, "vocab_file", kTokenizer),
    Ignored(File::kTokenizerConfig, "merges_file", kTokenizer),
    Ignored(File::kTokenizerConfig, "is_local", kTokenizer),
    Ignored(File::kTokenizerConfig, "local_files_only", kTokenizer),
    Ignored(File::kTokenizerConfig, "backend", kTokenizer),
    Ignored(File::kTokenizerConfig, "processor_class", "AutoProcessor"),
    // Of calls that name no length: sentence-transformers' name theirs.
    Ignored(File::kTokenizerConfig, "max_length", kTokenizer),
    Ignored(File::kTokenizerConfig, "stride", kTokenizer),
    Ignored(File::kTokenizerConfig, "truncation_strategy", kTokenizer),
    Ignored(File::kTokenizerConfig, "pad_to_multiple_of", "padding, which is masked"),
    Ignored(File::kTokenizerConfig, "pad_token_type_id", "padding, which is masked"),
    Ignored(File::kTokenizerConfig, "auto_map", "AutoTokenizer, which has classes of its own"),
    Refused(File::kTokenizerConfig, "fast_tokenizer_files", kTokenizer, "null []",
            "rename the newest of these files to tokenizer.json, and remove the key"),
    Refused(File::kTokenizerConfig, "init_inputs", kTokenizer, "null []",
            "name the arguments, as keys of their own"),

    // ---- special_tokens_map.json
    Read(File::kSpecialTokensMap, "*_token", kTokenizer),
    Read(File::kSpecialTokensMap, "additional_special_tokens", kTokenizer),
    Read(File::kSpecialTokensMap, "extra_special_tokens", kTokenizer),

    // ---- modules.json
    Read(File::kModules, "type", "BaseModel"),
    Read(File::kModules, "path", "BaseModel"),
    Read(File::kModules, "name", "BaseModel"),
    Ignored(File::kModules, "idx", "nobody"),
    Refused(File::kModules, "kwargs", "BaseModel", "null []",
            "arguments of calls are not passed on to modules"),

    // ---- sentence_bert_config.json
    Read(File::kTransformer, "max_seq_length", "Transformer"),
    Read(File::kTransformer, "do_lower_case", "Transformer"),
    Read(File::kTransformer, "transformer_task", "Transformer"),
    Read(File::kTransformer, "module_output_name", "Transformer"),
    Read(File::kTransformer, "modality_config", "Transformer"),
    Ignored(File::kTransformer, "unpad_inputs", "Transformer"),
    Read(File::kTransformer, "query_length", "Transformer"),
    Read(File::kTransformer, "document_length", "Transformer"),
    Refused(File::kTransformer, "query_expansion", "Transformer", "null",
            "queries are not filled up with mask tokens: set it to null"),
    Refused(File::kTransformer, "model_args", "Transformer", "null {}",
            "save the model with these arguments applied"),
    Refused(File::kTransformer, "model_kwargs", "Transformer", "null {}",
            "save the model with these arguments applied"),
    Refused(File::kTransformer, "tokenizer_args", "Transformer", "null {}",
            "move its keys to tokenizer_config.json"),
    Refused(File::kTransformer, "processor_kwargs", "Transformer", "null {}",
            "move its keys to tokenizer_config.json"),
    Refused(File::kTransformer, "config_args", "Transformer", "null {}",
            "move its keys to config.json"),
    Refused(File::kTransformer, "config_kwargs", "Transformer", "null {}",
            "move its keys to config.json"),
    Refused(File::kTransformer, "processing_kwargs", "Transformer", "null {}",
            "requests have max_tokens and truncation_side"),
    Refused(File::kTransformer, "tokenizer_name_or_path", "Transformer", "null",
            "put that tokenizer's files into this directory"),

    // ---- config_sentence_transformers.json
    Read(File::kSentenceTransformers, "model_type", "BaseModel"),
    Read(File::kSentenceTransformers, "prompts", "BaseModel"),
    Read(File::kSentenceTransformers, "default_prompt_name", "BaseModel"),
    Read(File::kSentenceTransformers, "truncate_dim", "SentenceTransformer, SparseEncoder"),
    Read(File::kSentenceTransformers, "activation_fn", "CrossEncoder"),
    Ignored(File::kSentenceTransformers, "similarity_fn_name", "clients, who compare vectors"),
    Ignored(File::kSentenceTransformers, "__version__", "a warning"),
    Ignored(File::kSentenceTransformers, "requirements", "of Python packages"),
    Ignored(File::kSentenceTransformers, "keep_in_fp32_modules", "CrossEncoder in half precision"),
    Refused(File::kSentenceTransformers, "max_active_dims", "SparseEncoder", "null",
            "answers hold all weights: set it to null and keep the largest where you compare"),
    Read(File::kSentenceTransformers, "query_length", "PyLate's queries"),
    Read(File::kSentenceTransformers, "document_length", "PyLate's documents"),
    Read(File::kSentenceTransformers, "query_prefix", "PyLate's queries"),
    Read(File::kSentenceTransformers, "document_prefix", "PyLate's documents"),
    Ignored(File::kSentenceTransformers, "attend_to_expansion_tokens", "PyLate's queries"),
    Ignored(File::kSentenceTransformers, "attend_to_mask_tokens", "PyLate's queries"),
    Read(File::kSentenceTransformers, "do_query_expansion", "PyLate's queries"),
    Refused(File::kSentenceTransformers, "query_expansion", "PyLate's queries", "null",
            "queries are not filled up with mask tokens: set it to null"),
    Read(File::kSentenceTransformers, "skiplist_words", "PyLate's documents"),

    // ---- modules
    Read(File::kPooling, "pooling_mode", "Pooling"),
    Read(File::kPooling, "pooling_mode_cls_token", "Pooling"),
    Read(File::kPooling, "pooling_mode_max_tokens", "Pooling"),
    Read(File::kPooling, "pooling_mode_mean_tokens", "Pooling"),
    Read(File::kPooling, "pooling_mode_mean_sqrt_len_tokens", "Pooling"),
    Read(File::kPooling, "pooling_mode_weightedmean_tokens", "Pooling"),
    Read(File::kPooling, "pooling_mode_lasttoken", "Pooling"),
    Read(File::kPooling, "embedding_dimension", "Pooling"),
    Read(File::kPooling, "word_embedding_dimension", "Pooling"),
    Read(File::kPooling, "include_prompt", "Pooling"),
    Read(File::kDense, "in_features", "Dense"),
    Read(File::kDense, "out_features", "Dense"),
    Read(File::kDense, "bias", "Dense"),
    Read(File::kDense, "activation_function", "Dense"),
    Read(File::kDense, "module_input_name", "Dense"),
    Read(File::kDense, "module_output_name", "Dense"),
    Read(File::kDense, "use_residual", "Dense"),
    Read(File::kLayerNorm, "dimension", "LayerNorm"),
    Ignored(File::kDropout, "dropout", kTraining),
    Read(File::kNormalize, "module_input_name", "Normalize"),
    Read(File::kNormalize, "module_output_name", "Normalize"),
    Read(File::kSplade, "pooling_strategy", "SpladePooling"),
    Read(File::kSplade, "activation_function", "SpladePooling"),
    Ignored(File::kSplade, "embedding_dimension", "SpladePooling"),
    Ignored(File::kSplade, "word_embedding_dimension", "SpladePooling"),
    Ignored(File::kSplade, "chunk_size", "SpladePooling"),
    Read(File::kLogitScore, "true_token_id", "LogitScore"),
    Read(File::kLogitScore, "false_token_id", "LogitScore"),
    Read(File::kLogitScore, "module_input_name", "LogitScore"),
    Refused(
        File::kMultiVectorMask, "skiplist_words", "MultiVectorMask", "null []",
        "answers hold a row for each token: set it to [] and leave out these tokens' rows where "
        "you compare"),
    Refused(File::kMultiVectorMask, "keep_only_token_ids", "MultiVectorMask", "null",
            "answers hold a row for each token: set it to null and leave out the other rows where "
            "you compare"),
    Ignored(File::kMultiVectorMask, "skiplist_tasks", "MultiVectorMask"),
};

}  // namespace

std::span<const Key> DirectoryKeys() { return kKeys; }

const Key* FindKey(File file, std::string_view name) {
  const Key* by_ending = nullptr;
  for (const Key& key : kKeys) {
    if (key.file != file) continue;
    if (key.name == name) return &key;
    if (key.name.starts_with('*') && name.ends_with(key.name.substr(1))) by_ending = &key;
  }
  return by_ending;
}

bool RefusesUnknown(File file) {
  return file == File::kTransformer || file == File::kPooling || file == File::kSplade ||
         file == File::kLogitScore || file == File::kLayerNorm || file == File::kDropout ||
         file == File::kMultiVectorMask;
}

absl::Status CheckKeys(File file, const nlohmann::json& object, const std::string& path) {
  for (const auto& [name, value] : object.items()) {
    const Key* key = FindKey(file, name);
    const std::string where = absl::StrCat(path, ": ", name, ": ");
    if (key == nullptr) {
      if (!RefusesUnknown(file)) continue;
      return absl::InvalidArgumentError(
          where + "is not known, and sentence-transformers refuses it: remove it");
    }
    if (key->use != Use::kRefused) continue;
    const std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    const std::vector<std::string> neutral =
        absl::StrSplit(std::string(key->neutral), ' ', absl::SkipEmpty());
    if (std::find(neutral.begin(), neutral.end(), text) != neutral.end()) continue;
    constexpr size_t kShown = 60;  // bytes
    return absl::InvalidArgumentError(
        absl::StrCat(where, "is ", text.size() > kShown ? text.substr(0, kShown) + "..." : text,
                     ", which is not supported: ", std::string(key->why)));
  }
  return absl::OkStatus();
}

}  // namespace castor::encoder
