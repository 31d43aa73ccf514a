"""castor.serve(): a server of one's own comes up, answers, and ends with whoever started it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import GOLDEN, MINILM, PROGRAM

import castor

QUICK = ["--device", "cpu", "--cost-model-budget", "0s"]


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder for temporary files, empty again at the end."""
    folder = Path(tempfile.mkdtemp(prefix="t-"))  # pytest's own are too long for a socket
    monkeypatch.setenv("CASTOR_SERVER_PROGRAM", PROGRAM)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield folder
    left = list(folder.iterdir())
    for path in left:
        path.rmdir()
    folder.rmdir()
    assert left == []


def is_gone(pid: int, seconds: float = 20) -> bool:
    ends = time.monotonic() + seconds
    while True:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except OSError:
            return True
        if time.monotonic() > ends:
            return False
        time.sleep(0.05)


def fake(folder: Path, script: str) -> str:
    """A program in place of castor-server."""
    path = folder / "fake-server"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def run(script: str, **options: object) -> subprocess.Popen[str]:
    """A Python program that uses castor, in a process of its own."""
    start = "import castor, os, signal, sys, time\n"
    start += f"QUICK, MINILM = {QUICK}, {str(MINILM)!r}\n"
    command = [sys.executable, "-c", start + script]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, **options)  # type: ignore


def test_answers_as_a_server_on_a_port(client: castor.Client) -> None:
    texts = ["a beaver builds a dam", "interest rates rose", "naïve café"]
    with castor.serve(MINILM, flags=QUICK) as mine:
        assert [model.name for model in mine.models()] == ["minilm"]
        np.testing.assert_array_equal(mine.encode(texts), client.encode(texts, model="minilm"))
        socket = Path(mine.target.removeprefix("unix:"))
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    assert not socket.parent.exists()


def test_names_and_flags(inference: Path) -> None:
    models = {"a": MINILM, "team/b": str(inference)}
    with castor.start_server(
        models, binary=PROGRAM, flags=[*QUICK, "--max-text-bytes", "9"]
    ) as server:
        with castor.Client(server.address) as client:
            assert sorted(model.name for model in client.models()) == ["a", "team/b"]
            with pytest.raises(castor.InvalidFieldError, match="--max-text-bytes"):
                client.encode(["ten letters"], model="a")
        assert server.process
        pid = server.process.pid
    assert is_gone(pid, 0)
    server.stop()  # again


def test_odd_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = tmp_path / "modèles d'été = 100%" / "petit"
    odd.parent.mkdir()
    odd.symlink_to(MINILM)
    with castor.serve(f"m={odd}", flags=QUICK) as client:
        assert client.encode(["a"]).shape == (1, 384)
    monkeypatch.chdir(odd.parent)
    with castor.serve("petit", flags=QUICK) as client:
        assert client.models()[0].name == "petit"
    with pytest.raises(ValueError, match="has a comma"):
        castor.start_server({"m": "a,b"})


