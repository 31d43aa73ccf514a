#!/usr/bin/env python3
"""Writes cast/NAME/ for each row of MODELS: a small random encoder with CAST attention
(Engelenhoven, Strisciuglio, Talavera 2024, arXiv 2402.04239), and what it computes.

    make_cast.py [NAME...]

Out: cast/NAME/                config.json, model.safetensors, tokenizer.json
     cast/NAME/expected.json   labels; texts, ids and each output

Everything is computed from the definition in float64, one sequence, head, cluster and token at a
time; nothing is shared with Castor or with tests/cast/. A model whose clusters would be others with
affinities of float32 gets the next seed.

Written with Python 3.11, torch 2.11.0 and safetensors 0.8.0, neither of which is needed to build or
test Castor.
"""

import json
import math
import pathlib
import sys

import torch
from safetensors.torch import save_file

HIDDEN, HEADS, WIDE = 12, 3, 20
BYTES = list(range(32, 128))  # the vocabulary of most: ids are places in this list
TEXTS = ["The old mill by the river.", "a", "to", "answers", "Rates rose; nobody had expected it!",
         "the river runs past the mill to the se", ""]

# Directory: the keys of its config besides the sizes, and tokens of a longer sequence.
MODELS = {
    "top_k": (dict(cast_clusters=4), 0),
    "top_k_laplace": (dict(cast_clusters=3, num_hidden_layers=1, cast_cluster_size=5, hidden_act="gelu_new",
                           cast_attention_function="laplace",
                           position_embedding_type="sinusoidal"), 0),
    "single": (dict(cast_clusters=4, cast_clustering="single_assignment_top_k",
                    cast_gate_temperature="none"), 0),
    "single_laplace": (dict(cast_clusters=5, num_hidden_layers=1, cast_cluster_size=9, cast_head_clustering="per_head",
                            cast_clustering="single_assignment_top_k",
                            cast_attention_function="laplace"), 0),
    "one_cluster_tokens": (dict(cast_clusters=1, num_hidden_layers=1, cast_attention_function="softmax",
                         architectures=["CastorCastForTokenClassification"]), 0),
    "long": (dict(cast_clusters=7, num_hidden_layers=1, max_position_embeddings=300,
                  position_embedding_type="sinusoidal"), 300),
    "long_single": (dict(cast_clusters=9, num_hidden_layers=1, max_position_embeddings=200,
                         cast_clustering="single_assignment_top_k", layer_norm_eps=1e-3,
                         position_embedding_type="sinusoidal"), 200),
}


def config_of(name):
    config = dict(model_type="castor_cast", architectures=["CastorCastForSequenceClassification"],
                  vocab_size=len(BYTES), hidden_size=HIDDEN, num_hidden_layers=2,
                  num_attention_heads=HEADS, intermediate_size=WIDE, max_position_embeddings=40,
                  classifier_pooling="mean", id2label={"0": "calm", "1": "fair", "2": "stormy"})
    config.update(MODELS[name][0])
    return config


def tokenizer():
    letter = lambda byte: "\u0120" if byte == 32 else "\u0121" if byte == 127 else chr(byte)
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": False}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None,
                      "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {letter(byte): i for i, byte in enumerate(BYTES)}, "merges": []}}


