#!/usr/bin/env python3
"""An agent loop: tools of both extension families, the bus, events and a budget. The model is a script."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from attrs import field, frozen

from broker import Field
from broker.adapters.aio import AsyncHost, AsyncSession
from broker.adapters.event_emitter import EventEmitter
from broker.adapters.event_log import EventLog
from broker.errors import BrokerError
from broker.host import life
from broker.wire.odek.budget.budget import Budget
from broker.wire.odek.budget.config import parse_limits
from broker.wire.odek.budget.exit_codes import exit_code
from broker.wire.odek.config import ServerConfig
from broker.wire.odek.events.redaction import Redactor, secret_values
from broker.wire.odek.events.run import ModelToolCall, OpenCall, RunEvents
from broker.wire.odek.events.types import SessionSaved

MODEL = "scripted-1"
MAX_ITERATIONS = 8
HELLO = Path(__file__).parents[1] / "hello"
LIMITS = {
    "max_tool_calls": 3,
    "max_runtime_seconds": 60,
    "max_cost_usd": 0.05,
    "input_cost_per_million_usd": 3,
    "output_cost_per_million_usd": 15,
}


@frozen
class Reply:
    """What the model says: tool calls, or a text and nothing else."""

    input_tokens: int
    output_tokens: int
    calls: list[ModelToolCall] = field(factory=list)
    text: str = ""


SCRIPT = [
    Reply(
        800, 60, [ModelToolCall("hello__greet", '{"who": "world"}'), ModelToolCall("fixture__artifact_result", "{}")]
    ),
    Reply(1_100, 40, [ModelToolCall("fixture__echo", '{"text": "almost done"}', id="call-from-the-provider")]),
    Reply(1_300, 30, [ModelToolCall("fixture__slow", '{"seconds": 600}')]),
    Reply(1_500, 90, text="All done."),
]


class Agent:
    """One run. ``messages`` is the state that is saved: never a tool call without its result."""

    def __init__(self, session: AsyncSession, events: RunEvents, budget: Budget, state: Path) -> None:
        self.session = session
        self.events = events
        self.budget = budget
        self.state = state
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": "Look around and report."}]
        self.bus = session.attach("agent")
        self.bus.declare("bus.agent.progress", [Field.integer("iteration"), Field.integer("tool_calls")])

    async def run(self) -> str:
        for iteration in range(1, MAX_ITERATIONS + 1):
            self.budget.check_runtime()
            reply = SCRIPT[iteration - 1]
            self.budget.add_usage(reply.input_tokens, reply.output_tokens)
            self.budget.claim_tool_calls(len(reply.calls))
            results = await self.call_all(iteration, reply.calls)
            self.messages.append({"role": "assistant", "content": reply.text, "tool_calls": len(reply.calls)})
            self.messages += [{"role": "tool", "content": result} for result in results]
            usage = self.budget.usage
            self.events.iteration_completed(
                iteration,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                tools_called=len(reply.calls),
            )
            self.bus.publish("bus.agent.progress", {"iteration": iteration, "tool_calls": usage.tool_calls})
            if not reply.calls:
                return reply.text
        return "gave up"

    async def call_all(self, iteration: int, calls: list[ModelToolCall]) -> list[str]:
        opened = self.events.tool_calls(iteration, calls)
        return await asyncio.gather(*(self.call(*pair) for pair in zip(calls, opened, strict=True)))

    async def call(self, call: ModelToolCall, opened: OpenCall) -> str:
        """The text that the model is shown; a failure is one too."""
        try:
            owner, _, tool = call.tool.partition("__")
            arguments = json.loads(call.arguments)
            if owner in self.session.session.servers:
                output = await self.session.call_server(owner, tool, arguments, untrusted=True)
                text, failed, artifacts = output.text, output.is_error, output.artifact_count
            else:
                result = await self.session.call(owner, tool, arguments)
                text = "\n".join(part.text for part in result.content)
                failed, artifacts = result.is_error, 0
        except (BrokerError, ValueError) as error:
            opened.failed(error)
            return f"the call failed: {error}"
        if failed:
            opened.failed()
        else:
            opened.completed(text, artifact_count=artifacts)
        return text

    def save(self) -> None:
        self.state.write_text(json.dumps(self.messages, indent=1))
        self.events.emit(SessionSaved(message_count=len(self.messages)))


async def run(directory: Path, events: RunEvents, emitter: EventEmitter, budget: Budget) -> None:
    fixture = ServerConfig(
        name="fixture",
        source="operator",
        command=sys.executable,
        args=("-m", "broker.testing.odek_server", "--root", os.fspath(directory)),
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        artifact_roots=(os.fspath(directory),),
    )
    async with AsyncHost() as host:
        session = await host.open_session(directory)
        emitter.session_id = session.session.session_id
        life.watch(session.session, emitter.emit)
        await asyncio.gather(session.start(HELLO), session.start_server(fixture))
        agent = Agent(session, events, budget, directory / "session.json")
        screen = session.attach("screen")
        screen.subscribe("bus.agent.progress")
        screen.deliver_to(lambda message: print(getattr(message, "payload", ""), flush=True))
        try:
            print(await agent.run())
        finally:
            agent.save()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="where the event file and the state go")
    directory = parser.parse_args().directory.resolve()
    config = parse_limits(LIMITS, source="operator")
    redactor = Redactor(secret_values(os.environ))
    error: BaseException | None = None
    with EventLog(directory / "run.jsonl") as log, EventEmitter(log.write, redactor=redactor) as emitter:
        events = RunEvents(emitter.emit)
        budget = Budget(config.limits, prices=config.prices, model=MODEL, on_exceeded=events.budget_exceeded)
        events.started(model=MODEL, sandbox=False, max_iterations=MAX_ITERATIONS)
        try:
            asyncio.run(run(directory, events, emitter, budget))
        except BrokerError as failure:
            error = failure
            print(f"agent: {failure}", file=sys.stderr)
            events.failed(failure)
        else:
            usage = budget.usage
            events.completed(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)
    return exit_code(error)


if __name__ == "__main__":
    sys.exit(main())
