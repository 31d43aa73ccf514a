"""One client's channels and credentials. The C++ library (client/) connects in the same way."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass

from castor.errors import CastorError, DeadlineExceededError, UnavailableError

_MOST_SECONDS = 2_000_000.0  # timeout_ms is an int32
_FRESH = 1.0  # seconds between two reads of a file
_OPTIONS = [
    # The server's limits apply.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A call to a dead peer fails within 40 s.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # gRPC's default delay of a second would make the first retries pointless.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),  # a connection for each client
    # No retries by gRPC: session.py retries, within the call's time.
    ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'),
]


@dataclass(frozen=True)
class TLS:
    """Files in PEM, which may change. ca_file: default $SSL_CERT_FILE, or else the system's."""

    ca_file: str | None = None
    certificate_file: str | None = None  # for servers that ask for a client's
    key_file: str | None = None
    server_name: str | None = None  # what the certificate must say; default: the target's host


class Files:
    """Files that may change, read once a second. A later error keeps the contents read before."""

    def __init__(self, *paths: str | None) -> None:
        self._paths = paths
        self._read = float("-inf")
        self._contents: tuple[bytes | None, ...] | None = None

    def contents(self) -> tuple[bytes | None, ...]:
        now = time.monotonic()
        if self._contents is None or now - self._read >= _FRESH:
            try:
                self._contents = tuple(Path(p).read_bytes() if p else None for p in self._paths)
            except OSError:
                if self._contents is None:
                    raise
            self._read = now
        return self._contents


