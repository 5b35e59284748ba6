"""A host's service for everything, and how extensions of these versions are added and asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from broker.host import Extension, FeatureServices
from broker.host.feature import CatalogueChange, Origin, PublishedArtifact, ServiceCall
from broker.testing import DrivenSession

CONTRIBUTES = {"context": True, "notifications": True, "confirmations": True, "ui": ["status"]}


def add_feature(world: DrivenSession, script: Any, version: str, name: str = "tide", **contributes: Any) -> Extension:
    """Add an extension of ``version`` that contributes a little of everything, or just this."""
    contributes = contributes or {**CONTRIBUTES, **({} if version == "0.1" else {"presentation": True})}
    return world.add(script, name=name, api_version=version, capabilities={"secrets": ["KEY"]}, **contributes)


def start_feature(world: DrivenSession, script: Any, version: str, name: str = "tide", **contributes: Any) -> Extension:
    return world.settle(add_feature(world, script, version, name, **contributes).start())


def ask_host(world: DrivenSession, extension: Extension, *questions: Any) -> Any:
    """Have an :class:`Asker` ask the host; what the host answered."""
    return json.loads(world.call(extension.name, "work", {"ask": list(questions)}).content[0].text)


class EverythingService:
    """A host service for everything: it remembers what it was asked, and answers what it was told to."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.answers: dict[str, Any] = {}

    def _answer(self, name: str, default: Any) -> Any:
        answer = self.answers.get(name, default)
        if isinstance(answer, Exception):
            raise answer
        return answer() if callable(answer) else answer

    def confirm(self, call: ServiceCall, question: Any) -> Any:
        self.log.append(("confirm", call.origin, question))
        return self._answer("confirm", True)

    def ask(self, call: ServiceCall, question: Any) -> Any:
        self.log.append(("ask", call, question))
        return self._answer("ask", "north")

    def store(self, call: ServiceCall, artifact: PublishedArtifact) -> Any:
        self.log.append(("store", artifact.data, artifact.mime_type))
        return self._answer("store", f"artifact-{len(self.log)}")

    def evaluate(self, call: ServiceCall, intent: Mapping[str, Any]) -> Any:
        self.log.append(("evaluate", dict(intent)))
        return self._answer("evaluate", "allow")

    def get(self, call: ServiceCall, name: str) -> Any:
        self.log.append(("get", name))
        return self._answer("get", "hunter2")

    def change(self, call: ServiceCall, change: CatalogueChange) -> Any:
        self.log.append(("change", change.revision, change.put, change.removed))
        return self._answer("change", None)

    def run(self, call: ServiceCall, fields: Mapping[str, Any]) -> Any:
        self.log.append(("run", call.method, dict(fields)))
        return self._answer("run", {"ran": call.method})

    def _control(self, call: ServiceCall, *arguments: str) -> Any:
        self.log.append((call.operation, *arguments))
        return self._answer("control", "session-2")

    wait_for_idle = create = fork = switch = reload = compact = _control

    def notify(self, origin: Origin, notification: Any) -> None:
        self.log.append(("notify", origin.extension, notification.level, notification.message))

    def contribute(self, origin: Origin, item: Any) -> None:
        self.log.append(("contribute", type(item).__name__))
        self._answer("contribute", None)

    def show(self, origin: Origin, snapshot: Mapping[str, Any]) -> None:
        self.log.append(("show", origin.parent_id is not None, dict(snapshot)))

    def withdraw(self, origin: Origin) -> None:
        self.log.append(("withdraw", origin.parent_id is not None))

    def report(self, origin: Origin, report: Any) -> None:
        self.log.append(("report", origin.parent_method, report.sequence))

    def bind(self, *names: str, **options: Any) -> FeatureServices:
        """Bind this service to these names."""
        return FeatureServices(**{**dict.fromkeys(names, self), **options})
