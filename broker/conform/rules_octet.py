"""The rules for extensions of API 0.3, the canonical wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.conform.rules import CALLS, SEEN, START, Family, Rule, table

_FRAMING: Final = "octet: Canonical framing and JSON-RPC envelopes"
_BUS: Final = "a real bus answers; what it refuses, and why, is looked at"

# fmt: off
ENDING: Final = (
    ("octet.shutdown.graceful", "the process ends within 2 s of its answer, its input still open", "octet notes 2.6", "the first process is shut down"),
    ("octet.shutdown.exit-status", "its exit status then is 0", "octet notes 2.6", "the first process is shut down"),
    ("octet.process.exit-on-eof", "the process ends when its input does", "octet notes 2.6", "stdin is closed"),
    ("octet.process.exit-on-sigterm", "the process ends on SIGTERM", "design: Failure", "SIGTERM is sent"),
    ("octet.process.stays-alive", "the process ends only when it is told to", "octet notes 2.6", SEEN),
    ("octet.process.nothing-left", "no process is left behind", "octet notes 2.6, 8", "after shutdown, what carries the run's mark is looked for"),
    ("octet.process.stderr-bounded", "stderr is not flooded", "octet notes 2.6", "bytes of stderr are counted"),
)
"""The last rules of both of octet's wires."""

