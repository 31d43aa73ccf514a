#!/usr/bin/env python3
"""Tries castor-server with clients that are not ours: Python's grpcio, and grpcurl.

    python3 -m venv venv && venv/bin/pip install grpcio protobuf
    go install github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.1
    venv/bin/python tests/clients/run.py --server build/server/castor-server [--grpcurl PATH]

Starts servers with TLS, with mutual TLS, and with tokens, and calls each with credentials that are
right and wrong. A client that is not installed is left out. Not part of ctest: these clients come
from the network. Needs openssl(1).
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "hostile"), os.path.join(HERE, "..", "support")]
from authority import Authority, caller_entry, callers_file  # noqa: E402
from castor_server import CastorServer  # noqa: E402
import wire  # noqa: E402

ATTEND = "/castor.v1.AttentionService/Attend"
TOKEN, OLD_TOKEN = "castor_right", "castor_of_yesterday"

# What a client brings, and by server what comes of it.
CASES = [
    ("nothing at all", {}, {"plain": "OK", "tls": "UNAVAILABLE", "mtls": "UNAVAILABLE",
                            "tokens": "UNAVAILABLE"}),
    ("the authority", {"ca": "ca"}, {"tls": "OK", "mtls": "UNAVAILABLE",
                                     "tokens": "UNAUTHENTICATED"}),
    ("another authority", {"ca": "other"}, {"tls": "UNAVAILABLE", "mtls": "UNAVAILABLE"}),
    ("another name", {"ca": "ca", "name": "castor.example"}, {"tls": "UNAVAILABLE"}),
    ("a certificate", {"ca": "ca", "identity": "client"}, {"tls": "OK", "mtls": "OK"}),
    ("a stranger's certificate", {"ca": "ca", "identity": "stranger"}, {"mtls": "UNAVAILABLE"}),
    ("a token", {"ca": "ca", "token": TOKEN}, {"tls": "OK", "tokens": "OK"}),
    ("a wrong token", {"ca": "ca", "token": "castor_wrong"}, {"tokens": "UNAUTHENTICATED"}),
    ("an expired token", {"ca": "ca", "token": OLD_TOKEN}, {"tokens": "UNAUTHENTICATED"}),
    ("a token that may not", {"ca": "ca", "token": "castor_idle"}, {"tokens": "PERMISSION_DENIED"}),
]


class Papers:
    """Files for servers and clients."""

    def __init__(self, folder: str):
        ca, other = Authority(folder, "ca"), Authority(folder, "other")
        self.authorities = {"ca": ca.path, "other": other.path}
        self.server = ca.issue("server")
        self.identities = {"client": ca.issue("client", "DNS:client.example"),
                           "stranger": other.issue("stranger", "DNS:client.example")}
        self.callers = os.path.join(folder, "callers.toml")
        with open(self.callers, "w") as file:
            file.write(callers_file(
                caller_entry("right", TOKEN),
                caller_entry("right", OLD_TOKEN, expires="2020-01-01"),
                caller_entry("idle", "castor_idle", allow='["castor.v1.ModelService"]')))

    def arguments(self, kind: str) -> list:
        arguments = []
        if kind != "plain":
            arguments += ["--tls-certificate", self.server[0], "--tls-key", self.server[1]]
        if kind == "mtls":
            arguments += ["--tls-client-ca", self.authorities["ca"]]
        if kind == "tokens":
            arguments += ["--auth-tokens", self.callers]
        return arguments


def by_grpcio(target: str, papers: Papers, how: dict) -> str:
    """One Attend; the name of its status code."""
    import grpc
    options = [("grpc.use_local_subchannel_pool", 1)]
    if "name" in how:
        options.append(("grpc.ssl_target_name_override", how["name"]))
    if "ca" in how:
        def read(path):
            with open(path, "rb") as file:
                return file.read()

        identity = papers.identities.get(how.get("identity"))
        credentials = grpc.ssl_channel_credentials(
            read(papers.authorities[how["ca"]]),
            read(identity[1]) if identity else None, read(identity[0]) if identity else None)
        if "token" in how:
            credentials = grpc.composite_channel_credentials(
                credentials, grpc.access_token_call_credentials(how["token"]))
        channel = grpc.secure_channel(target, credentials, options)
    else:
        channel = grpc.insecure_channel(target, options)
    with channel:
        try:
            channel.unary_unary(ATTEND)(wire.small(), timeout=30)
            return "OK"
        except grpc.RpcError as error:
            return error.code().name


def by_grpcurl(program: str, target: str, papers: Papers, how: dict) -> str:
    """The same, with a message in JSON. grpcurl ends with 64 and the code, or with 1 if it cannot
    connect."""
    tensor = '{"dtype": "FLOAT32", "shape": [1, 1, 2], "raw": "AAAAAAAAAAA="}'
    command = [program, "-connect-timeout", "5", "-max-time", "30",
               "-import-path", os.path.join(HERE, "..", "..", "proto"),
               "-proto", "castor/v1/attention.proto",
               "-d", f'{{"query": {tensor}, "key": {tensor}, "value": {tensor}}}']
    if "ca" in how:
        command += ["-cacert", papers.authorities[how["ca"]]]
    else:
        command += ["-plaintext"]
    if "identity" in how:
        certificate, key = papers.identities[how["identity"]]
        command += ["-cert", certificate, "-key", key]
    if "name" in how:
        command += ["-servername", how["name"]]
    if "token" in how:
        command += ["-H", f"authorization: Bearer {how['token']}"]
    ended = subprocess.run([*command, target, ATTEND[1:]], capture_output=True, text=True,
                           timeout=60)
    codes = {0: "OK", 1: "UNAVAILABLE", 64 + 7: "PERMISSION_DENIED", 64 + 14: "UNAVAILABLE",
             64 + 16: "UNAUTHENTICATED"}
    return codes.get(ended.returncode, f"{ended.returncode}: {ended.stderr}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--grpcurl", default=shutil.which("grpcurl"))
    arguments = parser.parse_args()
    clients = {}
    try:
        import grpc
        clients[f"grpcio {grpc.__version__}"] = by_grpcio
    except ImportError:
        print("no grpcio here")
    if arguments.grpcurl:
        clients["grpcurl"] = lambda *how: by_grpcurl(arguments.grpcurl, *how)
    else:
        print("no grpcurl here")
    tried = wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        papers = Papers(folder)
        for kind in ("plain", "tls", "mtls", "tokens"):
            server = CastorServer(arguments.server, *papers.arguments(kind))
            for title, how, expected in CASES:
                if kind not in expected:
                    continue
                for name, client in clients.items():
                    seen = client(f"localhost:{server.port}", papers, how)
                    good = seen == expected[kind]
                    tried, wrong = tried + 1, wrong + (not good)
                    print(f"{'ok  ' if good else 'BAD '} {name}, {kind}, {title}: {seen}" +
                          ("" if good else f", not {expected[kind]}"), flush=True)
            server.stop()
    print(f"{tried} tried, {wrong} not as expected")
    return 1 if wrong or not clients else 0


if __name__ == "__main__":
    sys.exit(main())
