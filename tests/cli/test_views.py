"""Records as people see them: one line each, or the live table."""

from __future__ import annotations

from typing import Any

import pytest

from broker import Bus, Field
from broker.cli.views import LiveView
from broker.host import records
from broker.host.records import describe


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def withdrawn() -> dict[str, Any]:
    """The record of a topic whose publisher goes."""
    bus = Bus()
    seen: list[dict[str, Any] | None] = []
    alpha = bus.attach("alpha")
    alpha.declare("bus.alpha.tick", [Field.integer("n")])
    bus.add_trace(lambda record: seen.append(records.from_trace(record)))
    alpha.detach()
    (record,) = [record for record in seen if record is not None]
    return record


def test_a_topic_that_goes_has_a_record_of_its_own() -> None:
    assert withdrawn() == {"kind": "topic_unavailable", "topic": "bus.alpha.tick", "publisher": "alpha"}
    assert describe(withdrawn()) == "topic_unavailable bus.alpha.tick is no longer available from alpha"


def test_the_live_table_shows_a_tool_name_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    view = LiveView()
    view.show({"kind": "started", "extension": "odd", "generation": 1, "tools": ["[/red]", "[bold]x"]})
    view.show(withdrawn())
    view.refresh(Bus().statistics())
    view.close()
    shown = capsys.readouterr().out
    assert "[/red], [bold]x" in shown
    assert "bus.alpha.tick is no longer available" in shown


def test_the_live_table_does_not_cut_why_something_failed(capsys: pytest.CaptureFixture[str]) -> None:
    view = LiveView()
    view.show(records.diagnostic("bad", "start failed: " + "reason " * 30 + "end"))
    view.close()
    assert " ".join(capsys.readouterr().out.split()).count("reason " * 30 + "end") == 1


def test_the_live_table_takes_any_name_and_shows_the_tools_of_now(capsys: pytest.CaptureFixture[str]) -> None:
    view = LiveView()
    view.show({"kind": "exited", "extension": "[/odd]", "generation": 1, "status": 1, "reason": "did not start"})
    view.show({"kind": "started", "extension": "[/odd]", "generation": 2, "tools": ["first"]})
    view.close()
    shown = capsys.readouterr().out
    assert "[/odd]" in shown and "first" in shown
    view = LiveView()
    view.show({"kind": "started", "extension": "odd", "generation": 2, "tools": ["first"]})
    view.show({"kind": "tools_changed", "extension": "odd", "generation": 2, "revision": 2, "tools": ["second"]})
    view.close()
    table = capsys.readouterr().out.split("topics")[0]
    assert "second" in table and "first" not in table
