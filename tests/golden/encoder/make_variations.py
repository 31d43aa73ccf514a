#!/usr/bin/env python3
"""Writes directories/NAME/ for each row of BASES, as make_directories.py does, and
directories/variations.json: what the libraries compute once one key of such a directory says
something else.

    make_variations.py [NAME...]      all of them where none is named

Out: directories/NAME/             the directory, its expected.json; and new-sequences/, new-sparse/
     directories/variations.json   {"versions", "bases": {NAME: {"results": [...], "variations": [...]}}}

A variation is {"edits": [...], "result": index}. An edit names a file and has one of
    "pointer", "value"   the JSON there (RFC 6901) becomes this; without "value" it goes
    "text"               the whole file, which need not exist
    "replace": [a, b]    the last a in its text becomes b
    "delete": true
    "rename": name
A result is {"cases": [...]} (and "labels") as in expected.json, or {"error": what the library says},
where a server must not start either. Results[0] is of the directory as it is. Markers in the texts
are special tokens, except in variations with "split": true. One with "apart": true is what Castor
answers otherwise on purpose (APART).

Written with sentence-transformers 6.2.0 and transformers 5.24.0.
"""

import json
import pathlib
import re
import shutil
import sys
import tempfile

import edits
import make_directories
import read_directory
import safetensors.torch
import torch
from varied_keys import (BERT_CONFIG, BERT_SETTINGS, CONFIG, CROSS_KEYS, DENSE_KEYS, GONE, JSON_TEXTS,
                         LABELS, MASK, MASKED_KEYS, MODULES, MULTI_KEYS, PIPELINE, PIPELINE_KEYS, POOLINGS, ROUTER_KEYS,
                         SENTENCES, SENTENCE_KEYS, SETTINGS, SPARSE_KEYS, TOKENIZER, TOKENIZER_SETTINGS,
                         VOCABULARY, WITHOUT_TOKENIZER, WITHOUT_TOKENIZER_BPE, at, delete, keys, text)

HIDDEN = make_directories.HIDDEN
OUT = pathlib.Path(__file__).parent / "directories"
CASES = [
    ("The MILL, Der Müller!", None),
    ("l'ÉTÉ: 水車は川 the mill", None),
    ("a [SEP] b</s>the mill <mask> c", None),
    ("the river runs past the mill to the sea and the mill runs past the river to the sea and on "
     "and on until nobody knows which it was", None),
    ("A letter CAME", "nobody had expected l'été"),
    ("the mill", "the river runs past the mill to the sea and the mill runs past the river to the "
     "sea and on and on until nobody knows"),
]
# No part of what a model is: Castor computes in float32 whatever type the weights have, needs no
# Python package, takes a whole number for a real one, ignores keys of tokenizer.json that its crate
# does not know, serves a classifier that names the activation of a CrossEncoder as one, cuts texts
# at the table of positions, and pads none.
APART = ["/dtype", "/requirements", "/encode", "/sbert_ce_default_activation_function"]
APART_ERRORS = ["out of bounds", "Padding_idx"]

ROPE = {"rope_type": "default", "rope_theta": 500.0}
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 2.0}
LLAMA3 = {"type": "llama3", "factor": 4, "low_freq_factor": 1, "high_freq_factor": 2,
          "original_max_position_embeddings": 16}
QWEN_KEYS = keys(CONFIG, {
    "is_causal": [False, True], "use_sliding_window": [False, True], "sliding_window": [3, None],
    "max_window_layers": [0, 5], "layer_types": [["sliding_attention"] * 2, GONE],
    "head_dim": [4, GONE], "num_key_value_heads": [2, None], "attention_bias": [True],
    "rope_parameters": [GONE, ROPE, YARN], "rope_scaling": [YARN], "rope_theta": [500.0],
    "hidden_act": ["relu"], "rms_norm_eps": [0.01], "use_mrope": [False],
    "max_position_embeddings": [16]})
