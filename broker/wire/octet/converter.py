"""A strict cattrs converter for every wire model of octet 0.3, made from the records themselves.

For programs that keep their own data with cattrs: a value that the wire would refuse is refused here, with the same
faults, and nothing is coerced. ``"5"`` is not 5, an unknown member is an error, and an absent member is not ``None``.

::

    converter = contract_converter()
    result = converter.structure(value, ToolCallResult)
    converter.unstructure(result) == value
"""

from __future__ import annotations

from typing import Any, Final

import cattrs

from broker.errors import CapabilityMismatchError
from broker.wire.octet import bus_models, models
from broker.wire.octet.model_table import MODELS, STREAM_PAYLOADS
from broker.wire.octet.schema import Union, decode, decode_union, encode

# The Python types of the unions: cattrs is asked for those.
_UNION_TYPES: Final = {
    "SessionHookParams": models.SessionHookParams,
    "Disposition": models.Disposition,
    "BusSubscribeResult": bus_models.BusSubscribeResult,
    "BusLifecycleParams": bus_models.BusLifecycleParams,
}


def contract_converter() -> cattrs.Converter:
    """A converter that structures and unstructures each model; a variant of a union carries its tag, both ways.

    Structuring raises :class:`~broker.errors.InvalidParamsError` with the row and all faults of the value, or
    :class:`~broker.errors.CapabilityMismatchError` for another variant than the one that was asked for.
    """
    converter = cattrs.Converter()
    for name, model in {**MODELS, **STREAM_PAYLOADS}.items():
        if isinstance(model, Union):
            _register_union(converter, name, model)
        else:
            converter.register_structure_hook(model, _structure)
            converter.register_unstructure_hook(model, encode)
    return converter


def _structure(value: Any, model: type[Any]) -> Any:
    return decode(model, value, what=model.__name__)


def _register_union(converter: cattrs.Converter, name: str, union: Union) -> None:
    def structure(value: Any, wanted: Any) -> Any:
        found = decode_union(union, value, what=name)
        if isinstance(wanted, type) and not isinstance(found, wanted):
            raise CapabilityMismatchError(f"{name}: is a {type(found).__name__}, not a {wanted.__name__}")
        return found

    for variant in union.variants.values():
        converter.register_structure_hook(variant, structure)
        converter.register_unstructure_hook(variant, union.encode)
    if name in _UNION_TYPES:
        converter.register_structure_hook(_UNION_TYPES[name], structure)
