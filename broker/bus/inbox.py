"""The bounded inbox of one peer: a queue whose room is counted in messages and in frame bytes.

Credit is taken when a message is admitted and given back when it is taken, discarded, or (for a process) written.

Everything here runs under the bus's lock, with one exception: while the bus delivers, the one thread that does takes
messages from the left of the queues of peers with handlers without it. That is why everything else takes messages one
at a time, never rebuilds such a queue, and why what that thread is done with is counted apart (``done_messages`` and
``done_bytes``, which it alone writes and which only rise) until :meth:`Inbox.reclaim` gives the credit back.
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
        "done_bytes",
        "done_messages",
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
        "reclaimed_bytes",
        "reclaimed_messages",
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
        self.done_messages: int = 0
        self.done_bytes: int = 0
        self.reclaimed_messages: int = 0
        self.reclaimed_bytes: int = 0
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

    def reclaim(self) -> None:
        """Give back the credit of what handlers were given since the last time, and count it as taken."""
        # Bytes are written after their message: read before it, they are never given back too early.
        size, messages = self.done_bytes, self.done_messages
        fresh = messages - self.reclaimed_messages
        self.taken += fresh
        self.free_messages += fresh
        self.free_bytes += size - self.reclaimed_bytes
        self.reclaimed_bytes, self.reclaimed_messages = size, messages

    def discard_stale(self, message: Message, *, expired: bool) -> None:
        """Count and give back the credit of a message that was found to be no longer deliverable."""
        self.refund(message_size(message))
        if expired:
            self.expired += 1
        else:
            self.invalidated += 1

    def valid(self, message: Message) -> bool:
        """Whether the message still belongs to the current binding, and an event to a subscription as it stands now."""
        if type(message) is not Event:
            return message.binding_id == self.binding_id
        interest = self.interests.get(message._topic.name)
        return interest is not None and interest.topic is message._topic and message._sequence > interest.after

    def pop(self, now: int) -> Message | None:
        """The next deliverable message, its credit still used; everything stale before it is discarded and counted."""
        while (message := self.pop_any()) is not None:
            if type(message) is Event:
                interest = self.interests.get(message._topic.name)
                if interest is None or interest.topic is not message._topic or message._sequence <= interest.after:
                    self.discard_stale(message, expired=False)
                elif now - message._admitted_ms > MAX_BUS_MESSAGE_AGE_MS:
                    self.discard_stale(message, expired=True)
                else:
                    self.reader = interest.reader
                    return message
            elif message.binding_id == self.binding_id:
                self.reader = None
                return message
            else:
                self.discard_stale(message, expired=False)
        return None

    def pop_any(self) -> Message | None:
        """The next message, deliverable or not; its credit still used."""
        try:
            return self.queue.popleft()
        except IndexError:
            return None

    def sweep(self, now: int, *, delivering: bool) -> int | None:
        """Discard expired events; the admission time of the oldest event left, if any.

        A notice never expires: a peer that missed one would keep a stale view. An inbox that is being delivered from is
        left alone: the delivering thread finds what has expired.
        """
        self.reclaim()
        if delivering:
            return self.oldest_admitted_ms()
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
        # The copy is one step of the interpreter: a delivering thread may take messages meanwhile.
        return next((message._admitted_ms for message in list(self.queue) if type(message) is Event), None)

    def clear(self) -> None:
        """Discard everything queued; a closed peer's messages are never delivered."""
        while (message := self.pop_any()) is not None:
            self.discarded += 1
            self.refund(message_size(message))
