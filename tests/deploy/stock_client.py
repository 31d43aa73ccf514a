#!/usr/bin/env python3
"""A client as its language's gRPC makes it: grpcio with round_robin and default settings.

    stock_client.py --target dns:///NAME:50051 --rate 40 --seconds 60 [--retry] [--ca FILE]

Sends small attention problems at a fixed rate without waiting for answers, and prints one line of
JSON: how many calls ended with each status, and the servers' addresses that answered.
"""

import argparse
import collections
import json
import os
import sys
import threading
import time

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "hostile"))
import wire  # noqa: E402

ATTEND = "/castor.v1.AttentionService/Attend"

# What deploy/kubernetes recommends to clients. Retries are the caller's choice.
RETRY = {"maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "2s", "backoffMultiplier": 2,
         "retryableStatusCodes": ["UNAVAILABLE"]}


def service_config(retry: bool) -> str:
    config = {"loadBalancingConfig": [{"round_robin": {}}]}
    if retry:
        config["methodConfig"] = [{"name": [{"service": "castor.v1.AttentionService"}],
                                   "retryPolicy": RETRY}]
    return json.dumps(config)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("--rate", type=float, default=40)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--retry", action="store_true")
    parser.add_argument("--ca")
    options = parser.parse_args()

    settings = [("grpc.service_config", service_config(options.retry)),
                ("grpc.enable_retries", 1)]
    if options.ca:
        with open(options.ca, "rb") as file:
            credentials = grpc.ssl_channel_credentials(file.read())
        channel = grpc.secure_channel(options.target, credentials, options=settings)
    else:
        channel = grpc.insecure_channel(options.target, options=settings)
    attend = channel.unary_unary(ATTEND)
    shape = [64, 8, 64]
    message = wire.attend(shape, shape, shape)

    outcomes, messages = collections.Counter(), collections.Counter()
    lock, over = threading.Lock(), threading.Semaphore(0)

    def ended(call):
        with lock:
            outcomes[call.code().name] += 1
            if call.code() != grpc.StatusCode.OK:
                messages[f"{call.code().name}: {call.details()}"[:160]] += 1
        over.release()

    begin = time.monotonic()
    count = int(options.rate * options.seconds)
    for i in range(count):
        time.sleep(max(0.0, begin + i / options.rate - time.monotonic()))
        attend.future(message, timeout=10).add_done_callback(ended)
    for _ in range(count):
        over.acquire()
    channel.close()
    print(json.dumps({"calls": count, "outcomes": outcomes, "messages": messages}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
