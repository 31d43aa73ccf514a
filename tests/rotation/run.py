#!/usr/bin/env python3
"""Renews certificates, tokens and connections of a castor-server under load: no call may fail.

    tests/rotation/run.py --build build [--seconds 60] [--rate 1000] [--every 3]

The server speaks mutual TLS, asks for a token, and ends connections after five seconds. castor-load
calls it at a constant rate. Meanwhile, every few seconds: the server's certificate is replaced as
Kubernetes does it, by a swapped link; the clients' certificate is; and the token goes through its
four steps: the server learns the new one, the clients do, the server forgets the old one. Fails
unless castor-load counts no failed call, and the server no refused caller. Needs openssl(1).
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(TESTS, "hostile"), os.path.join(TESTS, "support")]
from authority import Authority, caller_entry, callers_file  # noqa: E402
from castor_server import CastorServer  # noqa: E402

# Until all clients have looked at a file that has changed: they do so once a second.
CLIENTS_KNOW = 3


def put(path: str, text: str) -> None:
    with open(path + ".new", "w") as file:
        file.write(text)
    os.rename(path + ".new", path)


class Secret:
    """A pair of files in a folder, as Kubernetes mounts a secret."""

    def __init__(self, folder: str, authority: Authority, name: str, alternatives: str):
        self.folder, self.authority = os.path.join(folder, name), authority
        self.name, self.alternatives, self.version = name, alternatives, 0
        os.mkdir(self.folder)
        self.renew()
        for file in ("tls.crt", "tls.key"):
            os.symlink(f"..data/{file}", os.path.join(self.folder, file))
        self.certificate = os.path.join(self.folder, "tls.crt")
        self.key = os.path.join(self.folder, "tls.key")

    def renew(self) -> None:
        self.version += 1
        version = os.path.join(self.folder, f"..{self.version}")
        os.mkdir(version)
        for source, file in zip(self.authority.issue(self.name, self.alternatives),
                                ("tls.crt", "tls.key")):
            shutil.copy(source, os.path.join(version, file))
        os.symlink(f"..{self.version}", os.path.join(self.folder, "..data_tmp"))
        os.rename(os.path.join(self.folder, "..data_tmp"), os.path.join(self.folder, "..data"))
        shutil.rmtree(os.path.join(self.folder, f"..{self.version - 1}"), ignore_errors=True)


class Server(CastorServer):
    def __init__(self, program: str, arguments: list):
        super().__init__(program, "--max-connection-age", "5s", *arguments, metrics=True)

    def metrics(self) -> dict:
        if self.process.poll() is not None:
            raise SystemExit(f"castor-server ended with {self.process.returncode}:\n" +
                             "".join(self.log))
        url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as page:
            lines = [line for line in page.read().decode().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    def await_reloads(self, what: str, count: float) -> None:
        end = time.monotonic() + 60
        while self.metrics()[f'castor_reloads_total{{result="taken",what="{what}"}}'] < count:
            if time.monotonic() > end:
                raise SystemExit(f"the server did not take in its {what}")
            time.sleep(0.1)


def rotate(server: Server, secrets: list, folder: str, every: float, load: subprocess.Popen) -> dict:
    """Renews everything until the load has ended; returns how often."""
    callers, token_file = os.path.join(folder, "callers.toml"), os.path.join(folder, "token")
    done = {"certificates": 0, "tokens": 0}
    taken = 0
    while load.poll() is None:
        for secret in secrets:
            secret.renew()
        done["certificates"] += 1
        server.await_reloads("certificates", done["certificates"])
        old, new = (f"castor_{done['tokens'] + step}" for step in (0, 1))
        put(callers, callers_file(caller_entry("load", old), caller_entry("load", new)))
        server.await_reloads("callers", taken + 1)
        put(token_file, new)
        time.sleep(max(CLIENTS_KNOW, every))
        put(callers, callers_file(caller_entry("load", new)))
        server.await_reloads("callers", taken + 2)
        taken += 2
        done["tokens"] += 1
    return done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build", help="the folder with castor-server and so on")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rate", type=int, default=1000, help="calls a second")
    parser.add_argument("--every", type=float, default=3, help="seconds between two rotations")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(folder)
        of_server = Secret(folder, authority, "server", "DNS:localhost,IP:127.0.0.1")
        of_client = Secret(folder, authority, "client", "DNS:load.example")
        put(os.path.join(folder, "callers.toml"), callers_file(caller_entry("load", "castor_0")))
        put(os.path.join(folder, "token"), "castor_0")
        server = Server(os.path.join(arguments.build, "server/castor-server"),
                        ["--tls-certificate", of_server.certificate, "--tls-key", of_server.key,
                         "--tls-client-ca", authority.path,
                         "--auth-tokens", os.path.join(folder, "callers.toml")])
        result = os.path.join(folder, "run.json")
        load = subprocess.Popen(
            [os.path.join(arguments.build, "client/load/castor-load"), "run", "--attend", "8",
             "--heads", "1", "--rate", str(arguments.rate), "--arrivals", "constant", "--duration",
             f"{arguments.seconds}s", "--warm-up", "1s", "--server", f"127.0.0.1:{server.port}",
             "--metrics", f"127.0.0.1:{server.metrics_port}", "--ca", authority.path,
             "--cert", of_client.certificate, "--cert-key", of_client.key,
             "--token-file", os.path.join(folder, "token"), "--json", result, "--quiet"],
            stdout=subprocess.PIPE, text=True)
        try:
            done = rotate(server, [of_server, of_client], folder, arguments.every, load)
            print(load.communicate()[0])
            metrics = server.metrics()
        finally:
            load.kill()
            server.stop()
        refused = sum(value for name, value in metrics.items()
                      if name.startswith("castor_callers_refused_total"))
        with open(result) as file:
            ended = json.load(file)["summary"]["total"]["outcomes"]
        failed = sum(count for outcome, count in ended.items() if outcome not in ("ok", "dropped"))
        print(f"{done['certificates']} rotations of certificates, {done['tokens']} of tokens; "
              f"calls: {ended}; {failed} failed, {refused:.0f} callers refused")
        return 0 if ended["ok"] > 0 and failed == 0 and refused == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