class Connection:
    """One client's channels and its credentials: TLS, token, tenant.

    Channels are made when they are used. Those of a process that forked, of another event loop, or
    of TLS files that have changed since, are not used again.
    """

    _grpc: Any = grpc
    _loop: Any = staticmethod(lambda: None)
    _Session: Any

    def __init__(
        self,
        target: str = "127.0.0.1:50051",
        *,
        tls: TLS | bool | None = None,
        token: str | None = None,
        token_file: str | None = None,
        timeout: float = 60.0,
        tenant: str | None = None,
        allow_plaintext_token: bool = False,
        model: str | None = None,
    ) -> None:
        """`timeout` is each call's deadline in seconds, retries included. A token goes over TLS, or
        to this machine alone, unless `allow_plaintext_token`; its file, like those of TLS, may
        change. `tenant` names the caller where servers take no tokens. `model` is the calls'
        default."""
        if not isinstance(target, str) or not target:
            raise ValueError(f"target is {target!r}, not an address")
        if url := re.match(r"(https?|h2c?|grpcs?|tcp|tls)://([^/?#]*)", target, re.IGNORECASE):
            use = " with tls=True" if url[1].lower() in ("https", "grpcs", "tls") else ""
            raise ValueError(f"target {target!r} is a URL: use {url[2]!r}{use}")
        if (token or token_file) and not (tls or allow_plaintext_token or is_local(target)):
            hint = "use tls, or allow_plaintext_token"
            raise ValueError(f"a token is not sent to {target} over plaintext: {hint}")
        self.target, self.timeout, self.default_model = target, timeout, model
        self._options: dict[str, Any] = {"tls": tls, "token": token, "token_file": token_file}
        self._options |= {"tenant": tenant, "allow_plaintext_token": allow_plaintext_token}
        self._options["model"] = model
        self._seconds(timeout)
        self._tls = TLS() if tls is True else tls or None
        self._token, self._token_file = token, Files(token_file) if token_file else None
        self._tenant = (("castor-tenant", _checked("tenant", tenant)),) if tenant else ()
        self._pem: Files | None = None
        if self._tls:
            paths = ssl.get_default_verify_paths()
            ca = self._tls.ca_file or os.environ.get("SSL_CERT_FILE") or paths.cafile
            self._pem = Files(ca, self._tls.key_file, self._tls.certificate_file)
        self._locks: dict[int, threading.Lock] = {}  # by process id: a fork copies held locks
        self._made_for: Any = None  # process, event loop and TLS files of the channel
        self._channel: Any = None
        self._methods: dict[str, Any] = {}
        self._closed = False

    def __deepcopy__(self, memo: Any = None) -> Any:
        """A client with channels of its own."""
        return type(self)(self.target, timeout=self.timeout, **self._options)

    __copy__ = __deepcopy__

    def __reduce__(self) -> tuple[Any, ...]:
        if self._options["token"]:
            raise TypeError("a client with a token is not pickled: use token_file")
        return partial(type(self), timeout=self.timeout, **self._options), (self.target,)

    def _seconds(self, timeout: float | None) -> float:
        """The time of one call, checked."""
        seconds = self.timeout if timeout is None else timeout
        if not isinstance(seconds, (int, float)) or not 0 < seconds <= _MOST_SECONDS:
            raise ValueError(f"timeout is {seconds!r}, not a number of seconds")
        return seconds

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        token = self._token
        if self._token_file:
            token = (self._token_file.contents()[0] or b"").decode(errors="replace").strip()
        shown = (("authorization", f"Bearer {_checked('token', token)}"),) if token else ()
        return shown + self._tenant

    def _method(self, name: str) -> Any:
        """A method of the contract, such as "EncoderService/Encode", to be called."""
        pem = self._pem.contents() if self._pem else None
        made_for = (os.getpid(), self._loop(), pem)
        with self._locks.setdefault(os.getpid(), threading.Lock()):
            if self._closed:
                raise ValueError("the client is closed")
            if made_for != self._made_for:
                # The old channel is not closed: calls in flight keep it until they end.
                self._channel, self._methods, self._made_for = self._connect(pem), {}, made_for
            if name not in self._methods:
                found = Default().FindMethodByName("castor.v1." + name.replace("/", "."))
                streams = name.endswith("Stream")
                made = self._channel.stream_stream if streams else self._channel.unary_unary
                self._methods[name] = made(
                    f"/castor.v1.{name}",
                    _to_bytes,
                    GetMessageClass(found.output_type).FromString,
                )
            return self._methods[name]

    def _connect(self, pem: tuple[bytes | None, ...] | None) -> Any:
        """A channel, which connects with the first call. pem: CA, key and certificate."""
        options: list[tuple[str, Any]] = [*_OPTIONS]
        if is_local(self.target):
            options.append(("grpc.enable_http_proxy", 0))
        if pem is None:
            return self._grpc.insecure_channel(self.target, options)
        if self._tls and self._tls.server_name:
            options.append(("grpc.ssl_target_name_override", self._tls.server_name))
        return self._grpc.secure_channel(self.target, grpc.ssl_channel_credentials(*pem), options)

    def _end(self) -> list[Any]:
        """The channel to close, if it is this process's."""
        with self._locks.setdefault(os.getpid(), threading.Lock()):
            mine = self._made_for and self._made_for[0] == os.getpid()
            channels = [self._channel] if mine and not self._closed else []
            self._channel, self._methods, self._closed = None, {}, True
            return channels

    @contextmanager
    def _session(self, timeout: float | None, busy: bool = False) -> Iterator[Any]:
        """One call, whose stream does not outlive it."""
        session = self._Session(self, self._seconds(timeout), busy)
        try:
            yield session
        except UnavailableError as error:
            raise self._explained(error) from None
        finally:
            session.close()

    def _explained(self, error: CastorError) -> CastorError:
        """The error with a hint that gRPC lacks: nothing listens, or only one side uses TLS."""
        if "SETTINGS" in error.message:  # the peer accepts connections and sends nothing
            return DeadlineExceededError(error.message, index=error.index)
        told, at = error.message, self.target
        local = re.fullmatch(r"(?:dns:/*)?localhost:(\d+)", at)
        if local and "refused" in told:  # gRPC reports only the last address
            for host in ("127.0.0.1", "::1"):
                try:
                    socket.create_connection((host, int(local[1])), 0.2).close()
                    at, told = f"{host} port {local[1]}", "wrong version Socket closed"
                except OSError:
                    pass
        hint = ""
        if "refused" in told:
            hint = f"connection refused at {at}: is castor-server running there?"
        elif not self._tls and re.search(
            "Socket closed|Empty reply|reset by|HTTP/0.9|recvmsg", told
        ):
            hint = f"does the server at {at} use TLS? Then set tls"
        elif self._tls and re.search("(?i)wrong.version|SSL_ERROR_SYSCALL|unexpected eof", told):
            hint = f"the server at {at} does not use TLS, or wants a client's certificate"
        elif self._tls and re.search("verify failed|certificate|Hostname|peer", told):
            hint = (
                f"the certificate of {at} is not trusted: see castor.TLS, ca_file and server_name"
            )
        error.message = f"{hint} ({error.message})" if hint else error.message
        return error


def _to_bytes(request: Any) -> bytes:
    """Serializes a request, unless Session.wire has its bytes."""
    return request if isinstance(request, bytes) else request.SerializeToString()


def _checked(name: str, value: str) -> str:
    """The value, if gRPC takes it as metadata. It may be a secret: errors do not show it."""
    if not (value.isascii() and value.isprintable()):
        raise ValueError(f"{name} has other characters than printable ASCII")
    return value


def is_local(target: str) -> bool:
    """Whether the target is this machine. Names other than localhost count as remote."""
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
            probe.bind((host, 0))  # fails unless an interface has the address
        except OSError:
            return False
    return True
