#!/usr/bin/env python3
"""Writes heads/NAME/ for each row of HEADS and PIPELINES: a small random checkpoint with a head, as
transformers or sentence-transformers save it, and what they compute.

    make_heads.py [NAME...]

Out: heads/NAME/                config.json, model.safetensors, tokenizer.json, modules.json, ...
     heads/NAME/expected.json   labels, texts, pairs, ids, and each output, from padded batches

Versions: see make_families.py; and sentence-transformers 5.1.2. NEWER and static ones are of
those of make_newer_families.py.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import sentence_transformers
import torch
import transformers
from safetensors.torch import load_file, save_file
from sentence_transformers import models as modules
from sentence_transformers.sparse_encoder import models as sparse_modules

import remote_models
from make_families import (CASES, byte_bpe, generic_tokenizer, llama_bpe, loose_ids, modern_bpe,
                           mpnet_word_piece, word_piece)

LENGTH = 32
SIZES = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
             layer_norm_eps=1e-5, initializer_range=0.4)
ROBERTA = dict(SIZES, type_vocab_size=1, max_position_embeddings=LENGTH + 2)
BERT = dict(SIZES, max_position_embeddings=LENGTH, layer_norm_eps=1e-6)
DISTIL = dict(dim=16, n_layers=1, n_heads=2, hidden_dim=24, initializer_range=0.4,
              max_position_embeddings=LENGTH)
MPNET = dict(SIZES, max_position_embeddings=LENGTH + 2)
MODERN = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
              global_attn_every_n_layers=2, local_attention=10, initializer_range=0.4,
              initializer_cutoff_factor=3.0, max_position_embeddings=LENGTH, bos_token_id=0,
              cls_token_id=0, eos_token_id=1, sep_token_id=1, pad_token_id=3,
              reference_compile=False)


def labels(*names):
    return dict(id2label=dict(enumerate(names)), label2id={n: i for i, n in enumerate(names)})


T = transformers
# Directory: the class, its tokenizer, its config, what its scores are.
HEADS = {
    "bert_sequences": (T.BertForSequenceClassification, word_piece,
                       dict(BERT, **labels("calm", "über", "stormy"), hidden_act="gelu_new"),
                       "softmax"),
    "roberta_sequences": (T.RobertaForSequenceClassification, byte_bpe,
                          dict(ROBERTA, problem_type="multi_label_classification", num_labels=4),
                          "sigmoid"),
    "camembert_sequences": (T.CamembertForSequenceClassification, byte_bpe, ROBERTA, "softmax"),
    "distilbert_sequences": (T.DistilBertForSequenceClassification, word_piece,
                             dict(DISTIL, problem_type="regression", num_labels=1), "identity"),
    "mpnet_sequences": (T.MPNetForSequenceClassification, mpnet_word_piece,
                        dict(MPNET, num_labels=1), "sigmoid"),
    "modernbert_sequences": (T.ModernBertForSequenceClassification, modern_bpe,
                             dict(MODERN, classifier_pooling="mean", classifier_bias=True,
                                  norm_bias=True, classifier_activation="silu", num_labels=3),
                             "softmax"),
    "modernbert_sequences_cls": (T.ModernBertForSequenceClassification, modern_bpe,
                                 dict(MODERN, classifier_pooling="cls"), "softmax"),
    "bert_tokens": (T.BertForTokenClassification, word_piece,
                    dict(BERT, **labels("O", "B-LOC", "I-LOC", "B-PER", "I-PER")), "softmax"),
    "roberta_tokens": (T.XLMRobertaForTokenClassification, byte_bpe, dict(ROBERTA, num_labels=3),
                       "softmax"),
    "distilbert_tokens": (T.DistilBertForTokenClassification, word_piece, DISTIL, "softmax"),
    "mpnet_tokens": (T.MPNetForTokenClassification, mpnet_word_piece, dict(MPNET, num_labels=3),
                     "softmax"),
    "modernbert_tokens": (T.ModernBertForTokenClassification, modern_bpe,
                          dict(MODERN, num_labels=3), "softmax"),
}
LLAMA = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=24, initializer_range=0.4, max_position_embeddings=LENGTH,
             pad_token_id=2, is_causal=False,
             rope_parameters=dict(rope_type="llama3", rope_theta=500.0, factor=4.0,
                                  low_freq_factor=1.0, high_freq_factor=4.0,
                                  original_max_position_embeddings=40))
NEWER = {
    "llama_bidirec_sequences": (remote_models.LlamaBidirectionalForSequenceClassification,
                                llama_bpe, dict(LLAMA, num_labels=1, temperature=0.5,
                                                pooling="avg"), "sigmoid"),
    "llama_bidirec_sequences_last": (remote_models.LlamaBidirectionalForSequenceClassification,
                                     llama_bpe, dict(LLAMA, num_labels=3, temperature=1.0,
                                                     pooling="last"), "softmax"),
}
HEADS |= NEWER
SCORES = {"softmax": lambda x: torch.softmax(x, -1), "sigmoid": torch.sigmoid,
          "identity": lambda x: x}


def randomize(model):
    """Biases and norms, which are zeros and ones at first, and heads that say something."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name.lower():
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval().float()


