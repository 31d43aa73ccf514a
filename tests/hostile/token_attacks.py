"""Attacks by Tokenize and Detokenize, as those of attacks.py."""

import os
import threading
import time

from attacks import Harm
from peer import grpc_message
from wire import field, varint

HERE = os.path.dirname(os.path.abspath(__file__))
SERVICE = "/castor.v1.EncoderService/"
TOKENIZE, DETOKENIZE, ENCODE = SERVICE + "Tokenize", SERVICE + "Detokenize", SERVICE + "Encode"

# Longer than this no small call waits beside them.
PATIENCE = 2.0


def tokenize(texts, *more: bytes) -> tuple:
    return TOKENIZE, field(3, b"".join(field(1, text) for text in texts)) + b"".join(more)


def detokenize(ids: int, lengths=()) -> tuple:
    packed = b"".join(varint(length) for length in lengths)
    return DETOKENIZE, field(3, field(1, b"\5" * ids) + (field(3, packed) if lengths else b""))


WORDS, NAMES, CUT_LEFT = b"a b " * (1 << 18), b"\x28\1", b"\x78\1\xa0\1\1\xa8\1\x09"
HUGE = [
    tokenize([WORDS]), tokenize([WORDS], NAMES), tokenize([b"a" * (1 << 20)]),
    tokenize([b"\xef\xb7\xba" * (1 << 18)]), tokenize([WORDS] * 40, CUT_LEFT),
    tokenize([b"a b"] * 4096, NAMES), tokenize([WORDS] * 200), tokenize([b"a"] * 5000),
    detokenize(1 << 20), detokenize(1 << 23), detokenize(1 << 19, [128] * 4096),
    detokenize(0, [0] * 4096), detokenize(5, [2, -1 & (1 << 64) - 1, 4]),
]

# OK, cancelled, refused for what it says, late, or for want of room.
OUTCOMES = {"0", "1", "3", "4", "8"}


def huge_tokenizing(target) -> str:
    """Texts and ids of a megabyte, some dropped on the way, beside calls of one word each."""
    end = time.monotonic() + max(target.seconds, 4)
    outcomes, harms = {}, []

    def attack(first: int, drops: bool) -> None:
        client, number = target.client(), first
        while time.monotonic() < end:
            path, message = HUGE[number % len(HUGE)]
            number += 1
            stream = client.begin(path)
            client.upload(stream, grpc_message(message))
            if drops:
                client.cancel(stream)
                client.answers.pop(stream)
                client.idle(0.05)
                continue
            answer = client.finish(stream)
            outcomes[answer.status] = outcomes.get(answer.status, 0) + 1
            if answer.status not in OUTCOMES:
                harms.append(f"number {number} is answered with {answer.status} {answer.message}")
        client.close()

    attackers = [threading.Thread(target=attack, args=(i * 3, i == 3)) for i in range(4)]
    for attacker in attackers:
        attacker.start()
    small, longest, count = target.client(), 0.0, 0
    word = grpc_message(field(3, field(1, b"a")))
    while time.monotonic() < end:
        for path in (ENCODE, TOKENIZE):
            begin = time.monotonic()
            try:
                answer = small.call(word, path)
            except OSError as error:
                # gRPC may close connections without calls when its memory is full.
                if "Buffers full" not in str(error):
                    raise
                small = target.client()
                continue
            longest, count = max(longest, time.monotonic() - begin), count + 1
            if answer.status != "0":
                harms.append(f"a word is answered with {answer.status} {answer.message}")
    small.close()
    for attacker in attackers:
        attacker.join()
    if harms or longest > PATIENCE:
        raise Harm(harms[0] if harms else f"a word waited {longest:.1f} s beside them")
    return f"{outcomes} by status; {count} words beside them waited {1000 * longest:.0f} ms at most"


TOKEN_ATTACKS = [huge_tokenizing]
for attack in TOKEN_ATTACKS:
    attack.arguments = ["--model", "m=" + os.path.join(HERE, "..", "golden/encoder/tiny_bert")]
