"""A castor-server for clients that are not ours: an encoder, a reranker and attention, with shared
memory. And the report of what was tried."""

import os
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
GOLDEN = os.path.join(ROOT, "tests", "golden", "encoder")
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from castor_server import CastorServer  # noqa: E402


class Server(CastorServer):
    def __init__(self, program: str):
        super().__init__(program, "--shared-memory",
                         "--model", f"embed={GOLDEN}/tiny_bert",
                         "--model", f"Rerank.QA={GOLDEN}/heads/cross_encoder")
        self.url = f"localhost:{self.port}"


def run(rows, *arguments) -> None:
    """Calls each row; its first line of documentation is what it is about. Exits 1 if one failed."""
    failed = 0
    for row in rows:
        try:
            row(*arguments)
            print(f"ok   {row.__doc__.splitlines()[0]}", flush=True)
        except Exception as error:  # pylint: disable=broad-except
            failed += 1
            print(f"BAD  {row.__doc__.splitlines()[0]}: {type(error).__name__}: {error}", flush=True)
    print(f"{len(rows)} tried, {failed} failed")
    sys.exit(1 if failed else 0)
