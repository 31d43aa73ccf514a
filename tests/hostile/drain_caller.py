#!/usr/bin/env python3
"""A caller of drain.py by gRPC's package for Python: drain_caller.py ADDRESS REQUEST_FILE."""

import sys
import time

import grpc

address, path = sys.argv[1:]
with open(path, "rb") as file:
    request = file.read()
channel = grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", -1)])
attend = channel.unary_unary("/castor.v1.AttentionService/Attend")
try:
    while True:
        attend(request, timeout=60)
        print("answer", time.monotonic(), flush=True)
except grpc.RpcError as error:
    print("ended", error.code().name, error.details(), flush=True)
sys.stdin.read()  # its channel stays open until drain.py has seen the server's end
