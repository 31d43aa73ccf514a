"""Good callers with bad luck or strict habits, on connections that many share, as behind a proxy.
None may lose a call. Each is a function of a run.Server, as in attacks.py; `target.rounds` says how
often it is played.
"""

import threading
import time

import wire
from attacks import SMALL, Harm
from client import Client
from peer import grpc_message

# In which no call begins.
QUIET = 3


def begin_a_long_call(client: Client) -> int:
    """A call whose answer the client does not take yet."""
    stream = client.begin()
    client.held.add(stream)
    client.upload(stream, grpc_message(wire.amplifier(1)))
    while client.answers[stream].size == 0:
        client.frame()
    return stream


def end_a_long_call(client: Client, stream: int) -> None:
    client.release(stream)
    answer = client.finish(stream)
    if answer.status != "0" or answer.size < 1 << 20:
        raise Harm(f"a call beside it failed: {answer.message or answer}")


def beside_a_cancelled_upload(target, size: int) -> None:
    """An upload is cancelled after `size` bytes, between a long call and a short one."""
    client = target.client(window=65535)
    try:
        long_one = begin_a_long_call(client)
        upload = client.begin()
        client.upload(upload, grpc_message(bytes(50 << 20))[:size], end=False)
        short_one = client.begin()
        client.upload(short_one, SMALL[:7], end=False)
        client.cancel(upload)
        client.idle(0.2)
        client.upload(short_one, SMALL[7:])
        if client.finish(short_one).status != "0":
            raise Harm("the call after it failed")
        client.idle(QUIET)
        end_a_long_call(client, long_one)
    finally:
        client.close()


def beside_a_refused_upload(target, size: int) -> None:
    """The server refuses a method at once, while its message still comes; a call follows."""
    client = target.client(window=65535)
    try:
        upload = client.begin("/castor.v1.NoService/NoMethod")
        client.upload(upload, grpc_message(bytes(size)))
        if client.finish(upload).status in ("", "0"):
            raise Harm("a method that does not exist is answered")
        client.idle(QUIET)
        if client.call(SMALL).status != "0":
            raise Harm("the call after it failed")
    finally:
        client.close()


def play(target, scenes) -> None:
    """Plays scenes at once, each a function and its arguments; raises the first Harm."""
    harms = []

    def run(scene, *arguments):
        try:
            scene(target, *arguments)
        except Harm as harm:
            harms.append(harm)
        except OSError as error:
            harms.append(Harm(f"{scene.__name__}{arguments} loses calls: {error}"))

    threads = [threading.Thread(target=run, args=scene) for scene in scenes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if harms:
        raise harms[0]


def cancelled_uploads(target) -> str:
    """Uploads that break off after 3 or 20 of 50 MiB, or are refused, beside calls that go on."""
    scenes = [(beside_a_cancelled_upload, 3 << 20), (beside_a_cancelled_upload, 20 << 20),
              (beside_a_refused_upload, 3 << 20)]
    for _ in range(target.rounds):
        play(target, scenes)
    if target.metric("castor_connections_expelled_total") > 0:
        raise Harm("a connection was closed")
    return f"{target.rounds * len(scenes)} uploads, no call lost"


def ping_on(target, call: bool, pings: int, every: float) -> None:
    """Keepalive as clients have it."""
    client = target.client(window=65535)
    try:
        stream = begin_a_long_call(client) if call else None
        for number in range(pings):
            client.ping()
            client.idle(every if number < pings - 1 else 0.5)
        if client.pongs < pings or client.leaving:
            raise Harm(f"{client.pongs} of {pings} pings are answered, "
                       f"told to leave: {client.leaving}")
        if stream is not None:
            end_a_long_call(client, stream)
        if client.call(SMALL).status != "0":
            raise Harm("the call after the pings failed")
    finally:
        client.close()


def keepalive(target) -> str:
    """Pings every 10 s, between calls and during one; in a short run, nearly as often as may be."""
    pings, every = (6, 10) if target.seconds >= 10 else (4, 5.5)
    play(target, [(ping_on, during, pings, every) for during in (False, True)] * target.rounds)
    return f"{2 * target.rounds} connections, {pings} pings each, {every} s apart"


HONEST = [cancelled_uploads, keepalive]

# Longer than those calls take, on a busy machine, too.
cancelled_uploads.max_deadline = keepalive.max_deadline = 120
