"""Attacks by the Open Inference Protocol, as those of attacks.py."""

import gzip
import os
import struct
import time

from attacks import Harm
from client import Answer
from hyperframe.frame import DataFrame
from peer import Peer, grpc_message
from wire import field, varint

HERE = os.path.dirname(os.path.abspath(__file__))
SERVICE = "/inference.GRPCInferenceService/"
INFER, STREAM = SERVICE + "ModelInfer", SERVICE + "ModelStreamInfer"

# Of a request that is refused for what it says: INVALID_ARGUMENT, NOT_FOUND, RESOURCE_EXHAUSTED,
# FAILED_PRECONDITION, UNIMPLEMENTED.
REFUSALS = {"3", "5", "8", "9", "12"}


def parameter(key: str, number: int, value) -> bytes:
    """An entry of a map: InferParameter's field `number`."""
    if isinstance(value, str):
        choice = field(number, value.encode())
    else:
        choice = varint(number << 3) + varint(value & (1 << 64) - 1)
    return field(1, key.encode()) + field(2, choice)


def tensor(name: str, datatype: str, shape, parameters=(), contents: bytes = b"") -> bytes:
    return (field(1, name.encode()) + field(2, datatype.encode()) +
            field(3, b"".join(varint(d & (1 << 64) - 1) for d in shape)) +
            b"".join(field(4, p) for p in parameters) +
            (field(5, contents) if contents else b""))


def request(model: str, inputs, raw=(), parameters=(), outputs=()) -> bytes:
    return (field(1, model.encode()) + b"".join(field(4, p) for p in parameters) +
            b"".join(field(5, i) for i in inputs) + b"".join(field(6, o) for o in outputs) +
            b"".join(field(7, r) for r in raw))


def attention(shape=(3, 1, 2), raw=bytes(24), datatype="FP32", **more) -> bytes:
    inputs = [tensor(name, datatype, shape, more.get("of_tensor", ()), more.get("contents", b""))
              for name in ("query", "key", "value")]
    return request("castor_attention", inputs, [raw] * 3 if raw is not None else (),
                   more.get("parameters", ()), more.get("outputs", ()))


def text(raw: bytes, shape=(1, 1), **more) -> bytes:
    return request("embed", [tensor("text", "BYTES", shape, **more)], [raw])


def region(name: str, size: int, offset: int = 0) -> list:
    return [parameter("shared_memory_region", 3, name),
            parameter("shared_memory_byte_size", 2, size),
            parameter("shared_memory_offset", 2, offset)]


LENGTHS = [b"\xff\xff\xff\xff", b"\xff\xff\xff\x7fabc", b"\1\0\0", b"\0\0\0\0\1", b"\4\0\0\0abc"]
CONTRADICTIONS = [
    attention(shape=(3, 1, 3)), attention(shape=(-1, 1, 2)), attention(shape=()),
    attention(shape=(1 << 62, 4, 1)), attention(shape=(1 << 32, 1 << 32, 2)),
    attention(shape=(-(1 << 63),) * 3), attention(shape=(0, 1, 2), raw=b""),
    attention(shape=(1,) * 1000), attention(datatype="BYTES"), attention(datatype="FP8"),
    attention(raw=None), attention(contents=field(6, bytes(24))),
    attention(raw=None, contents=field(6, bytes(20))),
    attention(raw=None, contents=field(3, b"\1" * 6)),
    attention(raw=struct.pack("<6f", *[float("nan")] * 6), parameters=[
        parameter("check_finite", 1, 1)]),
    attention(raw=struct.pack("<6f", *[float("inf")] * 6), parameters=[
        parameter("check_finite", 1, 1)]),
    attention(parameters=[parameter("attention", 3, "strange")]),
    attention(parameters=[parameter("attention", 3, "clustered"),
                          parameter("clustering", 2, 1 << 40)]),
    attention(parameters=[parameter("attention", 3, "clustered"), parameter("clustering", 2, 99)]),
    attention(parameters=[parameter("timeout", 2, -1)]),
    attention(parameters=[parameter("fidelity_rows", 2, 1 << 62)]),
    attention(outputs=[field(1, b"output") * 2, field(1, b"output")]),
    attention(raw=None, of_tensor=region("mine", 1 << 62, 1 << 62)),
    attention(of_tensor=region("mine", -1, -1)),
    attention(raw=None, of_tensor=region("", 24)),
    *[text(bad) for bad in LENGTHS],
    text(b"\3\0\0\0cat", shape=(2, 1)), text(b"\3\0\0\0cat", shape=(1 << 62, 4)),
    text(b"\2\0\0\0\xff\xfe"), text(bytes(4 << 20), shape=(1 << 20, 1)),
    request("embed", [tensor("input_ids", "INT64", (1,))], [struct.pack("<q", 1 << 62)]),
    request("embed", [tensor("input_ids", "INT64", (2,)), tensor("lengths", "INT64", (1,))],
            [bytes(16), struct.pack("<q", -1)]),
    request("embed", []), request("strange", []), request("embed", [tensor("text", "BYTES", (1, 1))],
                                                          [b""] * 1000),
]


