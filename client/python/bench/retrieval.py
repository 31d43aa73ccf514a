#!/usr/bin/env python3
"""Quality of retrieval through MTEB: sentence-transformers, and castor-server as it is configured.

    retrieval.py MODEL_DIRECTORY --server castor-server

The collection is Lee, Pincombe and Welsh's (2005), which the PyPI package gensim brings: 50 news
texts, each a query for the others, by how similar people found them. Needs mteb,
sentence-transformers, torch and gensim (without its own requirements).
"""

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any

import mteb
import numpy as np
from datasets import Dataset
from mteb.abstasks.retrieval import AbsTaskRetrieval

import castor
from castor.integrations.mteb import CastorEncoder

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests/support"))
from castor_server import CastorServer  # noqa: E402

RELEVANT = 0.5  # of 1: people found the texts at least so similar


class Lee(AbsTaskRetrieval):
    ignore_identical_ids = True  # a text is no answer to itself
    metadata = mteb.TaskMetadata(
        name="Lee",
        description="News texts by how similar people found them",
        dataset={"path": "gensim", "revision": "1"},
        type="Retrieval",
        category="t2t",
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
    )

    def load_data(self, *_: Any, **__: Any) -> None:
        found = importlib.util.find_spec("gensim")
        assert found and found.submodule_search_locations
        folder = Path(found.submodule_search_locations[0]) / "test/test_data"
        texts = (folder / "lee.cor").read_text("latin-1").splitlines()
        upper = np.loadtxt(folder / "similarities0-1.txt")  # the triangle
        similar = np.maximum(upper, upper.T) - np.eye(len(upper))
        names = [f"d{n}" for n in range(len(texts))]
        documents = {"id": names, "title": [""] * len(texts), "text": texts}
        relevant = {
            name: {n: round(10 * float(s)) for n, s in zip(names, row) if s >= RELEVANT}
            for name, row in zip(names, similar)
            if row.max() >= RELEVANT
        }
        queries = [(name, text) for name, text in zip(names, texts) if name in relevant]
        split = {
            "corpus": Dataset.from_dict(documents),
            "queries": Dataset.from_dict(dict(zip(("id", "text"), map(list, zip(*queries))))),
            "relevant_docs": relevant,
            "top_ranked": None,
        }
        self.dataset = {"default": {"test": split}}
        self.data_loaded = True


def score(model: Any) -> dict[str, float]:
    result = mteb.evaluate(model, [Lee()], cache=None, overwrite_strategy="always")
    scores = result.task_results[0].scores["test"][0]
    return {name: scores[name] for name in ("ndcg_at_10", "map_at_10", "recall_at_10")}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--server", default="build/server/castor-server")
    args = parser.parse_args()

    def row(name: str, scores: dict[str, float]) -> None:
        print(
            f"| {name} | " + " | ".join(f"{value:.4f}" for value in scores.values()) + " |",
            flush=True,
        )

    print("| | nDCG@10 | MAP@10 | recall@10 |\n|---|---|---|---|")
    from sentence_transformers import SentenceTransformer

    row("sentence-transformers, float32", score(SentenceTransformer(args.model, device="cpu")))
    kernels: dict[str, castor.Kernel | None] = {"": None}
    for clusters, topk in ((50, 32), (25, 32), (25, 8)):
        kernel = castor.ImprovedClustered(clusters=clusters, topk=topk)
        kernels[f", improved clustered, {clusters} clusters, {topk} keys"] = kernel
    for dtype in ("float32", "bfloat16", "int8"):
        flags = ["--model-dtype", dtype, "--model", f"model={args.model}"]
        with CastorServer(args.server, *flags, flags=()) as server:
            for name, kernel in kernels.items() if dtype == "float32" else [("", None)]:
                encoder = CastorEncoder(server.address, kernel=kernel)
                row(f"castor, {dtype}{name}", score(encoder))


if __name__ == "__main__":
    main()
