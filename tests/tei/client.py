#!/usr/bin/env python3
"""A Python client of tei.v1 as users make it, from the .proto alone, against the libraries that
text-embeddings-inference stands on.

    python3 -m venv venv && venv/bin/pip install grpcio-tools sentence-transformers
    venv/bin/python tests/tei/client.py --server build/server/castor-server

Exits 1 when something differs. Needs .deps/minilm. Not part of ctest: the libraries come from the
network.
"""

import argparse
import os
import random
import sys
import tempfile

import grpc
import numpy
from grpc_tools import protoc
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
from transformers import AutoModelForSequenceClassification, AutoTokenizer

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from castor_server import CastorServer  # noqa: E402

HEADS = os.path.join(ROOT, "tests", "golden", "encoder", "heads")
MODELS = {"minilm": os.path.join(ROOT, ".deps", "minilm"),
          **{name: os.path.join(HEADS, name)
             for name in ("bert_sequences", "cross_encoder", "splade_bert")}}
WORDS = ["mill", "river", "Der Müller", "fließt", "niño", "答え", "🦫", "a,b;c", "dam", "\t", "[SEP]"]
TOLERANCE = 2e-5


def generate(folder: str):
    """Compiles the .proto as users do."""
    source = os.path.join(ROOT, "proto")
    assert protoc.main(["", f"-I{source}", f"--python_out={folder}", f"--grpc_python_out={folder}",
                        os.path.join(source, "tei", "v1", "tei.proto")]) == 0
    sys.path.insert(0, folder)
    from tei.v1 import tei_pb2, tei_pb2_grpc
    return tei_pb2, tei_pb2_grpc


def texts(count: int, words: int) -> list[str]:
    made = (" ".join(random.choices(WORDS, k=random.randint(1, words))) for _ in range(count))
    return [text for text in made if text.strip()]


def differ(ours, theirs) -> float:
    return float(numpy.max(numpy.abs(numpy.asarray(ours) - numpy.asarray(theirs))))


def embed(pb, rpc, channel) -> float:
    """Embed, its stream and EmbedAll are sentence-transformers'."""
    model, stub = SentenceTransformer(MODELS["minilm"], device="cpu"), rpc.EmbedStub(channel)
    inputs = texts(100, 30)
    answers = list(stub.EmbedStream(pb.EmbedRequest(inputs=t, truncate=True) for t in inputs))
    worst = differ([a.embeddings for a in answers], model.encode(inputs, normalize_embeddings=True))
    for text in inputs[:10]:
        answer = stub.EmbedAll(pb.EmbedAllRequest(inputs=text, truncate=True))
        rows = model.encode(text, output_value="token_embeddings").numpy()
        worst = max(worst, differ([row.embeddings for row in answer.token_embeddings], rows))
    return worst


def sparse(pb, rpc, channel) -> float:
    """EmbedSparse is sentence-transformers'."""
    model, stub = SparseEncoder(MODELS["splade_bert"], device="cpu"), rpc.EmbedStub(channel)
    worst = 0.0
    for text in texts(10, 10):
        answer = stub.EmbedSparse(pb.EmbedSparseRequest(inputs=text, truncate=True),
                                  metadata=[("castor-model", "splade_bert")])
        theirs = model.encode(text).to_dense().numpy()
        row = numpy.zeros_like(theirs)
        for value in answer.sparse_embeddings:
            row[value.index] = value.value
        worst = max(worst, differ(row, theirs))
    return worst


def predict(pb, rpc, channel) -> float:
    """Predict is transformers' softmax, in descending order."""
    path = MODELS["bert_sequences"]
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(path), \
        AutoTokenizer.from_pretrained(path)
    stub, worst = rpc.PredictStub(channel), 0.0
    for text in texts(20, 6):
        answer = stub.Predict(pb.PredictRequest(inputs=text, truncate=True),
                              metadata=[("castor-model", "bert_sequences")]).predictions
        logits = model.eval()(**tokenizer(text, truncation=True, max_length=32,
                                          return_tensors="pt")).logits
        scores = logits.softmax(-1)[0].tolist()
        order = sorted(range(len(scores)), key=lambda i: -scores[i])
        assert [p.label for p in answer] == [model.config.id2label[i] for i in order]
        worst = max(worst, differ([p.score for p in answer], [scores[i] for i in order]))
    return worst


def rerank(pb, rpc, channel) -> float:
    """Rerank and its stream are sentence-transformers' scores."""
    model, stub = CrossEncoder(MODELS["cross_encoder"], device="cpu"), rpc.RerankStub(channel)
    documents, metadata, worst = texts(50, 8), [("castor-model", "cross_encoder")], 0.0
    for query in texts(5, 4):
        scores = model.predict([(query, d) for d in documents])  # sigmoids
        for answer in (
                stub.Rerank(pb.RerankRequest(query=query, texts=documents, truncate=True),
                            metadata=metadata),
                stub.RerankStream((pb.RerankStreamRequest(query=query, text=d, truncate=True)
                                   for d in documents), metadata=metadata)):
            assert sorted(r.index for r in answer.ranks) == list(range(len(documents)))
            assert all(a.score >= b.score for a, b in zip(answer.ranks, answer.ranks[1:]))
            worst = max(worst, differ([r.score for r in answer.ranks],
                                      [scores[r.index] for r in answer.ranks]))
    return worst


def tokenize(pb, rpc, channel) -> float:
    """Tokenize and Decode are the tokenizer's; offsets are in bytes."""
    tokenizer, stub = AutoTokenizer.from_pretrained(MODELS["minilm"]), rpc.TokenizeStub(channel)
    inputs = texts(100, 30)
    requests = (pb.EncodeRequest(inputs=t, add_special_tokens=True) for t in inputs)
    for text, answer in zip(inputs, stub.TokenizeStream(requests)):
        theirs = tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True)
        assert [t.id for t in answer.tokens] == theirs["input_ids"], text
        for token, (start, stop) in zip(answer.tokens, theirs["offset_mapping"]):
            if token.special:
                assert not token.HasField("start")
                continue
            assert token.text == text[start:stop], text
            assert token.start == len(text[:start].encode()), text
            assert token.stop == len(text[:stop].encode()), text
        for skip in (False, True):
            decoded = stub.Decode(pb.DecodeRequest(ids=theirs["input_ids"],
                                                   skip_special_tokens=skip)).text
            # The crate's own; transformers cleans up spaces behind it.
            assert decoded == tokenizer._tokenizer.decode(theirs["input_ids"],
                                                          skip_special_tokens=skip), text
    return 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    arguments = parser.parse_args()
    random.seed(1)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        pb, rpc = generate(folder)
        models = [f"--model={name}={path}" for name, path in MODELS.items()]
        with (CastorServer(arguments.server, "--tei-model", "minilm", *models) as server,
              grpc.insecure_channel(server.address) as channel):
            for row in (embed, sparse, predict, rerank, tokenize):
                try:
                    worst = row(pb, rpc, channel)
                    good = worst <= TOLERANCE
                    print(f"{'ok ' if good else 'BAD'} {row.__doc__} at most {worst:.1e} apart")
                except (AssertionError, grpc.RpcError) as error:
                    good = False
                    print(f"BAD {row.__doc__} {type(error).__name__}: {error}")
                failed += not good
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
