#!/usr/bin/env python3
"""Computes what a few texts must give, starts a server, and calls it: see run.sh.

    run.py --server build/server/castor-server --python NEW --python OLD --sdk 'NAME=COMMAND' ...

A --python has the packages of clients.py. An --sdk is a program that gets a URL and texts in JSON
and prints {"default", "float", "base64": vectors, "models": names, "error": [status, code]}.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from functools import partial

import numpy as np
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from harness import equal, row, same

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from castor_server import CastorServer  # noqa: E402

MINILM = os.path.join(ROOT, ".deps", "minilm")
HEADS = os.path.join(ROOT, "tests", "golden", "encoder", "heads")  # tiny and random
MODELS = {"minilm": MINILM, "minilm-embed": MINILM, "rerank": f"{HEADS}/cross_encoder",
          "jina-reranker-v2-base-multilingual": f"{HEADS}/cross_encoder",
          "classify": f"{HEADS}/bert_sequences", "splade": f"{HEADS}/splade_bert"}
TEXTS = ["a beaver builds a dam", "Der Müller fließt 🦫 答え", "", "interest rates rose",
         '"quotes"\n\\', "long " * 400]
QUERY = "who builds a dam?"
DOCUMENTS = ["a beaver builds it", "interest rates", "the dam", "a mill at the river", "wood"]


def compute() -> dict:
    """By the models' own libraries."""
    model = SentenceTransformer(MINILM, device="cpu")
    unnormalized = SentenceTransformer(modules=list(model)[:2], device="cpu")
    logits = CrossEncoder(MODELS["rerank"], device="cpu").predict(
        [(QUERY, document) for document in DOCUMENTS], activation_fn=torch.nn.Identity())
    classifier = AutoModelForSequenceClassification.from_pretrained(MODELS["classify"]).eval()
    tokenizer = AutoTokenizer.from_pretrained(MODELS["classify"])
    with torch.no_grad():
        classes = [classifier(**tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0].tolist()
                   for text in DOCUMENTS]
    sparse = SparseEncoder(MODELS["splade"], device="cpu").encode(DOCUMENTS).to_dense().numpy()
    ids = [model.tokenizer(text, truncation=True, max_length=256)["input_ids"] for text in TEXTS]
    return {
        "texts": TEXTS, "ids": ids, "tokens": sum(map(len, ids)),
        "vectors": model.encode(TEXTS).tolist(),
        "short_vectors": model.encode(TEXTS, truncate_dim=64, normalize_embeddings=True).tolist(),
        "raw_vectors": unnormalized.encode(TEXTS).tolist(),
        "token_rows": model.encode(TEXTS[0], output_value="token_embeddings").tolist(),
        "query": QUERY, "documents": DOCUMENTS, "logits": logits.tolist(),
        "scores": (1 / (1 + np.exp(-logits.astype("d")))).tolist(),
        "labels": list(classifier.config.id2label.values()), "classes": classes,
        "sparse": [[[int(i), float(values[i])] for i in values.nonzero()[0]] for values in sparse],
    }


class HttpServer(CastorServer):
    def __init__(self, program, models, *arguments):
        models = [f"--model={name}={path}" for name, path in models.items()]
        super().__init__(program, "--http-listen", "127.0.0.1:0", *models, *arguments)

    def on_line(self, line):
        if found := re.search(r"listening .*http=(\S+)", line):
            self.url = "http://" + found[1]


def sdk_rows(name, command, url, expected):
    """Calls by a program in another language."""
    ran = subprocess.run([*shlex.split(command), url + "/v1", json.dumps(TEXTS)],
                         capture_output=True, text=True)
    good = row(name, "ends well", lambda: equal((ran.returncode, ran.stderr), (0, "")))
    yield good
    answers = json.loads(ran.stdout) if good else {}
    for form in sorted({"default", "float", "base64"} & set(answers)):
        yield row(name, form, partial(same, answers[form], expected["vectors"]))
    if good:
        yield row(name, "models", lambda: equal(set(MODELS) - set(answers["models"]), set()))
        yield row(name, "unknown model", lambda: equal(answers["error"], [404, "MODEL_NOT_FOUND"]))


def call(arguments, url, expected, file):
    """Yields whether each row is as it must be."""
    # Hugging Face's client, told to be offline, would refuse loopback, too.
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    environment |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONWARNINGS": "ignore"}
    parts = [(python, "clients.py") for python in arguments.python]
    for python, part in parts + [(sys.executable, "programs.py"), (sys.executable, "surface.py")]:
        with subprocess.Popen([python, "-B", os.path.join(HERE, part), url, file], env=environment,
                              stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                print(line, end="", flush=True)
                if line.startswith(("ok ", "FAILED ")):
                    yield line.startswith("ok ")
        if process.returncode not in (0, 1):
            yield row(part, "ends well", lambda: equal(process.returncode, 0))
    for sdk in arguments.sdk:
        yield from sdk_rows(*sdk.split("=", 1), url, expected)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("--sdk", action="append", default=[])
    arguments = parser.parse_args()
    expected = compute()
    with tempfile.TemporaryDirectory() as folder:
        token, callers = os.path.join(folder, "token"), os.path.join(folder, "callers.toml")
        subprocess.run([arguments.server, "token", "tester", "--token-file", token,
                        "--add-to", callers], check=True)
        with (HttpServer(arguments.server, MODELS, "--tei-model", "minilm",
                         "--http-allow-origin", "*") as server,
              HttpServer(arguments.server, {"minilm": MINILM}, "--auth-tokens", callers,
                         "--max-message-bytes", "64KiB", "--max-queued-requests", "1") as guarded,
              open(token) as secret, open(os.path.join(folder, "expected.json"), "w") as file):
            expected |= {"guarded": guarded.url, "token": secret.read().strip()}
            json.dump(expected, file)
            file.flush()
            good = list(call(arguments, server.url, expected, file.name))
    print(f"{sum(good)} passed, {len(good) - sum(good)} failed")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