@pytest.mark.parametrize("name", ["x" * 100, "with space", "ümlaut", "100%"])
def test_temporary_folders_that_no_socket_can_be_in(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with castor.serve(flags=QUICK) as client:
        assert re.fullmatch(r"unix:/tmp/castor-\w+/grpc", client.target)
        client.wait_ready()
    assert not any(folder.iterdir())


def test_what_is_wrong_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(castor.ServerStartError, match="cannot be opened: no such file"):
        castor.start_server({"m": tmp_path / "none"})
    with pytest.raises(castor.ServerStartError, match="castor fetch hf:intfloat/e5"):
        castor.start_server({"m": "intfloat/e5"})
    with pytest.raises(castor.ServerStartError, match="did you mean --device"):
        castor.start_server({}, flags=["--devise", "cpu"])
    with pytest.raises(
        castor.ServerStartError, match="there is no program /none/here: pip install"
    ):
        castor.start_server({}, binary="/none/here")
    with pytest.raises(TypeError, match="flags is a string"):
        castor.start_server({}, flags="--device cpu")
    monkeypatch.delenv("CASTOR_SERVER_PROGRAM")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(castor.ServerStartError, match="no program castor-server"):
        castor.start_server({})
    monkeypatch.setenv("PATH", str(Path(PROGRAM).parent))
    castor.start_server({}, flags=QUICK).stop()


def test_a_server_that_dies_or_hangs_while_it_starts(tmp_path: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(castor.ServerStartError, match="did not start.*\n.*out of luck"):
        castor.start_server({}, binary=fake(tmp_path, "echo out of luck >&2; exit 3"))
    with pytest.raises(castor.ServerStartError, match="not ready in 0.5 s"):
        castor.start_server({}, binary=fake(tmp_path, "exec sleep 600"), timeout=0.5)
    assert time.monotonic() - begun < 10
    not_a_program = tmp_path / "other-cpu"
    not_a_program.write_bytes(b"\x7fELF\2\1\1")
    not_a_program.chmod(0o755)
    with pytest.raises(castor.ServerStartError, match="Exec format error"):
        castor.start_server({}, binary=str(not_a_program))


def test_a_server_that_dies_is_started_again() -> None:
    models = {"tiny": GOLDEN / "tiny_bert"}
    with castor.start_server(models, flags=QUICK, restart=True) as server:
        with castor.Client(server.address) as client:
            want, first = client.encode("a"), server.process
            for _ in range(2):
                assert server.process
                server.process.kill()
                assert (client.encode("a") == want).all() and server.alive
            assert server.process is not first
    assert server.process and is_gone(server.process.pid) and not server.alive
    server = castor.start_server(models, flags=QUICK)
    assert server.process
    server.process.kill()
    ends = time.monotonic() + 20
    while server.alive and time.monotonic() < ends:
        time.sleep(0.05)
    assert not server.alive
    server.stop()


def test_a_deaf_server_is_killed(tmp_path: Path) -> None:
    deaf = fake(tmp_path, f"echo $$ > {tmp_path}/pid; trap '' TERM; while :; do sleep 1; done")
    begun = time.monotonic()
    with pytest.raises(castor.ServerStartError):
        castor.start_server({}, binary=deaf, timeout=1)
    assert 10 < time.monotonic() - begun < 20
    assert is_gone(int((tmp_path / "pid").read_text()))


def test_several_at_once() -> None:
    found: list[np.ndarray] = []

    def work() -> None:
        with castor.serve(MINILM, flags=QUICK) as client:
            found.append(client.encode(["a beaver"]))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(found) == 3
    np.testing.assert_array_equal(found[0], found[1])


def test_outlives_the_thread_that_started_it() -> None:
    made: list[castor.LocalServer] = []
    thread = threading.Thread(target=lambda: made.append(castor.start_server({}, flags=QUICK)))
    thread.start()
    thread.join(60)
    time.sleep(0.5)
    [server] = made
    with server, castor.Client(server.address) as client:
        client.server_info(timeout=5)


def test_in_an_event_loop() -> None:
    async def work() -> np.ndarray:
        with castor.start_server({"m": MINILM}, flags=QUICK) as server:
            async with castor.AsyncClient(server.address) as client:
                return await client.encode(["a beaver"])

    assert asyncio.run(work()).shape == (1, 384)


@pytest.mark.parametrize(
    "end",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.kill(os.getpid(), signal.SIGTERM)",
        "os._exit(0)",
        "sys.exit(0)",
        "raise ValueError",
        "del server",
    ],
)
def test_ends_with_its_process(end: str) -> None:
    program = run(f"""
server = castor.start_server({{}}, flags=QUICK)
print(server.process.pid, flush=True)
{end}
""")
    told, _ = program.communicate(timeout=60)
    assert is_gone(int(told))
    for folder in Path(os.environ["TMPDIR"]).iterdir():
        assert "os." in end  # that nothing in the process has seen
        shutil.rmtree(folder)


def test_a_fork_does_not_stop_it() -> None:
    program = run("""
with castor.start_server({"m": MINILM}, flags=QUICK) as server:
    child = os.fork()
    if child == 0:
        server.stop()
        sys.exit(0)  # with everything that runs at exit
    os.waitpid(child, 0)
    with castor.Client(server.address) as client:
        print(client.encode(["a"]).shape)
""")
    told, errors = program.communicate(timeout=60)
    assert told == "(1, 384)\n", errors


def test_ctrl_c(tmp_path: Path) -> None:
    slow = fake(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 600")
    program = run(f"castor.start_server({{}}, binary={slow!r})")
    ends = time.monotonic() + 30
    while not (tmp_path / "pid").exists() and time.monotonic() < ends:
        time.sleep(0.05)
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=30)
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert is_gone(int((tmp_path / "pid").read_text()), 0)
    # A terminal's Ctrl-C goes to all of its processes: the server stays for a program that goes on.
    program = run(
        """
with castor.start_server({}, flags=QUICK) as server:
    try:
        os.killpg(0, signal.SIGINT)
        time.sleep(60)
    except KeyboardInterrupt:
        time.sleep(0.5)
        castor.Client(server.address).server_info(timeout=5)
        print("serves")
""",
        start_new_session=True,
    )
    told, errors = program.communicate(timeout=60)
    assert told == "serves\n", errors
