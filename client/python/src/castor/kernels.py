"""Attention kernels by name. kernel.proto describes their parameters.

A zero, an empty text or None means the server's default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from castor import fields, tensors
from castor.v1 import kernel_pb2

NAMES: dict[str, type[Kernel]] = {}


class Kernel:
    """A kernel. Its subclasses are dataclasses with the fields of the message of the same name."""

    name: str  # as requests and reports have it: "improved_clustered"

    if TYPE_CHECKING:

        def __init__(self, *_: Any, **__: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

    def __init_subclass__(cls, name: str) -> None:
        parameters = kernel_pb2.DESCRIPTOR.message_types_by_name[cls.__name__].fields
        cls.__annotations__ |= {field.name: Any for field in parameters}
        for field in parameters:
            empty = None if field.has_presence else field.default_value
            if field.enum_type:
                empty = () if empty == [] else ""
            setattr(cls, field.name, empty)
        dataclass(frozen=True)(cls)
        cls.name, NAMES[name] = name, cls


class Vanilla(Kernel, name="vanilla"):
    """Softmax attention, exactly."""


class Clustered(Kernel, name="clustered"):
    """Attention by each cluster's mean query. clustering: "hash" or "query_space"."""


class ImprovedClustered(Kernel, name="improved_clustered"):
    """Clustered, but exact on each cluster's top keys. rest_mass: "centroid" or "query"."""


class Cast(Kernel, name="cast"):
    """Attention inside learned clusters. With `encode` it takes no tensors: the model has them.

    surrogate_tokens: [clusters, heads, head_dim]; or layer: "MODEL/INDEX". gate: [tokens].
    """


class Automatic(Kernel, name="automatic"):
    """The server's choice within max_relative_error. allowed: kernels by name; empty: all."""

    max_relative_error: Any  # goes before `allowed`


def put(request: Any, kernel: Kernel | str | None, tensor: Any = tensors.to_message) -> None:
    """Sets the request's kernel."""
    if kernel is None:
        return
    if isinstance(kernel, str):
        if kernel not in NAMES:
            raise ValueError(f"kernel {kernel!r} is not one of {', '.join(NAMES)}")
        kernel = NAMES[kernel]()
    if not isinstance(kernel, Kernel):
        raise TypeError(f"kernel is {type(kernel).__name__}, not one of castor's kernels")
    message = getattr(request, kernel.name)
    message.SetInParent()
    for name, value in vars(kernel).items():
        fields.put(message, name, value, f"{kernel.name}.{name}", tensor)


def read(message: Any) -> Kernel | None:
    """The kernel of a report, whose parameters are a oneof. Reports have no tensors."""
    name = message.WhichOneof("parameters")
    if name is None:
        return None
    values, parameters = {}, getattr(message, name)
    for field in parameters.DESCRIPTOR.fields:
        if not field.has_presence or parameters.HasField(field.name):
            value = getattr(parameters, field.name)
            values[field.name] = (
                fields.name_of(field.enum_type, value) if field.enum_type else value
            )
    return NAMES[name](**values)
