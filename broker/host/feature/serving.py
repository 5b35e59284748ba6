"""The requests of one process generation, worked on by the host's services: eight at once, the rest in order.

Each request is answered exactly once, whatever its service does; one that is cancelled is answered by the connection,
and its service is told. Source: octet notes, section 5.
"""

from __future__ import annotations

import inspect
from collections import deque
from typing import TYPE_CHECKING, Any

from attrs import define, field

from broker.errors import BrokerError, InternalError, UnavailableError
from broker.host.feature.handlers import HANDLERS, DocumentedRefusalError, Steps, operate
from broker.host.feature.services import ServiceCall
from broker.host.outcome import Outcome
from broker.host.work import Work
from broker.limits import MAX_EXTENSION_WORKERS
from broker.wire.feature.events import FeatureRequest
from broker.wire.quoting import describe

if TYPE_CHECKING:
    from broker.host.feature.generation import FeatureGeneration


@define(eq=False)
class _Job:
    incoming: FeatureRequest
    call: ServiceCall
    steps: Steps | None = None
    waits_for: Outcome[Any] | None = field(default=None, repr=False)
    over: bool = False


class Serving:
    """The requests of one generation that are not answered yet."""

    def __init__(self, generation: FeatureGeneration) -> None:
        self._generation = generation
        self._jobs: dict[FeatureRequest, _Job] = {}
        self._queue: deque[_Job] = deque()
        self._working = 0
        self._pumping = False
        self._closed = False

    def begin(self, incoming: FeatureRequest) -> None:
        """Work on a request, now or when a worker is free."""
        job = _Job(incoming, ServiceCall(self._generation.origin(incoming.parent), incoming.method))
        self._jobs[incoming] = job
        self._queue.append(job)
        self._pump()

    def cancel(self, incoming: FeatureRequest) -> None:
        """Nobody waits for this request any more; it has been answered."""
        job = self._jobs.get(incoming)
        if job is not None:
            self._give_up(job)
            self._pump()

    def close(self) -> None:
        """Nobody waits for anything any more. Idempotent."""
        self._closed = True
        for job in list(self._jobs.values()):
            self._give_up(job)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        if self._pumping:
            return  # a job that is answered at once makes room for the next one in the loop below
        self._pumping = True
        try:
            while self._queue and self._working < MAX_EXTENSION_WORKERS and not self._closed:
                if self._queue[0].incoming.cancelled:
                    # Several are cancelled at once; this one's turn to be told has not come yet.
                    self._give_up(self._queue[0])
                    continue
                job = self._queue.popleft()
                self._working += 1
                self._start(job)
                self._generation.relieve_writer()
        finally:
            self._pumping = False

    def _start(self, job: _Job) -> None:
        generation, incoming = self._generation, job.incoming
        row = incoming.row
        assert row is not None and row.service is not None
        service = getattr(generation.services, row.service)
        if service is None:
            self._refuse(job, UnavailableError(f"this host has no service for {incoming.method}"))
            return
        handler = HANDLERS.get(incoming.method, operate)
        job.steps = handler(generation, service, job.call, incoming.model)
        self._step(job, lambda steps: steps.send(None))

    def _step(self, job: _Job, resume: Any) -> None:
        """Run a job until it waits for something that has not settled, or is over."""
        while not job.over:
            assert job.steps is not None
            try:
                reply = resume(job.steps)
                outcome = self._outcome(reply)
            except StopIteration as stop:
                self._answer(job, stop.value)
                return
            except BrokerError as error:
                self._refuse(job, error)
                return
            except BaseException as error:
                self._fail(job, error)
                if isinstance(error, KeyboardInterrupt):
                    raise
                return
            if outcome is None:
                resume = _sender(reply)
            elif outcome.done:
                resume = _resumer(outcome)
            else:
                job.waits_for = outcome
                outcome.add_callback(lambda settled: self._continue(job, settled))
                return

    def _outcome(self, reply: Any) -> Outcome[Any] | None:
        if isinstance(reply, Outcome):
            return reply
        return self._generation.session.driver.adopt(reply) if inspect.isawaitable(reply) else None

    def _continue(self, job: _Job, outcome: Outcome[Any]) -> None:
        if not job.over:
            job.waits_for = None
            self._step(job, _resumer(outcome))
            self._generation.session.changed()

    def _answer(self, job: _Job, result: dict[str, Any]) -> None:
        if self._end(job):
            try:
                self._generation.connection.answer(job.incoming, result)
            except (InternalError, TypeError) as error:
                failure = error if isinstance(error, InternalError) else InternalError(str(error))
                self._generation.connection.refuse(job.incoming, failure)
                self._generation.note(f"{job.incoming.method} failed inside the host: {error}")
            self._pump()

    def _refuse(self, job: _Job, error: BrokerError) -> None:
        if self._end(job):
            kind = error.kind if isinstance(error, DocumentedRefusalError) else None
            self._generation.connection.refuse(job.incoming, error, kind=kind)
            self._generation.note(f"{job.incoming.method} refused: {error}")
            self._pump()

    def _fail(self, job: _Job, error: BaseException) -> None:
        if self._end(job):
            self._generation.connection.refuse(job.incoming, InternalError(describe(error)))
            self._generation.note(f"{job.incoming.method} failed inside the host: {describe(error)}")
            self._pump()

    def _give_up(self, job: _Job) -> None:
        if not self._end(job):
            return
        waits_for, job.waits_for = job.waits_for, None
        for error in job.call.cancel():
            self._generation.note(f"cancelling {job.incoming.method} failed inside the host: {describe(error)}")
        if isinstance(waits_for, Work):
            waits_for.cancel()
        if job.steps is not None and inspect.getgeneratorstate(job.steps) == inspect.GEN_SUSPENDED:
            job.steps.close()

    def _end(self, job: _Job) -> bool:
        """The job is over; false when it was already."""
        if job.over:
            return False
        job.over = True
        del self._jobs[job.incoming]
        if job in self._queue:
            self._queue.remove(job)
        else:
            self._working -= 1
        return True


def _sender(value: Any) -> Any:
    return lambda steps: steps.send(value)


def _resumer(outcome: Outcome[Any]) -> Any:
    if outcome.error is not None:
        error = outcome.error
        return lambda steps: steps.throw(error)
    return _sender(outcome.result())
