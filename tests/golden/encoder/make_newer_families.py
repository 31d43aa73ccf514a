#!/usr/bin/env python3
"""Writes families/NAME/ as make_families.py does, for families that transformers 4 lacks: some are
in transformers 5, of others the code comes with the published weights (remote_models.py).

    make_newer_families.py [NAME...]

Written with Python 3.11, torch 2.11.0, transformers 5.24.0, tokenizers 0.23.1, safetensors 0.8.0,
sentencepiece 0.2.3 and protobuf; none of them is needed to build or test Castor.
"""

import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

import remote_models
from make_families import (CASES, LENGTH, LONG_CASE, byte_bpe, camembert_unigram,
                           deberta_unigram, expect,
                           generic_tokenizer, llama_bpe, modern_bpe, qwen_bpe, save, shake,
                           word_piece, write_expected)

SIZES = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
             initializer_range=0.2)

DECODER = dict(SIZES, num_attention_heads=4, num_key_value_heads=2,
               max_position_embeddings=LENGTH)
DEBERTA = dict(SIZES, relative_attention=True, max_position_embeddings=LENGTH)
# Of a head's 6 frequencies, 2 stay, 2 are interpolated and 2 fall.
LLAMA3 = dict(rope_type="llama3", rope_theta=100.0, factor=8.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=64)
GEMMA = dict(DECODER, pad_token_id=1, bos_token_id=0, eos_token_id=2)
QWEN = dict(DECODER, pad_token_id=qwen_bpe().token_to_id("<|endoftext|>"))

