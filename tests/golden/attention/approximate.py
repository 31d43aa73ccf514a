#!/usr/bin/env python3
"""Writes approximate.json: clustered, improved clustered and CAST attention on small inputs, from
their definitions, in double precision with the standard library alone.

Usage: approximate.py > approximate.json

Inputs are integers in units of 1/64, as in vanilla.py. All lengths are those of self-attention.
"""

import json
import math
import random

UNIT = 64
MASK = 0xFFFFFFFF


# ---- what all have in common ---------------------------------------------------------------------


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def softmax(scores):
    largest = max(scores)
    weights = [math.exp(s - largest) for s in scores]
    total = math.fsum(weights)
    return [w / total for w in weights]


def mix(weights, rows):
    return [math.fsum(w * row[e] for w, row in zip(weights, rows)) for e in range(len(rows[0]))]


def philox(c0, c1, c2, stream, seed):
    x = [c0, c1, c2, stream]
    k0, k1 = seed & MASK, seed >> 32
    for _ in range(10):
        a, b = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(b >> 32) ^ x[1] ^ k0, b & MASK, (a >> 32) ^ x[3] ^ k1, a & MASK]
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return x


def normal(c0, c1, stream, seed):
    x = philox(c0, c1, 0, stream, seed)
    return math.sqrt(-2 * math.log((x[0] + 1) / 2**32)) * math.cos(2 * math.pi * x[1] / 2**32)


# ---- clustered and improved clustered ------------------------------------------------------------


def nearest(code, centroids):
    return min(range(len(centroids)), key=lambda c: (bin(code ^ centroids[c]).count("1"), c))


def majority(codes, bits):
    code = 0
    for t in range(bits):
        if 2 * sum(c >> t & 1 for c in codes) > len(codes):
            code |= 1 << t
    return code


def cluster(codes, p):
    n = len(codes)
    count = min(p["clusters"], n)
    centroids = []
    for s in range(count):
        lo, hi = s * n // count, (s + 1) * n // count
        centroids.append(codes[lo + (philox(s, 0, 0, 3, p["seed"])[0] * (hi - lo) >> 32)])
    labels = [nearest(c, centroids) for c in codes]
    for _ in range(p["iterations"]):
        for c in range(count):
            members = [code for code, label in zip(codes, labels) if label == c]
            if members:
                centroids[c] = majority(members, p["bits"])
        before, labels = labels, [nearest(c, centroids) for c in codes]
        if labels == before:
            break
    return labels


def clustered_head(q, k, v, p, scale):
    dim = len(q[0])
    planes = [[normal(e, t, 1, p["seed"]) for e in range(dim)] for t in range(p["bits"])]
    biases = [normal(0, t, 2, p["seed"]) if p["hash_bias"] else 0 for t in range(p["bits"])]
    codes, margin = [], math.inf
    for row in q:
        gaps = [dot(row, plane) - bias for plane, bias in zip(planes, biases)]
        margin = min(margin, min(abs(g) for g in gaps))
        codes.append(sum(1 << t for t, g in enumerate(gaps) if g > 0))
    assert margin > 1e-4, "a query lies on a hash plane: choose another case"
    labels = cluster(codes, p)
    output = [None] * len(q)
    for c in set(labels):
        members = [i for i, label in enumerate(labels) if label == c]
        centroid = mix([1 / len(members)] * len(members), [q[i] for i in members])
        products = [dot(centroid, row) for row in k]
        weights = softmax([scale * x for x in products])
        for i in members:
            row = list(weights)
            if "topk" in p:
                top = sorted(range(len(k)), key=lambda j: (-products[j], j))[: p["topk"]]
                mass = math.fsum(weights[j] for j in top)
                for j, share in zip(top, softmax([scale * dot(q[i], k[j]) for j in top])):
                    row[j] = mass * share
            output[i] = mix(row, v)
    return output, labels


# ---- CAST ----------------------------------------------------------------------------------------


def softplus1(x):
    return 1 + math.log1p(math.exp(x))


def laplace(x):
    mean, deviation = math.sqrt(0.5), math.sqrt(1 / (4 * math.pi))
    return 0.5 * (1 + math.erf((x - mean) / (deviation * math.sqrt(2))))