LOGIT_SCORE = "1_LogitScore/config.json"
BASES = {
    "bert-embed": (
        BERT_SETTINGS + BERT_CONFIG + POOLINGS + MODULES + SENTENCE_KEYS + PIPELINE_KEYS +
        WITHOUT_TOKENIZER + JSON_TEXTS),
    "bert-embed_more": DENSE_KEYS,
    "bert-sequences": LABELS + keys(SETTINGS, {
        "model_input_names": [["input_ids", "attention_mask"]], "truncation_side": ["left"],
        "model_max_length": [9]}),
    "bert-cross": CROSS_KEYS,
    "bert-sparse": SPARSE_KEYS,
    "bert-sparse_untied": [],
    "distilbert-router": ROUTER_KEYS,
    "bert-multi": MULTI_KEYS,
    "modernbert-multi": keys(SENTENCES, {
        "query_expansion": [{"strategy": "fixed", "length": 28},
                            {"strategy": "min", "length": 28, "attend": True}]}) + keys(
        MASK, {"skiplist_words": [[",", "!"]]}),
    "bert-stanford": keys("artifact.metadata", {
        "query_maxlen": [9, GONE], "doc_maxlen": [8, GONE], "mask_punctuation": [False],
        "attend_to_mask_tokens": [True], "query_token_id": ["[MASK]", "the", "no such token"]}) + [
        delete("artifact.metadata")],
    "distilbert-tokens": keys(SETTINGS, {
        "do_lower_case": [False, GONE], "tokenizer_class": ["BertTokenizer", GONE],
        "model_input_names": [["input_ids", "token_type_ids", "attention_mask"]]}) + keys(CONFIG, {
            "activation": ["relu"], "sinusoidal_pos_embds": [True], "n_heads": [4],
            "problem_type": ["regression", "multi_label_classification"],
            "architectures": [["DistilBertForSequenceClassification"]]}) + [
        at(CONFIG, "dim", GONE) + at(CONFIG, "hidden_size", HIDDEN),
        at(CONFIG, "n_layers", GONE) + at(CONFIG, "num_hidden_layers", 1)],
    "mpnet-embed": TOKENIZER_SETTINGS + keys(SETTINGS, {
        "do_lower_case": [False, GONE], "strip_accents": [False],
        "tokenize_chinese_chars": [False], "tokenizer_class": ["PreTrainedTokenizerFast", GONE],
        "cls_token": ["[UNK]"], "sep_token": ["<pad>"]}) + keys(CONFIG, {
            "relative_attention_num_buckets": [16, GONE], "hidden_act": ["relu"],
            "pad_token_id": [0]}) + WITHOUT_TOKENIZER[:3],
    "roberta-embed": TOKENIZER_SETTINGS + keys(SETTINGS, {
        "tokenizer_class": ["PreTrainedTokenizerFast", "BartTokenizerFast", "GPT2Tokenizer", GONE],
        "trim_offsets": [False], "cls_token": ["<pad>"], "sep_token": ["<pad>"],
        "bos_token": ["<pad>"], "errors": ["ignore"]}) + keys(CONFIG, {
            "pad_token_id": [0, 3], "is_decoder": [True], "type_vocab_size": [2]}) + [
        at(SETTINGS, "tokenizer_class", "PreTrainedTokenizerFast") +
        at(SETTINGS, "add_prefix_space", True),
        at(TOKENIZER, "model/unk_token", "<unk>"), at(TOKENIZER, "model/byte_fallback", True),
        at(TOKENIZER, "model/ignore_merges", True), at(TOKENIZER, "pre_tokenizer/use_regex", False),
        at(TOKENIZER, "pre_tokenizer/add_prefix_space", True),
    ] + WITHOUT_TOKENIZER_BPE,
    "xlm_roberta-cross": TOKENIZER_SETTINGS + keys(SETTINGS, {
        "tokenizer_class": ["PreTrainedTokenizerFast", "XLMRobertaTokenizerFast", GONE],
        "bos_token": ["<pad>"], "eos_token": ["<pad>"], "cls_token": ["<pad>"],
        "sp_model_kwargs": [{}]}) + [
        at(TOKENIZER, "model/unk_id", 0), delete(TOKENIZER),
        at(SETTINGS, "tokenizer_class", "PreTrainedTokenizerFast") + at(TOKENIZER, "normalizer", {
            "type": "Lowercase"}),
        delete(TOKENIZER) + text("sentencepiece.bpe.model", "x")],
    "camembert-embed": TOKENIZER_SETTINGS + keys(SETTINGS, {
        "tokenizer_class": ["PreTrainedTokenizerFast", GONE], "bos_token": ["<pad>"]}),
    "modernbert-sequences": TOKENIZER_SETTINGS + keys(SETTINGS, {
        "tokenizer_class": ["BertTokenizer", GONE], "do_lower_case": [True]}) + keys(CONFIG, {
            "classifier_pooling": ["mean", "nonsense", GONE], "classifier_activation": ["silu"],
            "classifier_bias": [True], "norm_eps": [0.01], "hidden_activation": ["relu"],
            "local_attention": [4], "global_attn_every_n_layers": [1],
            "layer_types": [["full_attention", "full_attention"], GONE], "norm_bias": [True],
            "rope_parameters": [GONE, {"full_attention": ROPE, "sliding_attention": ROPE}],
            "global_rope_theta": [500.0], "local_rope_theta": [500.0],
            "architectures": [["ModernBertForTokenClassification"]]}) + [
        at(CONFIG, "rope_parameters", GONE) + at(CONFIG, "global_rope_theta", 500.0) +
        at(CONFIG, "local_rope_theta", 300.0)],
    "gte-sequences": keys(CONFIG, {
        "rope_parameters": [GONE, ROPE, {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0}],
        "rope_theta": [500.0], "rope_scaling": [{"type": "linear", "factor": 2.0}],
        "hidden_act": ["relu"], "layer_norm_eps": [0.01], "type_vocab_size": [2],
        "architectures": [["GteForTokenClassification"]], "pad_token_id": [0]}) + [
        at(CONFIG, "rope_parameters", GONE) + at(CONFIG, "rope_theta", 500.0)],
    "nomic_bert-sequences": keys(CONFIG, {
        "rope_parameters": [GONE, ROPE, {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0}],
        "rope_theta": [500.0], "hidden_act": ["relu"], "layer_norm_eps": [0.01], "head_dim": [4],
        "architectures": [["NomicBertForTokenClassification"]]}) + keys(SETTINGS, {
            "model_input_names": [["input_ids", "attention_mask"]]}),
    "gte-sparse": MASKED_KEYS + keys(CONFIG, {"hidden_act": ["relu"], "layer_norm_eps": [0.01]}),
    "nomic_bert-sparse": MASKED_KEYS + keys(CONFIG, {
        "hidden_act": ["relu", GONE], "layer_norm_eps": [0.01]}),
    "eurobert-sparse": MASKED_KEYS + keys(CONFIG, {"mlp_bias": [True, GONE]}),
    "eurobert-sequences": keys(CONFIG, {
        "classifier_pooling": ["bos", "mean", "nonsense", GONE], "hidden_act": ["relu"],
        "rms_norm_eps": [0.01], "rope_parameters": [GONE, ROPE], "num_key_value_heads": [GONE],
        "architectures": [["EuroBertForTokenClassification"]], "pad_token_id": [GONE],
        "is_causal": [True], "use_cache": [False]}) + [
        at(CONFIG, "rope_parameters", GONE) + at(CONFIG, "rope_theta", 500.0)],
    "jina_v3-sequences": keys(CONFIG, {
        "rope_parameters": [GONE, ROPE], "rope_theta": [500.0], "hidden_act": ["relu"],
        "layer_norm_eps": [0.01], "pad_token_id": [0]}),
    "jina_v3-tokens": [],
    "gemma-sequences": TOKENIZER_SETTINGS + keys(SETTINGS, {
        "tokenizer_class": ["PreTrainedTokenizerFast", GONE], "bos_token": ["<pad>"]}) + keys(CONFIG, {
            "use_bidirectional_attention": [False, GONE], "pad_token_id": [1, None],
            "query_pre_attn_scalar": [4], "sliding_window": [4, None],
            "layer_types": [["full_attention", "full_attention"], GONE],
            "sliding_window_pattern": [2], "rms_norm_eps": [0.01],
            "hidden_activation": ["relu"], "attn_logit_softcapping": [2.0],
            "final_logit_softcapping": [2.0],
            "rope_parameters": [GONE, {"full_attention": ROPE, "sliding_attention": ROPE}]}),
    "gemma3-embed": keys(CONFIG, {
        "use_bidirectional_attention": [True, None], "is_causal": [False, True],
        "query_pre_attn_scalar": [4], "sliding_window": [4, 1, None], "head_dim": [None, 4, GONE],
        "layer_types": [["full_attention", "full_attention"], GONE],
        "sliding_window_pattern": [2], "attn_logit_softcapping": [2.0],
        "final_logit_softcapping": [2.0], "rope_parameters": [GONE]}),
    "gemma2-embed": keys(SETTINGS, {"tokenizer_class": ["PreTrainedTokenizerFast", GONE]}) +
    keys(CONFIG, {
        "attn_logit_softcapping": [0.3, 50.0, None, GONE, 0], "final_logit_softcapping": [2.0, None],
        "query_pre_attn_scalar": [4, GONE], "sliding_window": [4, 1, None, GONE],
        "layer_types": [["full_attention", "full_attention"], ["sliding_attention"], GONE],
        "use_bidirectional_attention": [True, False], "is_causal": [False, True],
        "head_dim": [4, GONE], "num_key_value_heads": [2, GONE], "hidden_activation": ["relu", GONE],
        "hidden_act": ["relu"], "rms_norm_eps": [0.01], "rope_parameters": [GONE, ROPE, YARN],
        "attention_bias": [True], "sliding_window_pattern": [1]}),
    "gemma2-sequences": keys(CONFIG, {
        "pad_token_id": [1, None], "architectures": [["Gemma2ForTokenClassification"],
                                                     ["Gemma2ForCausalLM"]]}),
    "gemma1-sequences": keys(CONFIG, {
        "hidden_act": ["gelu", "gelu_new", "gelu_python", "relu", GONE],
        "hidden_activation": ["relu", None], "use_bidirectional_attention": [False, None],
        "is_causal": [False], "head_dim": [4, GONE], "num_key_value_heads": [2, GONE],
        "rope_parameters": [GONE, ROPE, YARN], "rope_theta": [500.0], "rms_norm_eps": [0.01],
        "attn_logit_softcapping": [2.0], "sliding_window": [3], "pad_token_id": [1, None]}) + [
            at(CONFIG, "rope_parameters", GONE) + at(CONFIG, "rope_theta", 500.0)],
    "gemma1-rerank": keys(CONFIG, {"tie_word_embeddings": [True, False, GONE]}),
    "qwen3-embed": TOKENIZER_SETTINGS + keys(SETTINGS, {
        "tokenizer_class": ["PreTrainedTokenizerFast", "LlamaTokenizer", GONE],
        "add_eos_token": [True], "add_prefix_space": [True], "padding_side": ["left"]}) + QWEN_KEYS,
    "qwen3-sequences": keys(CONFIG, {
        "pad_token_id": [None, 5], "architectures": [["Qwen3ForTokenClassification"],
                                                     ["Qwen3ForCausalLM"]]}),
    "qwen3-rerank": [
        *(at(LOGIT_SCORE, "true_token_id", value) for value in (9, GONE, None, 5000)),
        *(at(LOGIT_SCORE, "false_token_id", value) for value in (9, GONE, None)),
        at(LOGIT_SCORE, "module_input_name", "logits"), at(LOGIT_SCORE, "unheard_of", 1)] +
        keys(CONFIG, {"tie_word_embeddings": [True], "is_causal": [False]}) + keys(PIPELINE, {
            "activation_fn": ["torch.nn.modules.linear.Identity"],
            "model_type": ["SentenceTransformer"]}),
    "qwen2-embed": keys(SETTINGS, {
        "tokenizer_class": ["PreTrainedTokenizerFast", "LlamaTokenizer", GONE]}) + QWEN_KEYS + [
            delete("modules.json"), delete("modules.json") + at(CONFIG, "is_causal", False),
            delete("modules.json") + at(CONFIG, "architectures", ["Qwen2ForCausalLM"]),
            delete("modules.json") + at(CONFIG, "architectures", ["Qwen2ForCausalLM"]) +
            at(CONFIG, "is_causal", False)],
    "electra-sequences": keys(SETTINGS, {
        "tokenizer_class": ["BertTokenizer", GONE], "do_lower_case": [False, GONE]}) + keys(CONFIG, {
            "embedding_size": [8, GONE], "hidden_act": ["relu"], "layer_norm_eps": [0.01],
            "type_vocab_size": [1], "summary_type": ["mean"],
            "is_decoder": [True], "position_embedding_type": ["relative_key"],
            "architectures": [["ElectraForTokenClassification"], ["ElectraForPreTraining"],
                              ["ElectraForMaskedLM"]]}),
    "deberta-sequences": TOKENIZER_SETTINGS + keys(SETTINGS, {
        "tokenizer_class": ["PreTrainedTokenizerFast", "BertTokenizer", GONE],
        "do_lower_case": [True, GONE], "split_by_punct": [True], "unk_id": [5],
        "unk_token": ["[PAD]"], "vocab_type": ["spm"]}) + [
            at(TOKENIZER, "model/unk_id", 0), delete(TOKENIZER)] + keys(CONFIG, {
                "position_buckets": [-1, 4, GONE], "max_relative_positions": [12, 4],
                "norm_rel_ebd": ["none", GONE], "share_att_key": [False, GONE],
                "pos_att_type": ["c2p|p2c", "C2P | p2c", ["c2p"], ["p2c"], [], None, ["p2p"]],
                "relative_attention": [False, GONE], "position_biased_input": [True, GONE],
                "conv_kernel_size": [0, 3], "attention_head_size": [4, 8],
                "embedding_size": [8, 4], "pooler_hidden_act": ["tanh", GONE],
                "pooler_hidden_size": [4], "hidden_act": ["relu"], "layer_norm_eps": [0.01],
                "type_vocab_size": [2, GONE], "max_position_embeddings": [16, GONE],
                "architectures": [["DebertaV2ForTokenClassification"]], "legacy": [False]}),
    "deberta_conv-embed": keys(CONFIG, {
        "conv_kernel_size": [0, 2, 5, None, GONE], "conv_act": ["relu", GONE, None],
        "conv_groups": [1, 2], "layer_norm_eps": [0.01], "relative_attention": [False],
        "num_hidden_layers": [1]}),
    "deberta-sparse": keys(CONFIG, {"legacy": [False, GONE], "hidden_act": ["relu"],
                                    "tie_word_embeddings": [False]}),
    "llama-embed": keys(CONFIG, {
        "is_causal": [False, True], "head_dim": [None, 8, GONE], "num_key_value_heads": [2, None],
        "hidden_act": ["relu"], "rms_norm_eps": [0.01], "attention_bias": [True],
        "mlp_bias": [True], "rope_theta": [500.0], "rope_parameters": [GONE, ROPE, YARN],
        "rope_parameters/low_freq_factor": [0.5, GONE, 4.0],
        "rope_parameters/high_freq_factor": [2, GONE],
        "rope_parameters/original_max_position_embeddings": [64, GONE],
        "original_max_position_embeddings": [64], "rope_parameters/factor": [2, GONE], "rope_parameters/partial_rotary_factor": [0.5],
        "pooling": ["cls"], "max_position_embeddings": [16]}) + [
            at(CONFIG, "rope_parameters", GONE) + at(CONFIG, "rope_theta", 100.0) +
            at(CONFIG, "rope_scaling", LLAMA3)],
    "llama-sequences": keys(CONFIG, {
        "pad_token_id": [None, 5], "temperature": [0.5],
        "architectures": [["LlamaForTokenClassification"], ["LlamaForCausalLM"]]}),
    "llama-rerank": keys(CONFIG, {"tie_word_embeddings": [True], "is_causal": [False]}),
    "mistral-embed": keys(SETTINGS, {
        "tokenizer_class": ["PreTrainedTokenizerFast", "LlamaTokenizer", GONE],
        "add_eos_token": [True], "legacy": [False]}) + keys(CONFIG, {
            "sliding_window": [None, 1, 3, GONE], "layer_types": [["full_attention", "sliding_attention"]],
            "is_causal": [False, True], "head_dim": [None, 8, GONE], "rope_theta": [500.0],
            "num_key_value_heads": [2, None], "hidden_act": ["relu"], "rms_norm_eps": [0.01]}),
}


