"""Credentials, restarts, forks, interrupts: a client's life."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from authority import Authority, caller_entry, callers_file
from conftest import MINILM, Server

import castor


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(str(tmp_path_factory.mktemp("ca")))


def test_tls_and_tokens(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue("server")
    callers, token_file = tmp_path / "callers.toml", tmp_path / "token"
    callers.write_text(callers_file(caller_entry("mine", "right"), caller_entry("mine", "next")))
    token_file.write_text("right\n")
    server = Server(
        "--tls-certificate",
        certificate,
        "--tls-key",
        key,
        "--auth-tokens",
        str(callers),
        f"--model=minilm={MINILM}",
        "--shared-memory",
    )
    tls = castor.TLS(ca_file=authority.path)
    with castor.Client(server.target, tls=tls, token_file=str(token_file)) as client:
        assert client.encode("a").shape == (384,)
        with client.shared_memory(64) as memory:
            assert memory.key.startswith("/mine:castor-")
        token_file.write_text("wrong\n")
        client._token_file._read = -1e9  # what was read is old
        with pytest.raises(castor.UnauthenticatedError):
            client.encode("a")
        token_file.write_text("next\n")
        client._token_file._read = -1e9
        assert client.encode("a").shape == (384,)
        token_file.unlink()
        client._token_file._read = -1e9
        assert client.encode("a").shape == (384,)  # with the last one
    with castor.Client(server.target, tls=tls) as client:
        with pytest.raises(castor.UnauthenticatedError):
            client.encode("a")
    with castor.Client(server.target, timeout=3) as client, pytest.raises(castor.UnavailableError):
        client.encode("a")
    with pytest.raises(FileNotFoundError, match="no-token"):
        castor.Client(server.target, tls=tls, token_file="no-token").encode("a")
    with pytest.raises(FileNotFoundError, match="no-ca"):
        castor.Client(server.target, tls=castor.TLS(ca_file="no-ca")).encode("a")
    server.stop()


def test_client_certificates_may_change(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(str(tmp_path), "other")
    certificate, key = authority.issue("server")
    server = Server(
        "--tls-certificate",
        certificate,
        "--tls-key",
        key,
        "--tls-client-ca",
        authority.path,
        f"--model=minilm={MINILM}",
    )
    files = {"certificate_file": stranger.issue("mine")[0], "key_file": stranger.issue("mine")[1]}
    tls = castor.TLS(ca_file=authority.path, server_name="localhost", **files)
    with castor.Client(server.target, tls=tls, timeout=3) as client:
        with pytest.raises(castor.UnavailableError):
            client.encode("a")
        for new, old in zip(authority.issue("client"), files.values()):
            os.replace(new, old)
        client._pem._read = -1e9
        assert client.encode("a").shape == (384,)
    server.stop()


def test_a_server_that_dies_costs_no_call() -> None:
    servers = [Server(f"--model=minilm={MINILM}") for _ in range(2)]
    with castor.Client("ipv4:" + ",".join(each.target for each in servers)) as client:
        client.wait_ready(10)
        texts = [f"text {i}" for i in range(600)]
        streams = [client.encode_stream(texts, in_flight=2) for _ in range(4)]  # over both, in turn
        first = [next(stream) for stream in streams]
        servers[0].stop(signal.SIGKILL)
        rows = [[begun, *stream] for begun, stream in zip(first, streams)]
        want = client.encode(texts)
        assert max(abs(np.array(each) - want).max() for each in rows) < 2e-5
        assert all(client.encode("a").shape == (384,) for _ in range(8))
    servers[1].stop()


def test_no_server_listens() -> None:
    with castor.Client("127.0.0.1:1", timeout=1) as client:
        for call in (lambda: client.encode("a"), client.wait_ready):
            begin = time.monotonic()
            with pytest.raises(castor.UnavailableError, match="connection refused at 127.0.0.1:1"):
                call()
            assert 0.8 < time.monotonic() - begin < 2
        with pytest.raises(castor.UnavailableError) as caught:
            list(client.encode_stream(["a"]))
        assert caught.value.index == 0


def run(program: str, server: Server, **options) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", program, server.target],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


def test_forks(server: Server) -> None:
    program = """
import multiprocessing, sys, castor
client = castor.Client(sys.argv[1])
print(client.encode("a", model="minilm").shape)
def work(i): return client.encode(["a"] * 3, model="minilm").shape
with multiprocessing.get_context("fork").Pool(2) as pool: print(pool.map(work, range(4)))
print(client.encode("a", model="minilm").shape)
"""
    out, err = run(program, server).communicate(timeout=60)
    assert out.splitlines() == ["(384,)", str([(3, 384)] * 4), "(384,)"], err


def test_a_stream_stays_with_its_process(server: Server) -> None:
    program = """
import os, sys, castor
client = castor.Client(sys.argv[1])
stream = client.encode_stream(["a"] * 2000, model="minilm")
next(stream)
if child := os.fork():
    assert len(list(stream)) == 1999 and os.waitpid(child, 0)[1] == 0
else:
    try:
        list(stream)
    except RuntimeError as error:
        print(error, client.encode("a", model="minilm").shape)
"""
    # Without it gRPC's pollers may wait in the child for threads that only the parent has.
    environment = os.environ | {"GRPC_ENABLE_FORK_SUPPORT": "1"}
    out, err = run(program, server, env=environment).communicate(timeout=60)
    assert out == "a stream does not go on in a fork of its process (384,)\n", err


@pytest.mark.parametrize("what", ["stream", "call"])
def test_an_interrupt_ends_it(server: Server, what: str) -> None:
    program = """
import itertools, signal, sys, castor
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a background job ignores
client = castor.Client(sys.argv[1])
stream = client.encode_stream(("word " * 200 for _ in itertools.count()), model="minilm")
next(stream)
print("begun", flush=True)
"""
    call = 'client.encode(["word " * 200] * 20000, model="minilm")'
    program += "for _ in stream: pass" if what == "stream" else call
    process = run(program, server)
    assert process.stdout and process.stderr
    assert process.stdout.readline() == "begun\n", process.stderr.read()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert err.rstrip().endswith("KeyboardInterrupt") and process.returncode == -signal.SIGINT, err


def test_a_process_ends_without_close(server: Server) -> None:
    program = """
import sys, castor
client = castor.Client(sys.argv[1])
stream = client.encode_stream(["a"] * 1000, model="minilm")
next(stream)
"""
    out, err = run(program, server).communicate(timeout=20)
    assert (out, err) == ("", "")


def test_models_come_and_go(tmp_path: Path) -> None:
    (tmp_path / "mini").symlink_to(MINILM)
    server = Server(f"--model-root={tmp_path}", "--model-control=auto")
    try:
        with castor.Client(server.target) as client:
            assert client.models() == []
            assert [model.name for model in client.models(all=True)] == ["mini"]
            assert client.model("mini").hidden_size == 384, "asking about it loads it"
            row = client.encode("a beaver builds a dam", model="mini")
            client.unload_model("mini")
            assert client.models() == []
            assert np.array_equal(client.encode("a beaver builds a dam", model="mini"), row)
            assert client.load_model("other", "mini").name == "other"
            with pytest.raises(castor.ModelNotFoundError):
                client.load_model("none")
    finally:
        server.stop()
