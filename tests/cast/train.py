#!/usr/bin/env python3
"""Trains a small CAST encoder on the CPU to tell kinds of files apart by their bytes
(documents.py), and writes a directory that castor-server serves.

    train.py OUT [--attention cast|exact] [--tokens 1024] [--steps 800] [--until STEP]

Out: OUT/config.json, model.safetensors, tokenizer.json   (--attention cast)
     OUT/heldout.json   the held-out documents, their labels, and what this program computed
     OUT/report.json    accuracy, time and memory
     OUT/state.pt       where to go on; --until stops before the end, and a later run goes on
Deterministic by --seed on one machine with one version of torch. Needs torch and safetensors.
"""

import argparse
import json
import pathlib
import random
import resource
import time

import torch
from safetensors.torch import save_file
from torch.nn import functional as F

import documents
from model import Encoder

BATCH = 16


def config_for(labels, tokens, clusters):
    return {
        "model_type": "castor_cast",
        "architectures": ["CastorCastForSequenceClassification"],
        "vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 128, "hidden_act": "gelu", "layer_norm_eps": 1e-5,
        "max_position_embeddings": max(4096, tokens), "position_embedding_type": "sinusoidal",
        "cast_clusters": clusters, "cast_cluster_size": None, "cast_clustering": "top_k",
        "cast_attention_function": "softmax", "classifier_pooling": "mean",
        "id2label": {str(i): label for i, label in enumerate(labels)},
    }


def byte_tokenizer():
    """tokenizer.json of ids that are bytes: byte-level BPE that merges nothing."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, more = {}, 256
    for byte in range(256):
        letters[byte] = chr(byte) if byte in printable else chr(more)
        more += byte not in printable
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": False}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None,
                      "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {letters[byte]: byte for byte in range(256)}, "merges": []}}


def ids_of(text):
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).long()


def some_documents(training, tokens, chance):
    """A batch of pieces of one length: the whole length mostly, sometimes less, so that shorter
    documents are known too."""
    length = chance.choice([tokens, tokens, tokens // 2])
    ids, labels = [], []
    while len(ids) < BATCH:
        text, label = chance.choice(training)
        if len(text) < length:
            continue
        first = chance.randrange(len(text) - length + 1)
        ids.append(ids_of(text[first:first + length]))
        labels.append(label)
    return torch.stack(ids), torch.tensor(labels)


def rate(step, steps):
    peak, warm = 3e-3, 50
    return peak * min((step + 1) / warm, max(0.02, (steps - step) / (steps - warm)))


def run(args, model, training):
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.05)
    state_file = args.out / "state.pt"
    first, seconds = 0, 0.0
    if state_file.exists():
        state = torch.load(state_file, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first, seconds = state["step"], state["seconds"]
    last = min(args.steps, args.until or args.steps)
    losses, begun = [], time.time()
    for step in range(first, last):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, args.steps)
        # Each step has its own chance, so that going on later changes nothing.
        ids, labels = some_documents(training, args.tokens, random.Random(f"{args.seed} {step}"))
        loss = F.cross_entropy(model(ids), labels)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if (step + 1) % 50 == 0:
            print(f"step {step + 1}: loss {sum(losses[-50:]) / 50:.3f}, "
                  f"{(time.time() - begun) / len(losses):.3f} s a step", flush=True)
    seconds += time.time() - begun
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": last,
                "seconds": seconds}, state_file)
    return last, seconds


def evaluate(model, testing):
    """Logits of each, one at a time, at its own length."""
    model.eval()
    with torch.no_grad():
        return [model(ids_of(text)[None])[0] for text, _ in testing]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--attention", choices=["cast", "exact"], default="cast")
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--clusters", type=int, default=16)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--until", type=int)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    labels, training, testing = documents.collect(args.tokens, args.seed)
    config = config_for(labels, args.tokens, args.clusters)
    torch.manual_seed(args.seed)
    model = Encoder(config, args.attention)
    print(f"{labels}: {len(training)} files to train with, {len(testing)} held out; "
          f"{sum(p.numel() for p in model.parameters()):,} parameters, {args.attention}", flush=True)
    step, seconds = run(args, model, training)

    logits = evaluate(model, testing)
    right = sum(int(row.argmax()) == label for row, (_, label) in zip(logits, testing))
    report = {"attention": args.attention, "tokens": args.tokens, "steps": step,
              "trained_seconds": round(seconds, 1), "accuracy": right / len(testing),
              "right": right, "held_out": len(testing),
              "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}
    print(json.dumps(report))
    (args.out / "report.json").write_text(json.dumps(report, indent=1))
    (args.out / "heldout.json").write_text(json.dumps(
        [{"text": text, "label": label, "logits": row.tolist()}
         for (text, label), row in zip(testing, logits)]))
    if args.attention == "cast":
        (args.out / "config.json").write_text(json.dumps(config, indent=1))
        (args.out / "tokenizer.json").write_text(json.dumps(byte_tokenizer(), ensure_ascii=False))
        save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()},
                  str(args.out / "model.safetensors"))


if __name__ == "__main__":
    main()