# Where a case has many numbers, some of CASES.
FEW = {"distilbert-tokens": [0, 4], "jina_v3-tokens": [0, 4], "bert-multi": [0], "modernbert-multi": [0],
       "bert-stanford": [0]} | {
    name: [0] for name in BASES if "-sparse" in name or "-router" in name}
WITH_VOCABULARY = ["bert-embed", "mpnet-embed", "roberta-embed"]


def write_vocabulary(folder):
    """The files that stand in for tokenizer.json, beside it, where nobody reads them."""
    model = json.loads((folder / TOKENIZER).read_text())["model"]
    if model.get("merges"):
        (folder / "vocab.json").write_text(json.dumps(model["vocab"], ensure_ascii=False))
        (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(
            (merge if isinstance(merge, str) else " ".join(merge)) + "\n"
            for merge in model["merges"]))
    else:
        tokens = sorted(model["vocab"], key=model["vocab"].get)
        (folder / VOCABULARY).write_text("".join(token + "\n" for token in tokens))


def vary(name, changes, seed=0):
    """What comes of the edits; None where they change nothing."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary) / name
        shutil.copytree(OUT / name, folder)
        (folder / "expected.json").unlink()
        kind = read_directory.kind_of(folder)
        if not all([edits.apply(folder, edit) for edit in changes]):
            return None
        if any(edit["file"] in (PIPELINE, "modules.json") or
               edit.get("pointer") == "/architectures" for edit in changes):
            kind = read_directory.kind_of(folder)
        torch.manual_seed(seed)
        cases = [CASES[i] for i in FEW.get(name, range(len(CASES)))]
        return shortened(read_directory.outcome(folder, cases, kind))


def shortened(result):
    """With five digits after the point."""
    if isinstance(result, float):
        return round(result, 5)
    if isinstance(result, dict):
        return {key: shortened(value) for key, value in result.items()}
    return [shortened(value) for value in result] if isinstance(result, list) else result


def same(one, other):
    """Whether results are equal but for how their sums were rounded."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) < 1.5e-5
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def stands_apart(changes, result):
    return any(error in result.get("error", "") for error in APART_ERRORS) or any(
        edit.get("pointer") in APART or edit.get("replace", "")[1:] == [', "unheard_of": 1}'] or
        (edit.get("pointer") == "/layer_norm_eps" and isinstance(edit.get("value"), int))
        for edit in changes)


