"""The pytest plugin: its fixtures, its option, and what the report of a failed test says."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

EXTENSION = """
    import pytest
    from broker.testing import ScriptedExtension

    class Echo(ScriptedExtension):
        def __init__(self):
            super().__init__(tools=("echo",))

        def on_message(self, message):
            if message.get("method") == "tool/call":
                text = message["params"]["arguments"].get("text", "")
                content = [{"type": "text", "text": text}]
                self.answer(message["id"], {"content": content, "is_error": False, "metadata": None})
            else:
                super().on_message(message)
"""
OPTIONS = ("-p", "no:cacheprovider", "-W", "error")


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """A directory whose tests have the plugin, wherever it comes from."""
    pytester.syspathinsert(Path(__file__).parents[2])
    if not any(point.name == "broker" for point in metadata.entry_points(group="pytest11")):
        pytester.makeconftest('pytest_plugins = ["broker.testing.plugin"]')
    return pytester


def test_the_fixtures_share_a_clock_and_clean_up(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        EXTENSION
        + """
    from broker import Field

    hosts = []

    def test_session(broker_session, broker_host, broker_clock):
        hosts.append(broker_host)
        broker_session.start(Echo)
        assert broker_session.call("echo", "echo", {"text": "a"}).content[0].text == "a"
        assert broker_session.clock is broker_host.clock is broker_clock
        assert broker_host.seed is None

    def test_it_was_closed():
        assert hosts[0].sessions[0].session.closed

    def test_bus(broker_bus, broker_clock):
        alpha = broker_bus.attach("alpha")
        alpha.declare("bus.alpha.tick", [Field.integer("n")])
        broker_clock.advance_ms(5)
        assert alpha.publish("bus.alpha.tick", {"n": 1}).published_at_ms == broker_clock.unix_ms()
    """
    )
    suite.runpytest(*OPTIONS).assert_outcomes(passed=3)


def test_a_failure_shows_what_happened_and_how_to_see_it_again(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        test_it=EXTENSION
        + """
    def test_wrong(broker_session):
        broker_session.start(Echo)
        assert broker_session.call("echo", "echo", {"text": "a"}).content[0].text == "b"

    def test_right(broker_session):
        broker_session.start(Echo)
    """
    )
    result = suite.runpytest(*OPTIONS, "--broker-seed=12")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*- broker: what happened -*",
            "   0 ms  host -> echo  initialize #1 *",
            "   0 ms  host -> echo  tool/call #2 *",
            "   0 ms  echo -> host  result #2 of tool/call *",
            "   to replay: pytest 'test_it.py::test_wrong' --broker-seed=12",
        ]
    )
    assert str(result.stdout).count("broker: what happened") == 1
    again = suite.runpytest(*OPTIONS, "test_it.py::test_wrong")
    again.stdout.fnmatch_lines(
        ["   to replay: pytest 'test_it.py::test_wrong' (in the fixed order; try others with --broker-seed=N)"]
    )


def test_the_line_to_type_is_one_that_a_shell_takes(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
    import pytest

    @pytest.mark.parametrize("who", ["it's"])
    def test_wrong(broker_host, who):
        assert False
    """
    )
    result = suite.runpytest(*OPTIONS)
    (line,) = [line for line in result.outlines if "to replay: " in line]
    words = shlex.split(line.partition("to replay: ")[2].partition(" (in")[0])
    assert words[0] == "pytest" and words[1].endswith("::test_wrong[it's]")


def test_the_seed_decides_the_order(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        EXTENSION
        + """
    def test_order(broker_host, broker_session):
        broker_session.add(Echo)
        broker_session.add(Echo, name="other")
        broker_session.start()
        print("order", broker_host.replay, [str(choice) for choice in broker_host.driver.steps.choices])
    """
    )
    orders = []
    for seed in (1, 1, 2):
        lines = suite.runpytest(*OPTIONS, "-s", f"--broker-seed={seed}").stdout.lines
        orders.append(next(line.partition("order ")[2] for line in lines if "order MemoryHost" in line))
    assert orders[0] == orders[1]
    assert orders[0].partition("[")[2] != orders[2].partition("[")[2]


def test_a_script_that_was_not_played_fails_the_test(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
    from broker.testing import Script
    from broker.testing.script import expect

    def test_script(broker_session):
        broker_session.start(Script(expect("tool/call"), tools=("work",)), name="pub")
    """
    )
    result = suite.runpytest(*OPTIONS)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*the script of pub was not played to its end; it waits at*"])


def test_a_failed_test_is_not_failed_again_by_its_scripts(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
    from broker.testing import Script
    from broker.testing.script import expect

    def test_script(broker_session):
        broker_session.start(Script(expect("tool/call"), tools=("work",)), name="pub")
        assert False
    """
    )
    suite.runpytest(*OPTIONS).assert_outcomes(failed=1)


def test_a_failure_over_real_processes_is_shown_too_and_leaves_none(
    suite: pytest.Pytester, gone: Callable[..., None]
) -> None:
    made = suite.makepyfile(
        EXTENSION
        + """
    import os

    class Telling(Echo):
        def __init__(self):
            super().__init__()
            with open(__file__ + ".pids", "a") as pids:
                pids.write(f"{os.getpid()} ")

    def test_wrong(broker_both_ways):
        session, other = broker_both_ways(), broker_both_ways()
        session.start(Telling)
        assert session.call("telling", "echo", {"text": "a"}).content[0].text == "b"
    """
    )
    result = suite.runpytest(*OPTIONS)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*broker: what happened*", "*test_wrong?memory?*", "*broker: what happened*"])
    result.stdout.fnmatch_lines(["*test *-> telling*call #1*"])
    pids = {int(pid) for pid in Path(f"{made}.pids").read_text().split()} - {os.getpid()}
    gone(*pids)


def test_users_may_have_fixtures_of_plain_names(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
    import pytest

    @pytest.fixture
    def session():
        return 1

    @pytest.fixture
    def clock():
        return 2

    def test_own(session, clock):
        assert (session, clock) == (1, 2)
    """
    )
    suite.runpytest(*OPTIONS).assert_outcomes(passed=1)


def test_who_does_not_use_the_kit_does_not_load_it() -> None:
    code = """
import sys
import broker.testing.plugin
loaded = sorted(name for name in sys.modules if name.startswith("broker.") and name.count(".") > 0)
assert not [name for name in loaded if name.startswith(("broker.host", "broker.wire", "broker.adapters"))], loaded
assert [name for name in loaded if name.startswith("broker.testing.")] == ["broker.testing.plugin"], loaded
assert "hypothesis" not in sys.modules and "asyncio" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_plugin_is_an_entry_point() -> None:
    setup = (Path(__file__).parents[2] / "setup.cfg").read_text(encoding="utf-8")
    assert "pytest11 =\n    broker = broker.testing.plugin\n" in setup
