"""What each of the others is, and what it does not do that the bus does. Which is faster, the figures say."""

from __future__ import annotations

LIBRARIES: dict[str, str] = {
    "broker, take()": (
        "The bus itself, read by calling ``take()`` for each subscriber rather than by handlers; it takes the lock for "
        "every message."
    ),
    "broker, async for": "The bus itself, read by one task with ``async for`` from every subscriber.",
    "same work on blinker": (
        "All that the bus does on this path, written by hand (``bench/same_work.py``), carried by blinker. It has no "
        "bindings, generations, lifecycle notices, held messages or traces, and its error names the first fault alone."
    ),
    "same work on psygnal": "The same, carried by psygnal.",
    "same work on pyee": "The same, carried by pyee.",
    "blinker bare": (
        "Calls functions. Nothing is checked, copied, bounded, queued, counted or expired, and a receiver that raises "
        "or blocks stops the others."
    ),
    "psygnal bare": ("Calls functions, compiled with mypyc. Nothing is checked, copied, bounded, queued or expired."),
    "pyee bare": "Calls functions. As blinker, with less around each call.",
    "pluggy bare": (
        "Calls one hook of every plugin and collects what they return. Arguments are matched by name when a plugin is "
        "registered; payloads are not checked, copied, queued or bounded."
    ),
    "pyzmq inproc": (
        "Moves bytes between sockets in C, bounded by a count of messages (and drops what is too much, silently). "
        "orjson writes the payload once and reads it for every subscriber, so each has a copy of its own. Nothing is "
        "checked, refused, sequenced or expired."
    ),
    "asyncio.Queue": (
        "A bounded queue for each subscriber, filled and read by one task. Nothing is checked, copied or expired; "
        "subscribers are admitted one by one rather than all or none; one loop only."
    ),
    "bubus": (
        "An event bus that validates with pydantic and awaits handlers. It keeps a history, results and timeouts of "
        "each handler, which the bus has not; it screens nothing, measures no frame, and has no bounded queue for each "
        "subscriber."
    ),
    "floor": "Append to a deque, popleft, call a function: what any queue in Python costs at least.",
}

CLIENTS: dict[str, str] = {
    "broker": (
        "Everything is on: lines and results are bounded and checked, ids match by type and value, calls have "
        "deadlines and can be cancelled, results are rendered within their bounds."
    ),
    "SDK": (
        "The client of the official Python SDK, validating with pydantic. It validates structured results against the "
        "schema of the tool, and speaks the parts of MCP beside tools, which broker leaves out; it has no bound on "
        "the length of a line."
    ),
    "bare": "A line written to and read from the streams of asyncio, JSON by the standard library. Checks nothing.",
    "raw loop": (
        "``loop.add_reader``, ``os.write``, a future, orjson: no id, no bound, no deadline, one call at a time. Faster "
        "than any client that checks something."
    ),
}

SENDERS: dict[str, str] = {
    "broker": (
        "Each event is checked, screened, measured, admitted to every child's queue or none, its age watched until it "
        "is written; waiting frames of one child are joined into one write."
    ),
    "raw lines": (
        "The same bytes written again and again, one blocking ``os.write`` a line and child: no queue, so a child that "
        "does not read stops the sender. Faster, most of all in long bursts."
    ),
    "raw lines with JSON": "The same, with each event's frame written as JSON (orjson, sorted) once for all children.",
}
