"""The rules for extensions of API 0.1, 0.2 and 0.4, the feature-negotiated wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.conform.rules import CALLS, SEEN, START, Family, Rule, table
from broker.conform.rules_octet import ENDING

_WIRE: Final = "octet notes 5"

# fmt: off
FEATURE_RULES: Final[Mapping[str, Rule]] = table(Family.FEATURE, (
    # -- lines
    ("octet.framing.frames-only", "stdout carries messages and nothing else", _WIRE, SEEN),
    ("octet.framing.lf-terminated", "the last line ends with LF too", _WIRE, SEEN),
    ("octet.legacy.framing", "a message is one JSON object on one line, in UTF-8", _WIRE, SEEN),
    ("octet.legacy.line-bound", "a line takes at most 1 MiB, its LF included", _WIRE, SEEN),
    ("octet.legacy.envelope", "a message is a request, a notification, a result or an error of JSON-RPC 2.0", _WIRE, SEEN),
    ("octet.envelope.id-exact", "an answer carries the request's id, an integer", _WIRE, SEEN),
    ("octet.envelope.response-unknown-id", "nothing is answered that was not asked", _WIRE, SEEN),
    ("octet.method.answered-once", "each request is answered once", _WIRE, SEEN),
    ("octet.method.before-contract", "nothing is sent before initialize is answered", _WIRE, SEEN),
    # -- reading
    ("octet.framing.chunk-independent", "a line is read however its bytes arrive", _WIRE, "initialize is written byte by byte"),
    ("octet.framing.several-in-one-chunk", "several lines in one write are all read", _WIRE, "four requests are written at once"),
    ("octet.framing.split-on-lf", "a line ends at LF and nowhere else", _WIRE, "a call has U+2028, U+2029 and U+0085 in a string"),
    ("octet.framing.at-bound", "a line of 1 MiB, its LF included, is read", _WIRE, "a tool that does not exist is called with one"),
    # -- the start
    ("octet.initialize.answered", "initialize is answered", _WIRE, "the first process is given the time of one answer"),
    ("octet.initialize.no-error", "initialize is not answered with an error", _WIRE, START),
    ("octet.version.reply-mismatch", "the answer has the version of the manifest", "octet: Version policy", START),
    ("octet.legacy.v01-frozen", "an answer of 0.1 has no protocol and no shortcuts", _WIRE, START),
    ("octet.legacy.unknown-answer-member", "the answer has its members and no others", _WIRE, START),
    ("octet.legacy.features", "the required features and only offered ones are selected, each once", _WIRE, "several features are offered, then none"),
    ("octet.legacy.concurrency", "the selected concurrency is at least 1", _WIRE, START),
    ("octet.legacy.lifecycle-events", "only known lifecycle events are asked for", _WIRE, START),
    ("octet.legacy.tools-and-commands", "tools, commands, renderers and shortcuts are those of the manifest", _WIRE, START),
    ("octet.legacy.tool-definition", "a tool's definition is legal", "octet: ToolDefinition", START),
    # -- requests of the host
    ("octet.method.tool-call", "a tool of the catalogue can be called", _WIRE, CALLS),
    ("octet.legacy.tool-result", "a result has the form of its version", _WIRE, CALLS),
    ("octet.tool-call.arguments-any-json", "arguments of any JSON type are answered", "octet: ToolCallParams", "the first tool is called with an array, a string, a number and unknown members"),
    ("octet.tool-call.unknown-tool", "a tool that does not exist is refused with an error or an is_error result", _WIRE, "one is called"),
    ("octet.legacy.command", "a command is answered with a legal result", _WIRE, "each command is run without arguments"),
    ("octet.legacy.collect", "context, status and menu are answered with legal results", _WIRE, "what the manifest contributes is collected"),
    ("octet.legacy.render", "a tool's call is rendered as legal segments", _WIRE, "each renderer is asked once"),
    ("octet.legacy.session-hooks", "a session hook is answered with a legal disposition", _WIRE, "declared session hooks are run"),
    ("octet.legacy.unknown-method", "an unknown method is answered with -32601", _WIRE, "one is sent"),
    ("octet.cancel.grace", "a cancelled request has its terminal answer within 2 s", _WIRE, "each tool is called and cancelled in one write, from 0.2 on"),
    ("octet.cancel.settled", "a cancel of a settled or unknown request does nothing", _WIRE, "two are sent, then a request that must be answered, from 0.2 on"),
    # -- what the extension asks
    ("octet.version.no-retag", "no method of the canonical wire or of another version is sent", "octet: Version policy", SEEN),
    ("octet.legacy.unnegotiated", "no method is sent whose feature was not negotiated", _WIRE, SEEN),
    ("octet.legacy.undeclared-contribution", "nothing is contributed that the manifest does not declare", _WIRE, SEEN),
    ("octet.legacy.parent", "a request names the open request of the host it is made for", _WIRE, SEEN),
    ("octet.legacy.bad-params", "parameters have the form of their method", _WIRE, SEEN),
    ("octet.legacy.progress", "progress is about an open request, its sequence rising", _WIRE, SEEN),
    ("octet.method.id-reuse", "a request id is used once", _WIRE, SEEN),
    # -- the end
    ("octet.legacy.shutdown", "shutdown is answered with {} within 2 s", _WIRE, "the first process is shut down"),
    *ENDING,
))
# fmt: on