def weights_of(config, seed):
    torch.manual_seed(seed)
    made = {}

    def linear(name, out, wide, scale=0.5):
        made[name + ".weight"] = scale * torch.randn(out, wide)
        made[name + ".bias"] = 0.2 * torch.randn(out)

    def norm(name):
        made[name + ".weight"] = 1 + 0.2 * torch.randn(HIDDEN)
        made[name + ".bias"] = 0.2 * torch.randn(HIDDEN)

    made["embeddings.words.weight"] = torch.randn(config["vocab_size"], HIDDEN)
    if config.get("position_embedding_type", "learned") == "learned":
        made["embeddings.positions.weight"] = torch.randn(config["max_position_embeddings"], HIDDEN)
    for i in range(config["num_hidden_layers"]):
        at = f"layers.{i}."
        norm(at + "attention_norm")
        for part in ("query", "key", "value", "output"):
            linear(at + "attention." + part, HIDDEN, HIDDEN)
        # Laplace's function comes to 1 and 0 soon, and then affinities tie.
        spread = 0.3 if config.get("cast_attention_function") == "laplace" else 1
        made[at + "surrogate_tokens"] = spread * torch.randn(config["cast_clusters"], HEADS,
                                                             HIDDEN // HEADS)
        linear(at + "gate", 1, HIDDEN)
        norm(at + "mlp_norm")
        linear(at + "mlp.in", WIDE, HIDDEN)
        linear(at + "mlp.out", HIDDEN, WIDE)
    norm("final_norm")
    linear("classifier", len(config["id2label"]), HIDDEN)
    return made


class Model:
    def __init__(self, config, weights):
        self.config = config
        self.w = {name: tensor.double() for name, tensor in weights.items()}
        self.choices = []  # (affinities of a clustering, its size, its members), as it computes

    def linear(self, name, x):
        return x @ self.w[name + ".weight"].T + self.w[name + ".bias"]

    def norm(self, name, x):
        centred = x - x.mean(1, keepdim=True)
        epsilon = self.config.get("layer_norm_eps", 1e-5)
        scaled = centred / torch.sqrt(centred.square().mean(1, keepdim=True) + epsilon)
        return scaled * self.w[name + ".weight"] + self.w[name + ".bias"]

    def f(self, scores):
        """The attention function of a list of scores."""
        if self.config.get("cast_attention_function", "softmax") == "softmax":
            raised = torch.exp(scores - scores.max())
            return raised / raised.sum()
        mean, deviation = math.sqrt(0.5), math.sqrt(0.25 / math.pi)
        return 0.5 * (1 + torch.erf((scores - mean) / (deviation * math.sqrt(2))))

    def members(self, affinity, size):
        """Of each cluster, from affinities [tokens, clusters]."""
        tokens, clusters = affinity.shape
        if self.config.get("cast_clustering", "top_k") == "top_k":
            found = [sorted(sorted(range(tokens), key=lambda i: (-affinity[i, c].item(), i))[:size])
                     for c in range(clusters)]
        else:
            found, free = [[] for _ in range(clusters)], set(range(tokens))
            pairs = [(-affinity[i, c].item(), i, c) for i in range(tokens) for c in range(clusters)]
            for _, i, c in sorted(pairs):
                if i in free and len(found[c]) < size:
                    found[c].append(i)
                    free.remove(i)
            found = [sorted(cluster) for cluster in found]
        return found

    def choose(self, affinity, size):
        found = self.members(affinity, size)
        self.choices.append((affinity, size, found))
        return found

    def cast(self, at, q, k, v, gate):
        """q, k, v [tokens, HEADS, dim], gate [tokens]."""
        tokens, _, dim = q.shape
        surrogates = self.w[at + "surrogate_tokens"]
        clusters = len(surrogates)
        scale = 1 / math.sqrt(dim)
        size = min(tokens, self.config.get("cast_cluster_size") or math.ceil(tokens / clusters))
        warm = self.config.get("cast_gate_temperature", "softplus1") == "softplus1"
        plus = lambda x: 1 + torch.log1p(torch.exp(x)) if warm else torch.ones_like(x)
        to_query = torch.einsum("nhd,chd->nhc", q, surrogates)
        to_key = torch.einsum("nhd,chd->nhc", k, surrogates)
        share = torch.sigmoid(gate)
        affinity = torch.zeros(HEADS, tokens, clusters, dtype=torch.float64)
        for h in range(HEADS):
            for i in range(tokens):
                affinity[h, i] = (share[i] * self.f(scale * to_query[i, h])
                                  + (1 - share[i]) * self.f(scale * to_key[i, h]))
        if self.config.get("cast_head_clustering", "shared") == "shared":
            lists = [self.choose(affinity.sum(0), size)] * HEADS
        else:
            lists = [self.choose(affinity[h], size) for h in range(HEADS)]
        rows = torch.zeros_like(v)
        for h in range(HEADS):
            alpha = torch.stack([self.f(scale * to_query[i, h] * plus(gate[i]))
                                 for i in range(tokens)])
            for c, cluster in enumerate(lists[h]):
                if not cluster:
                    continue
                own = torch.tensor(cluster)
                weights = self.f(scale * to_key[own, h, c] * plus(-gate[own]))
                summary = weights @ v[own, h]
                for i in range(tokens):
                    if i in cluster:
                        inside = self.f(scale * k[own, h] @ q[i, h]) @ v[own, h]
                        rows[i, h] += alpha[i, c] * inside
                    else:
                        rows[i, h] += alpha[i, c] * summary
        return rows

    def positions(self, tokens):
        if "embeddings.positions.weight" in self.w:
            return self.w["embeddings.positions.weight"][:tokens]
        return torch.tensor([[math.sin(p / 10000 ** (e / HIDDEN)) if e % 2 == 0
                              else math.cos(p / 10000 ** ((e - 1) / HIDDEN))
                              for e in range(HIDDEN)] for p in range(tokens)], dtype=torch.float64)

    def activate(self, x):
        if self.config.get("hidden_act", "gelu") == "gelu":
            return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))

    def rows(self, ids):
        x = self.w["embeddings.words.weight"][ids] + self.positions(len(ids))
        for i in range(self.config["num_hidden_layers"]):
            at = f"layers.{i}."
            normed = self.norm(at + "attention_norm", x)
            q, k, v = (self.linear(at + "attention." + part, normed).view(len(ids), HEADS, -1)
                       for part in ("query", "key", "value"))
            mixed = self.cast(at, q, k, v, self.linear(at + "gate", normed).squeeze(1))
            x = x + self.linear(at + "attention.output", mixed.flatten(1))
            wide = self.activate(self.linear(at + "mlp.in", self.norm(at + "mlp_norm", x)))
            x = x + self.linear(at + "mlp.out", wide)
        return self.norm("final_norm", x)

    def stable(self):
        """Whether all clusters so far stay what they are when affinities are a little off."""
        for affinity, size, found in self.choices:
            for _ in range(3):
                off = affinity + 1e-6 * torch.randn_like(affinity)
                if self.members(off, size) != found:
                    return False
        return True


