"""A castor-server of this process's own, on a unix socket that other users cannot reach.

with castor.serve("models/e5") as client:
    rows = client.encode(["a beaver builds a dam"])

It ends with the block, with stop(), at exit, and when this process is killed.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

from castor.client import Client
from castor.errors import DeadlineExceededError, UnavailableError

_LOG = logging.getLogger("castor")

# Becomes the program that follows, which the kernel kills when the thread that started it ends.
# Not a preexec_fn: where there are threads, no Python may run between fork and exec.
_TIED = """import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class ServerStartError(RuntimeError):
    """castor-server did not come up. The text ends with the last lines of its log."""


class LocalServer:
    """A running castor-server, its `address` and `log`. Forks cannot stop it."""

    def __init__(
        self,
        models: Sequence[str],
        *,
        binary: str | None = None,
        flags: Sequence[str] = (),
        timeout: float = 300.0,
        restart: bool = False,
    ) -> None:
        if isinstance(flags, str):
            raise TypeError("flags is a string, not a sequence of them")
        if split := [model for model in models if "," in model]:
            raise ValueError(f"model {split[0]!r} has a comma, at which castor-server splits it")
        command = [sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid()), *_program(binary)]
        root = tempfile.gettempdir()
        if not re.fullmatch(r"[\w./+-]{1,80}", root, re.ASCII):
            root = "/tmp"  # gRPC does not take the name in an address, or a socket's is too long
        self._owner, self.log = os.getpid(), deque[str](maxlen=50)
        self.process: Popen[bytes] | None = None
        self._restart = False  # until it has been ready once
        self._stopping = threading.Event()
        self._begun, self._ended = threading.Event(), threading.Event()
        self._folder = tempfile.mkdtemp(prefix="castor-", dir=root)  # mode 0700
        self.address = f"unix:{self._folder}/grpc"
        command += ["--listen", self.address, "--metrics-listen", "off"]
        command += [*(f"--model={model}" for model in models), *flags]
        atexit.register(self.stop)
        try:
            threading.Thread(target=self._run, args=(command,), daemon=True).start()
            self._wait_ready(timeout)
            self._restart = restart
        except BaseException:
            self.stop()
            raise

    def _run(self, command: list[str]) -> None:  # in a thread with which the server ends
        try:
            while True:
                # A session of its own: Ctrl-C is for this process.
                made = Popen(
                    command, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, start_new_session=True
                )
                with made as self.process:
                    self._begun.set()
                    for line in self.process.stderr or ():
                        self.log.append(line.decode(errors="replace"))
                if not self._restart or self._stopping.wait(1.0):
                    return
                code = self.process.returncode
                _LOG.warning("castor-server ended with exit code %s and is started again", code)
        except OSError as error:
            self.log.append(str(error))
        finally:
            self._begun.set()
            self._ended.set()

    def _wait_ready(self, timeout: float) -> None:
        ends = time.monotonic() + timeout
        with Client(self.address) as client:
            while time.monotonic() < ends and not self._ended.wait(0.02):
                with suppress(UnavailableError, DeadlineExceededError):
                    if os.path.exists(f"{self._folder}/grpc"):
                        client.server_info(timeout=1)
                        return
        problem = "did not start" if self._ended.is_set() else f"is not ready in {timeout} s"
        raise ServerStartError(f"castor-server {problem}:\n{''.join(self.log)}")

    @property
    def alive(self) -> bool:
        """Or about to be started again."""
        return not self._ended.is_set()

    def stop(self) -> None:
        """Lets the server answer the calls in flight, for up to 10 s."""
        if os.getpid() != self._owner:
            return
        atexit.unregister(self.stop)
        self._stopping.set()
        try:
            if self._begun.wait(10) and self.process:
                self.process.terminate()
                self._ended.wait(10)
        finally:
            if self.process:
                self.process.kill()  # no signal is sent to a process that has ended
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start_server(models: Mapping[str, str | os.PathLike[str]], **options: Any) -> LocalServer:
    """A server of these models, names and directories. `flags` are castor-server's, such as
    ["--model-dtype", "int8"]; `timeout` is for the start; `restart` starts it again, at the same
    address, when it dies; `binary` is the program, by default $CASTOR_SERVER_PROGRAM, or else the
    package castor-server's, or the one on the PATH."""
    return LocalServer([f"{name}={os.fspath(path)}" for name, path in models.items()], **options)


@contextmanager
def serve(*models: str | os.PathLike[str], **options: Any) -> Iterator[Client]:
    """A client of a server that lives as long as the block. `models` are directories, each served
    under its own name, or NAME=DIRECTORY. start_server() has the options."""
    with LocalServer([os.fspath(model) for model in models], **options) as server:
        with Client(server.address) as client:
            yield client


def _program(binary: str | None) -> list[str]:
    # $CASTOR_SERVER is an address.
    name = binary or os.environ.get("CASTOR_SERVER_PROGRAM") or "castor-server"
    if name == "castor-server":
        with suppress(ImportError):
            from castor_server import command  # the package that deploy/wheel.sh makes

            return [*command()]
    if found := shutil.which(name):
        return [found]
    hint = "pip install castor-server, or name one by binary or $CASTOR_SERVER_PROGRAM"
    raise ServerStartError(f"there is no program {name}: {hint}")
