"""The rules for MCP servers that are used under ``odek-extension/v1``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.conform.rules import SEEN, Family, Rule, table

_TRANSPORT: Final = "odek: Transport and protocol"
_NAMES: Final = "odek: Tool-name rules"
_RESULT: Final = "odek: Tool-result envelope"
_REF: Final = "odek: Artifact-ref schema"
_LIST: Final = "the complete list of tools is looked at"
_CALLS: Final = "each tool that says it only reads, or is named with --call, is called"
_REFS: Final = "each reference of a called tool's result is verified as a host does, on its file"

# fmt: off
MCP_RULES: Final[Mapping[str, Rule]] = table(Family.MCP, (
    # -- lines
    ("odek.transport.stdout-only-protocol", "stdout carries messages and nothing else", _TRANSPORT, SEEN),
    ("odek.transport.line", "a message is one JSON object on one line", _TRANSPORT, SEEN),
    ("odek.transport.invalid-utf8", "lines are UTF-8", _TRANSPORT, SEEN),
    ("odek.transport.byte-order-mark", "no byte order mark", "odek notes 11.1", SEEN),
    ("odek.transport.batch", "no batches", "odek notes 11.1", SEEN),
    ("odek.transport.last-line", "the last line ends with LF too", _TRANSPORT, SEEN),
    ("odek.server.line-bound", "no line is longer than max_response_bytes", "odek: Timeout and limit behavior", SEEN),
    ("odek.server.jsonrpc", "jsonrpc is \"2.0\"", _TRANSPORT, SEEN),
    ("odek.server.answer-shape", "an answer has a result or an error, and no method", "odek notes 11.2", SEEN),
    ("odek.server.error-shape", "an error has an integer code and a string message", "odek notes 11.2", SEEN),
    ("odek.server.id-echoed", "an answer carries the request's id, of the same type", "odek notes 11.2", SEEN),
    ("odek.server.answered-once", "each request is answered once, and nothing that was not asked", _TRANSPORT, SEEN),
    ("odek.server.notifications-unanswered", "notifications are not answered, known or not", "odek notes 11.3", "three are sent, then a request"),
    # -- reading
    ("odek.transport.chunks", "a message is read however its bytes arrive", _TRANSPORT, "initialize is written byte by byte; then two requests in one write"),
    ("odek.transport.split-on-lf", "a line ends at LF and nowhere else", _TRANSPORT, "a call has U+2028, U+2029 and U+0085 in a string"),
    ("odek.server.long-line", "a line of 256 KiB is read", _TRANSPORT, "a call of a tool that does not exist has an argument of that size"),
    # -- handshake
    ("odek.server.initialize-answered", "initialize is answered with a result", _TRANSPORT, "2025-03-26 is asked for"),
    ("odek.transport.compatible-version", "the answered protocolVersion is the asked one or another known one", _TRANSPORT, "2025-03-26 is asked for"),
    ("odek.server.initialize-shape", "capabilities is an object, and serverInfo has name and version", "MCP 2025-03-26: Lifecycle", "the answer is looked at"),
    ("odek.server.tools-capability", "a server with tools has the tools capability", "MCP 2025-03-26: Tools", "the answer is compared with the list"),
    ("odek.server.requests-before-initialized", "nothing but ping is asked before notifications/initialized", "MCP 2025-03-26: Lifecycle", SEEN),
    ("odek.server.without-initialized", "tools/list works without notifications/initialized", "odek notes 11.3", "a process is not sent that notification"),
    ("odek.server.ping", "ping is answered with {}", _TRANSPORT, "one is sent"),
    ("odek.server.unknown-method", "an unknown method is answered with -32601", "JSON-RPC 2.0: Error object", "one is sent"),
    # -- the list of tools
    ("odek.server.list-without-params", "tools/list works without params", "odek notes 11.3", "params are left out"),
    ("odek.server.list-shape", "the list is an array of objects with a name each", _NAMES, _LIST),
    ("odek.names.length", "a name has 1 to 64 characters", _NAMES, _LIST),
    ("odek.names.alphabet", "a name has ASCII letters, digits, _ and - only", _NAMES, _LIST),
    ("odek.names.double-underscore", "a name has no two underscores in a row", _NAMES, _LIST),
    ("odek.names.duplicate", "no name stands twice", "design: odek decisions", _LIST),
    ("odek.server.input-schema", "inputSchema is an object schema", "odek notes 3", _LIST),
    ("odek.names.schema-bound", "inputSchema takes at most 256 KiB", "odek notes 3", _LIST),
    ("odek.server.description", "a description is a string", "odek notes 3", _LIST),
    ("odek.transport.pagination", "pages come to an end, and no cursor comes back", "design: D9", _LIST),
    ("odek.server.one-page", "all tools stand on the first page", "odek notes 3, 11.5", _LIST),
    # -- calls
    ("odek.server.tools-call", "a listed tool can be called", _TRANSPORT, _CALLS),
    ("odek.limits.result-malformed", "a result is an object with content, and isError is a boolean", "odek: Timeout and limit behavior", _CALLS),
    ("odek.server.content-items", "each content item has a known type and its members", "MCP 2025-03-26: Tools", _CALLS),
    ("odek.server.result-within-limit", "a result is at most max_result_chars long", "odek: Timeout and limit behavior", _CALLS),
    ("odek.envelope.malformed-claim", "what claims to be an envelope is one", _RESULT, _CALLS),
    ("odek.envelope.single-item", "an envelope is the only text item, and nothing but its JSON", _RESULT, _CALLS),
    ("odek.envelope.is-error-envelope", "an error result has no envelope", "odek notes 11.6", _CALLS),
    ("odek.envelope.artifact-count", "at most 64 references", "odek notes 4.4", _CALLS),
    ("odek.artifact-ref.schema", "a reference's schema is the exact word", _REF, _REFS),
    ("odek.artifact-ref.required", "id, uri and media_type are strings that are not empty", _REF, _REFS),
    ("odek.artifact-ref.id-unique", "an id stands once", _REF, _REFS),
    ("odek.artifact-ref.uri-scheme", "uri is file:/// and nothing else", _REF, _REFS),
    ("odek.artifact-ref.path-clean", "its path is absolute and clean", _REF, _REFS),
    ("odek.artifact-ref.inside-root", "the file lies inside a configured root", _REF, _REFS),
    ("odek.artifact-ref.regular-file", "the file is there, and a regular one", _REF, _REFS),
    ("odek.artifact-ref.size-match", "size_bytes, if there, is the file's size", _REF, _REFS),
    ("odek.artifact-ref.hash-match", "sha256, if there, is the file's digest in lower case", _REF, _REFS),
    ("odek.artifact-ref.one-line", "id, media_type and summary are single lines of at most 4096 characters", "odek notes 11.6", _REFS),
    ("odek.server.arguments-any", "arguments of any JSON type are answered", "odek notes 11.4", "a tool that does not exist is called with null, a string and an array"),
    ("odek.names.unknown-arguments", "unknown arguments are tolerated", _NAMES, "a call that worked is made again with one more argument"),
    ("odek.server.unknown-tool", "a tool that does not exist is refused", "MCP 2025-03-26: Tools", "one is called"),
    ("odek.server.bad-params", "tools/call without a name is refused with an error", "JSON-RPC 2.0: Error object", "one is sent"),
    ("odek.transport.out-of-order", "several calls at once are all answered", _TRANSPORT, "four are sent at once"),
    ("odek.server.cancel-harmless", "notifications/cancelled stops nothing but its request", "MCP 2025-03-26: Cancellation", "two are sent, then a request"),
    # -- the end
    ("odek.server.exit-on-eof", "the server ends within 5 s of the end of its input", "odek notes 11.9", "stdin is closed"),
    ("odek.server.exit-on-sigterm", "the server ends on SIGTERM", "design: odek decisions", "SIGTERM is sent"),
    ("odek.server.stays-alive", "the server ends only when it is told to", _TRANSPORT, SEEN),
    ("odek.server.nothing-left", "no process is left behind", "design: odek decisions", "after the end of its input, what carries the run's mark is looked for"),
    ("odek.transport.stderr-drained", "stderr is not flooded", _TRANSPORT, "bytes of stderr are counted"),
))
# fmt: on