# Directory: the class that saves it, its tokenizer, its config.
NATIVE = {
    "nomic_bert": (transformers.NomicBertModel, word_piece,
                   dict(SIZES, max_position_embeddings=LENGTH)),
    # One text at a time: a batch would stretch by its longest.
    "nomic_bert_dynamic": (transformers.NomicBertForMaskedLM, word_piece,
                           dict(SIZES, max_position_embeddings=LENGTH // 2, hidden_act="gelu",
                                layer_norm_eps=1e-5,
                                rope_parameters=dict(rope_type="dynamic", rope_theta=500.0,
                                                     factor=2.0))),
    "gte": (transformers.GteForMaskedLM, camembert_unigram,
            dict(SIZES, max_position_embeddings=LENGTH, type_vocab_size=1)),
    "jina_v3": (transformers.JinaEmbeddingsV3Model, byte_bpe,
                dict(SIZES, max_position_embeddings=LENGTH, hidden_act="gelu_new",
                     rope_parameters=dict(rope_type="default", rope_theta=20000.0))),
    "gemma": (transformers.Gemma3TextModel, byte_bpe,
              dict(SIZES, num_hidden_layers=4, num_key_value_heads=1, head_dim=8,
                   query_pre_attn_scalar=12, sliding_window=10, sliding_window_pattern=2,
                   use_bidirectional_attention=True, pad_token_id=1, bos_token_id=0,
                   eos_token_id=2, max_position_embeddings=LENGTH)),
    "gemma_biases": (transformers.Gemma3ForCausalLM, byte_bpe,
                     dict(SIZES, num_hidden_layers=3, num_attention_heads=4,
                          num_key_value_heads=2, head_dim=6, query_pre_attn_scalar=6,
                          sliding_window=14, sliding_window_pattern=3, attention_bias=True,
                          hidden_activation="silu", rms_norm_eps=1e-4,
                          use_bidirectional_attention=True, pad_token_id=1, bos_token_id=0,
                          eos_token_id=2, max_position_embeddings=LENGTH,
                          rope_parameters={
                              "full_attention": dict(rope_type="default", rope_theta=5000.0),
                              "sliding_attention": dict(rope_type="default", rope_theta=500.0)})),
    "gemma_causal": (transformers.Gemma3TextModel, byte_bpe,
                     dict(GEMMA, num_hidden_layers=4, head_dim=10, query_pre_attn_scalar=12,
                          sliding_window=7, sliding_window_pattern=2)),
    "gemma1": (transformers.GemmaModel, byte_bpe, dict(GEMMA, head_dim=10, hidden_act="gelu")),
    "gemma1_biases": (transformers.GemmaForCausalLM, byte_bpe,
                      dict(GEMMA, head_dim=6, num_key_value_heads=4, attention_bias=True,
                           hidden_act="silu", rms_norm_eps=1e-4,
                           rope_parameters=dict(rope_type="default", rope_theta=500.0))),
    # Scores beyond the cap, so that it matters.
    "gemma2": (transformers.Gemma2Model, byte_bpe,
               dict(GEMMA, num_hidden_layers=4, head_dim=10, query_pre_attn_scalar=1,
                    sliding_window=7, attn_logit_softcapping=1.5)),
    "gemma2_uncapped": (transformers.Gemma2ForCausalLM, byte_bpe,
                        dict(GEMMA, head_dim=6, query_pre_attn_scalar=6, sliding_window=5,
                             attn_logit_softcapping=None, attention_bias=True,
                             layer_types=["full_attention", "sliding_attention"],
                             rope_parameters=dict(rope_type="default", rope_theta=500.0))),
    "eurobert": (transformers.EuroBertModel, modern_bpe,
                 dict(SIZES, num_attention_heads=6, num_key_value_heads=2, pad_token_id=3,
                      bos_token_id=0, eos_token_id=1, mask_token_id=4,
                      max_position_embeddings=LENGTH,
                      rope_parameters=dict(rope_type="default", rope_theta=250000.0))),
    "eurobert_biases": (transformers.EuroBertForMaskedLM, modern_bpe,
                        dict(SIZES, num_key_value_heads=1, attention_bias=True, mlp_bias=True,
                             hidden_act="gelu", rms_norm_eps=1e-3, pad_token_id=3, bos_token_id=0,
                             eos_token_id=1, mask_token_id=4, max_position_embeddings=LENGTH,
                             rope_parameters=dict(rope_type="default", rope_theta=5000.0))),
    "qwen3": (transformers.Qwen3Model, qwen_bpe,
              dict(QWEN, head_dim=10, tie_word_embeddings=True,
                   rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    "qwen3_windows": (transformers.Qwen3ForCausalLM, qwen_bpe,
                      dict(QWEN, num_hidden_layers=4, num_key_value_heads=1, head_dim=4,
                           attention_bias=True, hidden_act="gelu", rms_norm_eps=1e-4,
                           use_sliding_window=True, sliding_window=6, max_window_layers=2)),
    "qwen3_both_ways": (transformers.Qwen3Model, qwen_bpe,
                        dict(QWEN, head_dim=8, is_causal=False, use_sliding_window=True,
                             sliding_window=5,
                             layer_types=["sliding_attention", "full_attention"])),
    "qwen2": (transformers.Qwen2Model, qwen_bpe, dict(QWEN, num_key_value_heads=1)),
    "qwen2_both_ways": (transformers.Qwen2ForCausalLM, qwen_bpe,
                        dict(QWEN, is_causal=False, num_key_value_heads=4)),
    "electra": (transformers.ElectraForPreTraining, word_piece,
                dict(SIZES, embedding_size=16, max_position_embeddings=LENGTH)),
    "electra_wide": (transformers.ElectraModel, word_piece,
                     dict(SIZES, embedding_size=24, hidden_act="gelu_new", type_vocab_size=1,
                          layer_norm_eps=1e-5, max_position_embeddings=LENGTH)),
    "deberta": (transformers.DebertaV2Model, deberta_unigram,
                dict(DEBERTA, position_buckets=8, norm_rel_ebd="layer_norm", share_att_key=True,
                     position_biased_input=False, pos_att_type=["p2c", "c2p"])),
    "deberta_own": (transformers.DebertaV2ForMaskedLM, deberta_unigram,
                    dict(DEBERTA, max_relative_positions=12, pos_att_type="c2p|p2c",
                         type_vocab_size=2, hidden_act="gelu_new", layer_norm_eps=1e-5)),
    # Texts of one token have no neighbours.
    "deberta_conv": (transformers.DebertaV2Model, deberta_unigram,
                     dict(DEBERTA, position_buckets=8, norm_rel_ebd="layer_norm",
                          share_att_key=True, position_biased_input=False,
                          pos_att_type=["p2c", "c2p"], conv_kernel_size=3, conv_act="gelu")),
    "deberta_conv_wide": (transformers.DebertaV2ForMaskedLM, deberta_unigram,
                          dict(DEBERTA, max_relative_positions=12, pos_att_type="c2p",
                               conv_kernel_size=5, layer_norm_eps=1e-5)),
    "deberta_long": (transformers.DebertaV2ForSequenceClassification, deberta_unigram,
                     dict(DEBERTA, position_buckets=32, pos_att_type=["p2c"],
                          max_position_embeddings=280)),
    "deberta_absolute": (transformers.DebertaV2Model, deberta_unigram,
                         dict(DEBERTA, relative_attention=False, pos_att_type=["c2p"])),
    "mistral": (transformers.MistralModel, llama_bpe,
                dict(DECODER, head_dim=10, sliding_window=7, pad_token_id=2)),
    "llama": (transformers.LlamaModel, llama_bpe,
              dict(DECODER, head_dim=12, pad_token_id=2, rms_norm_eps=1e-5, rope_parameters=LLAMA3)),
    "llama_biases": (transformers.LlamaForCausalLM, llama_bpe,
                     dict(DECODER, is_causal=False, num_key_value_heads=None, attention_bias=True,
                          mlp_bias=True, hidden_act="gelu", pad_token_id=2)),
    "mistral_whole": (transformers.MistralForCausalLM, llama_bpe,
                      dict(DECODER, sliding_window=None, pad_token_id=2,
                           rope_parameters=dict(rope_type="default", rope_theta=5000.0))),
}

NOMIC = dict(model_type="nomic_bert", n_embd=24, n_layer=2, n_head=3, layer_norm_epsilon=1e-12,
             pad_vocab_size_multiple=64, rotary_emb_fraction=1.0, rotary_emb_base=1000,
             rotary_emb_interleaved=False, rotary_emb_scale_base=None, rotary_scaling_factor=None,
             prenorm=False, causal=False, qkv_proj_bias=False, mlp_fc1_bias=False,
             mlp_fc2_bias=False, type_vocab_size=2, n_positions=LENGTH, max_trained_positions=2048)
NEW = dict(model_type="new", hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
           intermediate_size=40, hidden_act="gelu", layer_norm_eps=1e-12,
           layer_norm_type="layer_norm", max_position_embeddings=LENGTH, type_vocab_size=0,
           position_embedding_type="rope", rope_theta=500000, rope_scaling=None, pack_qkv=True,
           logn_attention_scale=False, logn_attention_clip1=False)
JINA = dict(model_type="bert", hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
            intermediate_size=40, hidden_act="gelu", layer_norm_eps=1e-12, type_vocab_size=2,
            position_embedding_type="alibi", feed_forward_type="geglu",
            max_position_embeddings=LENGTH)

# Directory: the model, its tokenizer, the prefix that its checkpoint has, its config.
REMOTE = {
    "nomic_bert_own": (remote_models.NomicBert, word_piece, "",
                       dict(NOMIC, activation_function="swiglu", n_inner=40)),
    "nomic_bert_stretched": (remote_models.NomicBert, word_piece, "",
                             dict(NOMIC, activation_function="geglu", n_inner=None,
                                  rotary_scaling_factor=2, max_trained_positions=LENGTH // 2,
                                  qkv_proj_bias=True, mlp_fc2_bias=True)),
    "nomic_bert_plain": (remote_models.NomicBert, word_piece, "bert.",
                         dict(NOMIC, activation_function="gelu", n_inner=None, mlp_fc1_bias=True,
                              mlp_fc2_bias=True, rotary_emb_fraction=0.0, type_vocab_size=0)),
    "nomic_bert_moe": (remote_models.NomicBert, word_piece, "",
                       dict(NOMIC, n_layer=4, activation_function="gelu", n_inner=12,
                            moe_every_n_layers=2, num_experts=5, moe_top_k=2, type_vocab_size=1,
                            mlp_fc1_bias=True, mlp_fc2_bias=True, qkv_proj_bias=True,
                            expert_choice_router=False, moe_normalize_expert_weights=False,
                            num_shared_experts=0, ffn_div=1.0)),
    "new_ntk": (remote_models.Gte, byte_bpe, "new.",
                dict(NEW, rope_scaling={"type": "ntk", "factor": 2.0})),
    "new_mixed": (remote_models.Gte, word_piece, "",
                  dict(NEW, rope_theta=160000.0, type_vocab_size=2, pack_qkv=False,
                       rope_scaling={"type": "ntk", "factor": 8.0, "mixed_b": 0.625},
                       layer_norm_type="rms_norm", layer_norm_eps=1e-5, hidden_act="silu")),
    "new_absolute": (remote_models.Gte, word_piece, "",
                     dict(NEW, position_embedding_type="absolute", type_vocab_size=1,
                          num_attention_heads=2)),
    "jina_bert": (remote_models.JinaBert, word_piece, "", JINA),
    "jina_bert_plain": (remote_models.JinaBert, word_piece, "bert.",
                        dict(JINA, feed_forward_type="original", num_attention_heads=6)),
    "jina_bert_long": (remote_models.JinaBert, word_piece, "",
                       dict(JINA, num_attention_heads=2, max_position_embeddings=280)),
    "jina_bert_code": (remote_models.JinaBertCode, byte_bpe, "",
                       dict(JINA, feed_forward_type="reglu", num_attention_heads=4)),
    "jina_bert_code_plain": (remote_models.JinaBertCode, word_piece, "",
                             dict(JINA, feed_forward_type="original", num_attention_heads=12,
                                  layer_norm_eps=1e-5)),
}

# Seeds of random weights. Each directory keeps its own, so that a new one changes none.
SEEDS = {name: 100 + seed for seed, name in enumerate([
    "nomic_bert", "nomic_bert_dynamic", "gte", "eurobert", "eurobert_biases", "nomic_bert_own",
    "nomic_bert_stretched", "nomic_bert_plain", "new_ntk", "new_mixed", "new_absolute",
    "jina_bert", "jina_bert_plain", "jina_bert_long", "jina_bert_code", "jina_bert_code_plain",
    "jina_v3", "gemma", "gemma_biases", "qwen3", "qwen3_windows", "qwen3_both_ways", "qwen2",
    "qwen2_both_ways", "mistral", "mistral_whole", "electra", "electra_wide",
    "deberta", "deberta_own", "deberta_long", "deberta_absolute", "llama", "llama_biases",
    "gemma_causal", "gemma1", "gemma1_biases", "gemma2", "gemma2_uncapped", "nomic_bert_moe", "deberta_conv", "deberta_conv_wide"])}

# Tokens that a model takes, where not LENGTH.
LENGTHS = {"jina_bert_long": 280, "deberta_long": 280}


class OneByOne:
    """A model of transformers whose rotations do not remember earlier texts."""

    def __init__(self, model):
        self.model = model

    def __call__(self, **inputs):
        self.model.rotary_emb = type(self.model.rotary_emb)(self.model.config)
        return self.model(**inputs)


def make_native(name, out, tokenizer):
    kind, _, settings = NATIVE[name]
    config = kind.config_class(vocab_size=tokenizer.get_vocab_size(), **settings)
    config._attn_implementation = "eager"
    whole = kind(config).eval().float()
    with torch.no_grad():
        for parameter_name, parameter in whole.named_parameters():
            shake(parameter_name, parameter)
    whole.save_pretrained(out)
    model = whole.base_model
    if kind.__name__.endswith("ForCausalLM") and getattr(config, "is_causal", True):
        # The body of a language model: as one, it would be no embedding model.
        file = pathlib.Path(out) / "config.json"
        file.write_text(file.read_text().replace(kind.__name__, type(model).__name__))
    padding = config.pad_token_id
    return (OneByOne(model) if name == "nomic_bert_dynamic" else model), padding, \
        getattr(config, "type_vocab_size", 1)


def make_remote(name, out, tokenizer):
    kind, _, prefix, settings = REMOTE[name]
    config = dict(settings, vocab_size=tokenizer.get_vocab_size())
    model = kind(config)
    save_file({prefix + key: value for key, value in model.weights.items()},
              out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    return model, 0, config["type_vocab_size"]


def make(name):
    out = pathlib.Path(__file__).parent / "families" / name
    out.mkdir(parents=True, exist_ok=True)
    native = name in NATIVE
    tokenizer = (NATIVE if native else REMOTE)[name][1]()
    length = LENGTHS.get(name, LENGTH)
    torch.manual_seed(SEEDS[name])
    model, padding, types = (make_native if native else make_remote)(name, out, tokenizer)
    save(out, tokenizer, length)
    # The others have no tokenizer class of their own, or one that makes the same.
    if not name.startswith(("new", "eurobert", "qwen", "mistral", "llama")):
        generic_tokenizer(out, types > 1)
    cases = CASES if length == LENGTH else CASES + [LONG_CASE]
    alone = name in ("nomic_bert_dynamic", "nomic_bert_stretched")
    write_expected(out, expect(model, tokenizer, padding, cases, types=types > 1,
                               batch=1 if alone else 3))


if __name__ == "__main__":
    for wanted in sys.argv[1:] or SEEDS:
        make(wanted)
        print(wanted)