def oip_contradictions(target) -> str:
    """Shapes, contents, parameters and regions that contradict each other, one after another."""
    client = target.client()
    end, count = time.monotonic() + target.seconds, 0
    while count < len(CONTRADICTIONS) or time.monotonic() < end:
        number = count % len(CONTRADICTIONS)
        answer = client.call(grpc_message(CONTRADICTIONS[number]), INFER)
        if answer.status not in REFUSALS:
            raise Harm(f"number {number} is answered with {answer.status} {answer.message}")
        count += 1
    client.close()
    return f"{count} refused"


def oip_gzip_bombs(target) -> str:
    """1 MiB that becomes 1 GiB, on calls and on a stream."""
    bomb = gzip.compress(bytes(1 << 30), 9)
    message = b"\1" + struct.pack(">I", len(bomb)) + bomb
    for path in (INFER, STREAM, INFER, STREAM):
        client = target.client()
        client.send(client.headers(path=path, extra=[("grpc-encoding", "gzip")]))
        client.answers[client.stream] = Answer()
        client.windows[client.stream] = client.initial_window
        client.upload(client.stream, message)
        answer = client.finish(client.stream)
        if answer.status in ("", "0"):
            raise Harm("it is read")
        client.close()
    return f"4 of {len(bomb) >> 10} KiB refused"


def oip_streams_of_errors(target) -> str:
    """Streams of nothing but errors, as fast as they are answered."""
    bad = grpc_message(attention(shape=(3, 1, 3))) * 50
    client = target.client()
    streams = [client.begin(STREAM) for _ in range(4)]
    end, count = time.monotonic() + target.seconds, 0
    while time.monotonic() < end:
        for stream in streams:
            client.upload(stream, bad, end=False)
            count += 50
    for stream in streams:
        client.send(DataFrame(stream, flags=["END_STREAM"]).serialize())
        answer = client.finish(stream)
        if answer.status != "0" or answer.size == 0:
            raise Harm(f"a stream ended with {answer.status} {answer.message}")
    client.close()
    return f"{count} errors told"


def oip_unread_stream(target) -> str:
    """Streams of requests with answers of 4 MiB, which nobody reads."""
    wide = request("castor_attention", [tensor("query", "FP16", (256, 1, 1)),
                                        tensor("key", "FP16", (1, 1, 1)),
                                        tensor("value", "FP16", (1, 1, 8192))],
                   [bytes(512), bytes(2), bytes(16384)])
    peers = [Peer(target.port, acknowledge=True) for _ in range(16)]
    for peer in peers:
        peer.send(peer.headers(path=STREAM))
        peer.socket.settimeout(0.5)
        try:
            for _ in range(100):  # as much as the window takes
                peer.send(peer.data(grpc_message(wide), end=False))
        except OSError:
            pass
    most, end = 0, time.monotonic() + min(target.seconds, 3)
    while time.monotonic() < end:
        most = max(most, target.metric("castor_inflight_bytes"))
        time.sleep(0.1)
    limit = target.metric('castor_queue_limit{unit="bytes"}')
    for peer in peers:
        peer.close()
    if most > limit:
        raise Harm(f"{most:.0f} bytes in flight, {limit:.0f} is the budget")
    return f"{most / 2**20:.0f} MiB held at most"


OIP_ATTACKS = [oip_contradictions, oip_gzip_bombs, oip_streams_of_errors, oip_unread_stream]
for attack in OIP_ATTACKS:
    attack.arguments = ["--shared-memory", "--model", "embed=" + os.path.join(
        HERE, "..", "golden", "encoder", "tiny_bert")]
