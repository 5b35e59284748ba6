"""Processes that break the feature-negotiated wire on purpose: how each ends, and what it costs the host."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.adapters.aio import AsyncHost, AsyncSession
from broker.errors import BrokerError, ExitedError, ExtensionError, ProtocolError, TimedOutError
from broker.host import Diagnostic, Exited, FeatureServices, Health, HostSettings
from broker.testing import ProcessSession

VERSIONS = ("0.1", "0.2", "0.4")
HELPERS = """
def answer(message, **changes):
    version = message['params']['api_version']
    result = {'api_version': version, 'tools': [{'name': 'work', 'description': 'x', 'parameters': {}}], 'commands': []}
    if version != '0.1':
        features = message['params']['protocol']['required_features']
        result['protocol'] = {'version': version, 'features': features, 'limits': {'max_concurrent_requests': 4}}
    result.update(changes)
    send(id=message['id'], result=result)
def begin(**changes):
    answer(receive(), **changes)
def done(message, text='fine'):
    parts = [{'type': 'text', 'text': text}]
    old = os.environ['OCTET_EXTENSION_API_VERSION'] == '0.1'
    send(id=message['id'], result={'content': text if old else parts, 'is_error': False})
def loop(on_call):
    while (message := receive()) is not None:
        if message.get('method') == 'tool/call':
            on_call(message)
        elif message.get('method') == 'shutdown':
            send(id=message['id'], result={})
            sys.exit(0)
