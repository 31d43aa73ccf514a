#!/usr/bin/env python3
"""Rerank against sentence-transformers' CrossEncoder and PyLate on the same model directories.

  rank_peers.py peer cross|late DIRECTORY > expected.json    in the library's environment
  rank_peers.py check SERVER MODEL expected.json             with client/python on PYTHONPATH

The texts are random, of several scripts, some empty, equal or longer than the model allows.
"""

import json
import random
import sys


def problems(count=25):
    draw = random.Random(7)
    words = "a dam beaver builds rates rose Wasser über 水 плотина ? ! and of the river 12 x".split()

    def text(most):
        return " ".join(draw.choices(words, k=draw.randrange(most)))

    for _ in range(count):
        documents = [text(draw.choice((5, 30, 300))) for _ in range(draw.randrange(1, 40))]
        documents += documents[:2]
        yield text(12), documents


def cross(directory):
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(directory, device="cpu")
    for query, documents in problems():
        yield model.predict([(query, d) for d in documents]).tolist()


def late(directory):
    from pylate import models, scores

    model = models.ColBERT(directory, device="cpu")
    for query, documents in problems():
        queries = model.encode([query], is_query=True, convert_to_numpy=False)
        yield [
            scores.colbert_scores(
                queries[0][None], model.encode([d], is_query=False, convert_to_numpy=False)[0][None]
            ).item()
            for d in documents
        ]


def check(server, model, expected):
    import grpc
    from castor.v1 import encoder_pb2, encoder_pb2_grpc

    stub = encoder_pb2_grpc.EncoderServiceStub(grpc.insecure_channel(server))
    worst, rows, swapped = 0.0, 0, 0
    for (query, documents), scores in zip(problems(), json.load(open(expected))):
        answer = stub.Rerank(
            encoder_pb2.RerankRequest(model=model, query=query, documents=documents)
        )
        assert len(answer.results) == len(documents) == len(scores)
        keys = [(-row.logit, row.index) for row in answer.results]
        assert keys == sorted(keys)
        for row in answer.results:
            worst = max(worst, abs(row.score - scores[row.index]))
        best = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
        swapped += sum(row.index != i for row, i in zip(answer.results, best))
        rows += len(scores)
    print(f"{model}: {rows} documents, scores differ by at most {worst:.2g}, {swapped} in other places")


if sys.argv[1] == "peer":
    json.dump(list({"cross": cross, "late": late}[sys.argv[2]](sys.argv[3])), sys.stdout)
else:
    check(*sys.argv[2:])
