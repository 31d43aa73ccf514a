"""README.md does as it says, over plaintext and with TLS and a token."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from authority import Authority, caller_entry, callers_file
from conftest import GOLDEN, MINILM, PROGRAM, ROOT, Server

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("secured", [False, True], ids=["plaintext", "tls-and-token"])
def test_the_tour_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secured: bool) -> None:
    cross, splade = GOLDEN / "heads/cross_encoder", GOLDEN / "heads/splade_bert"
    monkeypatch.chdir(tmp_path)
    flags, options = [], ""
    if secured:
        authority = Authority(str(tmp_path))
        certificate, key = authority.issue("server")
        Path("callers.toml").write_text(callers_file(caller_entry("search", "right")))
        Path("search.token").write_text("right\n")
        flags = ["--tls-certificate", certificate, "--tls-key", key]
        flags += ["--auth-tokens", "callers.toml"]
        options = f', tls=castor.TLS(ca_file="{authority.path}"), token_file="search.token"'
    one = Server(f"--model=minilm={MINILM}", "--shared-memory", *flags)
    two = Server(f"--model=cross={cross}", f"--model=splade={splade}", *flags)
    monkeypatch.setenv("CASTOR_SERVER_PROGRAM", PROGRAM)
    Path("models").mkdir()
    Path("models/minilm").symlink_to(MINILM)
    Path("text.txt").write_text((ROOT / "README.md").read_text())
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    assert len(blocks) > 6
    names: dict = {}
    for block in blocks:
        if "matplotlib" in block:
            if not importlib.util.find_spec("matplotlib"):
                continue
            monkeypatch.setenv("MPLBACKEND", "agg")
        for port, server in (("50051", one), ("50052", two)):
            block = block.replace(f'"127.0.0.1:{port}"', f'"{server.target}"{options}')
        exec(compile(block, "README.md", "exec"), names)
    assert names["rows"].shape == (3, 384) and names["sparse"].indptr.shape == (2,)
    assert (
        abs(names["whole"] - names["client"].attend(*(names[n] for n in "qkv")).output).max() < 1e-5
    )
    one.stop()
    two.stop()
