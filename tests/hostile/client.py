"""A good client, as gRPC's are: it keeps to the server's windows, tells the server after every so
many bytes that it may send more, acknowledges pings, and knows when it is asked to leave (GOAWAY).
"""

import dataclasses
import select
import ssl
import struct
import time

from hpack import Decoder
from hyperframe.frame import DataFrame
from peer import ATTEND, Peer

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK = 1, 1
INITIAL_WINDOW_SIZE = 4
FRAME = 16384

WINDOW = 1 << 20
CREDIT = 32 << 10  # bytes read between two WINDOW_UPDATE frames

# A slow client pauses after so many bytes.
SLOW_BYTES, SLOW_PAUSE = 128 << 10, 0.004


@dataclasses.dataclass
class Answer:
    """What has come of an answer; `status` is "" until it is whole."""
    size: int = 0
    status: str = ""
    message: str = ""
    uncredited: int = 0


class Client(Peer):
    """One connection. Raises OSError when it breaks off."""

    def __init__(self, port: int, window: int = WINDOW, slow: bool = False, **more):
        super().__init__(port, window=window, **more)  # frame() acknowledges
        self.send(self.credit(0, WINDOW))
        self.socket.settimeout(60)
        self.slow, self.since_pause, self.buffer, self.at = slow, 0, b"", 0
        self.decoder, self.answers, self.leaving, self.why = Decoder(), {}, False, b""
        self.windows, self.initial_window = {0: 65535}, 65535  # the server's
        self.held = set()  # streams that get no more than the first window
        self.pongs = 0

    def begin(self, path: str = ATTEND) -> int:
        """Begins a call; returns its stream."""
        self.send(self.headers(path=path, extra=self.credential))
        self.answers[self.stream] = Answer()
        self.windows[self.stream] = self.initial_window
        return self.stream

    def upload(self, stream: int, payload: bytes, end: bool = True) -> None:
        """Sends a part of a message, as the server's windows allow, unless it has answered."""
        at = 0
        while at < len(payload) and not self.answers[stream].status:
            room = min(self.windows[0], self.windows[stream], FRAME, len(payload) - at)
            if room <= 0:
                self.frame()
                continue
            frame = DataFrame(stream, data=payload[at:at + room])
            at += room
            if end and at == len(payload):
                frame.flags.add("END_STREAM")
            self.windows[0] -= room
            self.windows[stream] -= room
            self.send(frame.serialize())

    def cancel(self, stream: int) -> None:
        self.send(struct.pack(">I", 4)[1:] + bytes([RST_STREAM, 0]) + struct.pack(">II", stream, 8))

    def ping(self) -> None:
        self.send(struct.pack(">I", 8)[1:] + bytes([PING, 0, 0, 0, 0, 0]) + b"keepaliv")

    def call(self, message: bytes, path: str = ATTEND) -> Answer:
        """A whole call."""
        stream = self.begin(path)
        self.upload(stream, message)
        return self.finish(stream)

    def finish(self, stream: int) -> Answer:
        """Waits for the whole answer."""
        while not self.answers[stream].status:
            self.frame()
        return self.answers.pop(stream)

    def idle(self, seconds: float) -> None:
        """Takes what comes in this time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            decrypted = self.socket.pending() if isinstance(self.socket, ssl.SSLSocket) else 0
            if (self.at < len(self.buffer) or decrypted or
                    select.select([self.socket], [], [], left)[0]):
                self.frame()

    def release(self, stream: int) -> None:
        """Takes the rest of a held answer."""
        self.held.discard(stream)
        self.send(self.credit(stream, self.answers[stream].uncredited))
        self.answers[stream].uncredited = 0

    def frame(self) -> None:
        """Takes one frame and does what a good client does about it."""
        self.fill(9)
        length = int.from_bytes(self.buffer[self.at:self.at + 3], "big")
        kind, flags, stream = struct.unpack(">BBI", self.take(9)[3:])
        self.fill(length)
        payload = self.take(length)
        answer = self.answers.get(stream)
        if kind == DATA:
            self.send(self.credit(0, max(length, 1)))
            if answer is not None:
                answer.size += length
                answer.uncredited += length
                if answer.uncredited >= CREDIT and stream not in self.held:
                    self.send(self.credit(stream, answer.uncredited))
                    answer.uncredited = 0
        elif kind == HEADERS:
            headers = dict(self.decoder.decode(payload))
            if answer is not None and flags & END_STREAM:
                answer.status = headers["grpc-status"]
                answer.message = headers.get("grpc-message", "")
        elif kind == RST_STREAM and answer is not None and not answer.status:
            raise OSError("the server reset the stream")
        elif kind == PING and flags & ACK:
            self.pongs += 1
        elif kind == PING:
            self.send(struct.pack(">I", 8)[1:] + bytes([PING, ACK, 0, 0, 0, 0]) + payload)
        elif kind == GOAWAY:
            self.leaving = True
            self.why = payload[4:]  # a code, and words
        elif kind == WINDOW_UPDATE:
            if stream in self.windows:
                self.windows[stream] += struct.unpack(">I", payload)[0]
        elif kind == SETTINGS and not flags & ACK:
            for at in range(0, length, 6):
                key, value = struct.unpack(">HI", payload[at:at + 6])
                if key == INITIAL_WINDOW_SIZE:
                    for number in self.windows:
                        self.windows[number] += value - self.initial_window if number else 0
                    self.initial_window = value
            self.send(bytes([0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0]))

    def take(self, size: int) -> bytes:
        self.at += size
        return self.buffer[self.at - size:self.at]

    def fill(self, size: int) -> None:
        while len(self.buffer) - self.at < size:
            if self.slow and self.since_pause >= SLOW_BYTES:
                time.sleep(SLOW_PAUSE)
                self.since_pause = 0
            more = self.socket.recv(SLOW_BYTES if self.slow else 1 << 20)
            if not more:
                raise OSError(f"the server closed the connection {self.why}")
            self.since_pause += len(more)
            self.buffer, self.at = self.buffer[self.at:] + more, 0
