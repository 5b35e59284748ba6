"""An author's view of the bus: topics to publish on, and the events that handlers get."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from attrs import frozen

from broker.bus import Field, Receipt
from broker.bus.fields import declaration_faults, topic_fault
from broker.bus.schema import compile_schema
from broker.bus.typed import TypedTopic, describe
from broker.errors import InvalidParamsError, ResourceExhaustedError, UsageError
from broker.extension.events import BusEvent

if TYPE_CHECKING:
    from broker.extension.app import Extension

P = ParamSpec("P")
T = TypeVar("T")


@frozen(kw_only=True)
class Event(Generic[T]):
    """One event of a topic. ``payload`` is what was published; ``value`` the same as the class it is read with.

    Without a class ``value`` is the payload. Publisher, generation, sequence and time are the host's word.
    """

    topic: str
    publisher: str
    publisher_instance_id: str
    process_generation: int
    sequence: int
    published_at_ms: int
    payload: dict[str, Any]
    value: T


class Topic(Generic[P, T]):
    """A topic this extension declares; made by :meth:`broker.extension.Extension.topic`.

    Its arguments are those of the class that describes the topic, or one keyword for each field.
    """

    def __init__(self, app: Extension, name: str, fields: tuple[Field, ...], typed: TypedTopic | None) -> None:
        self._app = app
        self._typed = typed
        self._schema = compile_schema(fields)
        self.name: str = name
        self.fields: tuple[Field, ...] = fields

    def __repr__(self) -> str:
        return f"<Topic {self.name}>"

    def publish(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Receipt]:
        """Publish, and wait for the host's receipt: admitted to every subscriber, under this sequence, at this time.

        Before the binding, and while a new one is being taken up, it waits for up to 2 seconds. A refusal is the typed
        :class:`~broker.errors.BrokerError`; the event is then not on the bus, and is not sent again. Awaited in an
        ``async`` handler; a plain function uses :meth:`publish_sync`.
        """
        return self.publish_value(self._value(args, kwargs))

    def publish_sync(self, *args: P.args, **kwargs: P.kwargs) -> Receipt:
        """As :meth:`publish`, for plain functions, which run in a thread."""
        payload = self.payload_of(self._value(args, kwargs))
        runtime = self._app.current_runtime(f"{self.name}: publish_sync")
        runtime.check_in_worker(f"await {self._short}.publish(...)")
        return runtime.workers.wait(runtime.publish(self.name, payload))

    def publish_value(self, value: T) -> Coroutine[Any, Any, Receipt]:
        """As :meth:`publish`, for an instance that exists already, or a mapping of fields."""
        payload = self.payload_of(value)
        runtime = self._app.current_runtime(f"{self.name}: publish")
        runtime.check_in_loop(f"{self._short}.publish_sync(...)")
        publishing = runtime.publish(self.name, payload)
        # What Python says when nobody awaits it has to name what the author wrote.
        cast(Any, publishing).__qualname__ = f"Topic.publish of {self.name}"
        return publishing

    def payload_of(self, value: Any) -> dict[str, Any]:
        """The payload ``value`` stands for. Raises with every fault of one that does not fit the declaration."""
        if self._typed is not None:
            if not isinstance(value, self._typed.cls):
                raise InvalidParamsError(
                    f"{self.name} takes {self._typed.cls.__name__}, not {type(value).__name__}", topic=self.name
                )
            payload = self._typed.payload(value)
        elif isinstance(value, Mapping):
            payload = dict(value)
        else:
            raise InvalidParamsError(f"{self.name} takes its fields, not {type(value).__name__}", topic=self.name)
        if self._schema.measure(payload) < 0:
            faults = self._schema.faults(payload)
            kind = ResourceExhaustedError if faults[0].name == "resource_exhausted" else InvalidParamsError
            raise kind(
                f"event on {self.name} does not fit its declaration: {'; '.join(map(str, faults))}",
                topic=self.name,
                faults=faults,
            )
        return payload

    @property
    def _short(self) -> str:
        return self.name.split(".")[2].replace("-", "_")

    def _value(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._typed is not None:
            return self._typed.cls(*args, **kwargs)
        if args:
            raise UsageError(f"{self.name}: fields are given by name, {self._short}.publish(field=value)")
        return kwargs


def own_topic_name(app: str, name: Any) -> str:
    """The full name of a topic of the extension ``app``; raises :class:`~broker.errors.UsageError` for another's."""
    if not isinstance(name, str):
        raise UsageError(f'app.topic takes a name first, not {type(name).__name__}; write app.topic("a-name", ...)')
    full = name if name.startswith("bus.") else f"bus.{app}.{name}"
    if fault := topic_fault(full):
        raise UsageError(f"topic {name!a:.100}: {fault.problem}", topic=name)
    owner, last = full.split(".")[1:]
    if owner != app:
        raise UsageError(
            f'topic "{full}" belongs to {owner}, and {app} can only declare its own: '
            f'write app.topic("{last}", ...), or subscribe with @app.on("{full}")',
            topic=full,
        )
    return full


def topic_given(what: str, topic: Any, app: str) -> str:
    """The topic a decorator was given; raises :class:`~broker.errors.UsageError` for what cannot be one."""
    if not isinstance(topic, str):
        raise UsageError(f"{what} takes a topic's name, not {type(topic).__name__}; write {what}(NAME) above it")
    if fault := topic_fault(topic):
        hint = "" if "." in topic else f"; did you mean bus.{app}.{topic}?"
        raise UsageError(f"{what}({topic!a:.100}): {fault.problem}{hint}", topic=topic)
    return topic


def read_fields(name: str, described: type | Sequence[Field]) -> tuple[tuple[Field, ...], TypedTopic | None]:
    """The fields that an attrs class or a list of :class:`~broker.Field` says topic ``name`` has."""
    if isinstance(described, type):
        if "__attrs_attrs__" not in described.__dict__:
            raise UsageError(
                f"topic {name}: {described.__qualname__} is no attrs class; put @attrs.frozen above it", topic=name
            )
        typed = describe(name, described)
        return typed.fields, typed
    if faults := declaration_faults(described):
        raise UsageError(f"topic {name}: {'; '.join(map(str, faults))}", topic=name, faults=faults)
    return tuple(described), None


def read_event(event: BusEvent, typed: TypedTopic | None) -> Event[Any]:
    """The event as handlers get it; :class:`~broker.errors.InvalidParamsError` when it does not fit its class."""
    return Event(
        topic=event.topic,
        publisher=event.publisher,
        publisher_instance_id=event.publisher_instance_id,
        process_generation=event.process_generation,
        sequence=event.sequence,
        published_at_ms=event.published_at_ms,
        payload=event.payload,
        value=event.payload if typed is None else typed.decode(event.payload),
    )