def rounded(rows):
    return [[round(x, 6) for x in row] for row in rows.tolist()]


def sequences_of(name):
    """[(text, ids)]; no text: ids that no tokenizer made."""
    longest = MODELS[name][0].get("max_position_embeddings", 40)
    texts = TEXTS[:3] if longest > 40 else TEXTS
    pairs = [(text, [BYTES.index(byte) for byte in text.encode()]) for text in texts if text]
    if longest > 40:
        return pairs + [(None, [(7 * i + i * i // 5) % len(BYTES) for i in range(longest)])]
    return pairs + [(None, [5, 5, 5, 5, 90, 0, 33])]


def make(name, out):
    config = config_of(name)
    for seed in range(20):
        weights = weights_of(config, seed)
        model = Model(config, weights)
        cases = []
        for text, ids in sequences_of(name):
            rows = model.rows(ids)
            each = "Token" in config["architectures"][0]
            logits = model.linear("classifier", rows if each else rows.mean(0, keepdim=True))
            case = {"text": text, "pair": None, "ids": ids, "POOLED": rounded(rows.mean(0, keepdim=True)),
                    "LOGITS": rounded(logits), "SCORES": rounded(torch.softmax(logits, 1))}
            if len(ids) < 10:
                case["TOKEN_EMBEDDINGS"] = rounded(rows)
            cases.append(case)
        if model.stable():
            break
    else:
        raise SystemExit(f"{name}: no seed keeps its clusters apart")
    print(f"{name}: seed {seed}")
    out.mkdir(parents=True, exist_ok=True)
    save_file(weights, str(out / "model.safetensors"))
    (out / "config.json").write_text(json.dumps(config, indent=1))
    compact = lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    (out / "tokenizer.json").write_text(compact(tokenizer()))
    labels = list(config["id2label"].values())
    (out / "expected.json").write_text(compact({"labels": labels, "cases": cases}))


if __name__ == "__main__":
    here = pathlib.Path(__file__).parent / "cast"
    for name in sys.argv[1:] or MODELS:
        make(name, here / name)
