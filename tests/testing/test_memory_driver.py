"""The driver without processes says what is wrong with a test, and hides nothing of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker import Host
from broker.errors import CancelledError, SetupError, UsageError
from broker.host import Extension
from broker.testing import ManualClock, MemoryDriver, ScriptedProcess
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


def test_a_service_may_answer_with_anything_that_can_be_awaited() -> None:
    class Ready:
        def __await__(self) -> Any:
            return 5
            yield

    class Never:
        def __await__(self) -> Any:
            yield

    driver = MemoryDriver(ManualClock(), {})
    assert driver.adopt(Ready()).result() == 5
    assert isinstance(driver.adopt(Never()).error, UsageError)


def test_a_service_that_was_cancelled_has_failed() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    work = MemoryDriver(ManualClock(), {}).adopt(cancelled())
    assert isinstance(work.error, CancelledError)
    assert str(work.error) == "the host's own code was cancelled"


def test_an_answer_that_came_twice_is_a_failed_assertion() -> None:
    process = ScriptedProcess()
    process.received += [{"id": 1, "result": {}}, {"id": 1, "result": {}}]
    with pytest.raises(AssertionError, match="1 was answered 2 times"):
        process.answer_to(1)
