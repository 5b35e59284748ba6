"""Taking part in the bus: the binding, declarations, publications, refusals, new topics, a reset, a flood."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from broker.bus import Field
from broker.conform.octet.bench import OctetBench
from broker.conform.octet.bus_host import BusHost
from broker.conform.octet.peer import OctetPeer
from broker.conform.peer import Call
from broker.conform.rules_octet import OCTET_RULES
from broker.errors import BrokerError
from broker.limits import (
    CONFORM_FLOOD_EVENTS,
    CONFORM_FLOOD_NOTICES,
    CONFORM_HELD_MS,
    CONFORM_REDONE_MS,
    CONFORM_SETTLE_MS,
)

_AGAIN_SECONDS: Final = CONFORM_REDONE_MS / 1000
_HELD_SECONDS: Final = CONFORM_HELD_MS / 1000
_SETTLE_SECONDS: Final = CONFORM_SETTLE_MS / 1000
_BUS: Final = tuple(rule for rule in OCTET_RULES if rule.startswith("octet.bus."))
_DECLARING: Final = ("topic-owner", "declare-once", "declare-faults", "declare-acknowledged", "redeclare-after-reset")
_PUBLISHING: Final = (
    *("publish-undeclared", "publish-foreign", "payload-faults", "payload-screened", "message-over-bound"),
    "survives-refusal",
)
_SUBSCRIBING: Final = ("subscriptions-bound", "subscribe-again", "resubscribe-after-reset", "events-read")


async def take_part(bench: OctetBench) -> None:
    """Everything about the bus, in one process."""
    if "event_bus" not in bench.capabilities:
        bench.findings.skipped("it does not select event_bus", *_BUS)
        return
    if not bench.reads_several:
        bench.findings.skipped("frames that arrive together are not read", *_BUS)
        return
    async with bench.process() as peer:
        host = BusHost(peer, bench.findings, bench.manifest.name)
        if not await bench.start(peer) or peer.selection is None:
            return
        quiet = bench.settings.quiet_seconds
        await peer.settle(quiet / 2, most=quiet)
        bench.findings.passed("octet.bus.binding-first")
        host.holding = True
        host.bind(peer.bound)
        await peer.flush()
        await peer.probe.until(lambda: bool(peer.notices), 4 * quiet)
        calls = await _call_tools(bench, peer, wait=False)
        # A tool may wait for the declaration; any other has published by the time it answers, or does so then.
        await peer.probe.until(lambda: all(call.answer is not None for call in calls), _HELD_SECONDS)
        await peer.settle(quiet, most=3 * quiet)
        host.release()
        await peer.settle(quiet, most=_SETTLE_SECONDS)
        if host.declared and not bench.callable_tools:
            await peer.probe.until(lambda: host.published > 0, _SETTLE_SECONDS)
        await _call_tools(bench, peer)
        await peer.settle(quiet, most=_SETTLE_SECONDS)
        for step in (_refuse, _new_topics, _reset, _flood):
            if not peer.blamed and not peer.probe.output_ended:
                await step(bench, peer, host)
        _summarise(bench, host)


def _summarise(bench: OctetBench, host: BusHost) -> None:
    """Mark as kept what there was an occasion to break, and say what there was none for."""
    findings = bench.findings
    findings.passed("octet.bus.binding-stale")
    findings.passed("octet.bus.topic-form")
    for words, reason, happened in (
        (_DECLARING, "it declares no topic", bool(host.declared)),
        (_PUBLISHING, "it published nothing", host.published > 0),
        (_SUBSCRIBING, "it subscribes to nothing", bool(host.subscriptions)),
    ):
        for word in words:
            rule = f"octet.bus.{word}"
            if not happened:
                findings.skipped(reason, rule)
            elif word not in ("redeclare-after-reset", "survives-refusal", *_SUBSCRIBING[1:]):
                findings.passed(rule)


async def _call_tools(bench: OctetBench, peer: OctetPeer, *, wait: bool = True) -> list[Call]:
    """Call every tool: many extensions publish only then."""
    calls = []
    for tool in bench.callable_tools:
        for arguments in bench.arguments_of(tool)[:1]:
            call = await peer.request("tool/call", bench.tool_params(peer, tool.name, arguments))
            calls.append(call)
            if wait and not await peer.answered(call, bench.settings.answer_seconds):
                await peer.notify("$/cancelRequest", {"id": call.id})
    return calls


async def _refuse(bench: OctetBench, peer: OctetPeer, host: BusHost) -> None:
    rule, seconds = "octet.bus.survives-refusal", bench.settings.answer_seconds
    if host.published == 0:
        return
    host.refuse_next = 2
    await _call_tools(bench, peer)
    await peer.settle(bench.settings.quiet_seconds, most=_SETTLE_SECONDS)
    if host.refused == 0:
        bench.findings.skipped("it published nothing when publications were refused", rule)
        return
    host.refuse_next = 0
    if not await bench.still_answers(peer):
        bench.no_answer(peer, rule, f"a request after {host.refused} refused publications", seconds)
        return
    before = host.published
    await _call_tools(bench, peer)
    await peer.settle(bench.settings.quiet_seconds, most=_SETTLE_SECONDS)
    what = "after publications were refused with resource_exhausted, nothing was published any more"
    bench.findings.judge(rule, host.published > before, what)


def _fields(payload: dict[str, Any]) -> list[Field]:
    """Fields that ``payload`` fits."""
    fields = []
    for name, value in payload.items():
        if type(value) is bool:
            fields.append(Field.boolean(name))
        elif type(value) is int:
            fields.append(Field.integer(name))
        else:
            fields.append(Field.string(name))
    return fields


def _foreign(bench: OctetBench, host: BusHost) -> list[str]:
    """The topics of others that the extension is interested in."""
    own = bench.manifest.name
    return sorted({topic for topic in host.subscriptions if topic.split(".")[1:2] not in ([], [own])})


async def _new_topics(bench: OctetBench, peer: OctetPeer, host: BusHost) -> None:
    rule = "octet.bus.subscribe-again"
    foreign = _foreign(bench, host)
    if not foreign:
        bench.findings.skipped("it subscribes to no topic of others", rule, "octet.bus.events-read")
        return
    for topic in foreign:
        bench.findings.has_use("--event", topic)
        if topic not in bench.settings.events:
            bench.findings.remark(f"{topic} got no events, as nobody knows their payload: give --event {topic} JSON")
        before = len(host.subscriptions)
        host.publish_foreign(topic, _fields(bench.settings.events.get(topic, {"note": "x"})), None)
        await peer.flush()
        again = await peer.probe.until(partial(_is_among, topic, host.subscriptions, before), _AGAIN_SECONDS)
        bench.findings.judge(
            rule, again, f"{topic} became available and was not subscribed to again within {_AGAIN_SECONDS:g} s"
        )


def _is_among(topic: str, topics: list[str], start: int) -> bool:
    return topic in topics[start:]


async def _reset(bench: OctetBench, peer: OctetPeer, host: BusHost) -> None:
    declared, subscribed = sorted(host.declared), sorted(host.subscribed)
    host.reset()
    await peer.flush()
    await peer.probe.until(lambda: {*declared} <= {*host.declared} and {*subscribed} <= host.subscribed, _AGAIN_SECONDS)
    await peer.flush()
    for rule, words, wanted, found in (
        ("octet.bus.redeclare-after-reset", "declared", declared, [*host.declared]),
        ("octet.bus.resubscribe-after-reset", "subscribed to", subscribed, [*host.subscribed]),
    ):
        missing = [topic for topic in wanted if topic not in found]
        if wanted:
            what = f"{', '.join(missing)} had not been {words} again {_AGAIN_SECONDS:g} s after a new binding"
            what = f"{what}; {peer.probe.ending()}"
            bench.findings.judge(rule, not missing, what)
            peer.blamed = peer.blamed or bool(missing)
    await _call_tools(bench, peer)
    await peer.settle(bench.settings.quiet_seconds / 2, most=_SETTLE_SECONDS)


async def _flood(bench: OctetBench, peer: OctetPeer, host: BusHost) -> None:
    rule, seconds = "octet.bus.events-read", bench.settings.answer_seconds
    topics = [topic for topic in _foreign(bench, host) if topic in host.subscribed]
    if not topics or peer.blamed:
        return
    topic = min(topics, key=lambda one: one not in bench.settings.events)
    written = peer.probe.stderr_bytes
    payload = bench.settings.events.get(topic)
    fields = _fields(payload or {"note": "x"})
    host.publish_foreign(topic, fields, None)
    await peer.settle(bench.settings.quiet_seconds, most=_SETTLE_SECONDS)
    what = f"{CONFORM_FLOOD_EVENTS} events on {topic}"
    try:
        if payload is None:
            what = f"{2 * CONFORM_FLOOD_NOTICES} notices about {topic}"
            for _ in range(CONFORM_FLOOD_NOTICES):
                host.lose(topic)
                host.publish_foreign(topic, fields, None)
                await peer.flush()
        else:
            for _ in range(CONFORM_FLOOD_EVENTS):
                host.publish_foreign(topic, fields, payload)
                await peer.flush()
    except BrokerError as error:
        bench.findings.skipped(f"the bus refused: {error}", rule)
        return
    if not await bench.still_answers(peer):
        bench.no_answer(peer, rule, f"a request after {what}", seconds)
        return
    bench.findings.passed(rule, what)
    if payload is not None and peer.probe.stderr_bytes > written:
        last = peer.probe.stderr_tail.rpartition("\n")[2]
        bench.findings.remark(f"while {what} came it wrote to stderr, lastly: {last}")
