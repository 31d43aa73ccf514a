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
from typing import IO, Any

import pyarrow as pa

from castor import serving
from castor.bulk.embedder import Embedder
from castor.bulk.outputs import taken


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
        flags: list[str] | None = None,
        **options: Any,
    ) -> None:
        self._text, self._pair = text, pair
        self._begun: asyncio.Future[Embedder] | None = None
        if servers is None:
            if model is None:
                raise ValueError("give servers, or the model's folder")
            self._node = _Node([os.path.abspath(model), *(flags or [])])
            servers, model = [self._node.address()], None
        self._embedder = Embedder(servers, pairs=pair is not None, model=model, **options)

    async def __call__(self, batch: Any) -> pa.Table:
        # It ends with the actor.
        self._begun = self._begun or asyncio.ensure_future(self._embedder.__aenter__())
        await self._begun
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
        self._users, self._what = open(self._folder / "users", "a"), what
        fcntl.flock(self._users, fcntl.LOCK_SH)

    def address(self) -> str:
        """Of the server, once it is ready. Starts a keeper if there is none."""
        keeper = None
        while True:
            with open(self._folder / "keeper", "a") as lock:
                if not taken(lock):
                    if keeper:
                        raise serving.ServerStartError((self._folder / "log").read_text())
                    keeper = self._start(lock)
            if (self._folder / "grpc").exists():
                return f"unix:{self._folder}/grpc"
            time.sleep(0.05)

    def _start(self, lock: IO[str]) -> subprocess.Popen[bytes]:
        (self._folder / "grpc").unlink(missing_ok=True)
        with open(self._folder / "log", "w") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "castor.ray", str(self._folder), *self._what],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[lock.fileno()],  # and with it the lock
                start_new_session=True,  # it outlives the actor that starts it
            )


def _keep(folder: Path, model: str, *flags: str) -> None:
    """Runs the server until no process has the users' lock."""
    with serving.start_server({"model": model}, flags=flags, restart=True) as server:
        with open(folder / "users", "a") as users:
            (folder / "grpc").symlink_to(server.address.removeprefix("unix:"))
            fcntl.flock(users, fcntl.LOCK_EX)
            (folder / "grpc").unlink()
            server.stop()


if __name__ == "__main__":
    _keep(Path(sys.argv[1]), *sys.argv[2:])
