"""The arguments of a call, given as JSON on the command line."""

from __future__ import annotations

import argparse
import json
from typing import Any

from broker import canonical
from broker.errors import CanonicalError, InvalidParamsError, UsageError
from broker.wire.mcp.requests import encode
from broker.wire.octet.manifest_model import Manifest
from broker.wire.odek.config import ServerConfig
from broker.wire.versions import CANONICAL_WIRE


def json_argument(text: str) -> Any:
    """A JSON value a tool can be sent: no duplicate keys, not null. What a wire refuses beyond that it says itself."""
    try:
        value = json.loads(text, object_pairs_hook=_unique)
        encode("tool/call", value)
    except RecursionError:
        raise argparse.ArgumentTypeError("JSON is nested too deep") from None
    except (ValueError, InvalidParamsError) as error:
        raise argparse.ArgumentTypeError(f"not usable as JSON arguments: {error}") from None
    if value is None:
        raise argparse.ArgumentTypeError("arguments must not be null; use {} for none")
    return value


def option_json(option: str, text: str) -> Any:
    """As :func:`json_argument`, for the value of ``option``, which a :class:`~broker.errors.UsageError` then names."""
    try:
        return json_argument(text)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"{option}: {error}") from None


def check_arguments(source: Manifest | ServerConfig, value: Any) -> None:
    """Raise :class:`~broker.errors.UsageError` for arguments that the wire of ``source`` has no form for."""
    if isinstance(source, Manifest) and source.wire == CANONICAL_WIRE:
        try:
            canonical.encode(value)
        except CanonicalError as error:
            raise UsageError(f"not usable as JSON arguments of {source.name}: {error}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("an object has the same key twice")
    return result
