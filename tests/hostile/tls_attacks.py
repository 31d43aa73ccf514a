"""Attacks on a server that speaks TLS and knows its callers; as in attacks.py.

The neighbour calls from another address of this machine: who opens many connections displaces its
own (a quarter of --max-connections), and cannot have all of them.
"""

import collections
import socket
import ssl
import time

from attacks import SMALL, Harm
from peer import HEALTH, grpc_message


def how_many(target, most: int) -> int:
    """`most`, or less in a short run."""
    return int(min(most, most / 4 * target.seconds))


def connect(target) -> socket.socket:
    return socket.create_connection(("127.0.0.1", target.port), timeout=20)


def hello(target) -> bytes:
    """A client's first bytes."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = target.tls.wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def send(connection: socket.socket, data: bytes) -> None:
    try:
        connection.sendall(data)
    except OSError:
        pass  # the server was faster


def refused(target, cause: str) -> float:
    return target.metric(f'castor_connections_refused_total{{cause="{cause}"}}')


def dropped_handshakes(target) -> str:
    """Handshakes begun and dropped, with and without the server's answer."""
    first = hello(target)
    count = how_many(target, 10_000)
    for i in range(count):
        connection = connect(target)
        send(connection, first)
        if i % 10 == 0:
            try:
                connection.recv(1 << 14)
            except OSError:
                pass
        connection.close()
    return f"{count} handshakes"


def half_hellos(target) -> str:
    """Hellos that break off: by the end of the stream, by a reset, or by silence."""
    first = hello(target)
    count = how_many(target, 4_000)
    silent = []
    for i in range(count):
        connection = connect(target)
        send(connection, first[:len(first) * (i % 7 + 1) // 8])
        if i % 3 == 0:
            connection.shutdown(socket.SHUT_WR)
        elif i % 3 == 1:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        silent.append(connection)
        if len(silent) > 500:
            silent.pop(0).close()
    for connection in silent:
        connection.close()
    return f"{count} halves"


def silent_connects(target) -> str:
    """Connections that say nothing; 2,000 of them stay open as long as the server lets them."""
    count = how_many(target, 10_000)
    open_ones = collections.deque()
    for _ in range(count):
        open_ones.append(connect(target))
        if len(open_ones) > 2_000:
            open_ones.popleft().close()
    displaced = refused(target, "new")
    turned_away = refused(target, "host") + refused(target, "total")
    for connection in open_ones:
        connection.close()
    return f"{count} connections, {displaced:.0f} displaced, {turned_away:.0f} turned away"


def slow_hellos(target) -> str:
    """300 hellos at a time, a byte each in turn."""
    first = hello(target)
    end = time.monotonic() + max(target.seconds, 1)
    slow, sent, done = [], 0, 0
    while time.monotonic() < end:
        while len(slow) < 300:
            slow.append([connect(target), 0])
        for it in slow:
            send(it[0], first[it[1]:it[1] + 1])
            it[1] += 1
            sent += 1
        for it in [it for it in slow if it[1] == len(first)]:
            it[0].close()
            slow.remove(it)
            done += 1
    for connection, _ in slow:
        connection.close()
    return f"{sent} bytes, {done} hellos complete"


def plaintext_flood(target) -> str:
    """HTTP/2 and HTTP without TLS."""
    before = refused(target, "no_call")
    count = how_many(target, 8_000)
    for i in range(count):
        connection = connect(target)
        send(connection, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" if i % 2 else b"GET / HTTP/1.1\r\n\r\n")
        if i % 10 == 0:
            try:
                while connection.recv(4096):
                    pass
            except OSError:
                pass
        connection.close()
    end = time.monotonic() + 20
    while refused(target, "no_call") < before + count / 10:  # the others may have gone unseen
        if time.monotonic() > end:
            raise Harm("plaintext was not counted")
        time.sleep(0.05)
    return f"{refused(target, 'no_call') - before:.0f} of {count} counted"


def complete_and_mute(target) -> str:
    """1,000 connections that finish their handshakes and never ask."""
    count = how_many(target, 4_000)
    count = min(count, 1_000)
    mute, failed = [], 0
    for _ in range(count):
        try:
            mute.append(target.tls.wrap_socket(connect(target), server_hostname="localhost"))
        except OSError:
            failed += 1
    time.sleep(min(target.seconds, 2))
    for connection in mute:
        connection.close()
    if failed > count / 100:
        raise Harm(f"{failed} of {count} handshakes failed")
    return f"{len(mute)} connections"


def call_without_end(target, authorizations) -> int:
    """Calls one after another with these headers, on connections as the server leaves them; returns
    how many."""
    end = time.monotonic() + target.seconds
    calls = 0
    while time.monotonic() < end:
        peer = target.peer(source="127.0.0.1")
        try:
            while time.monotonic() < end:
                for _ in range(20):
                    extra = [("authorization", value) for value in next(authorizations)]
                    peer.send(peer.headers(extra=extra) + peer.data(SMALL))
                    calls += 1
                if peer.read(0.02) == b"":
                    break
        except OSError:
            pass
        peer.close()
    return calls


def wrong_tokens(target) -> str:
    """Calls with tokens that nobody has."""
    def guesses():
        number = 0
        while True:
            number += 1
            yield [f"Bearer castor_{number:043d}"]

    calls = call_without_end(target, guesses())
    counted = target.metric('castor_callers_refused_total{reason="unknown_token"}')
    if counted == 0:
        raise Harm("guesses were not counted")
    return f"{calls} guesses, {counted:.0f} refused"


def odd_authorization(target) -> str:
    """Headers that are huge, many, empty, or no text."""
    def oddities():
        while True:
            yield ["Bearer " + "a" * 8_000]
            yield ["Bearer a"] * 100
            yield [""]
            yield ["Bearer " + " " * 4_000]
            yield ["\x80\xff\x01" * 100]
            yield ["Basic " + "A" * 1_000, "Bearer x"]
            yield ["B" * 60_000]

    calls = call_without_end(target, oddities())
    counted = target.metric('castor_callers_refused_total{reason="malformed"}')
    return f"{calls} calls, {counted:.0f} counted as malformed"


def strangers_health(target) -> str:
    """Health checks without a token, which are open to all."""
    peer = target.peer(source="127.0.0.1", token="")
    try:
        for _ in range(how_many(target, 8_000)):
            peer.send(peer.headers(path=HEALTH) + peer.data(grpc_message(b"")))
    except OSError:
        pass
    time.sleep(0.5)
    peer.close()
    return "served on"


TLS_ATTACKS = [dropped_handshakes, half_hellos, silent_connects, slow_hellos, plaintext_flood,
               complete_and_mute, wrong_tokens, odd_authorization, strangers_health]