def variations(name):
    results = [vary(name, [])]
    rows = []
    for changes in BASES[name]:
        result = vary(name, changes)
        if result is None:
            continue
        index = next((i for i, known in enumerate(results) if same(known, result)), None)
        if index is None and not same(vary(name, changes, seed=1), result):
            result = {"error": "the rows are random: weights are missing"}
            index = results.index(result) if result in results else None
        if index is None:
            index = len(results)
            results.append(result)
        split = any(edit.get("pointer") == "/split_special_tokens" for edit in changes)
        rows.append({"edits": changes, "result": index} | ({"split": True} if split else {}) |
                    ({"apart": True} if stands_apart(changes, result) else {}))
        print(name, edits.told(changes)[:150], "->",
              result.get("error", rows[-1]["result"]), flush=True)
    return {"results": results, "variations": rows}


def published(source, out):
    """A directory of GTE as gte-multilingual-reranker-base is published: with its own code, which is
    not run here, so the rows are those of `source`."""
    shutil.copytree(source, out, dirs_exist_ok=True)
    weights = safetensors.torch.load_file(source / "model.safetensors")
    safetensors.torch.save_file(
        {re.sub("^gte", "new", name): tensor for name, tensor in weights.items()},
        out / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / CONFIG).read_text())
    for name in ("dtype", "rope_parameters", "transformers_version", "tie_word_embeddings"):
        del config[name]
    kind = re.sub("^Gte", "New", config["architectures"][0])
    code = "Alibaba-NLP/new-impl--"
    (out / CONFIG).write_text(json.dumps(config | dict(
        model_type="new", architectures=[kind], classifier_dropout=0.0,
        auto_map={"AutoConfig": code + "configuration.NewConfig",
                  kind.replace("New", "AutoModel"): code + "modeling." + kind},
        layer_norm_type="layer_norm", logn_attention_clip1=False, logn_attention_scale=False,
        pack_qkv=True, position_embedding_type="rope", rope_scaling=None, rope_theta=160000,
        torch_dtype="float32", transformers_version="4.39.1", unpad_inputs=False,
        use_memory_efficient_attention=False), indent=2) + "\n")


def main():
    OUT.mkdir(exist_ok=True)
    path = OUT / "variations.json"
    wanted = sys.argv[1:] or [*BASES, "new-sequences", "new-sparse"]
    bases = json.loads(path.read_text())["bases"] if path.exists() else {}
    for name in wanted:
        if name.startswith("new-"):
            published(OUT / name.replace("new", "gte"), OUT / name)
            continue
        make_directories.save(OUT, name)
        if name in WITH_VOCABULARY:
            write_vocabulary(OUT / name)
        for tokenizer in (OUT / name).rglob(TOKENIZER):
            tokenizer.write_text(json.dumps(json.loads(tokenizer.read_text()),
                                            separators=(",", ":"), ensure_ascii=False))
        cases = make_directories.CASES
        make_directories.write_expected(OUT / name, "expected.json",
                                        cases[3:4] + cases[8:9] if name in FEW else cases)
        bases[name] = variations(name)
        lines = {base: bases[base] for base in BASES if base in bases}
        path.write_text(json.dumps({"versions": read_directory.VERSIONS, "bases": lines},
                                   separators=(",", ":"), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
