"""Whether the bus under test is the compiled one, where that is what is to be tested."""

from __future__ import annotations

import os
from importlib.machinery import EXTENSION_SUFFIXES

import pytest

import broker.bus.delivery
import broker.bus.peer


@pytest.mark.skipif(os.environ.get("BROKER_REQUIRE_COMPILED") != "1", reason="the pure bus is what is tested here")
@pytest.mark.parametrize("module", [broker.bus.peer, broker.bus.delivery])
def test_the_compiled_modules_are_the_ones_in_use(module: object) -> None:
    assert str(module.__file__).endswith(tuple(EXTENSION_SUFFIXES))
