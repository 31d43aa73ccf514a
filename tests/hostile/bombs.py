"""Parse bombs: messages of 4 MiB whose elements would take up to a hundred times that in memory."""

import itertools
import os
import threading
import time

from attacks import Harm, answered
from hyperframe.frame import DataFrame
from peer import ATTEND, grpc_message
from wire import field

SIZE = 4 << 20
CALLERS = 4
# What the callers together may make the server grow by: their messages, as gRPC holds them and as
# far as they are read before they are refused.
MAX_GROWTH = 256 << 20


def many(element: bytes) -> bytes:
    return element * (SIZE // len(element))


def nested(*numbers: int, content: bytes) -> bytes:
    """Fields within each other, the outermost first."""
    for number in reversed(numbers):
        content = field(number, content)
    return content


def packed(*numbers: int) -> bytes:
    """Numbers of a byte each."""
    return nested(*numbers, content=many(b"\1"))


def empty(*numbers: int) -> bytes:
    """The last field again and again, with nothing in it."""
    return nested(*numbers[:-1], content=many(field(numbers[-1], b"")))


ENCODER = "/castor.v1.EncoderService/"
ENCODE, ENCODE_STREAM = ENCODER + "Encode", ENCODER + "EncodeStream"
ATTEND_STREAM = "/castor.v1.AttentionService/AttendStream"

# texts, pairs, tokens, embeddings, ranges of spans, outputs, allowed kernels, shapes
ENCODE_BOMBS = [empty(3, 1), empty(3, 2), packed(4, 1), packed(4, 2), packed(4, 3), packed(5, 2),
                packed(5, 1, 2), empty(18, 2), packed(23), packed(10, 1), packed(25, 2),
                packed(9, 1, 2), nested(4, content=many(b"\x08\1")),  # ids that are not packed
                many(nested(3, content=field(1, b"") * 4000) + field(4, b"\x08\xff\xff\3"))]  # either
# shapes, lengths, positions, slopes, allowed kernels
ATTEND_BOMBS = [packed(2, 2), packed(4, 2), packed(5), packed(6), packed(20, 1), packed(20, 2),
                packed(20, 5), packed(15, 1), packed(14, 1, 2), packed(20, 6, 2)]
CASTOR_BOMBS = ([(path, bomb) for path in (ENCODE, ENCODE_STREAM) for bomb in ENCODE_BOMBS] +
                [(path, bomb) for path in (ATTEND, ATTEND_STREAM) for bomb in ATTEND_BOMBS] +
                [(ENCODER + "Rerank", empty(4)), (ENCODER + "Tokenize", empty(3, 1)),
                 (ENCODER + "Detokenize", packed(3, 1)), (ENCODER + "Detokenize", packed(3, 3))])

INFER = "/inference.GRPCInferenceService/ModelInfer"
INFER_STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
# parameters, inputs, outputs and raw contents; of an input parameters, shape and contents
INFER_BOMBS = [empty(4), empty(5), empty(6), empty(7), empty(5, 4), packed(5, 3), empty(6, 2),
               packed(5, 5, 2), packed(5, 5, 3), packed(5, 5, 6), empty(5, 5, 8),
               many(nested(5, content=field(4, b"") * 200))]
OIP_BOMBS = [(path, field(1, b"embed") + bomb) for path in (INFER, INFER_STREAM)
             for bomb in INFER_BOMBS]


def send(client, path: str, bomb: bytes) -> None:
    stream = client.begin(path)
    in_band = path.endswith("Stream") or path == INFER_STREAM
    client.upload(stream, grpc_message(bomb), end=not in_band)
    if in_band and not client.answers[stream].status:
        client.send(DataFrame(stream, flags=["END_STREAM"]).serialize())
    answer = client.finish(stream)
    if answer.status not in ({"0", "8"} if in_band else {"3", "8"}):
        raise Harm(f"{path} answers a bomb with {answer.status} {answer.message}")
    if answer.status == "0" and answer.size == 0:
        raise Harm(f"{path} does not answer a bomb")


def explode(target, bombs) -> str:
    """All of the bombs, by some callers at once, and on until the time is up."""
    before, end = target.resident(), time.monotonic() + target.seconds
    ticket, sent, harms = itertools.count(), [0] * CALLERS, []

    def caller(number: int) -> None:
        try:
            client = target.client()
            while not harms and ((at := next(ticket)) < len(bombs) or time.monotonic() < end):
                send(client, *bombs[at % len(bombs)])
                sent[number] += 1
            client.close()
        except (Harm, OSError) as error:
            harms.append(str(error) or type(error).__name__)

    callers = [threading.Thread(target=caller, args=(i,), daemon=True) for i in range(CALLERS)]
    for thread in callers:
        thread.start()
    most, good = 0, 0
    while any(thread.is_alive() for thread in callers):
        most = max(most, target.resident() - before)
        beside = target.peer()
        if not answered(beside):
            harms.append("its neighbour was not served")
        beside.close()
        good += 1
    if harms:
        raise Harm(harms[0])
    if most > MAX_GROWTH:
        raise Harm(f"it grew by {most >> 20} MiB")
    return f"{sum(sent)} bombs refused, {good} good calls meanwhile, {most >> 20} MiB at most"


def parse_bombs(target) -> str:
    """Every repeated field of castor.v1's requests, filled, on calls and streams."""
    return explode(target, CASTOR_BOMBS)


def oip_parse_bombs(target) -> str:
    """The same of the Open Inference Protocol's."""
    return explode(target, OIP_BOMBS)


BOMBS = [parse_bombs, oip_parse_bombs]
for attack in BOMBS:
    attack.arguments = ["--model", "embed=" + os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "..", "golden", "encoder", "tiny_bert")]
