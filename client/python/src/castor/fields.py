"""Sets fields of messages from Python values: enumerations by name, Tensors from arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from castor import tensors
from castor.v1 import tensor_pb2

ToTensor = Callable[[str, Any], tensor_pb2.Tensor]


def put(
    message: Any, name: str, value: Any, label: str, tensor: ToTensor = tensors.to_message
) -> None:
    """Sets a field; None leaves its default. Errors name it by `label`."""
    if value is None:
        return
    field, now = message.DESCRIPTOR.fields_by_name[name], getattr(message, name)
    if field.message_type:
        now.CopyFrom(tensor(label, value))
    elif field.enum_type and hasattr(now, "extend"):
        names = [value] if isinstance(value, str) else value
        now.extend(_number(field.enum_type, each, label) for each in names)
    elif hasattr(now, "extend"):
        now.extend(value)
    elif not field.enum_type:
        try:
            setattr(message, name, value)
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{label} is {value!r}: {error}") from None
    elif value:
        setattr(message, name, _number(field.enum_type, value, label))


def _number(enum: Any, name: str, label: str) -> int:
    """The number of an enumeration's value: "query_space" is QUERY_SPACE."""
    found = enum.values_by_name.get(name.upper())
    if found is None or found.number == 0:
        known = ", ".join(value.name.lower() for value in enum.values if value.number)
        raise ValueError(f"{label} {name!r} is not one of {known}")
    return int(found.number)


def name_of(enum: Any, number: int) -> str:
    """The name of an enumeration's value; "" for zero, the number if this client is older."""
    value = enum.values_by_number.get(number)
    return "" if not number else str(value.name).lower() if value else str(number)
