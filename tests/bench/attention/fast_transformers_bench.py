#!/usr/bin/env python3
"""Times the clustered paper's own CPU kernels (PyPI: pytorch-fast-transformers) and LibTorch's SDPA
on the shapes that tests/bench/attention/approximate.sh uses for Castor's kernels.

    fast_transformers_bench.py [--tokens 1024 4096 16384]

Prints a line of JSON per kernel and length: milliseconds, the median of several calls.
"""

import argparse
import json
import statistics
import time

import torch
from fast_transformers.attention import ClusteredAttention, ImprovedClusteredAttention
from fast_transformers.masking import FullMask, LengthMask

HEADS, DIM = 8, 64


def median_ms(call, seconds=2.0):
    call()  # the first one allocates
    times = []
    while len(times) < 3 or (sum(times) < seconds and len(times) < 50):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024, 4096, 16384])
    options = parser.parse_args()
    torch.manual_seed(0)
    kernels = {
        "clustered": ClusteredAttention(100, iterations=10, bits=63).eval(),
        "improved": ImprovedClusteredAttention(100, iterations=10, bits=63, topk=32).eval(),
    }
    with torch.inference_mode():
        for tokens in options.tokens:
            query, key, value = (torch.randn(1, tokens, HEADS, DIM) for _ in range(3))
            lengths = LengthMask(torch.full((1,), tokens))
            arguments = (query, key, value, FullMask(tokens), lengths, lengths)
            calls = {name: (lambda kernel=kernel: kernel(*arguments))
                     for name, kernel in kernels.items()}
            calls["sdpa"] = lambda: torch.nn.functional.scaled_dot_product_attention(
                query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2))
            for name, call in calls.items():
                print(json.dumps({"kernel": name, "tokens": tokens, "ms": median_ms(call)}),
                      flush=True)


if __name__ == "__main__":
    main()