def random_model(kind, tokenizer, settings, seed):
    torch.manual_seed(seed)
    config = kind.config_class(vocab_size=tokenizer.get_vocab_size(), **settings)
    config._attn_implementation = "eager"
    return randomize(kind(config))


def rounded(rows):
    return [[round(x, 7) for x in row] for row in rows.tolist()]


def padded(tokenizer, padding, types, cases=CASES):
    """Batches of three: [(text, pair, ids)], the model's inputs."""
    sequences = []
    for text, pair in cases:
        encoding = tokenizer.encode(text, pair)
        sequences.append((text, pair, encoding.ids, encoding.type_ids))
    loose = loose_ids(tokenizer.get_vocab_size(), padding)
    sequences.append((None, None, loose, [0] * len(loose)))
    for first in range(0, len(sequences), 3):
        some = sequences[first:first + 3]
        longest = max(len(ids) for _, _, ids, _ in some)
        pad = [longest - len(ids) for _, _, ids, _ in some]
        inputs = dict(
            input_ids=torch.tensor([s[2] + [padding] * p for s, p in zip(some, pad)]),
            attention_mask=torch.tensor([[1] * len(s[2]) + [0] * p for s, p in zip(some, pad)]))
        if types:
            inputs["token_type_ids"] = torch.tensor([s[3] + [0] * p for s, p in zip(some, pad)])
        yield [s[:3] for s in some], inputs


def prepare(tokenizer):
    tokenizer.no_padding()
    tokenizer.no_truncation()


def write(out, expected):
    (out / "expected.json").write_text(
        json.dumps(expected, separators=(",", ":"), ensure_ascii=False))


