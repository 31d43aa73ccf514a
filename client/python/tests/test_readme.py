"""README.md does as it says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from conftest import GOLDEN, MINILM, ROOT, Server

README = Path(__file__).parents[1] / "README.md"


def test_the_tour_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cross, splade = GOLDEN / "heads/cross_encoder", GOLDEN / "heads/splade_bert"
    one = Server(f"--model=minilm={MINILM}", "--shared-memory")
    two = Server(f"--model=cross={cross}", f"--model=splade={splade}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text((ROOT / "README.md").read_text())
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    assert len(blocks) > 6
    names: dict = {}
    for block in blocks:
        if "matplotlib" in block:
            if not importlib.util.find_spec("matplotlib"):
                continue
            monkeypatch.setenv("MPLBACKEND", "agg")
        block = block.replace("127.0.0.1:50051", one.target).replace("127.0.0.1:50052", two.target)
        exec(compile(block, "README.md", "exec"), names)
    assert names["rows"].shape == (3, 384) and names["sparse"].indptr.shape == (2,)
    assert (
        abs(names["whole"] - names["client"].attend(*(names[n] for n in "qkv")).output).max() < 1e-5
    )
    one.stop()
    two.stop()
