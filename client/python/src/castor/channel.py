"""What a client shows a server and how it connects, the same as the C++ library (client/)."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from castor.errors import CastorError, DeadlineExceededError, of_client

FIRST_BACKOFF, MOST_BACKOFF = 0.1, 2.0  # seconds

# Without retries of gRPC's own: window.py has them, within the call's time.
_CONFIG = json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})
_FRESH = 1.0  # seconds: what was read of a file is taken for true for so long


@dataclass(frozen=True)
class TLS:
    """Files in PEM, which may change. ca_file: default $SSL_CERT_FILE, or else the system's."""

    ca_file: str | None = None
    certificate_file: str | None = None  # for servers that ask for a client's
    key_file: str | None = None
    server_name: str | None = None  # what the certificate must say; default: the target's host


class Files:
    """Files that may change, looked at once a second. Later errors leave what was read before."""

    def __init__(self, *paths: str | None) -> None:
        self._paths = paths
        self._read = float("-inf")
        self._contents: tuple[bytes | None, ...] | None = None

    def contents(self) -> tuple[bytes | None, ...]:
        now = time.monotonic()
        if self._contents is None or now - self._read >= _FRESH:
            try:
                self._contents = tuple(_read(path) if path else None for path in self._paths)
            except OSError:
                if self._contents is None:
                    raise
            self._read = now
        return self._contents


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


class Security:
    """TLS and the token of one client."""

    def __init__(
        self,
        target: str,
        tls: TLS | bool | None,
        token: str | None,
        token_file: str | None,
        allow_plaintext_token: bool,
    ) -> None:
        self.tls = TLS() if tls is True else tls or None
        if (token or token_file) and not (
            self.tls or allow_plaintext_token or is_on_this_machine(target)
        ):
            raise ValueError(
                f"a token is not sent to {target} over plaintext: use tls, or allow_plaintext_token"
            )
        self._token = token
        self._token_file = Files(token_file) if token_file else None
        self._pem: Files | None = None
        if self.tls:
            paths = ssl.get_default_verify_paths()
            ca = self.tls.ca_file or os.environ.get("SSL_CERT_FILE") or paths.cafile
            self._pem = Files(ca, self.tls.key_file, self.tls.certificate_file)

    def pem(self) -> tuple[bytes | None, ...] | None:
        """(authorities, key, certificate) as they are now; None: plaintext."""
        return self._pem.contents() if self._pem else None

    def metadata(self) -> Sequence[tuple[str, str]]:
        token = self._token
        if self._token_file:
            token = (self._token_file.contents()[0] or b"").decode(errors="replace").strip()
        return (("authorization", f"Bearer {checked('token', token)}"),) if token else ()


def checked(name: str, value: str) -> str:
    """What gRPC takes as metadata. The value may be a secret, and is not shown."""
    if not (value.isascii() and value.isprintable()):
        raise ValueError(f"{name} has other characters than printable ASCII")
    return value


def connect(module: Any, target: str, tls: TLS | None, pem: tuple[bytes | None, ...] | None) -> Any:
    """A channel of grpc or grpc.aio. Never fails, and connects with the first call."""
    options: list[tuple[str, Any]] = [
        # The server's limits apply.
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        # A dead peer is noticed within 40 s of a call that hangs on it.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        # With gRPC's own delay of a second the first retries would be pointless.
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.min_reconnect_backoff_ms", 1_000),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        ("grpc.dns_min_time_between_resolutions_ms", 1_000),
        ("grpc.use_local_subchannel_pool", 1),  # a connection for each client
        ("grpc.service_config", _CONFIG),
    ]
    if is_on_this_machine(target):
        options.append(("grpc.enable_http_proxy", 0))
    if pem is None:
        return module.insecure_channel(target, options)
    if tls and tls.server_name:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    return module.secure_channel(target, grpc.ssl_channel_credentials(*pem), options)


def check_target(target: Any) -> None:
    if not isinstance(target, str) or not target:
        raise ValueError(f"target is {target!r}, not an address")
    if url := re.match(r"(https?|h2c?|grpcs?|tcp|tls)://([^/?#]*)", target, re.IGNORECASE):
        tls = " with tls=True" if url[1].lower() in ("https", "grpcs", "tls") else ""
        raise ValueError(f"target {target!r} is a URL: use {url[2]!r}{tls}")


def explained(error: CastorError, target: str, tls: TLS | None) -> CastorError:
    """The error with what gRPC does not say: where nothing listens, and who speaks TLS."""
    if "SETTINGS" in error.message:  # it takes connections, and says nothing
        return of_client(DeadlineExceededError, 4, error.message, index=error.index)
    told, host_port = error.message, re.fullmatch(r"(?:dns:/*)?localhost:(\d+)", target)
    refused = "refused" in told
    if refused and host_port:  # gRPC tells of the last address alone
        for host in ("127.0.0.1", "::1"):
            try:
                socket.create_connection((host, int(host_port[1])), 0.2).close()
            except OSError:
                continue
            refused, target, told = (
                False,
                f"{host} port {host_port[1]}",
                "wrong version Socket closed",
            )
    hint = ""
    if refused:
        hint = f"connection refused at {target}: is castor-server running there?"
    elif tls and re.search("wrong.version|SSL_ERROR_SYSCALL|unexpected eof", told, re.IGNORECASE):
        hint = f"the server at {target} does not use TLS, or wants a client's certificate"
    elif tls and re.search("verify failed|certificate|Hostname|peer", told):
        hint = "the server's certificate is not trusted: see castor.TLS, ca_file and server_name"
    elif not tls and re.search("Socket closed|Empty reply|reset by peer|HTTP/0.9|recvmsg", told):
        hint = f"does the server at {target} use TLS? Then set tls"
    if hint:
        error.message = f"{hint} ({error.message})"
    return error


def is_on_this_machine(target: str) -> bool:
    """A name that a resolver would have to be asked for counts as another machine."""
    if target.startswith(("unix:", "unix-abstract:")):
        return True
    scheme, _, rest = target.partition(":")
    if scheme in ("dns", "ipv4", "ipv6"):
        target = rest[3:] if rest.startswith("///") else rest
    return all(_is_own(address) for address in target.split(","))


def _is_own(address: str) -> bool:
    if address.startswith("["):
        host = address[1:].partition("]")[0]
    else:
        host = address.partition(":")[0] if address.count(":") == 1 else address
    if host == "localhost":
        return True
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return False
    if ip.is_loopback or ip.is_unspecified:
        return True
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))  # only an interface's own address can be bound
        except OSError:
            return False
    return True
