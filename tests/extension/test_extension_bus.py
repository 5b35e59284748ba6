"""Typed topics of the author's kit: declared, published, subscribed, and all of it again after each new binding."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from attrs import frozen

from broker.errors import (
    BrokerError,
    CapabilityMismatchError,
    InvalidParamsError,
    ResourceExhaustedError,
    UnavailableError,
)
from broker.extension import Bounds, Event, Extension, Field, TopicAvailability, runtime
from broker.host import HostSettings
from broker.limits import BINDING_WAIT_MS, MAX_BUS_QUEUE_MESSAGES, MAX_EVENTS_QUEUED


@frozen
class Report:
    summary: Annotated[str, Bounds(max_bytes=16)]
    level: Literal["note", "fault"] = "note"
    line: int | None = None


def checker() -> Extension:
    """Publishes reports."""
    app = Extension("checker", "1.0.0")
    report = app.topic("report", Report)

    @app.tool
    async def check(summary: str) -> int:
        """Publishes a report; gives its sequence."""
        return (await report.publish(summary)).sequence

    @app.tool
    def check_plainly(summary: str, line: int) -> int:
        """Publishes a report without a loop."""
        return report.publish_sync(summary, level="fault", line=line).sequence

    return app


class Board:
    """Collects what a subscriber is told."""

    def __init__(self, read_as: type | None = Report) -> None:
        self.app = Extension("board", "1.0.0")
        self.seen: list[Any] = []
        on = self.app.on("bus.checker.report", read_as) if read_as else self.app.on("bus.checker.report")

        @on
        def report(event: Event[Any]) -> None:
            self.seen.append(event.value)

        @self.app.on_availability("bus.checker.report")
        def changed(change: TopicAvailability) -> None:
            self.seen.append("there" if change.available else "gone")


@pytest.mark.spec("octet.bus.typed-topic", "octet.bus.subscribe-active")
def test_typed_events_from_one_extension_to_another(world: Any) -> None:
    app, board = checker(), Board()
    world.add(app)
    world.add(board.app)
    assert world.text(app, "check", summary="fine") == "1"
    assert world.text(app, "check_plainly", summary="bad", line=7) == "2"
    assert board.seen == [Report("fine"), Report("bad", level="fault", line=7)]


def test_an_event_says_where_it_is_from(world: Any) -> None:
    app, other = checker(), Extension("board", "1.0.0")
    events: list[Event[dict[str, Any]]] = []

    @other.on("bus.checker.report")
    async def report(event: Event[dict[str, Any]]) -> None:
        events.append(event)

    world.add(app)
    world.add(other)
    world.text(app, "check", summary="fine")
    generation = world.session.extension("checker").generation
    assert events == [
        Event(
            topic="bus.checker.report",
            publisher="checker",
            publisher_instance_id=generation.extension.instance_id,
            process_generation=1,
            sequence=1,
            published_at_ms=world.clock.unix_ms(),
            payload={"summary": "fine", "level": "note"},
            value={"summary": "fine", "level": "note"},
        )
    ]


@pytest.mark.spec("octet.bus.subscribe-pending", "octet.bus.topic-available")
def test_pending_becomes_active_when_the_publisher_comes(world: Any) -> None:
    app, board = checker(), Board()
    world.add(board.app)
    assert board.seen == []
    world.add(app)
    world.text(app, "check", summary="fine")
    assert board.seen == ["there", Report("fine")]


@pytest.mark.spec("octet.bus.topic-unavailable")
def test_a_publisher_that_goes_and_comes_back(world: Any) -> None:
    app, board = checker(), Board()
    world.add(board.app)
    process = world.add(app)
    process.exit(9)
    world.driver.run()
    assert board.seen == ["there", "gone"]
    world.driver.advance(30_000)
    assert world.text(app, "check", summary="again") == "1"
    assert board.seen == ["there", "gone", "there", Report("again")]


@pytest.mark.spec("octet.bus.reset")
def test_everything_is_made_known_again_after_a_new_binding(world: Any) -> None:
    app, board = checker(), Board()
    world.add(app)
    world.add(board.app)
    for number in (1, 2, 3):
        assert world.text(app, "check", summary=f"n{number}") == str(number)
        world.session.bus.reset()
        world.driver.run()
    reports = [seen for seen in board.seen if isinstance(seen, Report)]
    assert reports == [Report("n1"), Report("n2"), Report("n3")]


def test_a_reload_moves_the_topic_to_the_new_generation(world: Any) -> None:
    app, board = checker(), Board()
    world.add(app)
    world.add(board.app)
    reloaded = world.session.extension("checker").reload()
    world.driver.advance(10_000)
    reloaded.result()
    assert world.text(app, "check", summary="new") == "1"
    assert board.seen[-1] == Report("new")
    assert world.diagnostics() == []


# -- refusals ----------------------------------------------------------------------------------------------------------


def failing(app: Extension, publish: Callable[[], Any]) -> list[BaseException]:
    """A tool ``fail`` of ``app`` that keeps what ``publish`` raises."""
    caught: list[BaseException] = []

    @app.tool
    async def fail() -> str:
        """Publishes and fails."""
        try:
            await publish()
        except BrokerError as error:
            caught.append(error)
            raise
        return "published"

    return caught


def test_a_payload_that_does_not_fit_has_all_its_faults(world: Any, app: Extension) -> None:
    report = app.topic("report", Report)
    caught = failing(app, lambda: report.publish("a@b", level="loud", line=1))  # type: ignore[arg-type]
    world.add(app)
    result = world.call(app, "fail")
    text = (
        "event on bus.hello.report does not fit its declaration: payload.summary: contains '@'; "
        "payload.level: 'loud' is not one of the declared values"
    )
    assert result.is_error
    assert isinstance(caught[0], InvalidParamsError)
    assert [fault.path for fault in caught[0].faults] == ["payload.summary", "payload.level"]
    assert str(caught[0]) == result.content[0].text
    assert text.split(":", maxsplit=1)[0] in str(caught[0])


def test_a_string_over_its_bound_is_exhausted(app: Extension) -> None:
    report = app.topic("report", Report)
    with pytest.raises(ResourceExhaustedError) as caught:
        report.payload_of(Report("x" * 17))
    assert str(caught.value) == (
        "event on bus.hello.report does not fit its declaration: payload.summary: string too long "
        "(max_bytes: observed 17, maximum 16)"
    )


def test_fields_by_name(world: Any, app: Extension) -> None:
    topic = app.topic("step", [Field.integer("number", 0, 9), Field.boolean("last", required=False)])

    @app.tool
    async def step(number: int) -> int:
        """Publishes a step."""
        return (await topic.publish(number=number)).sequence

    @app.tool
    async def mapping() -> int:
        """Publishes a mapping."""
        return (await topic.publish_value({"number": 9, "last": True})).sequence

    world.add(app)
    assert world.text(app, "step", number=3) == "1"
    assert world.text(app, "mapping") == "2"
    assert world.text(app, "step", number=10) == (
        "event on bus.hello.step does not fit its declaration: payload.number: 10 is outside 0 to 9"
    )


@pytest.mark.spec("octet.bus.queue-messages-exact")
def test_a_full_subscriber_is_the_typed_error(world: Any, app: Extension) -> None:
    topic = app.topic("step", [])
    caught = failing(app, topic.publish)
    slow = world.session.bus.attach("slow")
    world.add(app)
    slow.subscribe("bus.hello.step")
    while slow.take() is not None:
        pass
    for _ in range(MAX_BUS_QUEUE_MESSAGES):
        assert world.text(app, "fail") == "published"
    result = world.call(app, "fail")
    assert result.is_error
    assert type(caught[0]) is ResourceExhaustedError
    assert (caught[0].topic, caught[0].method) == ("bus.hello.step", "bus/publish")
    assert result.content[0].text == "the host refused bus/publish: resource exhausted"


def test_a_refused_declaration_is_what_a_publication_says(world: Any, app: Extension) -> None:
    topic = app.topic("step", [])
    caught = failing(app, topic.publish)
    filler = world.session.bus.attach("many")
    for number in range(128):
        filler.declare(f"bus.many.t{number}", [])
    world.add(app)
    assert world.diagnostics() == [
        "bus/declare refused: declaration of bus.hello.step: the bus has 128 topics",
        "bus.hello.step is not declared: the host refused bus/declare: resource exhausted",
    ]
    assert world.text(app, "fail") == (
        "bus.hello.step is not declared: the host refused bus/declare: resource exhausted"
    )
    assert caught[0].name == "resource_exhausted"  # type: ignore[attr-defined]


def test_a_host_without_a_bus(make_world: Any, app: Extension) -> None:
    topic = app.topic("step", [])
    caught = failing(app, topic.publish)
    world = make_world()
    world.add(app, runtime={"lifecycle": "workspace_service", "sharing": "workspace"})
    assert world.text(app, "fail") == "bus.hello.step: this host has no event bus for this process"
    assert isinstance(caught[0], CapabilityMismatchError)


def test_a_publication_waits_for_its_binding(make_world: Any, app: Extension) -> None:
    topic = app.topic("step", [])
    caught = failing(app, topic.publish)
    world = make_world(settings=HostSettings())
    process = world.add(app)
    # As before the first binding: the topic is not declared yet.
    own = process.runtime.bus._topics["bus.hello.step"]
    own.state = type(own.state).UNBOUND
    call = world.begin_call(app, "fail")
    world.driver.advance(BINDING_WAIT_MS - 1)
    assert not call.done
    world.session.bus.reset()
    world.driver.run()
    assert call.result().content[0].text == "published"

    own.state = type(own.state).DECLARING
    call = world.begin_call(app, "fail")
    world.driver.advance(BINDING_WAIT_MS)
    assert call.result().content[0].text == (
        "bus.hello.step was not published: it is being declared, 2000 ms after the attempt"
    )
    assert isinstance(caught[0], UnavailableError)


# -- delivery ----------------------------------------------------------------------------------------------------------


def test_events_are_handed_out_one_at_a_time_and_in_order(world: Any) -> None:
    app, other = checker(), Extension("board", "1.0.0")
    steps: list[str] = []

    @other.on("bus.checker.report", Report)
    async def report(event: Event[Report]) -> None:
        steps.append(f"begin {event.value.summary}")
        await asyncio.sleep(1)
        steps.append(f"end {event.value.summary}")

    world.add(app)
    world.add(other)
    world.text(app, "check", summary="a")
    world.text(app, "check", summary="b")
    assert steps == ["begin a"]
    world.driver.advance(2_000)
    assert steps == ["begin a", "end a", "begin b", "end b"]


def test_several_functions_for_one_topic(world: Any) -> None:
    app, other = checker(), Extension("board", "1.0.0")
    seen: list[str] = []

    @other.on("bus.checker.report")
    def first(event: Event[dict[str, Any]]) -> None:
        seen.append("first")
        raise KeyError("a fault of it")

    @other.on("bus.checker.report", Report)
    async def second(event: Event[Report]) -> None:
        seen.append(f"second {event.value.summary}")

    world.add(app)
    world.add(other)
    world.text(app, "check", summary="a")
    world.text(app, "check", summary="b")
    assert seen == ["first", "second a", "first", "second b"]
    assert [text for text in world.diagnostics() if text.startswith("first")] == ["first failed:", "first failed:"]


def test_a_generator_exit_out_of_a_function_does_not_end_what_hears_of_its_topic(world: Any) -> None:
    app, board = checker(), Extension("board", "1.0.0")
    seen: list[str] = []

    @board.on("bus.checker.report", Report)
    async def heard(event: Event[Report]) -> None:
        seen.append(event.value.summary)
        raise GeneratorExit

    world.add(app)
    world.add(board)
    world.text(app, "check", summary="a")
    world.text(app, "check", summary="b")
    assert seen == ["a", "b"]
    assert [text for text in world.diagnostics() if text.startswith("heard")] == ["heard failed:", "heard failed:"]


def test_an_event_of_another_form_is_left_out(world: Any) -> None:
    @frozen
    class Other:
        summary: str
        line: int

    app, board = checker(), Board(read_as=Other)
    world.add(app)
    world.add(board.app)
    world.text(app, "check", summary="a")
    world.text(app, "check_plainly", summary="b", line=3)
    assert board.seen == [Other("b", 3)]
    name = Other.__qualname__
    assert world.diagnostics() == [
        f"report did not get an event: event on bus.checker.report does not fit {name}: payload.line: missing"
    ]


def test_an_extension_may_hear_itself(world: Any, app: Extension) -> None:
    heard: list[Report] = []
    topic = app.topic("report", Report)

    @app.on(topic)
    async def report(event: Event[Report]) -> None:
        heard.append(event.value)
        if event.value.line is None:
            await topic.publish("again", line=event.sequence)

    @app.tool
    async def publish() -> str:
        """Publishes."""
        await topic.publish("once")
        return "published"

    world.add(app)
    world.text(app, "publish")
    assert heard == [Report("once"), Report("again", line=1)]


def test_availability_alone_is_a_subscription(world: Any) -> None:
    app, other = checker(), Extension("board", "1.0.0")
    seen: list[bool] = []

    @other.on_availability("bus.checker.report")
    async def changed(change: TopicAvailability) -> None:
        seen.append(change.available)

    world.add(other)
    world.add(app)
    assert world.text(app, "check", summary="a") == "1"
    assert (seen, world.diagnostics()) == ([True], [])


def test_changes_of_availability_come_in_order(world: Any) -> None:
    app, other = checker(), Extension("board", "1.0.0")
    seen: list[bool] = []

    @other.on_availability("bus.checker.report")
    async def changed(change: TopicAvailability) -> None:
        if change.available:
            await asyncio.sleep(1)
        seen.append(change.available)

    world.add(other)
    world.add(app)
    world.memory.stop("checker")
    world.driver.advance(1_000)
    assert seen == [True, False]


def test_events_that_wait_are_bounded(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runtime.MAX_EVENTS_QUEUED == MAX_EVENTS_QUEUED
    monkeypatch.setattr(runtime, "MAX_EVENTS_QUEUED", 8)
    app, other = checker(), Extension("board", "1.0.0")
    seen: list[int] = []

    @other.on("bus.checker.report")
    async def report(event: Event[dict[str, Any]]) -> None:
        if not seen:
            await asyncio.sleep(1)
        seen.append(event.sequence)

    world.add(app)
    world.add(other)
    for number in range(8 + 3):
        assert world.text(app, "check", summary="a") == str(number + 1)
    world.driver.advance(1_000)
    assert seen == list(range(1, 8 + 2))
    assert world.diagnostics() == ["dropped 2 events on bus.checker.report: 8 were waiting already"]


def test_publishing_where_nothing_runs(app: Extension) -> None:
    topic = app.topic("step", [])
    with pytest.raises(BrokerError) as caught:
        topic.publish()
    assert str(caught.value) == (
        "bus.hello.step: publish: the extension is not running; do this in a tool, hook, event or background function"
    )


def test_the_wrong_publish_for_the_function(world: Any, app: Extension) -> None:
    topic = app.topic("next-step", [])

    @app.tool
    async def waits() -> str:
        """Waits where it must not."""
        topic.publish_sync()
        return ""

    @app.tool
    def awaits() -> str:
        """Awaits where it cannot."""
        topic.publish()
        return ""

    world.add(app)
    assert world.text(app, "waits") == "waiting here would stop the extension; write await next_step.publish(...)"
    assert world.text(app, "awaits") == "a plain function cannot await; write next_step.publish_sync(...)"