"""
DRIBBLE = r"""
line = encode({'jsonrpc': '2.0', 'method': 'x'}) + b'\r\n'
begin()
loop(lambda m: [write(bytes([byte])) for byte in line] and done(m))
"""
Scene = Callable[[AsyncSession, list[Any]], Awaitable[Any]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., Any]:
    def run(scene: Scene, services: FeatureServices | None = None, **settings: Any) -> Any:
        async def main() -> Any:
            chosen = HostSettings(restart=False, **settings)
            async with AsyncHost(settings=chosen, feature_services=services or FeatureServices()) as host:
                session = await host.open_session(tmp_path)
                notices: list[Any] = []
                session.add_observer(notices.append)
                return await scene(session, notices)

        return asyncio.run(asyncio.wait_for(main(), 50))

    return run


@pytest.fixture
def opened(broker_processes: Callable[..., ProcessSession]) -> Callable[..., ProcessSession]:
    """Opens sessions over real processes whose host has these settings."""
    return lambda **settings: broker_processes(settings=HostSettings(restart=False, **settings))


@pytest.fixture
def session(opened: Callable[..., ProcessSession]) -> ProcessSession:
    return opened()


@pytest.fixture(params=VERSIONS)
def write(request: pytest.FixtureRequest, rogue: Any) -> Callable[[str], Path]:
    """Writes a rogue of each version."""
    return lambda body: rogue(HELPERS + body, api_version=request.param)


@pytest.mark.spec("octet.legacy.bad-line")
@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("print('Loading model...', flush=True); begin(); loop(done)", ProtocolError),
        ("write(b'\\xef\\xbb\\xbf'); begin(); loop(done)", ProtocolError),
        ("receive(); write(b'\\xff\\xfe\\n'); time.sleep(1000)", ProtocolError),
        ("receive(); write(b'[' * 200_000 + b'\\n'); time.sleep(1000)", ProtocolError),
        ("receive(); write(b'x' * 1_048_576); time.sleep(1000)", ProtocolError),
        ("receive(); send(id=1, method='input/request', params={}); time.sleep(1000)", ProtocolError),
        ("message = receive(); send(id=str(message['id']), result={}); time.sleep(1000)", ProtocolError),
        ("receive(); sys.exit(3)", ExitedError),
        ("receive(); os.close(1); time.sleep(1000)", ExitedError),
        ("time.sleep(1000)", TimedOutError),
        ("begin(tools=[]); loop(done)", ExtensionError),
        ("begin(api_version='0.3'); loop(done)", ExtensionError),
        ("begin(contract={}); loop(done)", ExtensionError),
        ("message = receive(); send(id=message['id'], error={'code': -32000, 'message': 'no'}); loop(done)",
         ExtensionError),
    ],
)  # fmt: skip
def test_a_bad_start_fails_and_leaves_no_process(play: Any, write: Any, body: str, error: type[BrokerError]) -> None:
    path = write(body)

    async def scene(session: AsyncSession, notices: list[Any]) -> None:
        with pytest.raises(error):
            await session.start(path)
        assert dict(session.session.extensions) == {}
        assert len([notice for notice in notices if isinstance(notice, Exited)]) == 1

    play(scene, request_timeout_ms=500 if error is TimedOutError else 1_000_000)


@pytest.mark.spec("octet.legacy.framing")
@pytest.mark.parametrize(
    "body",
    [
        "write(b'\\n\\r\\n  \\n'); begin(); loop(done)",
        "sys.stderr.write('x' * 2_000_000 + '\\n'); sys.stderr.flush(); begin(); loop(done)",
        "os.write(2, b'\\xff\\xfe no text'); begin(); loop(done)",
        DRIBBLE,
        "begin(); loop(lambda m: [send(id=f'{m[\"id\"]}-{n}', method='nowhere') for n in range(100)] and done(m))",
        "begin(); loop(lambda m: [send(id=999, result={}), done(m), done(m)])",
        "begin(); subprocess.Popen(['sleep', '1000']); loop(done)",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); begin(); loop(done)",
    ],
)
def test_what_is_odd_but_harmless_works(session: Any, write: Any, body: str) -> None:
    path = write(body)
    extension = session.start(path)
    for _ in range(2):
        assert session.call("rogue", "work", {}, timeout_ms=10_000).content[0].text == "fine"
    assert extension.health is Health.READY


@pytest.mark.spec("octet.legacy.bad-line", "octet.legacy.dropped-notifications")
@pytest.mark.parametrize(
    "act",
    [
        "write(b'oops\\n')",
        "write(b'null\\n')",
        'write(b\'{"jsonrpc":"2.0","id":"2","result":{}}\\n\')',
        "write(b'x' * 1_048_577)",
        "[send(method='nowhere') for _ in range(65)]",
        "send(method='notification', params={'level': 'info', 'message': 'x'})",
        "os.kill(os.getpid(), 9)",
        "os.close(1)",
    ],
)
def test_a_break_while_calls_are_open_ends_every_one_of_them(session: Any, write: Any, act: str) -> None:
    session.start(write(f"begin(); loop(lambda m: {act} if m['params']['arguments'].get('go') else None)"))
    calls = [session.begin("rogue", "work", given, timeout_ms=1_000_000) for given in ({"go": True}, {}, {}, {})]
    session.until(lambda: all(call.done for call in calls))
    assert all(isinstance(call.error, ExtensionError) for call in calls)
    with pytest.raises(ExtensionError):
        session.call("rogue", "work")


@pytest.mark.spec("octet.legacy.writer-full")
def test_a_process_that_asks_and_never_reads_is_ended(session: Any, write: Any) -> None:
    # Each refusal is long enough that no pipe holds all of them.
    path = write(
        "begin(); receive()\n"
        "for n in range(5_000): send(id=n, method='nowhere/' + 'x' * 100, params={})\n"
        "time.sleep(1000)"
    )
    session.start(path)
    with pytest.raises(ProtocolError) as caught:
        session.call("rogue", "work", {}, timeout_ms=20_000)
    assert caught.value.limit == "MAX_WRITER_FRAMES"


@pytest.mark.spec("octet.legacy.cancel")
def test_a_process_that_ignores_cancels_is_ended(opened: Any, write: Any) -> None:
    session = opened(cancel_grace_ms=100)
    session.start(write("begin(); loop(lambda m: None)"))
    with pytest.raises(TimedOutError):
        session.call("rogue", "work", {}, timeout_ms=50)
    session.until(session.exits)
    assert "no answer to the cancelled tool/call" in session.exits()[0][2]


@pytest.mark.spec("octet.legacy.child-ids")
def test_ids_that_are_used_twice_end_the_stream(session: Any, rogue: Any) -> None:
    path = rogue(
        HELPERS + "begin()\n"
        "def ask(m):\n"
        "    for _ in range(2):\n"
        "        send(id=7, method='input/request', params={'prompt': '?', 'secret': False,"
        " 'parent_request_id': m['id']})\n"
        "loop(ask)",
        api_version="0.4",
    )
    session.start(path)
    with pytest.raises(ProtocolError, match="used before"):
        session.call("rogue", "work", {}, timeout_ms=20_000)


@pytest.mark.spec("octet.legacy.notification-shown")
def test_what_a_process_wants_people_to_read_cannot_steer_a_terminal(session: Any, rogue: Any) -> None:
    path = rogue(
        HELPERS + "begin(); loop(lambda m: send(method='notification', params={'level': 'info',"
        " 'message': '\\x1b]0;owned\\x07\\u202e'}) or done(m))",
        api_version="0.2",
        notifications=True,
    )
    session.start(path)
    session.call("rogue", "work", {})
    (told,) = [n for n in session.notices if isinstance(n, Diagnostic) and n.source == "notification"]
    assert told.text == r"info: \x1b]0;owned\x07\u202e"
