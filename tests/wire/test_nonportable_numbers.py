"""Numbers that are the only fault of a frame: refused, never used, and the stream lives where that is safe."""

from __future__ import annotations

import pytest

from broker import canonical
from broker.errors import CanonicalError, NonportableNumberError


@pytest.mark.spec("octet.canonical.no-float")
@pytest.mark.parametrize(
    ("data", "paths", "zeroed"),
    [
        (b"1.5", ("$",), 0),
        (b'{"a":[1,2.0,1e999],"b":9007199254740992}', ("$.a[1]", "$.a[2]", "$.b"), {"a": [1, 0, 0], "b": 0}),
        (b"[" + b"9" * 100_000 + b"]", ("$[0]",), [0]),
    ],
)
def test_all_places_are_named_and_read_as_zero(data: bytes, paths: tuple[str, ...], zeroed: object) -> None:
    with pytest.raises(NonportableNumberError) as caught:
        canonical.decode(data)
    assert caught.value.name == "parse_error"
    assert caught.value.paths == paths
    assert caught.value.zeroed == zeroed


@pytest.mark.spec("octet.canonical.no-float")
@pytest.mark.parametrize("data", [b'{"a":1.5,"a":1}', b"[1.5 ]", b"[1.5]x", b'[1.5,"\\u0041"]', b"[1.5,-0]"])
def test_a_number_beside_another_fault_is_an_ordinary_refusal_of_the_first(data: bytes) -> None:
    with pytest.raises(CanonicalError) as caught:
        canonical.decode(data)
    assert type(caught.value) is CanonicalError
    assert str(caught.value).startswith("float at byte ")
