"""Embeddings in Ray Data.

dataset.map_batches(castor.ray.Embed, fn_constructor_kwargs={"model": "models/e5"},
                    batch_format="pyarrow", batch_size=1024,
                    compute=ray.data.ActorPoolStrategy(size=2))
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from castor import serving
from castor.bulk.embedder import Embedder

_START_SECONDS = 300.0


class Embed:
    """Adds an embedding to each row of a batch, its tokens, and the error of a row that fails.

    `model` is a folder: the first actor of a node starts a server of it on a unix socket, which
    serves the node's actors, is started again when it dies, and ends with the last of them.
    `servers` are addresses instead, and `model` then a name. `text` and `pair` are columns.
    `options` are castor.bulk.Embedder's. Ray limits the batches that an actor has; the requests
    that they make together are limited by `in_flight`, and wait as long as a full server says.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        servers: list[str] | None = None,
        text: str = "text",
        pair: str | None = None,
        binary: str | None = None,
        flags: list[str] | None = None,
        **options: Any,
    ) -> None:
        self._text, self._pair, self._lock = text, pair, asyncio.Lock()
        if servers is None:
            if model is None:
                raise ValueError("give servers, or the model's folder")
            self._node = _Node([os.path.abspath(model), binary or "", *(flags or [])])
            servers, model = [self._node.address()], None
        self._embedder = Embedder(servers, pairs=pair is not None, model=model, **options)
        self._ready = False

    async def __call__(self, batch: Any) -> pa.Table:
        async with self._lock:
            if not self._ready:
                await self._embedder.__aenter__()  # it ends with the actor
                self._ready = True
        table = batch if isinstance(batch, pa.Table) else pa.table(dict(batch))
        texts = table[self._text].to_pylist()
        pairs = table[self._pair].to_pylist() if self._pair else None
        for name, column in (await self._embedder.columns(texts, pairs)).items():
            table = table.append_column(name, column)
        return table


class _Node:
    """A server of this machine, for all processes of this user that ask for the same one."""

    def __init__(self, what: list[str]) -> None:
        key = hashlib.sha256(json.dumps([os.getuid(), *what]).encode()).hexdigest()[:16]
        self._folder = Path(tempfile.gettempdir()) / f"castor-node-{key}"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        if self._folder.lstat().st_uid != os.getuid():
            raise PermissionError(f"{self._folder} is another user's")
        # A lock that ends with this process: the keeper stops when nobody has one.
        self._users = open(self._folder / "users", "a")
        with open(self._folder / "turn", "a") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            fcntl.flock(self._users, fcntl.LOCK_SH)
            with open(self._folder / "keeper", "a") as keeper:
                try:
                    fcntl.flock(keeper, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return  # there is one
                (self._folder / "grpc").unlink(missing_ok=True)
                log = open(self._folder / "log", "w")
                command = [sys.executable, "-m", "castor.ray", str(self._folder), *what]
                # A session of its own: it outlives the actor that starts it.
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[keeper.fileno()],  # and with it the lock
                    start_new_session=True,
                )

    def address(self) -> str:
        ends = time.monotonic() + _START_SECONDS
        while time.monotonic() < ends:
            if (self._folder / "grpc").exists():
                return f"unix:{self._folder}/grpc"
            with open(self._folder / "keeper", "a") as keeper:
                try:
                    fcntl.flock(keeper, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    raise serving.ServerStartError((self._folder / "log").read_text())
                except BlockingIOError:
                    time.sleep(0.05)
        raise serving.ServerStartError(f"castor-server is not ready in {_START_SECONDS} s")


def _keep(folder: Path, model: str, binary: str, *flags: str) -> None:
    """Runs the server, again if it dies, until no process has the users' lock."""
    name = {"model": model}
    server = serving.start_server(name, binary=binary or None, flags=flags)
    with open(folder / "users", "a") as users:
        while True:
            # Servers come and go; the address that actors know is a link to the socket.
            (folder / "new").unlink(missing_ok=True)
            (folder / "new").symlink_to(server.address.removeprefix("unix:"))
            os.replace(folder / "new", folder / "grpc")
            while server.alive:
                try:
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    time.sleep(0.2)
                    continue
                (folder / "grpc").unlink()
                server.stop()
                return
            server.stop()
            server = serving.start_server(name, binary=binary or None, flags=flags)


if __name__ == "__main__":
    _keep(Path(sys.argv[1]), *sys.argv[2:])
