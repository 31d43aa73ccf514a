#!/usr/bin/env python3
"""Writes tiny_bert/: a random BERT of two layers as Hugging Face saves it, and what it computes.

    make_tiny_bert.py

Out: tiny_bert/           config.json, model.safetensors, tokenizer.json, modules.json, 1_Pooling
     tiny_bert/expected.json   texts, pairs, ids, type ids, last hidden states

Versions: see make_minilm.py.
"""

import json
import pathlib

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[", "]", "sep", "the", "cat", "sat", "on",
         "mat", "##s", "dog", "ran", "far", "away", ".", ",", "a", "b", "c", "##b", "##c"]
CASES = [("the cat sat on the mat.", None), ("cats, dogs", None), ("", None), ("[SEP] a", None),
         ("the dog ran far away.", "the cats sat"), ("abc zebra", "a b c")]


def main():
    out = pathlib.Path(__file__).parent / "tiny_bert"
    out.mkdir(exist_ok=True)
    torch.manual_seed(7)
    # Larger spread than the default: attention and activations must matter in the result.
    config = BertConfig(vocab_size=len(WORDS), hidden_size=24, num_hidden_layers=2,
                        num_attention_heads=3, intermediate_size=40, max_position_embeddings=32,
                        type_vocab_size=2, layer_norm_eps=1e-6, hidden_act="gelu",
                        initializer_range=0.3)
    model = BertModel(config).eval().float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "LayerNorm" in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(out)

    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.add_special_tokens(WORDS[:5])
    # A file may declare these; the loader must not obey.
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=9)
    tokenizer.save(str(out / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True

    (out / "1_Pooling").mkdir(exist_ok=True)
    (out / "1_Pooling" / "config.json").write_text(json.dumps(
        {"word_embedding_dimension": 24, "pooling_mode_cls_token": True,
         "pooling_mode_mean_tokens": False}))
    (out / "modules.json").write_text(json.dumps([
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate([("", "Transformer"), ("1_Pooling", "Pooling")])]))

    expected = []
    for text, pair in CASES:
        encoding = tokenizer.encode(text, pair)
        with torch.no_grad():
            rows = model(input_ids=torch.tensor([encoding.ids]),
                         token_type_ids=torch.tensor([encoding.type_ids])).last_hidden_state[0]
        expected.append({"text": text, "pair": pair, "ids": encoding.ids,
                         "type_ids": encoding.type_ids,
                         "rows": [[round(x, 7) for x in row] for row in rows.tolist()]})
    (out / "expected.json").write_text(json.dumps(expected, separators=(",", ":")))


if __name__ == "__main__":
    main()
