"""A misbehaving peer: HTTP/2 frames written by hand over a plain socket.

h2's state machine enforces the protocol, so only its parts are used here: hpack for headers,
hyperframe for frames. Callers bound every wait; nothing here waits forever by itself.
"""

import socket
import struct

from hpack import Encoder
from hyperframe.frame import (ContinuationFrame, DataFrame, HeadersFrame, RstStreamFrame,
                              SettingsFrame, WindowUpdateFrame)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
ATTEND = "/castor.v1.AttentionService/Attend"
HEALTH = "/grpc.health.v1.Health/Check"


def grpc_message(payload: bytes) -> bytes:
    """A message in gRPC's framing: the flag "not compressed", its length, its bytes."""
    return b"\0" + struct.pack(">I", len(payload)) + payload


class Peer:
    """One connection. Streams are numbered 1, 3, 5, ... as they are opened.

    `tls` is an ssl.SSLContext, for a server that speaks TLS; `token` goes with each good call."""

    def __init__(self, port: int, window: int = 65535, acknowledge: bool = False,
                 source: str = "127.0.0.1", tls=None, token: str = ""):
        self.credential = [("authorization", "Bearer " + token)] if token else []
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20,
                                               source_address=(source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self.encoder = Encoder()
        self.next_stream = 1
        settings = SettingsFrame(0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: window})
        self.send(PREFACE + settings.serialize())
        if acknowledge:
            self.send(SettingsFrame(0, flags=["ACK"]).serialize())

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def headers(self, path: str = ATTEND, extra=(), end_headers: bool = True) -> bytes:
        """The HEADERS frame of a new stream; its number is self.stream."""
        self.stream = self.next_stream
        self.next_stream += 2
        block = self.encoder.encode([(":method", "POST"), (":scheme", "http"), (":path", path),
                                     (":authority", "castor"), ("te", "trailers"),
                                     ("content-type", "application/grpc"), *extra],
                                    huffman=False)
        frames = []
        first, rest = block[:16384], block[16384:]
        frame = HeadersFrame(self.stream, data=first)
        if not rest and end_headers:
            frame.flags.add("END_HEADERS")
        frames.append(frame.serialize())
        while rest:
            piece, rest = rest[:16384], rest[16384:]
            more = ContinuationFrame(self.stream, data=piece)
            if not rest and end_headers:
                more.flags.add("END_HEADERS")
            frames.append(more.serialize())
        return b"".join(frames)

    def data(self, payload: bytes, end: bool = True) -> bytes:
        frames = []
        for at in range(0, max(len(payload), 1), 16384):
            frame = DataFrame(self.stream, data=payload[at:at + 16384])
            if end and at + 16384 >= len(payload):
                frame.flags.add("END_STREAM")
            frames.append(frame.serialize())
        return b"".join(frames)

    def reset(self, code: int = 8) -> bytes:
        return RstStreamFrame(self.stream, error_code=code).serialize()

    def credit(self, stream: int, size: int) -> bytes:
        return WindowUpdateFrame(stream, window_increment=size).serialize()

    def read(self, timeout: float) -> bytes:
        """Data that comes in this time; b"" when the server has closed, None when nothing came."""
        try:
            self.socket.settimeout(timeout)
            return self.socket.recv(1 << 20)
        except (TimeoutError, socket.timeout):
            return None
        except OSError:
            return b""

    def close(self) -> None:
        try:
            self.socket.shutdown(socket.SHUT_RDWR)  # also ends a read on another thread
        except OSError:
            pass  # the server closed it first
        self.socket.close()
