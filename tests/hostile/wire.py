"""Protobuf messages of castor.v1, assembled by hand so that they can also be malformed."""

import struct

FLOAT32, FLOAT16 = 1, 2


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def tensor(dtype: int, shape, raw: bytes) -> bytes:
    return (b"\x08" + varint(dtype) + field(2, b"".join(varint(d) for d in shape)) + field(3, raw))


def attend(query, key, value, dtype: int = FLOAT32) -> bytes:
    """An AttendRequest with one sequence of zeros in these shapes."""
    width = 4 if dtype == FLOAT32 else 2

    def zeros(shape):
        size = width
        for dimension in shape:
            size *= dimension
        return tensor(dtype, shape, bytes(size))

    return field(2, zeros(query)) + field(3, zeros(key)) + field(4, zeros(value))


def small() -> bytes:
    """A request that any server answers at once."""
    return attend([3, 1, 2], [3, 1, 2], [3, 1, 2])


def amplifier(megabytes: int = 64) -> bytes:
    """A request of 24 KB with an answer of `megabytes` MiB: many queries, one key, a wide value."""
    return attend([megabytes * 64, 1, 1], [1, 1, 1], [1, 1, 8192], FLOAT16)
