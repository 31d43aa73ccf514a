#!/usr/bin/env python3
"""Writes vanilla.json: exact attention on small inputs, computed from the definition in double
precision with the standard library alone, so that Castor's twins and its fast paths cannot be
wrong together.

Usage: vanilla.py > vanilla.json

Inputs are integers in units of 1/64, below 256 in magnitude: exact in float32, float16 and
bfloat16. Arrays are flat, [tokens, heads, dim] in row-major order.
"""

import json
import math
import random

UNIT = 64


def attend(case):
    heads, dim, value_dim = case["heads"], case["head_dim"], case["value_dim"]
    scale = case["scale"]

    def row(name, token, head, width):
        begin = (token * heads + head) * width
        return [x / UNIT for x in case[name][begin : begin + width]]

    output = []
    query_begin = key_begin = 0
    for queries, keys in zip(case["query_lengths"], case["key_lengths"]):
        for i in range(queries):
            seen = i + 1 if case["causal"] else keys
            for head in range(heads):
                q = row("query", query_begin + i, head, dim)
                scores = []
                for j in range(seen):
                    k = row("key", key_begin + j, head, dim)
                    scores.append(scale * math.fsum(a * b for a, b in zip(q, k)))
                largest = max(scores)
                weights = [math.exp(s - largest) for s in scores]
                total = math.fsum(weights)
                values = [row("value", key_begin + j, head, value_dim) for j in range(seen)]
                for e in range(value_dim):
                    products = (w * v[e] for w, v in zip(weights, values))
                    output.append(math.fsum(products) / total)
        query_begin += queries
        key_begin += keys
    return output


def make(name, heads, head_dim, value_dim, query_lengths, key_lengths=None, scale=None, causal=False):
    generator = random.Random(name)
    key_lengths = key_lengths or query_lengths

    def tensor(tokens, width):
        return [generator.randint(-255, 255) for _ in range(tokens * heads * width)]

    case = {
        "name": name,
        "heads": heads,
        "head_dim": head_dim,
        "value_dim": value_dim,
        "query_lengths": query_lengths,
        "key_lengths": key_lengths,
        "scale": 1 / math.sqrt(head_dim) if scale is None else scale,
        "causal": causal,
        "query": tensor(sum(query_lengths), head_dim),
        "key": tensor(sum(key_lengths), head_dim),
        "value": tensor(sum(key_lengths), value_dim),
    }
    case["output"] = attend(case)
    return case


CASES = [
    make("one token", 1, 4, 4, [1]),
    make("one sequence", 2, 8, 8, [9]),
    make("ragged", 2, 4, 4, [3, 1, 7]),
    make("cross", 1, 8, 8, [2, 5], [6, 1]),
    make("causal", 2, 4, 4, [8, 3], causal=True),
    make("value dimension", 1, 4, 11, [5, 2]),
    make("negative scale", 1, 4, 4, [6], scale=-0.75),
    make("zero scale", 1, 4, 4, [6], scale=0.0),
    make("sharp", 1, 16, 4, [6], scale=2.0),
    make("odd dimension", 3, 7, 5, [4, 4]),
]

if __name__ == "__main__":
    print("[")
    print(",\n".join(json.dumps(case, separators=(",", ":")) for case in CASES))
    print("]")
