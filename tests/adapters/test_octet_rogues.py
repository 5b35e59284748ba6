"""Extensions that break the wire on purpose, as processes: how each of them ends, and what nobody gets to see of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker import Event
from broker.adapters.aio import AsyncHost, AsyncSession
from broker.errors import BrokerError, NegotiationError, RemoteError, ResourceExhaustedError
from broker.host import Exited, Health, HostSettings
from broker.testing import ProcessSession

BOUND_SECONDS = 50.0


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., Any]:
    def run(scene: Callable[[AsyncSession, list[Any]], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            async with AsyncHost(settings=HostSettings(restart=False)) as host:
                session = await host.open_session(tmp_path)
                notices: list[Any] = []
                session.add_observer(notices.append)
                return await scene(session, notices)

        return asyncio.run(asyncio.wait_for(main(), BOUND_SECONDS))

    return run


@pytest.fixture
def session(broker_processes: Callable[..., ProcessSession]) -> ProcessSession:
    return broker_processes(settings=HostSettings(restart=False))


def selecting(change: str) -> str:
    """An extension whose answer to initialize is a good one with one ``change``; anything asked of it is an error."""
    return (
        "message = receive()\nanswer = selection(message, ['work'], True, {})\ncontract = answer['contract']\n"
        f"{change}\nsend(id=message['id'], result=answer)\nserve(lambda m: reply(m, 'reached'))"
    )


@pytest.mark.spec("octet.selection.nothing-visible", "octet.initialize.no-retry", "octet.version.reply-mismatch")
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("answer['api_version'] = '0.4'", -32010),
        ("contract['schema'] = 'octet.extension.api/0.4'", -32010),
        ("contract['encoding'] = 'json'", -32602),
        ("contract['capabilities'].remove('core')", -32011),
        ("contract['methods'].remove('shutdown')", -32011),
        ("contract['capabilities'].append('provider_catalog')", -32011),
        ("contract['capabilities'].append('made_up')", -32011),
        ("contract['capabilities'].append('core')", -32011),
        ("contract['methods'].append('tools/register')", -32011),
        ("contract['methods'].remove('bus/lifecycle')", -32011),
        ("contract['limits']['max_tools'] = 0", -32602),
        ("contract['limits']['max_tools'] = 257", -32012),
        ("contract['limits']['max_tools'] = '1'", -32602),
        ("del answer['contract']", -32602),
        ("answer['commands'] = []", -32602),
        ("answer['tools'] *= 2", None),
        ("answer['tools'] = []", None),
        ("answer['tools'][0]['output_schema'] = None", -32602),
        ("answer['tools'][0]['description'] = ' '", -32602),
    ],
)
def test_a_bad_selection_fails_the_start_and_shows_nothing(
    play: Any, rogue: Any, change: str, code: int | None
) -> None:
    path = rogue(selecting(change))

    async def scene(session: AsyncSession, notices: list[Any]) -> None:
        with pytest.raises(NegotiationError) as caught:
            await session.start(path)
        if code is not None:
            assert caught.value.code == code
        assert dict(session.session.extensions) == {}
        assert session.bus.statistics().peers == ()
        (ended,) = [notice for notice in notices if isinstance(notice, Exited)]
        assert ended.status == -9

    play(scene)


def test_the_unchanged_selection_is_a_good_one(session: Any, rogue: Any) -> None:
    path = rogue(selecting(""))
    session.start(path)
    assert session.call("rogue", "work").content[0].text == "reached"


def test_a_fraction_as_a_limit_is_no_canonical_frame(session: Any, rogue: Any) -> None:
    path = rogue(selecting("contract['limits']['max_tools'] = 1.5"))
    with pytest.raises(BrokerError):
        session.start(path)


@pytest.mark.spec("octet.method.before-contract")
@pytest.mark.parametrize("early", ["bus/subscribe", "tool/call"])
def test_a_request_before_the_contract_ends_the_stream(session: Any, rogue: Any, early: str) -> None:
    path = rogue(f"message = receive(); send(id=1, method={early!r}, params={{}}); time.sleep(1000)")
    with pytest.raises(BrokerError):
        session.start(path)
    session.until(session.exits)
    assert [status for _, status, _ in session.exits()] == [-9]


@pytest.mark.spec("octet.envelope.error-pair", "octet.envelope.error-data", "octet.envelope.unknown-member")
@pytest.mark.parametrize(
    ("error", "lives"),
    [
        ({"code": -32603, "message": "internal error"}, True),
        ({"code": -32603, "message": "internal error", "data": None}, True),
        ({"code": -32603, "message": "Internal error"}, False),
        ({"code": -32603, "message": "invalid params"}, False),
        ({"code": -32000, "message": "\x1b[31mserver error"}, False),
        ({"code": "-32603", "message": "internal error"}, False),
        ({"code": -32603, "message": "internal error", "more": 1}, False),
        ({"code": -32603}, False),
    ],
)
def test_an_error_outside_the_table_ends_the_stream(
    session: Any, rogue: Any, error: dict[str, Any], lives: bool
) -> None:
    path = rogue(f"start(); serve(lambda m: send(id=m['id'], error={error!r}))")
    extension = session.start(path)
    with pytest.raises(BrokerError) as caught:
        session.call("rogue", "work")
    assert isinstance(caught.value, RemoteError) is lives
    assert str(caught.value).isprintable()
    if lives:
        assert extension.health is Health.READY
    else:
        assert extension.health in (Health.CRASHED, Health.PARKED)


@pytest.mark.spec("octet.framing.at-bound", "octet.framing.over-bound", "octet.framing.bound-excludes-lf")
@pytest.mark.spec("octet.framing.response-under-offered-bound", "octet.framing.outbound-over-bound")
def test_frames_at_and_over_the_selected_bound(session: Any, rogue: Any) -> None:
    path = rogue(
        "start(max_frame_bytes=1000)\n"
        "def call(m):\n"
        "    letter, size = m['params']['arguments']\n"
        "    room = size - len(encode({'jsonrpc': '2.0', 'id': m['id'], 'result': result('')}))\n"
        "    width = len(letter.encode())\n"
        "    reply(m, letter * (room // width) + 'x' * (room % width))\n"
        "serve(call)"
    )
    session.start(path)
    for letter in ("x", "ä", "\u2028", "\U0001f600"):
        answer = session.call("rogue", "work", [letter, 1_000])
        assert answer.content[0].text.startswith(letter)
    with pytest.raises(ResourceExhaustedError) as caught:
        session.call("rogue", "work", ["y" * 1_000, 0])
    assert caught.value.maximum == 1_000
    with pytest.raises(BrokerError) as ended:
        session.call("rogue", "work", ["x", 1_001])
    assert (ended.value.limit, ended.value.maximum) == ("MAX_FRAME_BYTES", 1_000)


BUS = """
start(bus=True)
binding = receive()['params']['binding_id']
report, calls, number = {}, [], 0
def ask(case, method, **params):
    global number
    number += 1
    send(id=number, method=method, params={'binding_id': binding, **params})
    while 'method' in (answer := receive()): calls.append(answer)
    report[case] = answer.get('error', {}).get('code', 0)
