"""The inspector on a terminal that a pilot holds: keys in, what is on the screen out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Button, Input, OptionList, TabbedContent

from broker import Field
from broker.errors import ResourceExhaustedError
from broker.inspector import Tool
from broker.inspector.app import InspectorApp
from broker.inspector.tables import KeyedTable, clock_time

if TYPE_CHECKING:
    from conftest import World

Play = Callable[[InspectorApp, Pilot[None]], Awaitable[None]]


def play(world: World, scene: Play, call: Any = None) -> None:
    """Run ``scene`` with the inspector on a terminal of 140 by 40."""

    async def run() -> None:
        app = InspectorApp(world.inspection, call or world.call)
        async with app.run_test(size=(140, 40)) as pilot:
            await scene(app, pilot)

    asyncio.run(run())


def rows(app: InspectorApp, table: str) -> list[list[str]]:
    """The texts of a table."""
    shown = app.query_one(f"#{table}", KeyedTable)
    return [[cell.plain for cell in shown.get_row(key)] for key in shown.rows]


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Let the application work until ``condition`` holds."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "the screen never came to that"
        await pilot.pause()


def test_the_overview_follows_the_session(world: World) -> None:
    bus = world.session.bus
    noisy, slow = bus.attach("noisy"), bus.attach("slow")

    async def scene(app: InspectorApp, pilot: Pilot[None]) -> None:
        assert rows(app, "extensions") == [["greeter", "octet 0.3", "1", "ready", "2", ""]]
        assert rows(app, "topics") == []
        noisy.declare("bus.noisy.tick", [Field.integer("n")])
        slow.subscribe("bus.noisy.tick")
        slow.subscribe("bus.later.news")
        noisy.publish("bus.noisy.tick", {"n": 1})
        world.clock.advance_ms(12)
        app.show()
        assert rows(app, "topics") == [["bus.noisy.tick", "noisy", "1", "1", "1", "1"]]
        (row,) = [row for row in rows(app, "subscribers") if row[0] == "slow"]
        assert row[1:5] == ["1", "bus.noisy.tick", "bus.later.news", "1"]
        assert row[5].endswith(" B") and row[6:] == ["12 ms", "", ""]
        await world.call("greeter", "crash", {})
        app.show()
        assert rows(app, "extensions") == [["greeter", "octet 0.3", "-", "backoff", "0", ""]]

    play(world, scene)


def test_a_row_keeps_the_cursor_while_others_come_and_go(world: World) -> None:
    bus = world.session.bus
    first, second = bus.attach("first"), bus.attach("second")

    async def scene(app: InspectorApp, pilot: Pilot[None]) -> None:
        table = app.query_one("#subscribers", KeyedTable)
        table.move_cursor(row=table.get_row_index("second 1"))
        first.detach()
        bus.attach("third")
        app.show()
        assert [row[0] for row in rows(app, "subscribers")] == ["second", "third"]
        assert table.cursor_row == table.get_row_index("second 1")
        assert second.closed is False

    play(world, scene)


def test_records_are_searched_paused_and_shown_in_full(world: World) -> None:
    async def scene(app: InspectorApp, pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"kind:started")
        await until(pilot, lambda: len(rows(app, "event-list")) == 1)
        assert app.query_one("#pages", TabbedContent).active == "records"
        ((_, kind, who, what),) = rows(app, "event-list")
        assert (kind, who, what) == ("started", "greeter", "greeter started, tools: greet, crash")
        await until(pilot, lambda: '"kind": "started"' in str(app.query_one("#event-detail").render()))
        await pilot.press("backspace", *[":"], "x")
        await pilot.press(*"  colour:")
        await until(pilot, lambda: len(rows(app, "event-list")) == 0)
        await pilot.press(*"red")
        await until(pilot, lambda: "no key 'colour'" in str(app.query_one("#search-problem").render()))
        app.query_one("#search", Input).value = ""
        await until(pilot, lambda: len(rows(app, "event-list")) == len(world.inspection.entries))
        await pilot.press("escape", "space")
        await until(pilot, lambda: app.events.paused)
        world.inspection.note({"kind": "diagnostic", "extension": "late", "source": "host", "reason": "after"})
        app.show()
        assert "late" not in [row[2] for row in rows(app, "event-list")]
        await pilot.press("space")
        await until(pilot, lambda: [row[2] for row in rows(app, "event-list")][-1] == "late")

    play(world, scene)


def test_the_list_follows_the_newest_until_a_person_moves_up(world: World) -> None:
    def note(reason: str) -> None:
        world.inspection.note({"kind": "diagnostic", "extension": "x", "source": "host", "reason": reason})

    async def scene(app: InspectorApp, pilot: Pilot[None]) -> None:
        await pilot.press("2")
        table = app.query_one("#event-list", KeyedTable)
        await until(pilot, lambda: app.focused is table)
        note("one")
        app.show()
        assert table.cursor_row == table.row_count - 1
        last = table.cursor_row
        await pilot.press("up")
        await until(pilot, lambda: table.cursor_row == last - 1)
        stayed = table.cursor_row
        note("two")
        app.show()
        assert (table.cursor_row, table.row_count) == (stayed, stayed + 3)

    play(world, scene)


def test_a_long_list_forgets_its_oldest_and_keeps_the_chosen_one(world: World) -> None:
    def note(count: int) -> None:
        for n in range(count):
            world.inspection.note({"kind": "diagnostic", "extension": "x", "source": "host", "reason": f"{n}"})

    async def scene(app: InspectorApp, pilot: Pilot[None]) -> None:
        await pilot.press("2")
        table = app.query_one("#event-list", KeyedTable)
        await until(pilot, lambda: app.focused is table)
        note(2000)
        app.show()
        assert table.cursor_row == table.row_count - 1
        table.move_cursor(row=1500)
        chosen = table.get_row_at(1500)
        note(900)
        app.show()
        assert table.row_count == 2000
        assert table.get_row_at(table.cursor_row) == chosen

    play(world, scene)


def test_refusals_name_who_had_no_room(world: World) -> None:
    bus = world.session.bus
    noisy, slow = bus.attach("noisy"), bus.attach("slow")
    noisy.declare("bus.noisy.tick", [Field.integer("n")])
    slow.subscribe("bus.noisy.tick")
    for n in range(64):
        noisy.publish("bus.noisy.tick", {"n": n})
    with pytest.raises(ResourceExhaustedError):
        noisy.publish("bus.noisy.tick", {"n": 64})

    async def scene(app: InspectorApp, pilot: Pilot[None]) -> None:
        await pilot.press("3")
        await until(pilot, lambda: len(rows(app, "refusal-list")) == 1)
        (row,) = rows(app, "refusal-list")
        assert row[1:] == ["noisy", "publish", "bus.noisy.tick", "slow", "MAX_BUS_QUEUE_MESSAGES", "65", "64"]

    play(world, scene)


def test_stderr_of_the_chosen_extension(world: World) -> None:
    async def scene(app: InspectorApp, pilot: Pilot[None]) -> None:
        await pilot.press("4")
        await world.call("greeter", "crash", {})
        world.inspection.note(
            {"kind": "diagnostic", "extension": "other", "generation": 2, "source": "stderr", "reason": "[b]fine[/b]"}
        )
        app.show()
        await until(
            pilot, lambda: [line.text for line in app.stderr_page.log_view.lines] == ["[1] going \\x1b[31mdown"]
        )
        await pilot.press("down")
        await until(pilot, lambda: [line.text for line in app.stderr_page.log_view.lines] == ["[2] [b]fine[/b]"])
        assert app.stderr_page.chosen == "other"

    play(world, scene)


def test_a_tool_is_called_with_what_its_form_says(world: World) -> None:
    async def scene(app: InspectorApp, pilot: Pilot[None]) -> None:
        await pilot.press("5")
        await until(pilot, lambda: isinstance(app.focused, OptionList))
        assert app.query_one("#call", Button).disabled
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.focused, Input))
        assert len(app.calls.fields.query("Input, Select")) == 2
        await pilot.press(*"Ada", "enter")
        await until(pilot, lambda: len(rows(app, "call-list")) == 1)
        ((_, who, tool, ok, answer),) = rows(app, "call-list")
        assert (who, tool, ok, answer) == ("greeter", "greet", "yes", "greeter greet answered: hello, Ada")
        await until(pilot, lambda: str(app.calls.state.render()) == "greeter / greet answered")
        assert app.calls.open_calls == 0

    play(world, scene)


def test_a_wrong_form_calls_nothing_and_says_why(world: World) -> None:
    calls: list[Any] = []

    async def call(*given: Any) -> dict[str, Any]:
        calls.append(given)
        return await world.call(*given)

    async def scene(app: InspectorApp, pilot: Pilot[None]) -> None:
        world.inspection.tools()[0].schema["properties"]["n"] = {"type": "integer"}
        await pilot.press("5")
        await until(pilot, lambda: isinstance(app.focused, OptionList))
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.focused, Input))
        app.query_one("#field-2", Input).value = "much"
        await pilot.press("enter")
        await until(pilot, lambda: str(app.calls.state.render()) == "n: expected a whole number")
        assert calls == []

    play(world, scene, call)


def test_a_call_that_fails_is_shown_with_its_reason(world: World) -> None:
    async def scene(app: InspectorApp, pilot: Pilot[None]) -> None:
        await pilot.press("5")
        await until(pilot, lambda: isinstance(app.focused, OptionList))
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: isinstance(app.focused, Button))
        await pilot.press("enter")
        await until(pilot, lambda: len(rows(app, "call-list")) == 1)
        assert rows(app, "call-list")[0][1:4] == ["greeter", "crash", "no"]
        assert "exited with status 3 while it was in use" in rows(app, "call-list")[0][4]
        await until(pilot, lambda: str(app.calls.state.render()) == "greeter / crash failed")

    play(world, scene)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_a_key_ends_it(world: World, key: str) -> None:
    async def scene(app: InspectorApp, pilot: Pilot[None]) -> None:
        await pilot.press(key)
        end = time.monotonic() + 30
        while app.is_running:  # a pause of the pilot would look for the screen, which goes meanwhile
            assert time.monotonic() < end
            await asyncio.sleep(0.005)

    play(world, scene)


@pytest.mark.parametrize("name", ["[/red]", "[link=x]y", "a\u202eb\x1b[31m", "\\[x]"])
def test_a_tools_name_is_text_and_nothing_else(world: World, name: str) -> None:
    class Odd(type(world.inspection)):  # type: ignore[misc]
        def tools(self) -> list[Tool]:
            return [Tool("greeter", name, "\u202e[/b] [red]x\nsecond", {"type": "object"})]

    world.inspection.__class__ = Odd

    async def scene(app: InspectorApp, pilot: Pilot[None]) -> None:
        await pilot.press("5")
        await until(pilot, lambda: isinstance(app.focused, OptionList))
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.focused, Button))
        await pilot.press("enter")
        await until(pilot, lambda: len(rows(app, "call-list")) == 1)
        drawn = app.export_screenshot()
        assert "\u202e" not in drawn and "\x1b" not in drawn
        assert app.return_code is None

    async def call(owner: str, tool: str, arguments: Any) -> dict[str, Any]:
        assert tool == name
        record = {"kind": "call", "extension": owner, "tool": tool, "ok": True, "content": []}
        world.inspection.note(record)
        return record

    play(world, scene, call)


def test_a_tool_that_went_while_its_key_was_pressed_is_not_chosen(world: World) -> None:
    async def scene(app: InspectorApp, pilot: Pilot[None]) -> None:
        await pilot.press("5")
        await until(pilot, lambda: app.calls.tools.option_count == 2)
        greet, crash = (app.calls.tools.get_option_at_index(index) for index in range(2))
        await world.call("greeter", "crash", {})
        app.show()
        await app.calls.choose(OptionList.OptionSelected(app.calls.tools, crash, 1))
        assert app.calls.chosen is None
        world.memory.advance(250)
        app.show()
        await app.calls.choose(OptionList.OptionSelected(app.calls.tools, greet, 1))
        assert app.calls.chosen is not None and app.calls.chosen.name == "greet"

    play(world, scene)


@pytest.mark.parametrize(
    ("unix_ms", "shown"), [(0, "00:00:00.000"), (1_700_000_000_123, "22:13:20.123"), (2**53 - 1, "08:59:00.991")]
)
def test_the_time_of_any_moment_can_be_shown(unix_ms: int, shown: str) -> None:
    assert clock_time(unix_ms) == shown
