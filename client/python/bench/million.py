#!/usr/bin/env python3
"""A million short texts through encode_stream: the memory of this process, and the order.

million.py TARGET [TEXTS]
"""

import os
import sys
import time

import numpy as np

import castor


def resident() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


target, texts = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
client = castor.Client(target)
distinct = [f"item {n}" for n in range(1009)]  # a prime: no request is like the one before
want = client.encode(distinct)
assert len(np.unique(want, axis=0)) == len(want)
begin, seen, worst = time.perf_counter(), [], 0.0
stream = client.encode_stream(distinct[n % 1009] for n in range(texts))
for n, row in enumerate(stream):
    if n % 101 == 0:
        worst = max(worst, float(abs(row - want[n % 1009]).max()))
    if n >= texts // 100 and n % 5000 == 0:
        seen.append(resident())
took = time.perf_counter() - begin
assert n + 1 == texts and worst < 2e-5, (n, worst)
print(f"{texts:,} texts in {took:.0f} s, {texts / took:,.0f} a second; order kept, {worst:.1e}")
print(f"resident after the first 1 %: {seen[0]:.1f} MiB, {min(seen):.1f} to {max(seen):.1f} MiB")
wrong = (7 if n == 123_456 else distinct[0] for n in range(200_000))
try:
    for _ in client.encode_stream(wrong):  # type: ignore[arg-type]
        pass
except TypeError as error:
    print("a text that is none:", error)
