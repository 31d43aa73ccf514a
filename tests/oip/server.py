"""A castor-server for clients that are not ours: an encoder, a reranker and attention, with shared
memory. And the report of what was tried."""

import os
import re
import signal
import subprocess
import sys
import threading

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
GOLDEN = os.path.join(ROOT, "tests", "golden", "encoder")


class Server:
    def __init__(self, program: str):
        self.process = subprocess.Popen(
            [program, "--listen", "127.0.0.1:0", "--metrics-listen", "off", "--device", "cpu",
             "--cost-model-budget", "0s", "--shared-memory",
             "--model", f"embed={GOLDEN}/tiny_bert",
             "--model", f"Rerank.QA={GOLDEN}/heads/cross_encoder"],
            stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            found = re.search(r"listening grpc=127.0.0.1:(\d+)", line)
            if found:
                self.url = f"localhost:{found[1]}"
                break
        else:
            raise SystemExit("castor-server did not start")
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=30)


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
