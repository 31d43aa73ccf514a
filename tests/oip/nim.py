#!/usr/bin/env python3
"""A program for NVIDIA NIM's embedding and reranking services over tritonclient: what is Castor's
is the address alone.

    nim.py --server build/server/castor-server
"""

import argparse

import numpy as np
import tritonclient.grpc as triton

import server


class Retriever:
    """As NIM's documentation has it: models by their names in lower case with underscores."""

    def __init__(self, url: str):
        self.client = triton.InferenceServerClient(url)

    def embed(self, texts: list, input_type: str, **parameters) -> tuple:
        text = triton.InferInput("text", [len(texts), 1], "BYTES")
        text.set_data_from_numpy(np.array([[t] for t in texts], dtype=np.object_))
        answer = self.client.infer(
            "embed", [text],
            outputs=[triton.InferRequestedOutput(n) for n in ("token_count", "embeddings")],
            parameters={"input_type": input_type, "truncate": "END", **parameters})
        return answer.as_numpy("embeddings"), answer.as_numpy("token_count")

    def rank(self, query: str, passages: list, truncate_as_input: bool = False) -> tuple:
        inputs = []
        tensors = {"query": [query], "passage": passages}
        if truncate_as_input:
            tensors["truncate"] = ["END"]
        for name, values in tensors.items():
            inputs.append(triton.InferInput(name, [len(values), 1], "BYTES"))
            inputs[-1].set_data_from_numpy(np.array([[v] for v in values], dtype=np.object_))
        answer = self.client.infer(
            "rerank_qa", inputs,
            outputs=[triton.InferRequestedOutput(n) for n in ("index", "logit", "token_count")],
            parameters={} if truncate_as_input else {"truncate": "END"})
        return (answer.as_numpy("index"), answer.as_numpy("logit"),
                answer.as_numpy("token_count"))


def embeds(retriever):
    """embeddings of queries and passages, with their counts of tokens"""
    for input_type in ("query", "passage"):
        rows, counts = retriever.embed(["a cat", "two dogs"], input_type)
        assert rows.dtype == np.float32 and rows.shape[0] == 2
        assert counts.dtype == np.int32 and counts.shape == (2,)


def shortens(retriever):
    """fewer dimensions"""
    assert retriever.embed(["a cat"], "query", dimensions=8)[0].shape == (1, 8)


def quantizes(retriever):
    """every embedding_type"""
    rows = retriever.embed(["a cat", "two dogs"], "passage", embedding_type="float")[0]
    for kind, dtype in (("binary", np.int8), ("ubinary", np.uint8)):
        bits = retriever.embed(["a cat", "two dogs"], "passage", embedding_type=kind)[0]
        assert bits.dtype == dtype and bits.shape == (2, rows.shape[1] // 8)
    assert (np.unpackbits(bits, axis=1) == (rows > 0)).all()
    for kind, dtype in (("int8", np.int8), ("uint8", np.uint8)):
        few = retriever.embed(["a cat", "two dogs"], "passage", embedding_type=kind)[0]
        assert few.dtype == dtype and few.shape == rows.shape


def ranks(retriever):
    """passages of a query, the best first; truncate as a parameter and as an input"""
    passages = ["a beaver builds it", "interest rates", "the dam", "interest rates"]
    for as_input in (False, True):
        index, logit, counts = retriever.rank("who builds a dam?", passages, as_input)
        assert index.shape == logit.shape == (4, 1) and counts.shape == (4,)
        assert sorted(index.flatten()) == [0, 1, 2, 3]
        assert (np.diff(logit.flatten()) <= 0).all()
        places = list(index.flatten())
        assert places.index(1) + 1 == places.index(3)  # the same text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    castor = server.Server(parser.parse_args().server)
    try:
        server.run([embeds, shortens, quantizes, ranks], Retriever(castor.url))
    finally:
        castor.stop()


if __name__ == "__main__":
    main()