def cast(q, k, v, s, phi, p, scale):
    """q, k, v: [head][token][dim]; s: [head][cluster][dim]. Returns [head][token][dim]."""
    heads, n, count = range(len(q)), len(q[0]), len(s[0])
    f = softmax if p["attention_function"] == "SOFTMAX" else lambda x: [laplace(y) for y in x]
    stretch = softplus1 if p["gate_temperature"] == "SOFTPLUS1" else lambda x: 1
    size = min(n, p["cluster_size"] or -(-n // count))

    def similarity(rows):
        return [[[scale * dot(row, t) for t in s[h]] for row in rows[h]] for h in heads]

    a_q, a_k = similarity(q), similarity(k)

    def members_of(group):
        affinity = [[0.0] * count for _ in range(n)]
        for i in range(n):
            gate = 1 / (1 + math.exp(-phi[i]))
            for h in group:
                for c, (x, y) in enumerate(zip(f(a_q[h][i]), f(a_k[h][i]))):
                    affinity[i][c] += gate * x + (1 - gate) * y
        if p["clustering"] == "TOP_K":
            return [sorted(range(n), key=lambda i: (-affinity[i][c], i))[:size] for c in range(count)]
        members, taken = [[] for _ in range(count)], set()
        pairs = [(-affinity[i][c], i, c) for i in range(n) for c in range(count)]
        for _, i, c in sorted(pairs):
            if i not in taken and len(members[c]) < size:
                taken.add(i)
                members[c].append(i)
        return members

    shared = p["head_clustering"] == "SHARED"
    output = []
    for h in heads:
        members = members_of(heads if shared else [h])
        summaries = []
        for c in range(count):
            scores = [a_k[h][j][c] * stretch(-phi[j]) for j in members[c]]
            empty = [0.0] * len(v[h][0])
            summaries.append(mix(f(scores), [v[h][j] for j in members[c]]) if scores else empty)
        rows = []
        for i in range(n):
            seen = []
            for c in range(count):
                if i in members[c]:
                    scores = [scale * dot(q[h][i], k[h][j]) for j in members[c]]
                    seen.append(mix(f(scores), [v[h][j] for j in members[c]]))
                else:
                    seen.append(summaries[c])
            rows.append(mix(f([x * stretch(phi[i]) for x in a_q[h][i]]), seen))
        output.append(rows)
    return output


# ---- cases ---------------------------------------------------------------------------------------


def make(name, kernel, parameters, heads, dim, value_dim, lengths, surrogates=0):
    generator = random.Random(name)
    tokens = sum(lengths)

    def tensor(count, width):
        return [generator.randint(-255, 255) for _ in range(count * heads * width)]

    case = {
        "name": name,
        "kernel": kernel,
        "parameters": parameters,
        "heads": heads,
        "head_dim": dim,
        "value_dim": value_dim,
        "lengths": lengths,
        "query": tensor(tokens, dim),
        "key": tensor(tokens, dim),
        "value": tensor(tokens, value_dim),
    }
    if kernel == "cast":
        case["surrogates"] = tensor(surrogates, dim)
        case["gate"] = [generator.randint(-255, 255) for _ in range(tokens)]

    def split(name, width, begin, end):
        """[head][token][width] of the tokens from begin to end."""
        at = lambda i, h: (i * heads + h) * width
        rows = lambda h: [case[name][at(i, h) : at(i, h) + width] for i in range(begin, end)]
        return [[[x / UNIT for x in row] for row in rows(h)] for h in range(heads)]

    scale = 1 / math.sqrt(dim)
    output, labels, begin = [], [], 0
    for length in lengths:
        end = begin + length
        q, k = split("query", dim, begin, end), split("key", dim, begin, end)
        v = split("value", value_dim, begin, end)
        if kernel == "cast":
            s = split("surrogates", dim, 0, surrogates)
            phi = [x / UNIT for x in case["gate"][begin:end]]
            rows = cast(q, k, v, s, phi, parameters, scale)
        else:
            done = [clustered_head(q[h], k[h], v[h], parameters, scale) for h in range(heads)]
            rows = [head[0] for head in done]
            labels += [done[h][1][i] for i in range(length) for h in range(heads)]
        output += [x for i in range(length) for h in range(heads) for x in rows[h][i]]
        begin = end
    if labels:
        case["labels"] = labels
    case["output"] = output
    return case


def clustering(clusters, iterations=10, bits=63, hash_bias=True, seed=0, **more):
    return dict(
        clusters=clusters, iterations=iterations, bits=bits, hash_bias=hash_bias, seed=seed, **more
    )


def casting(size=0, how="TOP_K", f="SOFTMAX", temperature="SOFTPLUS1", heads="SHARED"):
    return dict(
        cluster_size=size,
        clustering=how,
        attention_function=f,
        gate_temperature=temperature,
        head_clustering=heads,
    )


SINGLE = "SINGLE_ASSIGNMENT_TOP_K"

CASES = [
    make("clustered", "clustered", clustering(3), 2, 4, 4, [12, 5]),
    make("clustered few bits", "clustered", clustering(4, bits=8, seed=2**40 + 7), 1, 4, 4, [14]),
    make("clustered no bias", "clustered", clustering(3, 2, 64, False, 5), 1, 6, 3, [9]),
    make("improved", "improved_clustered", clustering(3, topk=4), 2, 4, 4, [12, 3]),
    make("improved one key", "improved_clustered", clustering(2, seed=9, topk=1), 1, 4, 4, [8]),
    make("cast", "cast", casting(), 2, 4, 4, [10, 3], 3),
    make("cast small clusters", "cast", casting(2), 1, 4, 6, [9], 3),
    make("cast single", "cast", casting(4, SINGLE), 2, 4, 4, [10], 3),
    make("cast laplace", "cast", casting(f="LAPLACE"), 2, 4, 4, [8], 2),
    make("cast no temperature", "cast", casting(temperature="NONE"), 1, 4, 4, [8], 3),
    make("cast per head", "cast", casting(3, heads="PER_HEAD"), 2, 4, 4, [8], 3),
]

if __name__ == "__main__":
    print("[")
    print(",\n".join(json.dumps(case, separators=(",", ":")) for case in CASES))
    print("]")
