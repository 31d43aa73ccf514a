"""Servers for the tests. CASTOR_SERVER_PROGRAM names castor-server, by default the build's."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import castor

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests/golden/encoder"
MINILM = ROOT / ".deps/minilm"
PROGRAM = os.environ.get("CASTOR_SERVER_PROGRAM", str(ROOT / "build/server/castor-server"))
sys.path[:0] = [str(ROOT / "tests/hostile"), str(ROOT / "tests/support")]
from castor_server import CastorServer  # noqa: E402


class Server(CastorServer):
    """castor-server on a port of its own, or on the one given."""

    def __init__(self, *arguments: str, port: int = 0) -> None:
        super().__init__(PROGRAM, *arguments, port=port)
        self.target = self.address


@pytest.fixture(scope="session")
def prompted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MiniLM with prompts."""
    folder = tmp_path_factory.mktemp("prompted")
    for path in MINILM.iterdir():
        if path.name != "config_sentence_transformers.json":
            (folder / path.name).symlink_to(path)
    prompts = {"query": "query: ", "passage": "passage: ", "other": "Something else. "}
    config = {"prompts": prompts, "default_prompt_name": "other", "similarity_fn_name": "cosine"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="session")
def inference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of pairs, with the labels of natural language inference."""
    folder, source = tmp_path_factory.mktemp("inference"), GOLDEN / "heads/bert_sequences"
    for path in source.iterdir():
        if path.name != "config.json":
            (folder / path.name).symlink_to(path)
    config = json.loads((source / "config.json").read_text())
    config["id2label"] = {"0": "CONTRADICTION", "1": "neutral", "2": "entailment"}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="session")
def server(prompted: Path, inference: Path) -> Iterator[Server]:
    heads = GOLDEN / "heads"
    models = {
        "minilm": MINILM,
        "prompted": prompted,
        "cross": heads / "cross_encoder",
        "labels": heads / "bert_sequences",
        "splade": heads / "splade_bert",
        "yesno": GOLDEN / "rerankers/qwen3",
        "inference": inference,
        "tasks": GOLDEN / "adapters/jina_v3",
    }
    arguments = [f"--model={name}={path}" for name, path in models.items()]
    running = Server("--shared-memory", *arguments)
    yield running
    running.stop()


@pytest.fixture
def client(server: Server) -> Iterator[castor.Client]:
    with castor.Client(server.target) as made:
        yield made
