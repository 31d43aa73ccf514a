#!/usr/bin/env python3
"""Writes peers.json: attention as PyTorch, FlashAttention and FlashInfer define it, in their own
axis orders and bases, brought to Castor's.

Usage: peers.py --flash-attention CHECKOUT --flashinfer CHECKOUT > peers.json

Needs torch and einops. Of the checkouts it runs the reference implementations that their tests
compare kernels with (flash_attn/utils/testing.py, tests/attention/test_deepseek_mla.py), since the
kernels need a GPU. They compute in float32.

Inputs are integers in units of 1/64, below 256 in magnitude: exact in float32, float16 and
bfloat16. Arrays are flat: query and output [tokens, heads, dim], log_sum_exp [tokens, heads].
"""

import argparse
import ast
import json
import math
import pathlib
import random
import typing

import torch
from einops import rearrange, repeat

UNIT = 64


def functions_of(path, *names):
    """Functions of a file whose imports need a GPU."""
    tree = ast.parse(path.read_text())
    scope = {"torch": torch, "math": math, "rearrange": rearrange, "repeat": repeat,
             "Optional": typing.Optional}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in names:
            exec(compile(ast.Module([node], []), str(path), "exec"), scope)
    return [scope[name] for name in names]


def rounded(tensor):
    return [float(f"{x:.9g}") for x in tensor.flatten().tolist()]


class Case:
    def __init__(self, name, queries, keys, heads=4, kv_heads=2, head_dim=4, value_dim=4, **options):
        generator = random.Random(name)

        def tensor(tokens, heads, width):
            return [generator.randint(-255, 255) for _ in range(tokens * heads * width)]

        self.fields = {
            "name": name,
            "heads": heads,
            "kv_heads": kv_heads,
            "head_dim": head_dim,
            "value_dim": value_dim,
            "query_lengths": [queries],
            "key_lengths": [keys],
            "scale": 1 / math.sqrt(head_dim),
            "causal": False,
            "query": tensor(queries, heads, head_dim),
            "key": tensor(keys, kv_heads, head_dim),
            "value": tensor(keys, kv_heads, value_dim),
            **options,
        }

    def tensor(self, name, heads, width, dtype):
        flat = torch.tensor(self.fields[name], dtype=dtype) / UNIT
        return flat.view(1, -1, self.fields[heads], self.fields[width])

    def inputs(self, dtype=torch.float32):
        """[1, tokens, heads, dim] of query, key and value."""
        return (self.tensor("query", "heads", "head_dim", dtype),
                self.tensor("key", "kv_heads", "head_dim", dtype),
                self.tensor("value", "kv_heads", "value_dim", dtype))

    def answer(self, output, log_sum_exp=None):
        self.fields["output"] = rounded(output)
        if log_sum_exp is not None:
            self.fields["log_sum_exp"] = rounded(log_sum_exp)
        return self.fields


def torch_cases():
    for name, causal in ("torch enable_gqa", False), ("torch enable_gqa, is_causal", True):
        case = Case(name, 7, 7, causal=causal)
        heads_first = [x.transpose(1, 2) for x in case.inputs(torch.float64)]
        output = torch.nn.functional.scaled_dot_product_attention(
            *heads_first, is_causal=causal, enable_gqa=True)
        yield case.answer(output.transpose(1, 2))

    # Its logsumexp is [batch, heads, queries], natural.
    case = Case("torch flash on CPUs", 6, 9, heads=3, kv_heads=3)
    heads_first = [x.transpose(1, 2) for x in case.inputs()]
    output, log_sum_exp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*heads_first)[:2]
    yield case.answer(output.transpose(1, 2), log_sum_exp.transpose(1, 2))


def flash_attention_cases(checkout):
    _, attention_ref = functions_of(
        checkout / "flash_attn/utils/testing.py", "construct_local_mask", "attention_ref")
    (alibi,) = functions_of(checkout / "tests/test_flash_attn.py", "attn_bias_from_alibi_slopes")

    cases = [
        Case("FlashAttention causal", 5, 9, causal=True),
        Case("FlashAttention causal, more queries than keys", 9, 4, causal=True),
        Case("FlashAttention window 3, 1", 7, 11, window=[3, 1]),
        Case("FlashAttention window 2, 0 and more queries than keys", 9, 5, window=[2, 0]),
        Case("FlashAttention softcap", 6, 8, softcap=1.5, causal=True),
        Case("FlashAttention ALiBi", 6, 8, alibi_slopes=[0.5, 0.25, 0.125, 0.0625]),
        Case("FlashAttention ALiBi, causal", 6, 8, alibi_slopes=[0.5, 0.25, 0.125, 0.0625],
             causal=True),
        Case("FlashAttention sinks beside a window", 8, 12, window=[2, 0], always_visible=2),
        Case("FlashAttention sinks right of a window", 8, 8, window=[1, 1], always_visible=4),
        Case("FlashAttention everything", 7, 10, heads=6, kv_heads=3, value_dim=5, window=[4, 0],
             softcap=2.0, alibi_slopes=[0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625]),
    ]
    for case in cases:
        fields = case.fields
        queries, keys = fields["query_lengths"][0], fields["key_lengths"][0]
        bias = None
        if "alibi_slopes" in fields:
            bias = alibi(torch.tensor([fields["alibi_slopes"]]), queries, keys)
        output, _ = attention_ref(
            *case.inputs(), attn_bias=bias, causal=fields["causal"],
            window_size=tuple(fields.get("window", (None, None))),
            sink_token_length=fields.get("always_visible", 0), softcap=fields.get("softcap", 0.0))
        yield case.answer(output)


def flashinfer_cases(checkout):
    (attention_ref,) = functions_of(
        checkout / "tests/attention/test_deepseek_mla.py", "attention_ref")
    for name, causal in ("FlashInfer", False), ("FlashInfer causal", True):
        case = Case(name, 5, 9, kv_heads=4, causal=causal)
        output, base_2 = attention_ref(
            1, *(x[0] for x in case.inputs()), causal, case.fields["scale"])
        yield case.answer(output, base_2[0] * math.log(2))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--flash-attention", type=pathlib.Path, required=True)
    parser.add_argument("--flashinfer", type=pathlib.Path, required=True)
    options = parser.parse_args()
    cases = [*torch_cases(), *flash_attention_cases(options.flash_attention),
             *flashinfer_cases(options.flashinfer)]
    print("[")
    print(",\n".join(json.dumps(case, separators=(",", ":")) for case in cases))
    print("]")


if __name__ == "__main__":
    main()