fields = [
    {'name': 'n', 'kind': 'integer', 'required': True, 'max_bytes': 16, 'values': [], 'minimum': 0, 'maximum': 9},
    {'name': 'text', 'kind': 'string', 'required': False, 'max_bytes': 8, 'values': []},
]
topic = 'bus.rogue.state'
ask('publish before declare', 'bus/publish', topic=topic, payload={'n': 1})
ask('declare', 'bus/declare', topic=topic, fields=fields)
ask('redeclare', 'bus/declare', topic=topic, fields=fields[:1])
ask('foreign topic', 'bus/declare', topic='bus.other.state', fields=fields)
ask('bad topic', 'bus/declare', topic='state', fields=fields)
ask('secret field', 'bus/declare', topic='bus.rogue.more', fields=[{**fields[1], 'name': 'api_key'}])
for case, payload in {
    'bool': {'n': True}, 'string': {'n': '1'}, 'null': {'n': None}, 'list': {'n': [1]}, 'missing': {},
    'unknown': {'n': 1, 'm': 1}, 'above': {'n': 10}, 'below': {'n': -1}, 'long': {'n': 1, 'text': 'x' * 9},
    'path': {'n': 1, 'text': '/etc/x'}, 'mail': {'n': 1, 'text': 'a@b'}, 'control': {'n': 1, 'text': 'a\\x07'},
}.items():
    ask(case, 'bus/publish', topic=topic, payload=payload)
ask('stale binding', 'bus/publish', topic=topic, payload={'n': 1}, binding_id='before')
ask('forged publisher', 'bus/publish', topic=topic, payload={'n': 1}, publisher='other')
ask('forged sequence', 'bus/publish', topic=topic, payload={'n': 1}, sequence=99)
ask('ok after', 'bus/publish', topic=topic, payload={'n': 5})
for m in calls: reply(m, json.dumps(report))
serve(lambda m: reply(m, json.dumps(report)))
"""


@pytest.mark.spec("octet.bus.payload-types", "octet.bus.publish-identity", "octet.bus.declare-immutable")
@pytest.mark.spec("octet.bus.wire-answers", "octet.bus.topic-owner")
def test_bad_publications_are_answered_and_reach_nobody(session: Any, rogue: Any) -> None:
    path = rogue("import json\n" + BUS)
    plugin = session.attach("plugin")
    plugin.subscribe("bus.rogue.state")
    seen: list[Any] = []

    def handler(message: Any) -> None:
        if isinstance(message, Event):
            seen.append((message.publisher, message.sequence, message.payload))
        else:
            plugin.subscribe("bus.rogue.state")

    plugin.deliver_to(handler)
    session.start(path)
    report = json.loads(session.call("rogue", "work").content[0].text)
    invalid, mismatch, exhausted = -32602, -32011, -32012
    assert report == {
        "publish before declare": invalid, "declare": 0, "redeclare": invalid, "foreign topic": mismatch,
        "bad topic": invalid, "secret field": invalid, "bool": invalid, "string": invalid, "null": invalid,
        "list": invalid, "missing": invalid, "unknown": invalid, "above": invalid, "below": invalid,
        "long": exhausted, "path": invalid, "mail": invalid, "control": invalid, "stale binding": mismatch,
        "forged publisher": invalid, "forged sequence": invalid, "ok after": 0,
    }  # fmt: skip
    assert seen == [("rogue", 1, {"n": 5})]


@pytest.mark.spec("octet.cancel.late-answer", "octet.tool-call.timeout")
def test_a_late_answer_never_becomes_that_of_the_next_call(session: Any, rogue: Any) -> None:
    path = rogue(
        "late = []\n"
        "def call(m):\n"
        "    if m['params']['arguments'] == 'slow': late.append(m)\n"
        "    else:\n"
        "        for old in late: reply(old, 'late'); reply(old, 'later')\n"
        "        reply(m, 'prompt')\n"
        "start(); serve(call)"
    )
    extension = session.start(path)
    with pytest.raises(BrokerError, match="no answer to tool/call within 50 ms"):
        session.call("rogue", "work", "slow", timeout_ms=50)
    for _ in range(3):
        assert session.call("rogue", "work", "quick").content[0].text == "prompt"
    assert extension.health is Health.READY
