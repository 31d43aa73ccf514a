#!/usr/bin/env python3
"""Serves the model of train.py with castor-server, classifies the held-out documents over gRPC, as
texts and as token ids, and compares every answer with what train.py computed.

    serve.py BUILD MODEL [--dtype float32]

BUILD is Castor's build folder, MODEL train.py's OUT. Ends with an error if texts and ids differ, or
if in float32 accuracy is not that of training. Needs grpcio and protobuf.
"""

import argparse
import concurrent.futures
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "client/python/src"))
from castor.v1 import encoder_pb2 as encoder, model_pb2 as model

PER_REQUEST = 16
CLIENTS = 4


class Server:
    def __init__(self, build, model, dtype, log):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.process = subprocess.Popen(
            [build / "server/castor-server", "--listen", self.address, "--metrics-listen", "off",
             "--device", "cpu", "--cost-model-budget", "0s", "--model", f"kinds={model}",
             "--model-dtype", dtype], stdout=subprocess.DEVNULL, stderr=log.open("w"))
        self.channel = grpc.insecure_channel(self.address)
        try:
            grpc.channel_ready_future(self.channel).result(timeout=60)
        except grpc.FutureTimeoutError:
            self.process.kill()
            raise SystemExit(f"castor-server does not start:\n{log.read_text()}")

    def call(self, method, request, answer):
        return self.channel.unary_unary(f"/castor.v1.{method}", lambda message: message.SerializeToString(),
                                        answer.FromString)(request)

    def stop(self):
        self.channel.close()
        self.process.terminate()
        self.process.wait(timeout=60)


def classify(server, messages, documents, as_text):
    """(logits of each document, labels of each, seconds)."""
    def ask(first):
        request = messages.EncodeRequest(output=messages.LOGITS)
        for document in documents[first:first + PER_REQUEST]:
            if as_text:
                request.texts.texts.append(document["text"])
            else:
                ids = document["text"].encode()
                request.tokens.ids.extend(ids)
                request.tokens.lengths.append(len(ids))
        answer = server.call("EncoderService/Encode", request, messages.EncodeResponse)
        assert answer.kernel.WhichOneof("parameters") == "cast", answer.kernel
        numbers = memoryview(answer.output.raw).cast("f").tolist()
        labels = list(answer.labels)
        width = len(labels)
        return [numbers[i:i + width] for i in range(0, len(numbers), width)], labels

    begun = time.time()
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        answers = list(pool.map(ask, range(0, len(documents), PER_REQUEST)))
    seconds = time.time() - begun
    return [row for rows, _ in answers for row in rows], answers[0][1], seconds


def best(row):
    return max(range(len(row)), key=row.__getitem__)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--dtype", default="float32")
    args = parser.parse_args()
    documents = json.loads((args.model / "heldout.json").read_text())
    trained = json.loads((args.model / "report.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        server = Server(args.build.resolve(), args.model.resolve(), args.dtype,
                        pathlib.Path(folder) / "server.log")
        try:
            about = server.call("ModelService/GetModel", model.GetModelRequest(name="kinds"),
                                model.Model)
            print(f"{about.family}, {about.parameters:,} parameters, {args.dtype}, labels "
                  f"{', '.join(about.labels)}")
            classify(server, encoder, documents, as_text=True)  # the first run warms up
            by_text, labels, seconds = classify(server, encoder, documents, as_text=True)
            by_ids, _, _ = classify(server, encoder, documents, as_text=False)
        finally:
            server.stop()
    assert labels == list(about.labels)
    right = sum(best(row) == document["label"] for row, document in zip(by_text, documents))
    other = sum(best(row) != best(document["logits"]) for row, document in zip(by_text, documents))
    differences = sorted(max(abs(a - b) for a, b in zip(row, document["logits"]))
                         for row, document in zip(by_text, documents))
    tokens = sum(len(document["text"]) for document in documents)
    print(f"accuracy {right}/{len(documents)} = {right / len(documents):.4f}; in training "
          f"{trained['right']}/{trained['held_out']}")
    print(f"labels that differ {other}; greatest difference of logits {differences[-1]:.2e}, median "
          f"{differences[len(differences) // 2]:.2e}, above 1e-3 in "
          f"{sum(d > 1e-3 for d in differences)} documents")
    print(f"{tokens / seconds:,.0f} tokens/s, {len(documents) / seconds:.1f} documents/s, {CLIENTS} "
          f"clients with {PER_REQUEST} texts a request")
    if by_text != by_ids:
        raise SystemExit("texts and token ids are answered differently")
    if args.dtype == "float32" and right != trained["right"]:
        raise SystemExit("accuracy is not that of training")


if __name__ == "__main__":
    main()
