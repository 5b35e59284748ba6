"""Wire types of the feature-negotiated wire, beside those of :mod:`broker.wire.octet.schema`.

JSON here is not canonical: fractions are fine, and a value's size is that of its compact UTF-8 form, whatever order its
keys stand in.
"""

from __future__ import annotations

from typing import Any

import orjson
from attrs import frozen

from broker.errors import Fault
from broker.limits import LIMITS
from broker.wire.octet.schema import over, wrong_type
from broker.wire.quoting import utf8_length

MAX_CHILD_ID = 2**64 - 1
"""The largest integer id of an extension's request; any unsigned 64-bit integer is one."""


def compact_size(value: Any) -> int:
    """Bytes of the compact UTF-8 JSON of ``value``. Raises ``TypeError`` for what JSON cannot hold."""
    return len(orjson.dumps(value))


@frozen
class Value:
    """Any JSON value, or with ``only_object`` an object; ``limit`` names the bound on its compact size."""

    limit: str | None = None
    only_object: bool = False

    def check(self, value: Any, path: str, faults: list[Fault]) -> None:
        if self.only_object and type(value) is not dict:
            faults.append(wrong_type(path, "an object", value))
            return
        try:
            size = compact_size(value)
        except TypeError as error:
            faults.append(Fault(path, str(error)))
            return
        if self.limit is not None and size > LIMITS[self.limit].value:
            faults.append(over(path, "is too large", self.limit, size))

    def decode(self, value: Any) -> Any:
        return value

    def encode(self, value: Any) -> Any:
        return value


@frozen
class ChildId:
    """The id of an extension's request: an unsigned 64-bit integer, or a string of at most 256 bytes."""

    def check(self, value: Any, path: str, faults: list[Fault]) -> None:
        if type(value) is str:
            size = utf8_length(value)
            if size > LIMITS["MAX_JSON_RPC_ID_BYTES"].value:
                faults.append(over(path, "is too long", "MAX_JSON_RPC_ID_BYTES", size))
        elif type(value) is not int:
            faults.append(wrong_type(path, "a string or an integer", value))
        elif not 0 <= value <= MAX_CHILD_ID:
            faults.append(Fault(path, f"must be 0 to {MAX_CHILD_ID}, not {value}"))

    def decode(self, value: Any) -> Any:
        return value

    def encode(self, value: Any) -> Any:
        return value
