#!/usr/bin/env python3
"""Time and memory of training steps and of inference, with CAST and with exact attention in its
place, at 1K, 2K and 4K bytes: the comparison of the paper's first experiment, as far as a CPU
allows. Random bytes, batches of two, clusters of 64 tokens; each row in a process of its own.

    measure.py [OUT.md]
"""

import json
import resource
import statistics
import subprocess
import sys
import time

import torch

from model import Encoder
from train import config_for

BATCH, STEPS = 2, 5
NAMES = {"cast": "CAST", "exact": "exact, fused", "plain": "exact, scores in memory"}


def one(attention, tokens):
    torch.manual_seed(0)
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = Encoder(config_for("abcdefghi", tokens, tokens // 64), attention)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = torch.randint(256, (BATCH, tokens))
    steps, passes = [], []
    for _ in range(STEPS + 1):
        begun = time.time()
        loss = torch.nn.functional.cross_entropy(model(ids), torch.tensor([0, 1]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps.append(time.time() - begun)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base
    with torch.no_grad():
        for _ in range(STEPS + 1):
            begun = time.time()
            model(ids)
            passes.append(time.time() - begun)
    return {"step": statistics.median(steps[1:]), "pass": statistics.median(passes[1:]),
            "megabytes": peak / 1024}


def main():
    if len(sys.argv) == 3:
        print(json.dumps(one(sys.argv[1], int(sys.argv[2]))))
        return
    lines = ["| bytes | attention | a step, s | tokens/s in training | tokens/s in inference | "
             "peak, MB |", "|---|---|---|---|---|---|"]
    for tokens in (1024, 2048, 4096):
        for attention, name in NAMES.items():
            told = subprocess.run([sys.executable, __file__, attention, str(tokens)], check=True,
                                  capture_output=True, text=True).stdout
            row = json.loads(told)
            all_tokens = BATCH * tokens
            lines.append(f"| {tokens} | {name} | {row['step']:.3f} | {all_tokens / row['step']:,.0f}"
                         f" | {all_tokens / row['pass']:,.0f} | {row['megabytes']:,.0f} |")
    table = "\n".join(lines) + "\n"
    if len(sys.argv) == 2:
        with open(sys.argv[1], "w") as out:
            out.write(table)
    else:
        print(table, end="")


if __name__ == "__main__":
    main()
