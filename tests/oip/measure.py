#!/usr/bin/env python3
"""Processor time of the server per call, of the Open Inference Protocol over castor.v1's Attend with
the same three tensors, in rounds that take turns. Needs grpcio, hpack and hyperframe.

    measure.py --server build/server/castor-server [--rounds 15] [--calls 200]
"""

import argparse
import os
import statistics
import sys

import grpc

import server

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "hostile"))
import oip_attacks  # noqa: E402
import wire  # noqa: E402

SHAPE = (16, 64, 256)  # 1 MiB of FP32, and little to compute


def seconds_of(pid: int) -> float:
    """In steps of 10 ms."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=200)
    arguments = parser.parse_args()
    raw = bytes(4 * SHAPE[0] * SHAPE[1] * SHAPE[2])
    ways = {"/castor.v1.AttentionService/Attend": wire.attend(SHAPE, SHAPE, SHAPE),
            oip_attacks.INFER: oip_attacks.attention(SHAPE, raw)}
    castor = server.Server(arguments.server)
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    try:
        with grpc.insecure_channel(castor.url, options) as channel:
            spent = {path: [] for path in ways}
            for number in range(arguments.rounds + 1):
                for path in ways if number % 2 else reversed(ways):
                    call = channel.unary_unary(path)
                    before = seconds_of(castor.process.pid)
                    for _ in range(arguments.calls):
                        call(ways[path])
                    if number > 0:  # the first one warms up
                        spent[path].append(
                            (seconds_of(castor.process.pid) - before) / arguments.calls)
    finally:
        castor.stop()
    for path, each in spent.items():
        print(f"{path}: median {1e6 * statistics.median(each):.0f} us, "
              f"least {1e6 * min(each):.0f} us of {len(each)} rounds")
    ours, theirs = spent.values()
    ratios = [b / a for a, b in zip(ours, theirs)]
    print(f"of all rounds: {sum(theirs) / sum(ours):.3f}; median of pairs "
          f"{statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
