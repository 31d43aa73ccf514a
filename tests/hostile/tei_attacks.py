"""Attacks by tei.v1, as those of attacks.py."""

import os
import threading
import time

from attacks import Harm
from hyperframe.frame import DataFrame
from peer import Peer, grpc_message
from wire import field, varint

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "encoder")
EMBED, EMBED_STREAM = "/tei.v1.Embed/Embed", "/tei.v1.Embed/EmbedStream"
RERANK, RERANK_STREAM = "/tei.v1.Rerank/Rerank", "/tei.v1.Rerank/RerankStream"
RANKER = [("castor-model", "rank")]
GREEDY = "castor_of_the_greedy"  # a caller with a quota
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
    client.credential = RANKER + [pair for pair in client.credential if pair not in RANKER]
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


# Messages whose elements would take much more in memory than on the wire, or work for each of them.
BOMBS = [
    (RERANK, field(1, b"q" * (2 << 20)) + b"\x12\0" * 1000000 + number(3, 1)),
    (RERANK, field(1, b"q") + b"\x12\0" * 2000000 + number(5, 1)),
    ("/tei.v1.Predict/PredictPair", b"\x0a\0" * 2000000),
    ("/tei.v1.Tokenize/Decode", field(1, b"\1" * (LARGEST - 16))),
    (EMBED, field(1, b"a" * 9000) + b"\x7a\0" * 2000000),
    (EMBED, field(1, b"a" * 9000) + b"\x7b\x7c" * 2000000),
]

# So long may one word wait beside them, on a busy machine, and so much may the server grow.
PATIENCE = 5.0
MAX_BOMBS_GROWTH = 256 << 20


def tei_bombs(target) -> str:
    """Messages of 4 MiB with a million elements, on eight connections, beside small calls."""
    end, harms, counts = time.monotonic() + max(target.seconds, 3), [], []

    def attack(first: int) -> None:
        client, count = target.client(), 0
        while time.monotonic() < end:
            path, message = BOMBS[(first + count) % len(BOMBS)]
            stream = begin(client, path)
            client.upload(stream, grpc_message(message))
            answer = client.finish(stream)
            count += 1
            if answer.status not in {"0", "3", "8"}:
                harms.append(f"{path} is answered with {answer.status} {answer.message}")
        client.close()
        counts.append(count)

    before = target.resident()
    attackers = [threading.Thread(target=attack, args=(i,)) for i in range(8)]
    for attacker in attackers:
        attacker.start()
    small, longest, most, start = target.client(), 0.0, before, 0.0
    while start < end:
        start = time.monotonic()
        stream = begin(small, RERANK)
        small.upload(stream, grpc_message(field(1, b"q") + field(2, b"t")))
        answer = small.finish(stream)
        longest, most = max(longest, time.monotonic() - start), max(most, target.resident())
        if answer.status != "0":
            harms.append(f"a word is answered with {answer.status} {answer.message}")
    small.close()
    for attacker in attackers:
        attacker.join()
    if longest > PATIENCE:
        harms.append(f"a word waited {longest:.1f} s")
    if most - before > MAX_BOMBS_GROWTH:
        harms.append(f"it grew by {most - before >> 20} MiB")
    if harms:
        raise Harm(harms[0])
    return f"{sum(counts)} refused, {most - before >> 20} MiB more, a word waits {longest:.2f} s"


def tei_greedy_rerank(target) -> str:
    """One tenant, or one host, begins all RerankStreams that it can; others' are answered."""
    if target.tls is None:
        kinds = [({}, [("castor-tenant", "greedy")]), ({"source": "127.0.0.3"}, [])]
    else:
        kinds = [({}, [("authorization", "Bearer " + GREEDY)])]
    seen = []
    for how, credential in kinds:
        clients = []
        for size in [1 << 19] * 5 + [1 << 14] * 3 + [1 << 9] * 3 + [64]:
            client = target.client(**how)
            client.credential = credential or client.credential
            clients.append(client)
            for _ in range(16):
                stream = begin(client, RERANK_STREAM)
                client.upload(stream, grpc_message(field(1, b"q") + field(2, b"t" * size)),
                              end=False)
        for client in clients:
            client.idle(0.1)
        good = target.client()
        for _ in range(5):
            stream = begin(good, RERANK_STREAM)
            good.upload(stream, grpc_message(field(1, b"q") + field(2, b"t" * 1000) +
                                              number(3, 1)), end=False)
            answer = end(good, stream)
            if answer.status != "0":
                raise Harm(f"beside {how or credential} it is answered with {answer.status} "
                           f"{answer.message}")
        good.close()
        seen.append(sum(not answer.status for c in clients for answer in c.answers.values()))
        for client in clients:
            client.close()
    return f"{seen} calls were open"


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


# Over TLS, with callers, too.
TEI_TLS_ATTACKS = [tei_bombs, tei_greedy_rerank]
TEI_ATTACKS = [tei_contradictions, tei_largest, tei_unread_stream, tei_ceaseless_rerank,
               tei_waiting_rerank, *TEI_TLS_ATTACKS]
for attack in TEI_ATTACKS:
    attack.arguments = ["--model", f"rank={GOLDEN}/heads/cross_encoder",
                        "--model", f"embed={GOLDEN}/tiny_bert"]