def make_head(name, out):
    kind, make_tokenizer, settings, scoring = HEADS[name]
    tokenizer = make_tokenizer()
    whole = random_model(kind, tokenizer, settings, 100 + list(HEADS).index(name))
    whole.save_pretrained(out)
    if "Bidirectional" in kind.__name__:
        # The published code has a type of its own, and no key for the mask.
        whole.temperature = settings["temperature"]
        config = json.loads((out / "config.json").read_text()) | {
            "model_type": "llama_bidirec", "temperature": whole.temperature}
        del config["is_causal"]
        (out / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    prepare(tokenizer)
    tokenizer.save(str(out / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    tokenizer.enable_truncation(LENGTH)
    of_tokens = "Token" in kind.__name__
    cases = []
    types = kind.__name__.startswith("Bert")
    if kind.__name__.startswith(("Bert", "DistilBert", "Camembert", "XLM")):
        generic_tokenizer(out, types)
    for some, inputs in padded(tokenizer, whole.config.pad_token_id, types):
        with torch.no_grad():
            logits = whole(**inputs).logits
        for (text, pair, ids), row in zip(some, logits):
            row = row[:len(ids)] if of_tokens else row[None]
            cases.append({"text": text, "pair": pair, "ids": ids,
                          "LOGITS": rounded(row), "SCORES": rounded(SCORES[scoring](row))})
    write(out, {"labels": list(whole.config.id2label.values()), "cases": cases})


def hf_tokenizer(tokenizer, types, folder, padding):
    """A directory that transformers opens."""
    prepare(tokenizer)
    names = ["input_ids", "attention_mask"] + (["token_type_ids"] if types else [])
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=tokenizer.id_to_token(padding),
        model_input_names=names, model_max_length=LENGTH).save_pretrained(folder)


def base(kind, make_tokenizer, settings, seed, folder):
    tokenizer = make_tokenizer()
    model = random_model(kind, tokenizer, settings, seed)
    model.save_pretrained(folder)
    hf_tokenizer(tokenizer, kind.__name__.startswith("Bert"), folder, model.config.pad_token_id)


# Files that SentenceTransformer and its relatives write, and that are not read.
LITTER = ["README.md", "special_tokens_map.json", "vocab.txt"]


def tidy(out):
    for name in LITTER:
        (out / name).unlink(missing_ok=True)


TEXTS = [text for text, pair in CASES if pair is None]


def make_dense(out, folder):
    base(T.BertModel, word_piece, BERT, 201, folder)
    torch.manual_seed(202)
    pipeline = sentence_transformers.SentenceTransformer(modules=[
        modules.Transformer(folder), modules.Pooling(16, "mean"),
        modules.Dense(16, 20, activation_function=torch.nn.Tanh()),
        modules.Dense(20, 12, bias=False, activation_function=torch.nn.GELU()),
        modules.Dense(12, 8, activation_function=torch.nn.Identity()), modules.Normalize()])
    pipeline.eval().save(str(out))
    rows = pipeline.encode(TEXTS, batch_size=3, convert_to_tensor=True)
    write(out, {"cases": [{"text": text, "pair": None, "POOLED": rounded(row[None])}
                          for text, row in zip(TEXTS, rows)]})


def make_splade(out, folder, kind, make_tokenizer, settings, seed, **pooling):
    base(kind, make_tokenizer, settings, seed, folder)
    encoder = sentence_transformers.SparseEncoder(modules=[
        sparse_modules.MLMTransformer(folder), sparse_modules.SpladePooling(**pooling)])
    encoder.eval().save(str(out))
    rows = encoder.encode(TEXTS, batch_size=3, convert_to_tensor=True,
                          convert_to_sparse_tensor=False)
    write(out, {"cases": [{"text": text, "pair": None, "SPARSE": rounded(row[None])}
                          for text, row in zip(TEXTS, rows)]})


def make_cross_encoder(out, folder, kind, make_tokenizer, settings, seed, activation):
    base(kind, make_tokenizer, settings, seed, folder)
    encoder = sentence_transformers.CrossEncoder(folder, activation_fn=activation, max_length=LENGTH)
    encoder.save_pretrained(str(out))
    pairs = [(text, other) for text in TEXTS[:4] for other in ("the mill", "on y danse, l'été")]
    scores = encoder.predict(pairs, batch_size=3, convert_to_tensor=True)
    logits = encoder.predict(pairs, batch_size=3, convert_to_tensor=True,
                             activation_fn=torch.nn.Identity())
    write(out, {"labels": ["LABEL_0"],
                "cases": [{"text": text, "pair": pair, "SCORES": [[round(score.item(), 7)]],
                           "LOGITS": [[round(logit.item(), 7)]]}
                          for (text, pair), score, logit in zip(pairs, scores, logits)]})


def write_colbert(out, model, projection, tokenizer):
    tokenizer.encode_special_tokens = True
    tokenizer.enable_truncation(LENGTH)
    cases = []
    for some, inputs in padded(tokenizer, model.config.pad_token_id, types=True, cases=CASES[:6]):
        with torch.no_grad():
            rows = torch.nn.functional.normalize(projection(model(**inputs).last_hidden_state), dim=-1)
        for (text, pair, ids), row in zip(some, rows):
            cases.append({"text": text, "pair": pair, "ids": ids,
                          "TOKEN_EMBEDDINGS": rounded(row[:len(ids)])})
    write(out, {"cases": cases})


def make_colbert(out, folder, stanford):
    """Of pylate, which has a Dense module for token rows; of Stanford, which has one class."""
    base(T.BertModel, word_piece, BERT, 251 + stanford, folder)
    model = T.BertModel.from_pretrained(folder).eval()
    torch.manual_seed(253 + stanford)
    projection = torch.nn.Linear(16, 6, bias=False)
    tokenizer = word_piece()
    prepare(tokenizer)
    tokenizer.save(str(out / "tokenizer.json"))
    generic_tokenizer(out, types=True)
    if stanford:
        weights = {f"bert.{name}": tensor
                   for name, tensor in load_file(f"{folder}/model.safetensors").items()}
        weights["linear.weight"] = projection.weight.detach()
        save_file(weights, out / "model.safetensors")
        config = json.loads(pathlib.Path(folder, "config.json").read_text())
        config["architectures"] = ["HF_ColBERT"]
        (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        (out / "artifact.metadata").write_text('{"mask_punctuation": false, "query_maxlen": 12}\n')
        settings = json.loads((out / "tokenizer_config.json").read_text())
        (out / "tokenizer_config.json").write_text(json.dumps(settings | {"mask_token": "[MASK]"}) + "\n")
    else:
        for name in ("config.json", "model.safetensors"):
            shutil.copy(f"{folder}/{name}", out / name)
        (out / "1_Dense").mkdir(exist_ok=True)
        (out / "1_Dense" / "config.json").write_text(json.dumps(
            {"in_features": 16, "out_features": 6, "bias": False,
             "activation_function": "torch.nn.modules.linear.Identity"}))
        save_file({"linear.weight": projection.weight.detach()},
                  out / "1_Dense" / "model.safetensors")
        (out / "modules.json").write_text(json.dumps([
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"}]))
    write_colbert(out, model, projection, tokenizer)


def make_static(out, folder, model2vec):
    """sentence-transformers' own tensor, with a Dense; or model2vec's three, which it reads too."""
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    tokenizer = word_piece()
    prepare(tokenizer)
    torch.manual_seed(261 + model2vec)
    words = tokenizer.get_vocab_size()
    rows = torch.randn(words, 16)
    table = StaticEmbedding(tokenizer, embedding_weights=rows)
    after = [] if model2vec else [modules.Dense(16, 12, activation_function=torch.nn.Tanh())]
    pipeline = sentence_transformers.SentenceTransformer(modules=[
        table, *after, modules.Normalize()])
    pipeline.eval().save(str(out))
    if model2vec:
        save_file({"embeddings": rows[:40], "mapping": torch.randint(0, 40, (words,)),
                   "weights": torch.rand(words).double() + 0.5}, out / "model.safetensors")
        pipeline = sentence_transformers.SentenceTransformer(str(out))
    pipeline[0].tokenizer.encode_special_tokens = True
    texts = [text for text in TEXTS if pipeline[0].tokenizer.encode(text).ids[1:-1]]
    rows = pipeline.encode(texts, convert_to_tensor=True)
    write(out, {"cases": [{"text": text, "pair": None, "POOLED": rounded(row[None]),
                           "ids": pipeline[0].preprocess([text])["input_ids"].tolist()}
                          for text, row in zip(texts, rows)]})


PIPELINES = {
    "static": lambda out, folder: make_static(out, folder, model2vec=False),
    "static_model2vec": lambda out, folder: make_static(out, folder, model2vec=True),
    "dense": make_dense,
    "splade_bert": lambda out, folder: make_splade(
        out, folder, T.BertForMaskedLM, word_piece, dict(BERT, hidden_act="relu"), 211),
    "splade_distilbert": lambda out, folder: make_splade(
        out, folder, T.DistilBertForMaskedLM, word_piece, DISTIL, 212, pooling_strategy="sum",
        activation_function="log1p_relu"),
    "splade_roberta": lambda out, folder: make_splade(
        out, folder, T.RobertaForMaskedLM, byte_bpe, dict(ROBERTA, tie_word_embeddings=False), 213,
        activation_function="log1p_relu"),
    "splade_mpnet": lambda out, folder: make_splade(
        out, folder, T.MPNetForMaskedLM, mpnet_word_piece, MPNET, 214, pooling_strategy="sum"),
    "splade_modernbert": lambda out, folder: make_splade(
        out, folder, T.ModernBertForMaskedLM, modern_bpe, MODERN, 215),
    "cross_encoder": lambda out, folder: make_cross_encoder(
        out, folder, T.XLMRobertaForSequenceClassification, byte_bpe, dict(ROBERTA, num_labels=1),
        221, None),
    "cross_encoder_identity": lambda out, folder: make_cross_encoder(
        out, folder, T.BertForSequenceClassification, word_piece, dict(BERT, num_labels=1), 222,
        torch.nn.Identity()),
    "colbert_pylate": lambda out, folder: make_colbert(out, folder, stanford=False),
    "colbert_stanford": lambda out, folder: make_colbert(out, folder, stanford=True),
}


def make(name):
    out = pathlib.Path(__file__).parent / "heads" / name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    if name in HEADS:
        make_head(name, out)
    else:
        with tempfile.TemporaryDirectory() as folder:
            PIPELINES[name](out, folder)
    tidy(out)


if __name__ == "__main__":
    for wanted in sys.argv[1:] or [*HEADS, *PIPELINES]:
        make(wanted)
        print(wanted)
