"""Attention kernels by name, with their parameters. A zero or None means the server's default."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from castor.v1 import kernel_pb2


@dataclass(frozen=True)
class Vanilla:
    """Softmax attention, exactly."""

    causal: bool = False


@dataclass(frozen=True)
class Clustered:
    """Of each of `clusters` clusters' mean query. clustering: "hash" or "query_space"."""

    clusters: int = 0
    iterations: int = 0
    bits: int = 0
    hash_bias: bool | None = None
    seed: int = 0
    clustering: str = ""


@dataclass(frozen=True)
class ImprovedClustered:
    """The same, exact on each cluster's top keys. rest_mass: "centroid" or "query"."""

    clusters: int = 0
    iterations: int = 0
    bits: int = 0
    hash_bias: bool | None = None
    seed: int = 0
    topk: int = 0
    clustering: str = ""
    rest_mass: str = ""


@dataclass(frozen=True)
class Cast:
    """Attention inside learned clusters. Of `encode`, without tensors: the model has its own."""

    surrogate_tokens: Any = None  # [clusters, heads, head_dim]
    layer: str = ""  # in its place: "MODEL/INDEX"
    gate: Any = None  # [tokens]
    clustering: str = ""
    cluster_size: int = 0
    attention_function: str = ""
    gate_temperature: str = ""
    head_clustering: str = ""


@dataclass(frozen=True)
class Automatic:
    """The server's choice, within a relative L2 error. allowed: kernels by name; empty: all."""

    max_relative_error: float = 0.0
    allowed: Sequence[str] = ()


Kernel = Vanilla | Clustered | ImprovedClustered | Cast | Automatic
NAMES: dict[str, type[Any]] = {
    "vanilla": Vanilla,
    "clustered": Clustered,
    "improved_clustered": ImprovedClustered,
    "cast": Cast,
    "automatic": Automatic,
}


def put(request: Any, kernel: Kernel | str | None, tensor: Callable[[str, Any], Message]) -> None:
    """Sets the request's kernel; `tensor` makes a message from a field's name and its array."""
    if kernel is None:
        return
    if isinstance(kernel, str):
        if kernel not in NAMES:
            raise ValueError(f"kernel {kernel!r} is not one of {', '.join(NAMES)}")
        kernel = NAMES[kernel]()
    name = next((name for name, kind in NAMES.items() if type(kernel) is kind), "")
    if not name:
        raise TypeError(f"kernel is {type(kernel).__name__}, not one of castor's kernels")
    message = getattr(request, name)
    message.SetInParent()
    for field in fields(NAMES[name]):
        value = getattr(kernel, field.name)
        kind = message.DESCRIPTOR.fields_by_name[field.name]
        if value is None or (kind.type == FieldDescriptor.TYPE_ENUM and not value):
            continue
        if kind.type == FieldDescriptor.TYPE_MESSAGE:
            getattr(message, field.name).CopyFrom(tensor(f"{name}.{field.name}", value))
        elif kind.type == FieldDescriptor.TYPE_ENUM and field.default == "":
            setattr(message, field.name, number(kind.enum_type, value, f"{name}.{field.name}"))
        elif kind.type == FieldDescriptor.TYPE_ENUM:
            value = [value] if isinstance(value, str) else value
            values = [number(kind.enum_type, each, f"{name}.{field.name}") for each in value]
            getattr(message, field.name).extend(values)
        elif value or value is False and field.default is None:
            setattr(message, field.name, value)


def number(enum: Any, name: str, field: str) -> int:
    """Of an enumeration's value: "query_space" is QUERY_SPACE."""
    found = enum.values_by_name.get(name.upper())
    if found is None or found.number == 0:
        known = ", ".join(value.name.lower() for value in enum.values if value.number)
        raise ValueError(f"{field} {name!r} is not one of {known}")
    return int(found.number)


def read(message: Any) -> Kernel | None:
    """The kernel of a report, whose parameters are a oneof."""
    name = message.WhichOneof("parameters")
    if name is None:
        return None
    parameters, values = getattr(message, name), {}
    for field in fields(NAMES[name]):
        kind = parameters.DESCRIPTOR.fields_by_name[field.name]
        if kind.type == FieldDescriptor.TYPE_MESSAGE:
            continue  # reports have no tensors
        value = getattr(parameters, field.name)
        if kind.type == FieldDescriptor.TYPE_ENUM:
            value = _name(kind.enum_type, value) if value else ""
        values[field.name] = value
    kernel: Kernel = NAMES[name](**values)
    return kernel


def name_of(kernel: int) -> str:
    return _name(kernel_pb2.KernelName.DESCRIPTOR, kernel)


def _name(enum: Any, number: int) -> str:
    """A later server may have others."""
    value = enum.values_by_number.get(number)
    return str(value.name).lower() if value else str(number)