OCTET_RULES: Final[Mapping[str, Rule]] = table(Family.OCTET, (
    # -- bytes
    ("octet.framing.frames-only", "stdout carries frames and nothing else", _FRAMING, SEEN),
    ("octet.framing.empty-line", "no empty lines", _FRAMING, SEEN),
    ("octet.framing.carriage-return", "a line ends with LF, not CR LF", _FRAMING, SEEN),
    ("octet.framing.lf-terminated", "the last frame ends with LF too", _FRAMING, "the end of every output is looked at"),
    ("octet.framing.over-bound", "no frame is longer than the selected max_frame_bytes", _FRAMING, SEEN),
    ("octet.canonical.byte-order-mark", "no byte order mark", _FRAMING, SEEN),
    ("octet.canonical.key-order", "keys stand in the order of their code points", _FRAMING, SEEN),
    ("octet.canonical.duplicate-key", "no key stands twice", _FRAMING, SEEN),
    ("octet.canonical.no-whitespace", "no white space between tokens", _FRAMING, SEEN),
    ("octet.canonical.needless-escape", "nothing is escaped that need not be, and escapes have their one form", _FRAMING, SEEN),
    ("octet.canonical.lone-surrogate", "no half of a surrogate pair", _FRAMING, SEEN),
    ("octet.canonical.invalid-utf8", "frames are UTF-8", _FRAMING, SEEN),
    ("octet.canonical.no-float", "no fractions and no exponents", _FRAMING, SEEN),
    ("octet.canonical.integers", "integers are portable, from -(2^53-1) to 2^53-1", "octet: Bounds", SEEN),
    ("octet.canonical.number-spelling", "numbers are spelled in the one way", _FRAMING, SEEN),
    ("octet.canonical.depth", "at most 32 nested containers", "octet: Bounds", SEEN),
    ("octet.canonical.trailing-data", "one value a frame, nothing behind it", _FRAMING, SEEN),
    # -- envelopes
    ("octet.envelope.not-an-object", "a frame is an object", _FRAMING, SEEN),
    ("octet.envelope.mixed-shapes", "a frame is exactly one of request, notification, result and error", _FRAMING, SEEN),
    ("octet.envelope.jsonrpc-version", "jsonrpc is \"2.0\"", "octet: JsonRpcRequest", SEEN),
    ("octet.envelope.unknown-member", "an envelope has no other members", _FRAMING, SEEN),
    ("octet.envelope.id-other-type", "ids are strings of 1 to 256 bytes or integers from 0", _FRAMING, SEEN),
    ("octet.envelope.id-exact", "an answer carries the request's id, of the same type", _FRAMING, "requests with integer, large and string ids are sent"),
    ("octet.envelope.response-unknown-id", "nothing is answered that was not asked", _FRAMING, SEEN),
    ("octet.envelope.request-needs-id", "a request has an id", _FRAMING, SEEN),
    ("octet.envelope.notification-forbids-id", "a notification has none", _FRAMING, SEEN),
    ("octet.envelope.params-null", "params are there and not null", "octet: JsonRpcRequest", SEEN),
    ("octet.envelope.result-null", "a result is not null", "octet: JsonRpcSuccessResponse", SEEN),
    ("octet.envelope.error-shape", "an error has code, message and at most data", "octet: ErrorObject", SEEN),
    ("octet.envelope.error-pair", "code and message of an error are one row of the error table", "octet: Errors", SEEN),
    ("octet.envelope.method-name-bound", "a method's name is a string of at most 128 bytes", "octet: Bounds", SEEN),
    # -- reading
    ("octet.framing.chunk-independent", "a frame is read however its bytes arrive", _FRAMING, "initialize is written byte by byte, each when the last was read"),
    ("octet.framing.several-in-one-chunk", "several frames in one write are all read", _FRAMING, "four requests are written at once"),
    ("octet.framing.split-on-lf", "a line ends at LF and nowhere else", _FRAMING, "a call has U+2028, U+2029 and U+0085 in a string"),
    ("octet.framing.at-bound", "a frame of exactly the selected max_frame_bytes is read", _FRAMING, "one is sent, to a tool that does not exist"),
    # -- the start
    ("octet.initialize.answered", "initialize is answered", "octet: initialize", "the first process is given the time of one answer"),
    ("octet.initialize.no-error", "initialize is not answered with an error to a complete offer", "octet: ContractOffer", START),
    ("octet.method.before-contract", "nothing is sent before initialize is answered", _FRAMING, SEEN),
    ("octet.selection.response-shape", "the answer is an InitializeResponse and has no other members", "octet: InitializeResponse", START),
    ("octet.selection.version", "api_version is the one asked for", "octet: Version policy", START),
    ("octet.selection.schema", "the offered schema is selected", "octet: ContractSelection", START),
    ("octet.selection.encoding", "the offered encoding is selected", "octet: ContractSelection", START),
    ("octet.selection.unknown-name", "no unknown capability or method is selected", "octet: Capabilities", START),
    ("octet.selection.duplicate-name", "nothing is selected twice", "octet: Errors", START),
    ("octet.selection.deferred-name", "nothing deferred is selected", "octet: Capabilities", START),
    ("octet.selection.not-offered", "only what was offered is selected", "octet: ContractSelection", "a complete offer and one of the required set alone are made"),
    ("octet.selection.missing-required", "everything required is selected", "octet: Capabilities", START),
    ("octet.selection.method-without-capability", "a method comes with its capability", "octet: Methods and terminal semantics", START),
    ("octet.selection.name-count", "names keep their bounds in number and length", "octet: Bounds", START),
    ("octet.selection.limit-over-offer", "no limit is raised above the offer", "octet: ProtocolLimits", "one offer has lower limits than the API"),
    ("octet.selection.limit-zero", "no limit is zero", "octet: ProtocolLimits", START),
    ("octet.selection.bus-needs-lifecycle", "event_bus comes with bus/lifecycle", "octet: Capabilities", START),
    ("octet.selection.subscribe-needs-event", "bus/subscribe comes with bus/event", "octet: Capabilities", START),
    ("octet.selection.stream-methods-together", "the provider methods come together, with their catalogue", "octet: Capabilities", START),
    ("octet.selection.provider-needs-contribution", "provider services are selected by those whose manifest contributes providers", "octet notes 3", START),
    ("octet.selection.hooks-need-pair", "session hooks are selected exactly when the manifest declares the pair", "octet: SessionHookParams", START),
    ("octet.selection.deferred-contribution", "the manifest contributes nothing that this wire does not have", "octet notes 1", START),
    ("octet.selection.too-many-tools", "there are no more tools than selected", "octet: Bounds", START),
    ("octet.selection.tools-match-manifest", "the tools are those of the manifest, each once", "octet: InitializeResponse", START),
    ("octet.selection.tool-name", "a tool's name is 1 to 128 bytes without control characters", "octet: ToolDefinition", START),
    ("octet.selection.tool-description", "a tool has a description of at most 4096 bytes", "octet: ToolDefinition", START),
    ("octet.selection.tool-parameters", "a tool's parameters are an object", "octet: ToolDefinition", START),
    ("octet.selection.tool-output-schema", "an output schema has allowed keywords only, and is never null", "octet: ToolDefinition", START),
    # -- requests of the host
    ("octet.method.tool-call", "a tool of the catalogue can be called", "octet: tool/call", CALLS),
    ("octet.tool-call.result-parts", "content is an array of text parts", "octet: ContentPart", CALLS),
    ("octet.tool-call.metadata-required", "metadata is there, and may be null", "octet: ToolCallResult", CALLS),
    ("octet.tool-call.bad-result", "a result is a ToolCallResult otherwise too", "octet: ToolCallResult", CALLS),
    ("octet.tool-call.arguments-any-json", "arguments of any JSON type are answered", "octet: ToolCallParams", "the first tool is called with an array, a string, a number and unknown members"),
    ("octet.tool-call.unknown-tool", "a tool that does not exist is refused with an error or an is_error result", "octet: Errors", "one is called"),
    ("octet.tool-call.concurrency", "calls up to the selected concurrency are all answered", "octet: Bounds", "that many calls, at most four, are sent at once"),
    ("octet.method.unknown", "a request with an unknown method is answered unknown_method", "octet: Errors", "one is sent"),
    ("octet.method.answered-once", "each request is answered once", _FRAMING, SEEN),
    # -- cancelling
    ("octet.cancel.grace", "a cancelled request has its terminal answer within 2 s", "octet: $/cancelRequest; octet notes 2.5", "each tool is called and cancelled in one write; so is a call that takes too long"),
    ("octet.cancel.terminal-result", "a cancelled request ends with its result or with request_cancelled", "octet: CancelRequestParams", "the answer to a cancelled call is looked at"),
    ("octet.cancel.settled", "a cancel of a settled or unknown request does nothing", "octet: CancelRequestParams", "three are sent, then a request that must be answered"),
    # -- requests of the extension
    ("octet.method.unselected", "only selected methods of the extension's own direction are sent", "octet: Methods and terminal semantics", SEEN),
    ("octet.method.id-reuse", "a request id is used once", "octet notes 2.4", SEEN),
    ("octet.method.outstanding-bound", "at most 128 requests are outstanding", "octet notes 2.4", SEEN),
    ("octet.method.bad-params", "parameters have the shape of their model", "octet: Generated wire models", SEEN),
    # -- the bus
    ("octet.bus.binding-first", "nothing is asked of the bus before it is bound", "octet: BusLifecycleParams", "the binding is sent late"),
    ("octet.bus.binding-stale", "bus requests carry the current binding", "octet: BusDeclareParams", _BUS),
    ("octet.bus.topic-form", "topics have the form bus.owner.name", "octet notes 4.10", _BUS),
    ("octet.bus.topic-owner", "only topics of its own are declared", "octet: BusDeclareParams", _BUS),
    ("octet.bus.declare-once", "a topic is declared once a binding", "octet: BusDeclareParams", _BUS),
    ("octet.bus.declare-faults", "declared fields are legal", "octet: BusFieldSpec", _BUS),
    ("octet.bus.declare-acknowledged", "nothing is published before its topic's declaration is acknowledged", "octet: BusAck", "the acknowledgement is held back"),
    ("octet.bus.publish-undeclared", "only declared topics are published to", "octet: BusPublishParams", _BUS),
    ("octet.bus.publish-foreign", "only topics of its own are published to", "octet: BusPublishParams", _BUS),
    ("octet.bus.payload-faults", "a payload is what was declared", "octet: BusPublishParams", _BUS),
    ("octet.bus.payload-screened", "a payload holds nothing that the bus screens out", "octet: BusFieldSpec", _BUS),
    ("octet.bus.message-over-bound", "an event is at most 8192 bytes", "octet: Bounds", _BUS),
    ("octet.bus.subscriptions-bound", "at most 16 topics are subscribed to", "octet: Bounds", _BUS),
    ("octet.bus.subscribe-again", "a topic that becomes available is subscribed to again", "octet: BusSubscribeResult", "a publisher of each pending topic appears"),
    ("octet.bus.redeclare-after-reset", "topics are declared again on a new binding", "octet: BusLifecycleParams", "the bus is reset"),
    ("octet.bus.resubscribe-after-reset", "topics are subscribed to again on a new binding", "octet: BusLifecycleParams", "the bus is reset"),
    ("octet.bus.survives-refusal", "a publication refused with resource_exhausted stops nothing", "octet: Errors", "publications of tool calls are refused, then calls are made again"),
    ("octet.bus.events-read", "a flood of events or notices is read", "octet: BusEventParams", "200 events (with --event) or 64 notices are sent, then a request"),
    # -- other services
    ("octet.hook.bad-result", "a session hook is answered with a legal disposition", "octet: SessionHookResult", "start and end of a session are told"),
    ("octet.hook.answered", "a session hook is answered", "octet: SessionHookParams", "start and end of a session are told"),
    ("octet.migration.detect", "migration/detect is answered with a legal result", "octet: MigrationDetectResult", "a directory is given, --source-root or an empty one"),
    ("octet.migration.import", "migration/import is answered with a legal result", "octet: MigrationImportResult", "the detected paths are given"),
    ("octet.migration.read-only", "an adapter writes nothing below the source root", "octet: MigrationDetectParams", "the directory is compared before and after"),
    ("octet.provider.register", "a provider's declaration is legal", "octet: ProviderRegisterParams", "a real registry answers"),
    ("octet.provider.complete", "the initial catalogue is completed", "octet: ProviderCatalogCompleteParams", "providers/complete is waited for"),
    ("octet.provider.stream-accepted", "provider/stream is answered under the stream's id", "octet: ProviderStreamAccepted", "a stream of each model is opened"),
    ("octet.provider.stream-sequence", "events are numbered from 0 without gaps", "octet: ProviderStreamEvent", "a stream of each model is opened"),
    ("octet.provider.stream-kinds", "events have a known kind and its payload", "octet notes 4.6", "a stream of each model is opened"),
    ("octet.provider.stream-terminal", "a stream ends with one finished or error, and nothing after it", "octet notes 4.6", "a stream of each model is opened"),
    ("octet.provider.stream-cancel", "a cancelled stream comes to an end, and the process goes on", "octet: ProviderStreamCancelParams", "a second stream is cancelled at once"),
    # -- the end
    ("octet.method.shutdown", "shutdown is answered within 2 s", "octet: shutdown; octet notes 2.6", "the first process is shut down"),
    ("octet.shutdown.terminal", "the answer is exactly {\"terminal\":\"shutdown\"}", "octet: ShutdownResult", "the first process is shut down"),
    *ENDING,
))
# fmt: on
