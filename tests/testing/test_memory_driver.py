"""The driver without processes says what is wrong with a test, and hides nothing of it."""

from __future__ import annotations

from typing import Any

import pytest

from broker import Host
from broker.errors import SetupError
from broker.host import Extension
from broker.testing import ManualClock, MemoryDriver
from broker.wire.octet.manifest import parse_manifest

MANIFEST = parse_manifest(
    b'name = "greeter"\nversion = "1.0.0"\napi_version = "0.3"\n[entrypoint]\ncommand = "greeter"\n',
    path="/extensions/greeter/extension.toml",
)


def added(driver: MemoryDriver, clock: ManualClock) -> Extension:
    return Host(driver, clock=clock).open_session("/workspace").add(MANIFEST)


def test_an_extension_without_a_factory_does_not_start() -> None:
    clock = ManualClock()
    driver = MemoryDriver(clock, {})
    started = added(driver, clock).start()
    driver.run()
    assert isinstance(started.error, SetupError)
    assert str(started.error) == "no factory for greeter"


def test_a_factory_that_fails_is_not_taken_for_a_missing_one() -> None:
    def broken(_: Any) -> Any:
        raise KeyError("a bug of the test")

    clock = ManualClock()
    driver = MemoryDriver(clock, {"greeter": broken})
    added(driver, clock).start()
    with pytest.raises(KeyError, match="a bug of the test"):
        driver.run()
