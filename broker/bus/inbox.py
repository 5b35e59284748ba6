"""The bounded inbox of one peer: a queue whose room is counted in messages and in frame bytes.

Credit is taken when a message is admitted and given back when it is taken, discarded, or (for a process) written.
Everything here runs under the bus's lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.bus.messages import Event, Message, message_size
from broker.bus.topic import Interest
from broker.bus.typed import TypedTopic
from broker.errors import Fault
from broker.limits import MAX_BUS_MESSAGE_AGE_MS, MAX_BUS_QUEUE_BYTES, MAX_BUS_QUEUE_MESSAGES

if TYPE_CHECKING:
    from broker.bus.hold import Held


class Inbox:
    """Queue, credit counters and delivery counters of one peer."""

    __slots__ = (
        "append",
        "binding_id",
        "closed",
        "discarded",
        "expired",
        "free_bytes",
        "free_messages",
        "held",
        "interests",
        "invalidated",
        "last_refused_topic",
        "max_frame_bytes",
        "queue",
        "reader",
        "refusals",
        "taken",
    )

    def __init__(self, max_frame_bytes: int, binding_id: str) -> None:
        self.binding_id: str = binding_id
        self.max_frame_bytes: int = max_frame_bytes
        self.queue: deque[Message] = deque()
        self.append: Callable[[Message], None] = self.queue.append
        self.free_messages: int = MAX_BUS_QUEUE_MESSAGES
        self.free_bytes: int = MAX_BUS_QUEUE_BYTES
        self.interests: dict[str, Interest] = {}
        self.closed: bool = False
        self.reader: TypedTopic | None = None
        self.held: dict[Held, None] = {}
        self.taken: int = 0
        self.expired: int = 0
        self.invalidated: int = 0
        self.discarded: int = 0
        self.refusals: int = 0
        self.last_refused_topic: str | None = None

    @property
    def used_messages(self) -> int:
        return MAX_BUS_QUEUE_MESSAGES - self.free_messages

    @property
    def used_bytes(self) -> int:
        return MAX_BUS_QUEUE_BYTES - self.free_bytes

    def shortage(self, size: int) -> Fault | None:
        """The bound a message of ``size`` bytes would pass, or None when there is room for it."""
        if size > self.max_frame_bytes:
            return Fault(
                "frame", "frame too large", "resource_exhausted", "max_frame_bytes", size, self.max_frame_bytes
            )
        if self.free_messages < 1:
            return Fault(
                "inbox",
                "inbox full",
                "resource_exhausted",
                "MAX_BUS_QUEUE_MESSAGES",
                self.used_messages + 1,
                MAX_BUS_QUEUE_MESSAGES,
            )
        if self.free_bytes < size:
            return Fault(
                "inbox",
                "inbox full",
                "resource_exhausted",
                "MAX_BUS_QUEUE_BYTES",
                self.used_bytes + size,
                MAX_BUS_QUEUE_BYTES,
            )
        return None

    def put(self, message: Message, size: int) -> None:
        """Admit a message that was found to have room."""
        self.free_messages -= 1
        self.free_bytes -= size
        self.append(message)

    def refund(self, size: int) -> None:
        """Give back the credit of one message."""
        self.free_messages += 1
        self.free_bytes += size

    def valid(self, message: Message) -> bool:
        """Whether the message still belongs to the current binding, and an event to a subscription as it stands now."""
        if type(message) is not Event:
            return message.binding_id == self.binding_id
        interest = self.interests.get(message._topic.name)
        return interest is not None and interest.topic is message._topic and message._sequence > interest.after

    def pop(self, now: int) -> Message | None:
        """The next deliverable message, its credit still used; everything stale before it is discarded and counted."""
        queue = self.queue
        while queue:
            message = queue.popleft()
            if type(message) is Event:
                interest = self.interests.get(message._topic.name)
                if interest is None or interest.topic is not message._topic or message._sequence <= interest.after:
                    self.invalidated += 1
                elif now - message._admitted_ms > MAX_BUS_MESSAGE_AGE_MS:
                    self.expired += 1
                else:
                    self.reader = interest.reader
                    return message
            elif message.binding_id == self.binding_id:
                self.reader = None
                return message
            else:
                self.invalidated += 1
            self.refund(message_size(message))
        return None

    def sweep(self, now: int) -> int | None:
        """Discard expired events; the admission time of the oldest event left, if any.

        A notice never expires: a peer that missed one would keep a stale view.
        """
        oldest: int | None = None
        kept: list[Message] = []
        for message in self.queue:
            if type(message) is Event:
                if now - message._admitted_ms > MAX_BUS_MESSAGE_AGE_MS:
                    self.expired += 1
                    self.refund(message._size)
                    continue
                if oldest is None:
                    oldest = message._admitted_ms
            kept.append(message)
        if len(kept) != len(self.queue):
            self.queue.clear()
            self.queue.extend(kept)
        return oldest

    def oldest_admitted_ms(self) -> int | None:
        """Admission time (monotonic ms) of the oldest event whose credit is in use, if any; those held are older."""
        for held in self.held:
            if (last := held.valid_until_ms) is not None:
                return last - MAX_BUS_MESSAGE_AGE_MS
        return next((message._admitted_ms for message in self.queue if type(message) is Event), None)

    def clear(self) -> None:
        """Discard everything queued; a closed peer's messages are never delivered."""
        self.discarded += len(self.queue)
        for message in self.queue:
            self.refund(message_size(message))
        self.queue.clear()
