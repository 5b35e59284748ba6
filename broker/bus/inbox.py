"""The bounded inbox of one peer: a queue whose room is counted in messages and in frame bytes.

What is queued or held *is* the credit in use; nothing is counted twice. It is given back when a message is taken,
discarded, or (for a process) written.

Everything here runs under the bus's lock, with one exception: while the bus delivers, the one thread that does takes
messages from the left of the queues of peers with handlers without it. That is why everything else takes messages one
at a time and never rebuilds such a queue, and why what can be counted from the queue is not kept beside it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from broker.bus.event import Event
from broker.bus.messages import Message, message_size
from broker.bus.topic import Interest, find_interest
from broker.bus.typed import TypedTopic
from broker.errors import Fault
from broker.limits import (
    MAX_BUS_MESSAGE_AGE_MS,
    MAX_BUS_MESSAGE_BYTES,
    MAX_BUS_QUEUE_BYTES,
    MAX_BUS_QUEUE_MESSAGES,
    MAX_FRAME_BYTES,
)

if TYPE_CHECKING:
    from broker.bus.handlers import Registration
    from broker.bus.hold import Held


class Inbox:
    """Queue and counters of one peer.

    ``careful`` says that not every queued message may be handed out as it is: one of them may have become invalid, or
    a subscription reads its payload into a class. While it is unset, all but age is known to be fine, and a peer's only
    handler is ``direct``: it may be given the next message without a look at either.
    """

    __slots__ = (
        "_admitted",
        "append",
        "binding_id",
        "careful",
        "closed",
        "direct",
        "discarded",
        "expired",
        "handler_errors",
        "handlers",
        "held",
        "interests",
        "invalidated",
        "last_refused_topic",
        "max_frame_bytes",
        "queue",
        "reader",
        "reads_classes",
        "refusals",
    )

    def __init__(self, max_frame_bytes: int, binding_id: str, interests: tuple[Interest, ...] = ()) -> None:
        self.binding_id: str = binding_id
        self.max_frame_bytes: int = max_frame_bytes
        self.queue: deque[Message] = deque()
        self.append: Callable[[Message], None] = self.queue.append
        self.interests: tuple[Interest, ...] = interests
        self.careful: bool = False
        self.reads_classes: bool = False
        self.handlers: tuple[Registration, ...] = ()
        self.handler_errors: int = 0
        self.direct: Callable[[Message], Any] | None = None
        self.closed: bool = False
        self.reader: TypedTopic | None = None
        self.held: dict[Held, None] = {}
        self._admitted: int = 0
        self.expired: int = 0
        self.invalidated: int = 0
        self.discarded: int = 0
        self.refusals: int = 0
        self.last_refused_topic: str | None = None

    # -- counting ------------------------------------------------------------------------------------------------------

    @property
    def used_messages(self) -> int:
        """Messages whose credit is in use."""
        return len(self.queue) + len(self.held)

    @property
    def used_bytes(self) -> int:
        """Frame bytes of the messages whose credit is in use."""
        # The copy is one step of the interpreter: a delivering thread may take messages meanwhile.
        return sum(map(message_size, list(self.queue))) + sum(held.size for held in self.held)

    @property
    def taken(self) -> int:
        """Messages that were handed out: whatever was admitted and has not met another end."""
        admitted = self._admitted + sum(interest.admitted for interest in self.interests)
        return admitted - len(self.queue) - self.expired - self.invalidated - self.discarded

    def end(self, interest: Interest) -> None:
        """Nothing more is admitted for ``interest``: what was so far is counted here from now on."""
        self._admitted += interest.admitted
        interest.since = None

    # -- room ----------------------------------------------------------------------------------------------------------

    def room(self, size: int) -> tuple[int, int]:
        """How many messages, and how many bytes, surely fit; exact where the bytes are below ``size``."""
        used = self.used_messages
        free = MAX_BUS_QUEUE_BYTES - used * MAX_BUS_MESSAGE_BYTES
        if free < size:
            free = MAX_BUS_QUEUE_BYTES - self.used_bytes
        return MAX_BUS_QUEUE_MESSAGES - used, free

    def shortage(self, size: int) -> Fault | None:
        """The bound a message of ``size`` bytes would pass, or None when there is room for it."""
        if size > self.max_frame_bytes:
            return Fault(
                "frame", "frame too large", "resource_exhausted", "max_frame_bytes", size, self.max_frame_bytes
            )
        messages = self.used_messages + 1
        if messages > MAX_BUS_QUEUE_MESSAGES:
            return Fault(
                "inbox",
                "inbox full",
                "resource_exhausted",
                "MAX_BUS_QUEUE_MESSAGES",
                messages,
                MAX_BUS_QUEUE_MESSAGES,
            )
        size += self.used_bytes
        if size > MAX_BUS_QUEUE_BYTES:
            return Fault("inbox", "inbox full", "resource_exhausted", "MAX_BUS_QUEUE_BYTES", size, MAX_BUS_QUEUE_BYTES)
        return None

    def put(self, message: Message) -> None:
        """Admit a notice that was found to have room."""
        self._admitted += 1
        self.append(message)

    # -- validity ------------------------------------------------------------------------------------------------------

    def beware(self) -> None:
        """A subscription or binding changed: what is queued may have become invalid, and classes may be read."""
        self.reads_classes = any(interest.reader is not None for interest in self.interests)
        self.careful = self.reads_classes or bool(self.queue)
        self._choose_direct()

    def relax(self) -> None:
        """With nothing queued, nothing of it can be invalid."""
        if self.careful and not self.queue:
            self.beware()

    def set_handlers(self, handlers: tuple[Registration, ...]) -> None:
        """Who the peer's messages are given to, in this order."""
        self.handlers = handlers
        self._choose_direct()

    def _choose_direct(self) -> None:
        plain = len(self.handlers) == 1 and not self.careful
        self.direct = self.handlers[0].handler if plain else None

    def discard_stale(self, *, expired: bool) -> None:
        """Count a message that was found to be no longer deliverable."""
        if expired:
            self.expired += 1
        else:
            self.invalidated += 1

    def valid(self, message: Message) -> bool:
        """Whether the message still belongs to the current binding, and an event to a subscription as it stands now."""
        if type(message) is not Event:
            return message.binding_id == self.binding_id
        return self.subscription(message) is not None

    def subscription(self, event: Event) -> Interest | None:
        """The subscription as it stands now that ``event`` was admitted for, if it still stands."""
        interest = find_interest(self.interests, event._topic.name)
        if interest is None or interest.topic is not event._topic or event._sequence <= interest.after:
            return None
        return interest

    # -- taking --------------------------------------------------------------------------------------------------------

    def pop(self, now: int) -> Message | None:
        """The next deliverable message; everything stale before it is discarded and counted."""
        self.reader = None
        while (message := self.pop_any()) is not None:
            if type(message) is not Event:
                if message.binding_id == self.binding_id:
                    break
                self.discard_stale(expired=False)
                continue
            interest = self.subscription(message)
            if interest is None:
                self.discard_stale(expired=False)
            elif now - message._admitted_ms > MAX_BUS_MESSAGE_AGE_MS:
                self.discard_stale(expired=True)
            else:
                self.reader = interest.reader
                break
        self.relax()
        return message

    def pop_any(self) -> Message | None:
        """The next message, deliverable or not."""
        try:
            return self.queue.popleft()
        except IndexError:
            return None

    def sweep(self, now: int, *, delivering: bool) -> int | None:
        """Discard expired events; the admission time of the oldest event left, if any.

        A notice never expires: a peer that missed one would keep a stale view. An inbox that is being delivered from is
        left alone: the delivering thread finds what has expired.
        """
        if delivering:
            return self.oldest_admitted_ms()
        oldest: int | None = None
        kept: list[Message] = []
        for message in self.queue:
            if type(message) is Event:
                if now - message._admitted_ms > MAX_BUS_MESSAGE_AGE_MS:
                    self.expired += 1
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
        return next((message._admitted_ms for message in list(self.queue) if type(message) is Event), None)

    def clear(self) -> None:
        """Discard everything queued; a closed peer's messages are never delivered."""
        while self.pop_any() is not None:
            self.discarded += 1


NO_INBOX: Final = Inbox(MAX_FRAME_BYTES, "")
"""What a peer has that nothing was ever queued for, shared by all of them: it is looked at and never changed."""
