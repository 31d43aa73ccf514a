#!/usr/bin/env python3
"""Writes heads/bge_m3/: a small random BGE-M3 as FlagEmbedding saves it but for its layers,
which are half-precision safetensors, and what FlagEmbedding's own functions compute from padded batches.

TOKEN_EMBEDDINGS begin with the row of <s>, which FlagEmbedding leaves out: the same layer's.

Versions: see make_families.py; and FlagEmbedding 7ed43d67.
"""
import json
import pathlib
import shutil
import types

import tokenizers
import torch
import transformers
from FlagEmbedding.finetune.embedder.encoder_only.m3.modeling import EncoderOnlyEmbedderM3Model
from safetensors.torch import save_file

from make_families import CASES, loose_ids
from make_heads import randomize, rounded

HERE = pathlib.Path(__file__).parent
SOURCE, OUT = HERE / "directories" / "xlm_roberta-cross", HERE / "heads" / "bge_m3"
COLBERT = 6
PADDING = 1


def write(name, value):
    path = OUT / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


shutil.rmtree(OUT, ignore_errors=True)
OUT.mkdir()
for name in ("tokenizer.json", "tokenizer_config.json"):
    shutil.copyfile(SOURCE / name, OUT / name)
tokenizer = tokenizers.Tokenizer.from_file(str(OUT / "tokenizer.json"))

torch.manual_seed(38)
config = transformers.XLMRobertaConfig.from_pretrained(SOURCE)
config.architectures = ["XLMRobertaModel"]
config._attn_implementation = "eager"
body = randomize(transformers.XLMRobertaModel(config, add_pooling_layer=False))
save_file({k: v.contiguous() for k, v in body.state_dict().items()}, OUT / "model.safetensors",
          metadata={"format": "pt"})
config.to_json_file(OUT / "config.json")
layers = {"sparse_linear": 1, "colbert_linear": COLBERT}
for name, size in layers.items():
    layers[name] = torch.nn.Linear(config.hidden_size, size).half()
    save_file(layers[name].state_dict(), OUT / f"{name}.safetensors", metadata={"format": "pt"})
    layers[name].float()

kind = "sentence_transformers.models."
write("modules.json", [{"idx": i, "name": str(i), "path": path, "type": kind + module}
                       for i, (path, module) in enumerate([("", "Transformer"),
                                                           ("1_Pooling", "Pooling"),
                                                           ("2_Normalize", "Normalize")])])
write("1_Pooling/config.json", {"word_embedding_dimension": config.hidden_size,
                                "pooling_mode_cls_token": True,
                                "pooling_mode_mean_tokens": False})
write("sentence_bert_config.json", {"max_seq_length": 32, "do_lower_case": False})

names = types.SimpleNamespace(cls_token_id=0, pad_token_id=PADDING, eos_token_id=2, unk_token_id=3)
m3 = EncoderOnlyEmbedderM3Model({"model": body, **layers}, names, normalize_embeddings=True)
m3.tokenizer = names
m3.eval()

tokenizer.enable_truncation(32)
cases = [(text, pair, tokenizer.encode(text, pair).ids) for text, pair in CASES]
cases.append((None, None, loose_ids(config.vocab_size, PADDING)))
cases.append((None, None, [0, 3, 2, 3]))
expected = []
for first in range(0, len(cases), 3):
    some = cases[first:first + 3]
    width = max(len(ids) for _, _, ids in some)
    inputs = torch.tensor([ids + [PADDING] * (width - len(ids)) for _, _, ids in some])
    mask = torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for _, _, ids in some])
    with torch.no_grad():
        dense, sparse, colbert = m3._encode({"input_ids": inputs, "attention_mask": mask})
        rows = body(input_ids=inputs, attention_mask=mask).last_hidden_state
        begin = torch.nn.functional.normalize(layers["colbert_linear"](rows[:, :1]), dim=-1)
    for i, (text, pair, ids) in enumerate(some):
        expected.append({"text": text, "pair": pair, "ids": ids, "POOLED": rounded(dense[i:i + 1]),
                         "SPARSE": rounded(sparse[i:i + 1]),
                         "TOKEN_EMBEDDINGS": rounded(torch.cat([begin[i],
                                                                colbert[i, :len(ids) - 1]]))})
(OUT / "expected.json").write_text(
    json.dumps({"cases": expected}, ensure_ascii=False, separators=(",", ":")) + "\n")
