#!/usr/bin/env python3
"""A plain load generator on grpcio's asyncio, as one writes it in an hour: to be measured against.

    python_client.py --server HOST:PORT --message FILE --callers N --seconds S     closed loop
    python_client.py --server HOST:PORT --message FILE --rate R --seconds S        open loop

FILE holds the bytes of an AttendRequest. Prints a line of JSON: calls, errors, seconds,
cpu_seconds, and latencies from sending in milliseconds.
"""

import argparse
import asyncio
import json
import resource
import time

import grpc

from distributions import quantile

METHOD = "/castor.v1.AttentionService/Attend"


class Generator:
    def __init__(self, channel, message, seconds):
        # No serializers: the bytes are sent as they are, so that nothing but calling is measured.
        self.call = channel.unary_unary(METHOD)
        self.message, self.end = message, time.perf_counter() + seconds
        self.latencies, self.errors = [], 0

    async def one(self):
        begin = time.perf_counter()
        try:
            await self.call(self.message)
            self.latencies.append(time.perf_counter() - begin)
        except grpc.aio.AioRpcError:
            self.errors += 1

    async def caller(self):
        while time.perf_counter() < self.end:
            await self.one()

    async def fixed_rate(self, rate):
        tasks, due = set(), time.perf_counter()
        while due < self.end:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            task = asyncio.create_task(self.one())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            due += 1 / rate
        await asyncio.gather(*tasks)


async def measure(arguments):
    with open(arguments.message, "rb") as file:
        message = file.read()
    async with grpc.aio.insecure_channel(arguments.server) as channel:
        await channel.channel_ready()
        begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        generator = Generator(channel, message, arguments.seconds)
        if arguments.rate:
            await generator.fixed_rate(arguments.rate)
        else:
            await asyncio.gather(*(generator.caller() for _ in range(arguments.callers)))
        seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
    ordered = sorted(generator.latencies)
    cpu = sum(getattr(after, k) - getattr(before, k) for k in ("ru_utime", "ru_stime"))
    print(json.dumps({
        "calls": len(ordered), "errors": generator.errors, "seconds": seconds, "cpu_seconds": cpu,
        "latency_ms": {f"p{p:g}": quantile(ordered, p / 100) * 1e3 for p in (50, 95, 99, 99.9)}
        if ordered else {}}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--message", required=True)
    parser.add_argument("--seconds", type=float, default=5)
    load = parser.add_mutually_exclusive_group(required=True)
    load.add_argument("--callers", type=int, help="each calls again after its answer")
    load.add_argument("--rate", type=float, help="calls per second, whatever the answers do")
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
