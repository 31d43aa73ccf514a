#!/usr/bin/env python3
"""What castor.Client costs beyond the generated stubs: p50 of the wall time, alternating.

overhead.py TARGET    of a server with MiniLM
"""

import sys
import time

import grpc
import numpy as np

import castor
from castor.v1 import attention_pb2, attention_pb2_grpc, encoder_pb2, encoder_pb2_grpc, tensor_pb2

target = sys.argv[1]
client = castor.Client(target)
channel = grpc.insecure_channel(target, [("grpc.max_receive_message_length", -1)])
encoder = encoder_pb2_grpc.EncoderServiceStub(channel)
attention = attention_pb2_grpc.AttentionServiceStub(channel)


def by_stub(texts: list[str]) -> np.ndarray:
    batch = encoder_pb2.TextBatch(texts=texts)
    answer = encoder.Encode(encoder_pb2.EncodeRequest(texts=batch), timeout=60)
    return np.frombuffer(answer.output.raw, "<f4").reshape(answer.output.shape)


def tensor(array: np.ndarray) -> tensor_pb2.Tensor:
    raw = array.astype("<f4").tobytes()
    return tensor_pb2.Tensor(dtype=tensor_pb2.FLOAT32, shape=array.shape, raw=raw)


def attend_by_stub(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    request = attention_pb2.AttendRequest(query=tensor(q), key=tensor(k), value=tensor(v))
    answer = attention.Attend(request, timeout=60)
    return np.frombuffer(answer.output.raw, "<f4").reshape(answer.output.shape)


texts = [f"a beaver builds dam number {n}" for n in range(64)]
q, k, v = np.random.default_rng(1).standard_normal((3, 512, 8, 64), dtype=np.float32)  # 1 MiB each
print("| what | stubs, p50 | castor.Client, p50 | ratio |\n|---|---|---|---|")
for what, calls, stub, ours in [
    ("one text", 600, lambda: by_stub(texts[:1]), lambda: client.encode(texts[:1])),
    ("64 texts", 150, lambda: by_stub(texts), lambda: client.encode(texts)),
    ("3 tensors of 1 MiB", 150, lambda: attend_by_stub(q, k, v), lambda: client.attend(q, k, v)),
]:
    times: dict = {stub: [], ours: []}
    for call in range(calls):
        for run in (stub, ours) if call % 2 else (ours, stub):
            begin = time.perf_counter()
            run()
            times[run].append(time.perf_counter() - begin)
    a, b = (float(np.median(times[run])) * 1e3 for run in (stub, ours))
    print(f"| {what} | {a:.3f} ms | {b:.3f} ms | {b / a:.3f} |")
