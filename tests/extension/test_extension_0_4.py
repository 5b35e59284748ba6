"""The author's kit on API 0.4: commands, hooks, collections, questions to people, progress, and no bus."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.extension import Context, Defer, Deny, Extension, Result, runtime
from broker.host.feature import Contributions, FeatureServices
from broker.wire.feature.models import ContextItem, StatusItem
from broker.wire.feature.results import CommandResult, HookDisposition, HookResult, Segment
from broker.wire.octet.models import TextPart, ToolDefinition


@pytest.fixture
def app() -> Extension:
    return Extension("hello", "1.0.0", api="0.4")


def contributed(world: Any, app: Extension, ask: Any) -> Any:
    """The result of a contribution, without time passing."""
    request = ask(Contributions(world.session.extension(app.name)))
    world.driver.run()
    return request.result()


@pytest.mark.spec("octet.legacy.tool-result", "octet.legacy.fractions")
def test_tools(world: Any, app: Extension) -> None:
    @app.tool
    async def greet(who: str) -> str:
        """Greets."""
        return f"hello, {who}"

    @app.tool
    def measure(length: float) -> Result:
        """Measures."""
        return Result(f"{length} m", structured={"length": length / 2})

    world.add(app)
    assert world.call(app, "greet", who="Ada").content == (TextPart(text="hello, Ada"),)
    assert world.call(app, "measure", length=2.5).structured_content == {"length": 1.25}
    assert world.text(app, "greet", who=5) == "argument who: expected str, got 5"


@pytest.mark.spec("octet.legacy.command")
def test_commands(world: Any, app: Extension) -> None:
    @app.command
    def hello(words: list[str]) -> str:
        """Greets."""
        return f"hello, {' '.join(words)}"

    @app.command(name="quiet")
    async def silence() -> None:
        """Says nothing."""

    @app.command
    async def whole(words: list[str], context: Context) -> CommandResult:
        """Returns everything a command may."""
        workspace = context.host_context["workspace"]
        return CommandResult(text=workspace, context=[ContextItem(label="l", content="c", placement="prompt")])

    @app.command
    def odd() -> int:
        """Returns a number."""
        return 5

    world.add(app)
    commands = world.session.extension("hello").generation.commands
    assert [(command.name, command.description) for command in commands][:2] == [
        ("hello", "Greets."),
        ("quiet", "Says nothing."),
    ]
    assert contributed(world, app, lambda c: c.execute("hello", ["Ada"])).text == "hello, Ada"
    assert contributed(world, app, lambda c: c.execute("quiet")).text == ""
    result = contributed(world, app, lambda c: c.execute("whole"))
    assert (result.text, result.context[0].label) == (world.session.workspace, "l")
    with pytest.raises(Exception, match="text: must be a string, not an integer"):
        contributed(world, app, lambda c: c.execute("odd"))


@pytest.mark.spec("octet.legacy.hooks")
def test_hooks(world: Any, app: Extension) -> None:
    @app.hook("before_tool_call")
    async def before(payload: dict[str, Any]) -> Any:
        kind = payload["kind"]
        item = ContextItem(label="l", content="c", placement="prompt")
        return {
            "none": None,
            "deny": Deny(reason="not this"),
            "defer": Defer(reason="later"),
            "whole": HookResult(disposition=HookDisposition(action="continue"), context=(item,)),
        }[kind]

    starts: list[str] = []

    @app.hook("session_start")
    def start(payload: Any) -> None:
        starts.append(payload.binding.session_id)

    world.add(app)

    def run(kind: str) -> Any:
        return contributed(world, app, lambda c: c.run_hook("before_tool_call", {"kind": kind}))

    assert starts == [world.session.session_id]
    assert not run("none").denied
    assert (run("deny").denied, run("deny").disposition.reason) == (True, "not this")
    assert run("whole").context[0].content == "c"
    with pytest.raises(Exception, match="has no Defer; return Continue or Deny"):
        run("defer")


@pytest.mark.spec("octet.legacy.collect", "octet.legacy.menu", "octet.legacy.render")
def test_collections(world: Any, app: Extension) -> None:
    @app.context
    def context(prompt: str) -> list[ContextItem]:
        return [ContextItem(label="asked", content=prompt, placement="prompt")]

    @app.status("status")
    async def status() -> str:
        return "fine"

    @app.status("header")
    def header(surface: str) -> StatusItem | None:
        return StatusItem(surface=surface, text="h", style_role="accent", priority=3)

    @app.status("footer")
    def footer() -> None:
        return None

    @app.menu
    def menu() -> dict[str, Any]:
        return {"items": [{"label": "Hello", "command": "hello"}]}

    @app.command
    def hello() -> str:
        """Greets."""
        return "hello"

    @app.tool
    def greet() -> str:
        """Greets."""
        return "hello"

    @app.render("greet")
    def render(call: dict[str, Any]) -> list[Segment]:
        return [Segment(text=f"{call['name']}: {call['output']}", style_role="accent")]

    world.add(app)
    assert contributed(world, app, lambda c: c.collect_context("why?"))[0].content == "why?"
    assert contributed(world, app, lambda c: c.collect_status("status")) == StatusItem(
        surface="status", text="fine", style_role="muted", priority=0
    )
    assert contributed(world, app, lambda c: c.collect_status("header")).priority == 3
    assert contributed(world, app, lambda c: c.collect_status("footer")) is None
    assert contributed(world, app, lambda c: c.collect_menu()).tree == {
        "items": [{"label": "Hello", "command": "hello"}]
    }
    rendered = contributed(world, app, lambda c: c.render_tool("greet", {}, "hello"))
    assert rendered.segments == (Segment(text="greet: hello", style_role="accent"),)


@pytest.mark.spec("octet.legacy.lifecycle-events")
def test_lifecycle_notifications(make_world: Any, app: Extension) -> None:
    told: list[Any] = []
    app.notice("turn/started")(told.append)
    world = make_world(feature_services=FeatureServices(honoured={"lifecycle_events"}))
    world.add(app)
    contributions = Contributions(world.session.extension("hello"))
    assert contributions.tell("turn/started", {"turn_id": "t1"})
    assert not contributions.tell("turn/settled", {"turn_id": "t1"})
    world.driver.run()
    assert told == [{"turn_id": "t1"}]


def test_lifecycle_notifications_come_in_order_and_those_that_wait_are_bounded(
    make_world: Any, app: Extension, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "MAX_EVENTS_QUEUED", 2)
    told: list[str] = []

    @app.notice("turn/started")
    async def started(members: dict[str, Any]) -> None:
        if not told:
            await asyncio.sleep(1)
        told.append(members["turn_id"])

    world = make_world(feature_services=FeatureServices(honoured={"lifecycle_events"}))
    world.add(app)
    contributions = Contributions(world.session.extension("hello"))
    for number in range(5):
        assert contributions.tell("turn/started", {"turn_id": f"t{number}"})
        world.driver.run()
    world.driver.advance(1_000)
    assert told == ["t0", "t1", "t2"]
    assert world.diagnostics() == ["dropped 2 notifications turn/started: 2 were waiting already"]


def test_a_result_that_no_json_holds_has_failed(world: Any, app: Extension) -> None:
    @app.tool
    def measure() -> dict[str, float]:
        """Measures what cannot be measured."""
        return {"depth": float("nan")}

    world.add(app)
    result = world.call(app, "measure")
    assert result.is_error and result.content[0].text.startswith("measure: returned what JSON does not hold: ")


class People:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def confirm(self, call: Any, question: Any) -> bool:
        self.heard.append((call.origin.parent_id, question.prompt))
        return bool(question.destructive)

    def ask(self, call: Any, question: Any) -> str | None:
        self.heard.append((call.origin.parent_id, question.prompt))
        return None if question.secret else "Ada"

    def notify(self, origin: Any, notification: Any) -> None:
        self.heard.append((notification.level, notification.message))

    def report(self, origin: Any, report: Any) -> None:
        self.heard.append((origin.parent_id, report.event.text))

    def get(self, call: Any, name: str) -> str | None:
        return f"the {name}"

    def store(self, call: Any, artifact: Any) -> str:
        return f"art-{len(artifact.data)}"

    def change(self, call: Any, change: Any) -> None:
        self.heard.append([tool.name for tool in change.tools])

    def run(self, call: Any, fields: Any) -> Any:
        return {"text": f"{call.operation} {fields}"}


@pytest.mark.spec("octet.legacy.input", "octet.legacy.progress", "octet.legacy.parent")
def test_questions_and_services(make_world: Any) -> None:
    app = Extension(
        "hello",
        "1.0.0",
        api="0.4",
        uses=["request_progress", "secrets", "artifacts", "dynamic_tools", "composer"],
    )

    @app.tool
    async def everything(context: Context) -> list[str]:
        """Asks for everything there is."""
        context.progress("begun")
        app.host.show("look", level="warning")
        answers = [
            await app.host.confirm("Really?", destructive=True),
            await app.host.ask("Who?"),
            await app.host.ask("What secret?", secret=True),
            await app.host.secret("key"),
            await app.host.publish_artifact(b"12345", "image/png"),
            await app.host.register_tools(ToolDefinition(name="new", description="New.", parameters={})),
            await app.host.unregister_tools("new"),
            (await app.host.request("composer/get", {"more": 1}))["text"],
        ]
        return [str(answer) for answer in answers]

    @app.tool
    def plainly() -> str:
        """Asks in a thread."""
        return str(app.host.wait(app.host.ask("Who?")))

    people = People()
    services = FeatureServices(
        confirmations=people,
        inputs=people,
        notifications=people,
        progress=people,
        secrets=people,
        artifacts=people,
        dynamic_tools=people,
        composer=people,
    )
    world = make_world(feature_services=services)
    world.add(app, confirmations=True, notifications=True, capabilities={"secrets": ["key"]})
    assert world.text(app, "everything") == "True|Ada|None|the key|art-5|1|2|get {'more': 1}"
    parent = people.heard[0][0]
    assert people.heard == [
        (parent, "begun"),
        ("warning", "look"),
        (parent, "Really?"),
        (parent, "Who?"),
        (parent, "What secret?"),
        ["everything", "plainly", "new"],
        ["everything", "plainly"],
    ]
    assert world.text(app, "plainly") == "Ada"


class Sessions:
    def wait_for_idle(self, call: Any) -> str:
        return "idle"

    create = fork = reload = compact = wait_for_idle

    def switch(self, call: Any, session_id: str) -> str:
        return f"{session_id} for {call.origin.parent_method}"


@pytest.mark.spec("octet.legacy.owner")
def test_sessions_are_asked_for_with_parent_and_owner(make_world: Any) -> None:
    app = Extension("hello", "1.0.0", api="0.4", uses=["session_control_v1"])

    @app.command
    async def move() -> str:
        """Switches the session."""
        result = await app.host.request("session/switch", {"session_id": "other"})
        return str(result.session_id)

    world = make_world(feature_services=FeatureServices(session_control=Sessions()))
    world.add(app)
    request = Contributions(world.session.extension("hello")).execute("move")
    world.driver.run()
    assert request.result().text == "other for command/execute"


def test_a_question_without_a_call(world: Any, app: Extension) -> None:
    caught: list[str] = []

    @app.background
    async def ask() -> None:
        try:
            await app.host.ask("Who?")
        except Exception as error:
            caught.append(str(error))

    world.add(app)
    assert caught == ["input/request is made for a request of the host: call it in a tool, command or hook"]


def test_a_feature_that_was_not_named(world: Any, app: Extension) -> None:
    @app.tool
    async def look() -> str:
        """Looks."""
        return str(await app.host.request("composer/get", {}))

    world.add(app)
    assert world.text(app, "look") == (
        'composer/get needs the feature composer: name it, Extension(..., uses=["composer"])'
    )


@pytest.mark.spec("octet.legacy.cancel", "octet.legacy.shutdown")
def test_cancelling_and_ending(world: Any, app: Extension) -> None:
    steps: list[str] = []

    @app.tool
    async def wait() -> str:
        """Waits."""
        try:
            await asyncio.sleep(60)
        finally:
            steps.append("cleaned")
        return "late"

    process = world.add(app)
    world.begin_call(app, "wait").cancel("user")
    world.driver.run()
    last = [one.message for one in world.frames if one.direction == "sent"][-1]
    assert last["error"] == {"code": -32800, "message": "request cancelled", "data": {"reason": "user"}}
    assert steps == ["cleaned"]
    world.session.close()
    world.driver.run()
    assert process.exit_status == 0


def test_a_command_nobody_wrote_is_refused(world: Any, app: Extension) -> None:
    process = world.add(app)
    process.hear(
        b'{"jsonrpc":"2.0","id":50,"method":"command/execute","params":{"name":"x","arguments":[],"context":{}}}\n'
        b'{"jsonrpc":"2.0","id":51,"method":"command/execute","params":{"name":"x","arguments":"a"}}\n'
        b'{"jsonrpc":"2.0","id":52,"method":"command/undo","params":{}}\n'
    )
    sent = b"".join(process.sent)  # type: ignore[arg-type]
    process.sent.clear()
    assert b'"message":"invalid params: command/execute: there is nothing here that answers it"' in sent
    assert b"params of command/execute: arguments must be of type list" in sent
    assert b'"code":-32601' in sent
