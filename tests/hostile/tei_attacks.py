"""Attacks by tei.v1, as those of attacks.py."""

import os
import time

from attacks import Harm
from hyperframe.frame import DataFrame
from peer import Peer, grpc_message
from wire import field, varint

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "encoder")
EMBED, EMBED_STREAM = "/tei.v1.Embed/Embed", "/tei.v1.Embed/EmbedStream"
RERANK, RERANK_STREAM = "/tei.v1.Rerank/Rerank", "/tei.v1.Rerank/RerankStream"
RANKER = [("castor-model", "rank")]
LARGEST = 4 << 20

# The streams, and the field of their messages that can be largest.
STREAMS = {EMBED_STREAM: 1, "/tei.v1.Embed/EmbedSparseStream": 1, "/tei.v1.Embed/EmbedAllStream": 1,
           "/tei.v1.Predict/PredictStream": 1, "/tei.v1.Predict/PredictPairStream": 1,
           RERANK_STREAM: 2, "/tei.v1.Tokenize/TokenizeStream": 1,
           "/tei.v1.Tokenize/DecodeStream": 1}


def number(at: int, value: int) -> bytes:
    return varint(at << 3) + varint(value & (1 << 64) - 1)


def begin(client, path: str) -> int:
    """A call to the model that ranks, which serves everything but EmbedSparse."""
    client.credential = RANKER
    return client.begin(path)


def end(client, stream: int):
    if not client.answers[stream].status:
        client.send(DataFrame(stream, flags=["END_STREAM"]).serialize())
    return client.finish(stream)


CONTRADICTIONS = [
    (EMBED, b""), (EMBED, field(1, b"\xff\xfe")), (EMBED, field(1, b"a") + number(4, 2)),
    (EMBED, field(1, b"a") + number(4, -1)), (EMBED, field(1, b"a") + number(6, 0)),
    (EMBED, field(1, b"a") + number(6, 0xffffffff)), (EMBED, field(1, b"a") + field(5, b"?")),
    (EMBED, field(1, b"a " * 4000)), (EMBED, field(1, b" " * 2000000)),
    (EMBED, field(1, bytes(LARGEST))), (EMBED, b"\x0a\xff\xff\xff\xff\x0f"),
    ("/tei.v1.Embed/EmbedSparse", field(1, b"a")),
    ("/tei.v1.Predict/PredictPair", b""), ("/tei.v1.Predict/PredictPair", field(1, b"a") * 3),
    ("/tei.v1.Predict/PredictPair", field(1, b"a") * 100000),
    (RERANK, field(1, b"q")), (RERANK, field(1, b"q") + field(2, b"t") * 5000),
    (RERANK, field(2, b"") * (LARGEST // 2 - 8)), (RERANK, field(1, b"q" * (1 << 20)) +
                                                   field(2, b"t") * 4096),
    (RERANK, field(1, b"q") + field(2, b"t") + number(6, 7)),
    ("/tei.v1.Tokenize/Tokenize", b""), ("/tei.v1.Tokenize/Tokenize", field(1, b"a" * (2 << 20))),
    ("/tei.v1.Tokenize/Decode", b""), ("/tei.v1.Tokenize/Decode", number(1, 0xffffffff)),
]


def tei_contradictions(target) -> str:
    """Texts, numbers and counts that are refused, one after another."""
    client = target.client()
    finish, count = time.monotonic() + target.seconds, 0
    while count < len(CONTRADICTIONS) or time.monotonic() < finish:
        path, message = CONTRADICTIONS[count % len(CONTRADICTIONS)]
        stream = begin(client, path)
        client.upload(stream, grpc_message(message))
        answer = client.finish(stream)
        if answer.status not in {"3", "8", "9"}:
            raise Harm(f"number {count} is answered with {answer.status} {answer.message}")
        count += 1
    client.close()
    return f"{count} refused"


def tei_largest(target) -> str:
    """The largest message and one byte more, on every stream."""
    client = target.client()
    for path, at in STREAMS.items():
        for size in (LARGEST - 8, LARGEST + 1):
            stream = begin(client, path)
            client.upload(stream, grpc_message(field(at, b"a" * size)), end=False)
            answer = end(client, stream)
            if answer.status not in {"3", "8", "9"}:
                raise Harm(f"{path} answers {answer.status} {answer.message}")
    client.close()
    return f"{2 * len(STREAMS)} sent"


def tei_unread_stream(target) -> str:
    """Streams of texts whose answers nobody reads."""
    message = grpc_message(field(1, b"answers of the mill"))
    peers = [Peer(target.port, acknowledge=True) for _ in range(16)]
    for peer in peers:
        peer.send(peer.headers(path="/tei.v1.Embed/EmbedAllStream", extra=RANKER))
        peer.socket.settimeout(0.5)
        try:
            for _ in range(4000):  # as much as the window takes
                peer.send(peer.data(message, end=False))
        except OSError:
            pass
    time.sleep(min(target.seconds, 3))
    most = target.metric('castor_inflight_calls{method="tei"}')
    for peer in peers:
        peer.close()
    return f"{most:.0f} messages in flight"


def tei_ceaseless_rerank(target) -> str:
    """RerankStream with texts without end: of one byte, and as many bytes as there may be."""
    client = target.client()
    for text in (b"t", b"t" * 100000):
        stream = begin(client, RERANK_STREAM)
        part = grpc_message(field(1, b"q") + field(2, text))
        count = 0
        while not client.answers[stream].status:
            client.upload(stream, part, end=False)
            count += 1
            if count % 1000 == 0:
                client.idle(0.01)
            if count > 100000:
                raise Harm("it takes whatever comes")
        answer = client.finish(stream)
        if answer.status not in {"3", "8"}:
            raise Harm(f"it is answered with {answer.status} {answer.message}")
    client.close()
    return "both refused"


def tei_waiting_rerank(target) -> str:
    """Many RerankStreams of 1 MiB each that never half-close; one that does is answered after."""
    message = grpc_message(field(1, b"q") + field(2, b"t" * (1 << 20)))
    clients = [target.client() for _ in range(8)]
    for client in clients:
        for _ in range(16):
            client.upload(begin(client, RERANK_STREAM), message, end=False)
    full = 0
    for client in clients:
        client.idle(0.1)
        full += sum(answer.status == "8" for answer in client.answers.values())
        client.close()
    if full == 0:
        raise Harm("128 MiB wait, and nobody minds")
    finish = time.monotonic() + 10
    while True:
        client = target.client()
        stream = begin(client, RERANK_STREAM)
        client.upload(stream, grpc_message(field(1, b"q") + field(2, b"t")), end=False)
        answer = end(client, stream)
        client.close()
        if answer.status == "0":
            return f"{full} of 128 refused"
        if time.monotonic() > finish:
            raise Harm(f"then it is answered with {answer.status} {answer.message}")
        time.sleep(0.05)


TEI_ATTACKS = [tei_contradictions, tei_largest, tei_unread_stream, tei_ceaseless_rerank,
               tei_waiting_rerank]
for attack in TEI_ATTACKS:
    attack.arguments = ["--model", f"rank={GOLDEN}/heads/cross_encoder",
                        "--model", f"embed={GOLDEN}/tiny_bert"]
