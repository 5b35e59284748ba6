"""The rules for hosts: what hostile extensions and servers must find, and what must become of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.conform.rules import Family, Rule, table

_FRAMING: Final = "octet: Canonical framing and JSON-RPC envelopes"
_RIGHT: Final = "an extension that does nothing wrong is run"
_BAD: Final = "one such frame is sent once the contract exists; the process must be gone 1.5 s later"
_SELECT: Final = "one such selection is made; the process must be gone 1.5 s later, and nothing else be sent to it"
_REFUSE: Final = "the extension asks for it, and the answer is looked at"
_TRANSPORT: Final = "odek: Transport and protocol"
_SERVER: Final = "a server that does nothing wrong is run"
_WIRE: Final = "octet notes 5"
_BAD_LINE: Final = "one such line is sent once initialize was answered; the process must be gone 1.5 s later"
_ANSWER: Final = "initialize is answered so; the process must be gone 1.5 s later"
_CALLED: Final = (
    "it answers a call so, if the command makes one of the tool poke, and a request behind it must be answered"
)

# fmt: off
HOST_RULES: Final[Mapping[str, Rule]] = table(Family.HOST, (
    # -- what a host sends
    ("octet.initialize.first-request", "the extension is started, and initialize is the first that is sent", "octet: initialize", _RIGHT),
    ("octet.canonical.encode", "every frame of the host is canonical, one value and one LF", _FRAMING, "every frame that any hostile extension got is looked at"),
    ("octet.envelope.host-ids", "the host's request ids are integers, each used once", "octet notes 2.5", _RIGHT),
    ("octet.model.initialize-request", "the parameters of initialize have their model", "octet: InitializeRequest", _RIGHT),
    ("octet.capability.required-set-fixed", "exactly the required set is required, and nothing deferred offered", "octet: Capabilities", _RIGHT),
    ("octet.process.environment-octet", "the process gets the OCTET_ variables", "octet notes 2.6", _RIGHT),
    ("octet.process.environment-cleared", "the process gets nothing else of the host's environment", "octet notes 2.6", "the host is given a variable of its own"),
    ("octet.method.only-selected-sent", "only selected methods are sent, and none before the answer to initialize", "octet: Methods and terminal semantics", _RIGHT),
    ("octet.shutdown.order", "the extension is asked to shut down before it is ended", "octet notes 2.6", _RIGHT),
    ("octet.shutdown.graceful", "the host ends well when the extension does", "octet notes 2.6", "the host's exit status is 0"),
    # -- frames it must not take
    ("octet.canonical.refused-forms", "a frame that is no JSON ends the stream", _FRAMING, _BAD),
    ("octet.canonical.no-whitespace", "a frame with white space ends the stream", _FRAMING, _BAD),
    ("octet.canonical.key-order", "a frame with keys out of order ends the stream", _FRAMING, _BAD),
    ("octet.canonical.duplicate-key", "a frame with a duplicate key ends the stream", _FRAMING, _BAD),
    ("octet.canonical.byte-order-mark", "a byte order mark ends the stream", _FRAMING, _BAD),
    ("octet.canonical.invalid-utf8", "a frame that is not UTF-8 ends the stream", _FRAMING, _BAD),
    ("octet.framing.carriage-return", "CR before LF ends the stream", _FRAMING, _BAD),
    ("octet.framing.empty-line", "an empty line ends the stream", _FRAMING, _BAD),
    ("octet.framing.over-bound", "one byte over the bound ends the stream, without its LF", _FRAMING, _BAD),
    ("octet.envelope.not-an-object", "a frame that is no object ends the stream", _FRAMING, _BAD),
    ("octet.envelope.unknown-member", "an unknown member of an envelope ends the stream", _FRAMING, _BAD),
    ("octet.envelope.error-pair", "an error outside of the table ends the stream", "octet: Errors", _BAD),
    ("octet.envelope.response-string-id", "an answer to a string id ends the stream", "octet notes 2.4", _BAD),
    ("octet.method.before-contract", "a request before the contract exists ends the stream", _FRAMING, _BAD),
    ("octet.method.id-reuse", "a request id that was used before ends the stream", "octet notes 2.4", _BAD),
    ("octet.method.notification-flood", "a flood of notifications nobody negotiated ends the stream", "design: octet decision 6", _BAD),
    ("octet.process.output-closed", "an extension that closes its output is ended", "octet notes 2.4", _BAD),
    # -- selections it must not take
    ("octet.selection.version", "another version is refused", "octet: Version policy", _SELECT),
    ("octet.selection.not-offered", "what was not offered is refused", "octet: ContractSelection", _SELECT),
    ("octet.selection.missing-required", "a selection without something required is refused", "octet: Capabilities", _SELECT),
    ("octet.selection.limit-over-offer", "a raised limit is refused", "octet: ProtocolLimits", _SELECT),
    ("octet.selection.response-shape", "an answer with unknown members is refused", "octet: InitializeResponse", _SELECT),
    ("octet.selection.tools-match-manifest", "other tools than the manifest's are refused", "octet: InitializeResponse", _SELECT),
    ("octet.selection.bus-needs-lifecycle", "event_bus without bus/lifecycle is refused", "octet: Capabilities", _SELECT),
    # -- what it must answer
    ("octet.method.unknown", "unknown and wrong-way methods are answered unknown_method, and the stream lives", "octet: Errors", _REFUSE),
    ("octet.envelope.response-unknown-id", "an answer to an unknown id changes nothing", "octet notes 2.4", "one is sent, and the stream must live"),
    ("octet.method.bus-lifecycle", "the bus is bound once it was selected", "octet: BusLifecycleParams", _RIGHT),
    ("octet.bus.publish-undeclared", "a publication to an undeclared topic is refused", "octet: BusPublishParams", _REFUSE),
    ("octet.bus.topic-owner", "a topic of another owner is refused", "octet: BusDeclareParams", _REFUSE),
    ("octet.bus.topic-form", "a topic of another form is refused", "octet: BusDeclareParams", _REFUSE),
    ("octet.bus.field-name-screened", "a field named after a secret is refused", "octet: BusFieldSpec", _REFUSE),
    ("octet.bus.binding-stale", "a request with another binding is refused", "octet: BusAck", _REFUSE),
    ("octet.bus.declare-once", "a second declaration is refused", "octet: BusDeclareParams", _REFUSE),
    ("octet.bus.payload-types", "a payload of other types or fields is refused", "octet: BusPublishParams", _REFUSE),
    ("octet.bus.payload-string-bytes", "a string over its bound is refused as resource_exhausted", "octet: Bounds", _REFUSE),
    ("octet.bus.screen-path", "a path in a payload is refused", "octet: BusFieldSpec", _REFUSE),
    ("octet.bus.publish-identity", "a forged publisher is refused", "octet: BusPublishParams", _REFUSE),
    ("octet.bus.admission-no-sequence", "refused publications use no sequence", "octet: BusPublishResult", "the first good publication has the sequence 1"),
    ("octet.bus.subscribe-pending", "interest in an unknown topic is pending", "octet: BusSubscribeResult", _REFUSE),
    ("octet.bound.max-bus-subscriptions", "the 17th subscription is refused", "octet: Bounds", _REFUSE),
    ("octet.bus.wire-flow", "a flood of publications is answered, each once", "octet: Bounds", "300 publications are sent at once"),
    # -- what it must live through
    ("octet.process.stderr-drained", "a flood of stderr blocks nothing", "octet notes 2.6", "4 MiB are written"),
    ("octet.process.stalled-reader", "an extension that does not read is ended with the host", "octet notes 2.6", "one stops reading"),
    ("octet.shutdown.timeout", "an extension that ignores shutdown, end of input and signals is killed", "octet notes 2.6", "one does"),
    ("octet.process.grandchildren", "what an extension started is ended with it", "octet notes 2.6, 8", "one starts a process that ignores signals"),
    ("octet.process.restart-backoff", "an extension that dies is not started in a storm", "octet notes 2.6", "starts are counted, and at most 10 allowed"),
    ("octet.initialize.no-retry", "an extension that dies before its answer is not started again", "octet notes 2.6", "one exits at once"),
    ("octet.process.nothing-left", "nothing is left when the host has ended", "octet notes 2.6", "after each run"),
    ("octet.process.host-survives", "the host ends by itself, or when it is interrupted, and never by a crash", "design: Failure", "after each run"),
    # -- extensions of API 0.1, 0.2 and 0.4
    ("octet.legacy.initialize", "initialize is the first that is sent; it has its protocol from 0.2 on, and 0.1 has none", _WIRE, "an extension of each version that does nothing wrong is run"),
    ("octet.legacy.framing", "every message of the host is one JSON object on one line of at most 1 MiB", _WIRE, "every line that any hostile extension of these versions got is looked at"),
    ("octet.legacy.shutdown", "the extension is asked to shut down before it is ended", _WIRE, "an extension of each version that does nothing wrong is run"),
    ("octet.legacy.bad-line", "what is no message ends the stream", _WIRE, _BAD_LINE),
    ("octet.legacy.line-bound", "a line over 1 MiB ends the stream, without its LF", _WIRE, _BAD_LINE),
    ("octet.legacy.undeclared-contribution", "a contribution that the manifest does not declare ends the stream", _WIRE, _BAD_LINE),
    ("octet.legacy.dropped-notifications", "a flood of unknown notifications ends the stream", "design: octet decision 6", _BAD_LINE),
    ("octet.version.reply-mismatch", "another version is refused", "octet: Version policy", _ANSWER),
    ("octet.legacy.unknown-answer-member", "an answer with unknown members is refused", _WIRE, _ANSWER),
    ("octet.legacy.tools-and-commands", "other tools than the manifest's are refused", _WIRE, _ANSWER),
    ("octet.legacy.features", "an unknown feature is refused, and a selection without a required one", _WIRE, _ANSWER),
    ("octet.legacy.concurrency", "a concurrency of zero is refused", _WIRE, _ANSWER),
    ("octet.legacy.v01-frozen", "an answer of 0.1 with a protocol is refused", _WIRE, _ANSWER),
    ("octet.legacy.unknown-method", "unknown methods and those of the canonical wire are answered -32601", _WIRE, _REFUSE),
    ("octet.legacy.tool-result", "a result of the wrong shape fails its call alone", _WIRE, _CALLED),
    ("octet.method.answered-once", "a second answer changes nothing", _WIRE, _CALLED),
    ("octet.cancel.grace", "an extension that never answers is ended with the host", _WIRE, _CALLED),
    # -- MCP
    ("odek.transport.initialize-version", "initialize asks for 2025-03-26", _TRANSPORT, _SERVER),
    ("odek.transport.initialized", "notifications/initialized follows the answer", "design: D8", _SERVER),
    ("odek.transport.line", "every message of the host is one JSON object on one line", _TRANSPORT, _SERVER),
    ("odek.transport.tools-list", "tools/list is asked", _TRANSPORT, _SERVER),
    ("odek.config.env-secrets", "the server gets nothing else of the host's environment", "odek: Server configuration", _SERVER),
    ("odek.transport.ping", "ping is answered, also before the answer to initialize", _TRANSPORT, "the server asks"),
    ("odek.transport.other-requests", "what a host does not offer is answered with -32601", _TRANSPORT, "the server asks"),
    ("odek.transport.compatible-version", "an unknown version is refused and the server ended", _TRANSPORT, "2099-01-01 is answered"),
    ("odek.names.one-bad-name", "one bad tool name refuses the server", "odek: Tool-name rules", "a name with a dot is listed"),
    ("odek.names.duplicate", "a duplicate tool name refuses the server", "design: odek decisions", "a name is listed twice"),
    ("odek.transport.pagination", "pages that never end are given up", "design: D9", "the same cursor is given again and again"),
    ("odek.limits.line-over-bound", "a line over max_response_bytes closes the connection", "odek: Timeout and limit behavior", "a line of 65537 bytes is written, without its LF"),
    ("odek.transport.junk-line", "lines that are no messages are passed over", "design: D13", "a banner comes before the first message"),
    ("odek.transport.stderr-drained", "a flood of stderr blocks nothing", _TRANSPORT, "4 MiB are written before the first answer"),
    ("odek.transport.shutdown", "a server that ignores the end of its input and signals is killed", "design: odek decisions", "one does"),
    ("odek.transport.own-group", "what a server started is ended with it", "design: odek decisions", "one starts a process that ignores signals"),
    ("odek.transport.eof", "a server that exits is noticed, and not started in a storm", "design: odek decisions", "starts are counted, and at most 10 allowed"),
))
# fmt: on
