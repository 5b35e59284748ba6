"""Every bound of the project, with its unit, its source and the reason it exists.

Nothing else in the package holds a bare number that limits something. Each constant is a plain ``int`` (the hot path
reads them), and :data:`LIMITS` describes all of them for documentation and error texts.

Sources: ``octet`` is the extension API reference (section "Bounds" unless another is named), ``odek`` the
``odek-extension/v1`` contract, ``design`` a decision of this project where both are silent.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen


@frozen
class Limit:
    """One bound: ``value`` in ``unit``, where it comes from, and why it is there."""

    name: str
    value: int
    unit: str
    source: str
    reason: str


LIMITS: dict[str, Limit] = {}


def _limit(name: str, value: int, unit: str, source: str, reason: str) -> int:
    LIMITS[name] = Limit(name, value, unit, source, reason)
    return value


# fmt: off
# -- canonical JSON and framing ----------------------------------------------------------------------------------------
MAX_FRAME_BYTES: Final = _limit("MAX_FRAME_BYTES", 1_048_576, "bytes", "octet", "one frame without its LF; negotiated down by the extension")
MAX_JSON_DEPTH: Final = _limit("MAX_JSON_DEPTH", 32, "containers", "octet", "nested containers of a canonical value; the root container is the first")
MAX_PORTABLE_INTEGER: Final = _limit("MAX_PORTABLE_INTEGER", 9_007_199_254_740_991, "integer", "octet", "largest magnitude every JSON peer holds exactly")
MAX_PATH_KEY_CHARS: Final = _limit("MAX_PATH_KEY_CHARS", 64, "characters", "design", "one key shown in the path of an error")
MAX_JSON_RPC_ID_BYTES: Final = _limit("MAX_JSON_RPC_ID_BYTES", 256, "bytes", "octet", "a string request id")

# -- negotiation -------------------------------------------------------------------------------------------------------
MAX_CONCURRENT_REQUESTS: Final = _limit("MAX_CONCURRENT_REQUESTS", 64, "requests", "octet", "host requests an extension works on at once; negotiated")
MAX_TOOLS: Final = _limit("MAX_TOOLS", 256, "tools", "octet", "one extension's complete tool catalogue; negotiated")
MAX_EXTENSION_FLAGS: Final = _limit("MAX_EXTENSION_FLAGS", 64, "flags", "octet", "manifest-declared command-line flags")
MAX_CAPABILITIES: Final = _limit("MAX_CAPABILITIES", 32, "names", "octet", "capability names in one contract")
MAX_METHODS: Final = _limit("MAX_METHODS", 64, "names", "octet", "method names in one contract")
MAX_CAPABILITY_NAME_BYTES: Final = _limit("MAX_CAPABILITY_NAME_BYTES", 64, "bytes", "octet", "one capability name")
MAX_METHOD_NAME_BYTES: Final = _limit("MAX_METHOD_NAME_BYTES", 128, "bytes", "octet", "one method name")
MAX_REASON_BYTES: Final = _limit("MAX_REASON_BYTES", 4_096, "bytes", "octet", "an inspectable reason")
MAX_CONTENT_PARTS: Final = _limit("MAX_CONTENT_PARTS", 256, "parts", "octet", "content parts of one tool result")
MAX_TOOL_NAME_BYTES: Final = _limit("MAX_TOOL_NAME_BYTES", 128, "bytes", "octet", "one tool name")
MAX_TOOL_DESCRIPTION_BYTES: Final = _limit("MAX_TOOL_DESCRIPTION_BYTES", 4_096, "bytes", "octet", "one tool description")
MAX_CATALOGUE_SCHEMA_BYTES: Final = _limit("MAX_CATALOGUE_SCHEMA_BYTES", 4_194_304, "bytes", "octet notes 3", "all schemas of one tool catalogue together")
MAX_SCHEMA_PROPERTY_NAME_BYTES: Final = _limit("MAX_SCHEMA_PROPERTY_NAME_BYTES", 256, "bytes", "octet notes 3", "one property name in an output schema")
MAX_STRUCTURED_CONTENT_BYTES: Final = _limit("MAX_STRUCTURED_CONTENT_BYTES", 262_144, "bytes", "octet notes 4.1", "structured content of one tool result")
MAX_RESULT_METADATA_BYTES: Final = _limit("MAX_RESULT_METADATA_BYTES", 65_536, "bytes", "octet notes 4.1", "metadata of one tool result")
MAX_RESULT_NODES: Final = _limit("MAX_RESULT_NODES", 16_384, "nodes", "octet notes 4.1", "JSON values in a result's structured content or metadata")
MAX_RESULT_METADATA_KEY_BYTES: Final = _limit("MAX_RESULT_METADATA_KEY_BYTES", 256, "bytes", "octet notes 4.1", "one key of a tool result's metadata")
MAX_SESSION_HOOK_ID_BYTES: Final = _limit("MAX_SESSION_HOOK_ID_BYTES", 256, "bytes", "octet", "an opaque identifier in a session-hook binding")

# -- bus ---------------------------------------------------------------------------------------------------------------
MAX_BUS_TOPICS: Final = _limit("MAX_BUS_TOPICS", 128, "topics", "octet", "declared topics of one session's bus")
MAX_BUS_PEERS: Final = _limit("MAX_BUS_PEERS", 64, "peers", "octet", "peers attached to one session's bus")
MAX_BUS_FIELDS: Final = _limit("MAX_BUS_FIELDS", 24, "fields", "octet", "scalar fields of one topic")
MAX_BUS_IDENTIFIER_BYTES: Final = _limit("MAX_BUS_IDENTIFIER_BYTES", 64, "bytes", "octet", "a publisher, topic segment or field name")
MAX_BUS_TOPIC_BYTES: Final = _limit("MAX_BUS_TOPIC_BYTES", 96, "bytes", "octet", "one exact topic")
MAX_BUS_STRING_BYTES: Final = _limit("MAX_BUS_STRING_BYTES", 1_024, "bytes", "octet", "a string or enumeration value")
MAX_BUS_ENUM_VALUES: Final = _limit("MAX_BUS_ENUM_VALUES", 32, "values", "octet", "alternatives of one enumeration field")
MAX_BUS_MESSAGE_BYTES: Final = _limit("MAX_BUS_MESSAGE_BYTES", 8_192, "bytes", "octet", "one complete canonical event frame without its LF")
MAX_BUS_QUEUE_MESSAGES: Final = _limit("MAX_BUS_QUEUE_MESSAGES", 64, "messages", "octet", "messages one subscriber holds credit for")
MAX_BUS_QUEUE_BYTES: Final = _limit("MAX_BUS_QUEUE_BYTES", 262_144, "bytes", "octet", "frame bytes one subscriber holds credit for")
MAX_BUS_SUBSCRIPTIONS: Final = _limit("MAX_BUS_SUBSCRIPTIONS", 16, "topics", "octet", "topics one peer is interested in, pending and active")
MAX_BUS_MESSAGE_AGE_MS: Final = _limit("MAX_BUS_MESSAGE_AGE_MS", 30_000, "ms", "octet", "age up to which a queued event is still delivered")
MAX_BUS_BINDING_ID_BYTES: Final = _limit("MAX_BUS_BINDING_ID_BYTES", 256, "bytes", "design", "a binding id carried by a request")
MAX_BUS_INSTANCE_ID_BYTES: Final = _limit("MAX_BUS_INSTANCE_ID_BYTES", 256, "bytes", "design", "a host-given instance id; keeps an empty event's frame far below its bound")
MIN_BUS_TOKEN_CHARS: Final = _limit("MIN_BUS_TOKEN_CHARS", 8, "characters", "design", "characters after a token prefix that make a string token-like")
MIN_BUS_PHONE_CHARS: Final = _limit("MIN_BUS_PHONE_CHARS", 8, "characters", "design", "characters that make digits with separators phone-like")
MAX_DELIVERY_ROUNDS: Final = _limit("MAX_DELIVERY_ROUNDS", 64, "rounds", "design", "rounds one deliver() call follows messages published by handlers, so that it always returns")

# -- octet services ----------------------------------------------------------------------------------------------------
MAX_MIGRATION_ITEMS: Final = _limit("MAX_MIGRATION_ITEMS", 128, "items", "octet", "one list of a migration adapter")
MAX_MIGRATION_PATH_BYTES: Final = _limit("MAX_MIGRATION_PATH_BYTES", 4_096, "bytes", "octet", "a source root, or a path relative to it")
MAX_MIGRATION_NAME_BYTES: Final = _limit("MAX_MIGRATION_NAME_BYTES", 128, "bytes", "octet", "a migrated model, skill or server name")
MAX_MIGRATION_SKILL_BYTES: Final = _limit("MAX_MIGRATION_SKILL_BYTES", 131_072, "bytes", "octet", "one migrated skill")
MAX_MIGRATION_COMMAND_BYTES: Final = _limit("MAX_MIGRATION_COMMAND_BYTES", 4_096, "bytes", "octet", "the command of a migrated server")
MAX_MIGRATION_ARGUMENT_BYTES: Final = _limit("MAX_MIGRATION_ARGUMENT_BYTES", 16_384, "bytes", "octet", "one argument of a migrated server")
MAX_MIGRATION_DIAGNOSTIC_BYTES: Final = _limit("MAX_MIGRATION_DIAGNOSTIC_BYTES", 4_096, "bytes", "octet", "the reason of a migration diagnostic")
MIGRATION_TIMEOUT_MS: Final = _limit("MIGRATION_TIMEOUT_MS", 15_000, "ms", "octet notes 4.8", "time for one request to a migration adapter")
MAX_PROVIDERS: Final = _limit("MAX_PROVIDERS", 32, "providers", "octet", "live provider declarations of one host's registry")
MAX_PROVIDER_MODELS: Final = _limit("MAX_PROVIDER_MODELS", 256, "models", "octet", "live model declarations of one host's registry")
MAX_PROVIDER_ID_BYTES: Final = _limit("MAX_PROVIDER_ID_BYTES", 64, "bytes", "octet", "a provider or model identifier")
MAX_PROVIDER_LABEL_BYTES: Final = _limit("MAX_PROVIDER_LABEL_BYTES", 128, "bytes", "octet", "a provider or model label")
MAX_PROVIDER_AUTH_SCOPES: Final = _limit("MAX_PROVIDER_AUTH_SCOPES", 32, "scopes", "octet", "scopes of one authorisation request")
MAX_PROVIDER_AUTH_SCOPE_BYTES: Final = _limit("MAX_PROVIDER_AUTH_SCOPE_BYTES", 64, "bytes", "octet notes 4.4", "one scope")
MAX_PROVIDER_AUTH_LEASE_BYTES: Final = _limit("MAX_PROVIDER_AUTH_LEASE_BYTES", 256, "bytes", "octet", "an opaque lease that the host issued")
MAX_PROVIDER_STREAM_ID_BYTES: Final = _limit("MAX_PROVIDER_STREAM_ID_BYTES", 256, "bytes", "octet notes 4.6", "the id of a provider stream")
MAX_PROVIDER_STREAM_EVENT_BYTES: Final = _limit("MAX_PROVIDER_STREAM_EVENT_BYTES", 65_536, "bytes", "octet", "canonical payload of one stream event")
MAX_PROVIDER_STREAM_EVENTS: Final = _limit("MAX_PROVIDER_STREAM_EVENTS", 100_000, "events", "octet", "events of one stream")
MAX_PROVIDER_STREAM_BUFFER: Final = _limit("MAX_PROVIDER_STREAM_BUFFER", 32, "events", "octet notes 4.6", "events of one stream that nobody has taken yet")
PROVIDER_STREAM_IDLE_MS: Final = _limit("PROVIDER_STREAM_IDLE_MS", 30_000, "ms", "octet notes 4.6", "time to accept a stream, and between two of its events")
PROVIDER_STREAM_TOTAL_MS: Final = _limit("PROVIDER_STREAM_TOTAL_MS", 300_000, "ms", "octet notes 4.6", "age of a stream")
PROVIDER_STREAM_FULL_MS: Final = _limit("PROVIDER_STREAM_FULL_MS", 1_000, "ms", "design", "time in all, until its reader has caught up, that a stream's buffer may be full and its process's output unread; a burst may not be a reader's fault, and half of CANCEL_GRACE_MS keeps no answer out for too long")
PROVIDER_STREAM_MEMORY_MS: Final = _limit("PROVIDER_STREAM_MEMORY_MS", 30_000, "ms", "design", "time an ended stream is remembered, so that late events of it do not count as unknown")
MAX_PROVIDER_STREAM_MEMORY: Final = _limit("MAX_PROVIDER_STREAM_MEMORY", 512, "streams", "design", "ended streams of one process remembered at once")
MAX_PROVIDER_STREAM_BACKLOG: Final = _limit("MAX_PROVIDER_STREAM_BACKLOG", 1_024, "events", "design", "events a blocking reader may be behind, beside the stream's own buffer")
MAX_THEME_ID_BYTES: Final = _limit("MAX_THEME_ID_BYTES", 128, "bytes", "octet", "a theme id of the host")
MAX_THEME_NAMESPACE_BYTES: Final = _limit("MAX_THEME_NAMESPACE_BYTES", 64, "bytes", "octet notes 4.7", "the namespace of a theme selection, an extension's name")
MAX_SESSION_ID_BYTES: Final = _limit("MAX_SESSION_ID_BYTES", 256, "bytes", "octet notes 4.3", "the opaque id of a session")
MAX_SESSION_REQUESTS_QUEUED: Final = _limit("MAX_SESSION_REQUESTS_QUEUED", 16, "requests", "octet notes 4.3", "session requests that wait for the host's idle boundary")
MAX_SESSION_REQUESTS_PER_PROCESS: Final = _limit("MAX_SESSION_REQUESTS_PER_PROCESS", 8, "requests", "octet notes 4.3", "session requests of one process without an answer")

# -- octet process connection ------------------------------------------------------------------------------------------
MAX_EXTENSION_REQUESTS_OUTSTANDING: Final = _limit("MAX_EXTENSION_REQUESTS_OUTSTANDING", 128, "requests", "octet notes 2.4", "extension requests without an answer")
MAX_EXTENSION_REQUEST_IDS: Final = _limit("MAX_EXTENSION_REQUEST_IDS", 65_536, "ids", "octet notes 2.4", "distinct request ids in one generation; ids are never reused")
MAX_UNNEGOTIATED_NOTIFICATIONS: Final = _limit("MAX_UNNEGOTIATED_NOTIFICATIONS", 64, "notifications", "design", "dropped notifications in one generation; one more ends the stream")
MAX_WRITER_FRAMES: Final = _limit("MAX_WRITER_FRAMES", 128, "frames", "octet notes 2.4", "control frames waiting to be written to one process")
MAX_WRITE_CHUNK_BYTES: Final = _limit("MAX_WRITE_CHUNK_BYTES", 65_536, "bytes", "design", "frames joined into one write; a pipe's usual capacity")
MAX_READ_CHUNK_BYTES: Final = _limit("MAX_READ_CHUNK_BYTES", 65_536, "bytes", "design", "bytes taken from a pipe at once")
MAX_EXIT_DRAIN_BYTES: Final = _limit("MAX_EXIT_DRAIN_BYTES", 4_194_304, "bytes", "design", "output still read from a pipe after its process ended, in case a helper writes on")
REQUEST_TIMEOUT_MS: Final = _limit("REQUEST_TIMEOUT_MS", 30_000, "ms", "octet notes 2.5", "default time for a host request, waiting for a slot included")
CANCEL_GRACE_MS: Final = _limit("CANCEL_GRACE_MS", 2_000, "ms", "octet notes 2.5", "time for a terminal answer after a cancel or timeout before the process is ended")
TOMBSTONE_MS: Final = _limit("TOMBSTONE_MS", 30_000, "ms", "octet notes 2.5", "time a cancelled request's late answer is recognised")
MAX_TOMBSTONES: Final = _limit("MAX_TOMBSTONES", 512, "requests", "octet notes 2.5", "cancelled requests remembered at once")
SESSION_HOOK_TIMEOUT_MS: Final = _limit("SESSION_HOOK_TIMEOUT_MS", 250, "ms", "octet notes 4.2", "time for one session hook")
SHUTDOWN_TIMEOUT_MS: Final = _limit("SHUTDOWN_TIMEOUT_MS", 2_000, "ms", "octet notes 2.6", "time for the shutdown answer")
EXIT_GRACE_MS: Final = _limit("EXIT_GRACE_MS", 2_000, "ms", "octet notes 2.6", "time for the process to exit after the shutdown answer or a kill")
RESTART_BASE_MS: Final = _limit("RESTART_BASE_MS", 250, "ms", "octet notes 2.6", "first ceiling of the jittered restart delay")
RESTART_CAP_MS: Final = _limit("RESTART_CAP_MS", 30_000, "ms", "octet notes 2.6", "largest ceiling of the jittered restart delay")
MAX_RESTARTS: Final = _limit("MAX_RESTARTS", 8, "restarts", "octet notes 2.6", "restarts before an extension is parked")
RESTART_RESET_MS: Final = _limit("RESTART_RESET_MS", 30_000, "ms", "octet notes 2.6", "ready time after which the restart budget is whole again")
RELOAD_DRAIN_MS: Final = _limit("RELOAD_DRAIN_MS", 5_000, "ms", "design", "time pending calls of an old generation get after a reload")
SERVER_EOF_GRACE_MS: Final = _limit("SERVER_EOF_GRACE_MS", 5_000, "ms", "odek notes 2.8", "time an MCP server gets to exit after the end of its input")
SERVER_TERM_GRACE_MS: Final = _limit("SERVER_TERM_GRACE_MS", 1_000, "ms", "design", "time an MCP server gets to exit after SIGTERM")
STREAM_END_GRACE_MS: Final = _limit("STREAM_END_GRACE_MS", 250, "ms", "design", "time between the end of a process's output and its exit, so that an error can name the exit status")
MAX_SPAWN_RETRIES: Final = _limit("MAX_SPAWN_RETRIES", 4, "retries", "octet notes 2.6", "further attempts to start a program file that is still being written")
SPAWN_RETRY_STEP_MS: Final = _limit("SPAWN_RETRY_STEP_MS", 10, "ms", "octet notes 2.6", "pause before the first such attempt; the n-th waits n times as long")
MAX_STDERR_LINE_BYTES: Final = _limit("MAX_STDERR_LINE_BYTES", 8_192, "bytes", "design", "one line of a process's stderr kept as a diagnostic; the rest of the line is dropped")
MAX_STDERR_NOTE_CHARS: Final = _limit("MAX_STDERR_NOTE_CHARS", 400, "characters", "design", "the last lines of stderr in the text of an exit error; the error carries more")
MAX_STDERR_TAIL_BYTES: Final = _limit("MAX_STDERR_TAIL_BYTES", 4_096, "bytes", "design", "the end of stderr carried by an exit error")
MAX_DIAGNOSTICS: Final = _limit("MAX_DIAGNOSTICS", 1_024, "diagnostics", "design", "diagnostics kept for a session until someone takes them; older ones are dropped and counted")
MAX_DIAGNOSTIC_CHARS: Final = _limit("MAX_DIAGNOSTIC_CHARS", 1_024, "characters", "design", "text of one diagnostic")
MAX_WAITING_REQUESTS: Final = _limit("MAX_WAITING_REQUESTS", 1_024, "requests", "design", "host requests waiting for a slot or for room in the writer queue of one process")
MAX_QUOTED_BYTES: Final = _limit("MAX_QUOTED_BYTES", 128, "bytes", "design", "text of a peer quoted in an error or diagnostic, made safe")
MAX_LISTED_NAMES: Final = _limit("MAX_LISTED_NAMES", 16, "names", "design", "known names that the error about an unknown one lists, where none is close to it")
MAX_COMPARED_NAME_CHARS: Final = _limit("MAX_COMPARED_NAME_CHARS", 140, "characters", "design", "the beginning of a name that is compared with known ones, and shown")
MAX_REPORTED_FAULTS: Final = _limit("MAX_REPORTED_FAULTS", 32, "faults", "design", "faults listed for one value on a wire, where the rest are not looked for, and in the text of one error")

# -- feature-negotiated wire -------------------------------------------------------------------------------------------
MAX_FEATURE_LINE_BYTES: Final = _limit("MAX_FEATURE_LINE_BYTES", 1_048_576, "bytes", "octet notes 5", "one line of the feature-negotiated wire, its LF included")
MAX_COMMANDS: Final = _limit("MAX_COMMANDS", 256, "commands", "octet notes 5", "one extension's commands")
MAX_EXTENSION_WORKERS: Final = _limit("MAX_EXTENSION_WORKERS", 8, "requests", "octet notes 5", "requests of one process that host services work on at once; others wait")
MAX_INPUT_PROMPT_BYTES: Final = _limit("MAX_INPUT_PROMPT_BYTES", 16_384, "bytes", "octet notes 5", "the prompt of a question or confirmation")
MAX_INPUT_VALUE_BYTES: Final = _limit("MAX_INPUT_VALUE_BYTES", 262_144, "bytes", "octet notes 5", "what a person answered to an input request")
MAX_SECRET_BYTES: Final = _limit("MAX_SECRET_BYTES", 65_536, "bytes", "octet notes 5", "the value of one secret")
APPROVAL_TOKEN_MS: Final = _limit("APPROVAL_TOKEN_MS", 300_000, "ms", "octet notes 5", "age up to which an approval token is accepted")
MAX_APPROVAL_TOKENS: Final = _limit("MAX_APPROVAL_TOKENS", 256, "tokens", "design", "unused approval tokens of one process; the oldest are forgotten")
MAX_POLICY_INTENT_BYTES: Final = _limit("MAX_POLICY_INTENT_BYTES", 65_536, "bytes", "design", "what a policy request intends to do")
MAX_INLINE_ARTIFACT_BYTES: Final = _limit("MAX_INLINE_ARTIFACT_BYTES", 262_144, "bytes", "octet notes 5", "an artifact sent inside its request")
MAX_PUBLISHED_ARTIFACT_BYTES: Final = _limit("MAX_PUBLISHED_ARTIFACT_BYTES", 20_971_520, "bytes", "octet notes 5", "one published artifact")
MAX_PUBLISHED_ARTIFACTS: Final = _limit("MAX_PUBLISHED_ARTIFACTS", 64, "artifacts", "octet notes 5", "artifacts published by one process generation")
MAX_PUBLISHED_ARTIFACTS_BYTES: Final = _limit("MAX_PUBLISHED_ARTIFACTS_BYTES", 67_108_864, "bytes", "octet notes 5", "artifacts published by one process generation, together")
MAX_PUBLISHED_PATH_BYTES: Final = _limit("MAX_PUBLISHED_PATH_BYTES", 4_096, "bytes", "design", "the path of a published artifact's file")
MAX_PRESENTATION_BYTES: Final = _limit("MAX_PRESENTATION_BYTES", 262_144, "bytes", "octet notes 5", "one presentation snapshot")
MAX_PRESENTATION_ACTIVITIES: Final = _limit("MAX_PRESENTATION_ACTIVITIES", 128, "activities", "octet notes 5", "activities of one presentation snapshot")
MAX_PRESENTATION_NODES: Final = _limit("MAX_PRESENTATION_NODES", 256, "nodes", "octet notes 5", "nodes of one presentation snapshot")
MAX_PRESENTATION_ACTIONS: Final = _limit("MAX_PRESENTATION_ACTIONS", 64, "actions", "octet notes 5", "actions of one presentation snapshot")
MAX_PRESENTATIONS_PER_SECOND: Final = _limit("MAX_PRESENTATIONS_PER_SECOND", 32, "updates", "octet notes 5", "presentation updates of one process handed on in a second; newer ones replace those that wait")
MAX_MENU_BYTES: Final = _limit("MAX_MENU_BYTES", 262_144, "bytes", "octet notes 5", "one menu tree")
MAX_MENU_ITEMS: Final = _limit("MAX_MENU_ITEMS", 256, "items", "octet notes 5", "items of one menu tree, all levels together")
MAX_MENU_LEVELS: Final = _limit("MAX_MENU_LEVELS", 4, "levels", "octet notes 5", "nested levels of one menu tree")
MENU_TIMEOUT_MS: Final = _limit("MENU_TIMEOUT_MS", 5_000, "ms", "octet notes 5", "time to collect a menu")
LIFECYCLE_NOTICE_MS: Final = _limit("LIFECYCLE_NOTICE_MS", 250, "ms", "octet notes 5", "time a lifecycle notification may wait to be written before it is dropped")
MAX_OPERATION_BYTES: Final = _limit("MAX_OPERATION_BYTES", 262_144, "bytes", "design", "fields or result of a service operation whose members the reference leaves open")
MAX_PROGRESS_BYTES: Final = _limit("MAX_PROGRESS_BYTES", 65_536, "bytes", "design", "one progress event")
MAX_LABEL_BYTES: Final = _limit("MAX_LABEL_BYTES", 1_024, "bytes", "design", "a label, title or style word an extension gives the host to show")
MAX_SHOWN_TEXT_BYTES: Final = _limit("MAX_SHOWN_TEXT_BYTES", 262_144, "bytes", "design", "one text an extension gives the host to show or to put into a prompt")
MAX_SHOWN_ITEMS: Final = _limit("MAX_SHOWN_ITEMS", 1_024, "items", "design", "context items, notifications or rendered segments of one answer")

# -- MCP connection ----------------------------------------------------------------------------------------------------
MAX_MESSAGE_DEPTH: Final = _limit("MAX_MESSAGE_DEPTH", 128, "containers", "design", "nested containers of one MCP message; both JSON codecs of the project can hold it")
MAX_OUTLINE_TOKENS: Final = _limit("MAX_OUTLINE_TOKENS", 262_144, "tokens", "design", "of a line that could not be read, looked at to find the call it was meant for")
MAX_BATCH_MESSAGES: Final = _limit("MAX_BATCH_MESSAGES", 1_024, "messages", "design", "members of one JSON-RPC batch")
MAX_JUNK_LINES: Final = _limit("MAX_JUNK_LINES", 1_000, "lines", "design D13", "lines of a server that are no messages; this many end the connection")
MAX_JUNK_BYTES: Final = _limit("MAX_JUNK_BYTES", 1_048_576, "bytes", "design D13", "such lines together; this many end the connection")
MAX_OPEN_CALLS: Final = _limit("MAX_OPEN_CALLS", 1_024, "requests", "design", "requests to one MCP server without an answer; the protocol has no bound of its own")
MAX_REQUEST_BYTES: Final = _limit("MAX_REQUEST_BYTES", 67_108_864, "bytes", "design", "one line sent to an MCP server; as long as the longest line that may come back")
MAX_TOOL_PAGES: Final = _limit("MAX_TOOL_PAGES", 64, "pages", "design D9", "pages of one tools/list")
MAX_LISTED_TOOLS: Final = _limit("MAX_LISTED_TOOLS", 1_024, "tools", "design D9", "tools of one MCP server")
RELIST_INTERVAL_MS: Final = _limit("RELIST_INTERVAL_MS", 1_000, "ms", "design", "time between two listings caused by list_changed, in case a server announces a change whenever it is asked")
MAX_PROGRESS_EXTENSION_MS: Final = _limit("MAX_PROGRESS_EXTENSION_MS", 3_600_000, "ms", "design", "time of a call that progress extends, from its start")
MAX_SERVER_NAME_CHARS: Final = _limit("MAX_SERVER_NAME_CHARS", 64, "characters", "odek notes 1.2", "a server's name; the rule for tool names")
MAX_LISTED_TOOL_NAME_CHARS: Final = _limit("MAX_LISTED_TOOL_NAME_CHARS", 64, "characters", "odek", "an MCP tool's name")
MAX_INPUT_SCHEMA_BYTES: Final = _limit("MAX_INPUT_SCHEMA_BYTES", 262_144, "bytes", "odek notes 3", "an MCP tool's serialised input schema; the tool is left out above it")
MAX_LISTED_DESCRIPTION_CHARS: Final = _limit("MAX_LISTED_DESCRIPTION_CHARS", 16_384, "characters", "design", "an MCP tool's description; the rest is cut off")

# -- odek-extension/v1 -------------------------------------------------------------------------------------------------
MAX_CONFIG_BYTES: Final = _limit("MAX_CONFIG_BYTES", 1_048_576, "bytes", "design", "one file with mcp_servers")
MAX_SERVERS: Final = _limit("MAX_SERVERS", 256, "servers", "design", "entries of one file's mcp_servers")
SERVER_TIMEOUT_SECONDS: Final = _limit("SERVER_TIMEOUT_SECONDS", 30, "s", "odek", "default of timeout_seconds")
MAX_SERVER_TIMEOUT_SECONDS: Final = _limit("MAX_SERVER_TIMEOUT_SECONDS", 3_600, "s", "odek", "hard cap of timeout_seconds")
RESPONSE_BYTES: Final = _limit("RESPONSE_BYTES", 10_485_760, "bytes", "odek", "default of max_response_bytes")
MAX_RESPONSE_BYTES: Final = _limit("MAX_RESPONSE_BYTES", 67_108_864, "bytes", "odek", "ceiling of max_response_bytes")
RESULT_CHARS: Final = _limit("RESULT_CHARS", 200_000, "characters", "odek", "default of max_result_chars")
MAX_RESULT_CHARS: Final = _limit("MAX_RESULT_CHARS", 1_000_000, "characters", "odek", "hard cap of max_result_chars")
MIN_RESULT_CHARS_BESIDE_NOTICE: Final = _limit("MIN_RESULT_CHARS_BESIDE_NOTICE", 64, "characters", "odek notes 1.1", "text that the floor of max_result_chars leaves beside the longest notice")
MAX_ARTIFACTS: Final = _limit("MAX_ARTIFACTS", 64, "references", "odek notes 4.4", "artifact references of one tool result")
MAX_ARTIFACT_BYTES: Final = _limit("MAX_ARTIFACT_BYTES", 67_108_864, "bytes", "odek notes 4.5", "the file of an artifact reference")
MAX_ARTIFACT_FIELD_CHARS: Final = _limit("MAX_ARTIFACT_FIELD_CHARS", 4_096, "characters", "odek notes 4.6", "id, media type or summary of an artifact as shown; the rest is cut off")
ARTIFACT_HASH_CHARS: Final = _limit("ARTIFACT_HASH_CHARS", 12, "characters", "odek notes 4.6", "digits of an artifact's digest that are shown")

# -- manifest ----------------------------------------------------------------------------------------------------------
MAX_MANIFEST_BYTES: Final = _limit("MAX_MANIFEST_BYTES", 65_536, "bytes", "octet notes 1", "one extension.toml")
MAX_MANIFEST_KEY_PARTS: Final = _limit("MAX_MANIFEST_KEY_PARTS", 16, "parts", "design", "one dotted key; the TOML parser takes quadratic time over long ones")
MAX_EXTENSION_NAME_BYTES: Final = _limit("MAX_EXTENSION_NAME_BYTES", 64, "bytes", "octet notes 1", "an extension's name")
MAX_MANIFEST_IDENTIFIER_BYTES: Final = _limit("MAX_MANIFEST_IDENTIFIER_BYTES", 64, "bytes", "octet notes 1", "an extended identifier in a manifest")
MAX_SHORTCUTS: Final = _limit("MAX_SHORTCUTS", 64, "shortcuts", "octet notes 1", "declared shortcuts")
MAX_SHORTCUT_KEY_BYTES: Final = _limit("MAX_SHORTCUT_KEY_BYTES", 128, "bytes", "octet notes 1", "a shortcut's key")
MAX_SHORTCUT_DESCRIPTION_BYTES: Final = _limit("MAX_SHORTCUT_DESCRIPTION_BYTES", 4_096, "bytes", "octet notes 1", "a shortcut's description")
MAX_FLAG_VALUE_BYTES: Final = _limit("MAX_FLAG_VALUE_BYTES", 4_096, "bytes", "octet notes 1", "a string flag's value")
MAX_FLAG_DESCRIPTION_BYTES: Final = _limit("MAX_FLAG_DESCRIPTION_BYTES", 1_024, "bytes", "octet notes 1", "a flag's description")

# -- odek artifacts ----------------------------------------------------------------------------------------------------
MAX_ARTIFACT_READ_BYTES: Final = _limit("MAX_ARTIFACT_READ_BYTES", 262_144, "bytes", "odek notes 8.5", "one read of an artifact by id; larger requests are clamped")
ARTIFACT_READ_DEFAULT_BYTES: Final = _limit("ARTIFACT_READ_DEFAULT_BYTES", 65_536, "bytes", "odek notes 8.5", "one read of an artifact by id when no limit is given")
MAX_REGISTERED_ARTIFACTS: Final = _limit("MAX_REGISTERED_ARTIFACTS", 1_024, "artifacts", "design", "artifacts of a session that can be read by id; the oldest are forgotten")
MAX_HASH_CHUNK_BYTES: Final = _limit("MAX_HASH_CHUNK_BYTES", 1_048_576, "bytes", "design", "part of a file hashed at once")
MAX_SERVER_WORKERS: Final = _limit("MAX_SERVER_WORKERS", 8, "threads", "design", "tools a server made with the kit runs at once")
SERVER_FINISH_MS: Final = _limit("SERVER_FINISH_MS", 2_000, "ms", "design", "time a server made with the kit leaves its open calls after the end of its input; hosts wait 5 s")

# -- odek references to outside state ----------------------------------------------------------------------------------
MAX_EXTERNAL_KIND_CHARS: Final = _limit("MAX_EXTERNAL_KIND_CHARS", 64, "characters", "odek", "the kind of a reference to outside state")
MAX_EXTERNAL_URI_CHARS: Final = _limit("MAX_EXTERNAL_URI_CHARS", 2_048, "characters", "odek", "the URI of such a reference, after its redaction too")
MAX_EXTERNAL_AUTHOR_CHARS: Final = _limit("MAX_EXTERNAL_AUTHOR_CHARS", 128, "characters", "odek", "who made such a reference")
MAX_EXTERNAL_REFS: Final = _limit("MAX_EXTERNAL_REFS", 1_024, "references", "design", "references to outside state of one session")
MAX_REDACTION_ROUNDS: Final = _limit("MAX_REDACTION_ROUNDS", 8, "rounds", "design", "times secrets are looked for in the URI of such a reference, since taking one out may bring another to light")
MAX_SESSION_FILE_BYTES: Final = _limit("MAX_SESSION_FILE_BYTES", 268_435_456, "bytes", "design", "a session file that references are kept in; most of it is the host's own")

# -- odek results of sub-agents ----------------------------------------------------------------------------------------
MAX_CHILD_ARTIFACTS_BYTES: Final = _limit("MAX_CHILD_ARTIFACTS_BYTES", 67_108_864, "bytes", "odek notes 8.2", "the artifacts of one task together; larger files go first")
MAX_CHILD_ARTIFACT_ID_CHARS: Final = _limit("MAX_CHILD_ARTIFACT_ID_CHARS", 64, "characters", "odek notes 8.2", "the id of a task's artifact")
MAX_CHILD_SUMMARY_CHARS: Final = _limit("MAX_CHILD_SUMMARY_CHARS", 120, "characters", "odek notes 8.2", "the summary of a task's artifact: its first line")
MAX_CHILD_SUMMARY_BYTES: Final = _limit("MAX_CHILD_SUMMARY_BYTES", 4_096, "bytes", "design", "the beginning of a file in which its first line is looked for")
MAX_SCANNED_ENTRIES: Final = _limit("MAX_SCANNED_ENTRIES", 16_384, "entries", "design", "entries of a task's directory that are looked at")
MAX_CHILD_NOTES: Final = _limit("MAX_CHILD_NOTES", 64, "notes", "design", "notes on what was left out of one task's artifacts; a last one counts the rest")
MAX_CHILD_NOTE_CHARS: Final = _limit("MAX_CHILD_NOTE_CHARS", 256, "characters", "design", "one such note of a task as its parent shows it")
MAX_INLINE_TEXT_BYTES: Final = _limit("MAX_INLINE_TEXT_BYTES", 32_768, "bytes", "odek", "a task's text artifact that is shown with its content")
MAX_INLINE_TEXTS_BYTES: Final = _limit("MAX_INLINE_TEXTS_BYTES", 131_072, "bytes", "odek notes 8.4", "such contents of one call together; larger ones go first")

# -- odek events -------------------------------------------------------------------------------------------------------
MIN_SECRET_CHARS: Final = _limit("MIN_SECRET_CHARS", 8, "characters", "odek notes 5.6", "a known secret that is redacted; a shorter one would be found in innocent text")
MAX_KNOWN_SECRETS: Final = _limit("MAX_KNOWN_SECRETS", 1_024, "secrets", "design", "secrets one redactor looks for; each costs a search of every string")
MAX_REMEMBERED_CHARS: Final = _limit("MAX_REMEMBERED_CHARS", 64, "characters", "design", "a text that was found to hold no secret, remembered by a redactor")
MAX_REMEMBERED_TEXTS: Final = _limit("MAX_REMEMBERED_TEXTS", 1_024, "texts", "design", "such texts at once")
MAX_QUEUED_EVENTS: Final = _limit("MAX_QUEUED_EVENTS", 1_024, "events", "odek notes 5.7", "events of one run that wait for their consumers; a newer one is dropped")
MAX_EVENT_TEXT_CHARS: Final = _limit("MAX_EVENT_TEXT_CHARS", 4_096, "characters", "design", "one string of an event; the rest is cut off")
MAX_EVENT_ARGS_CHARS: Final = _limit("MAX_EVENT_ARGS_CHARS", 65_536, "characters", "design", "raw arguments in an event, where they are asked for; the rest is cut off")
REDACTION_LOOKAHEAD_CHARS: Final = _limit("REDACTION_LOOKAHEAD_CHARS", 16_384, "characters", "design", "text behind the cut that is searched too, for secrets that begin before it")
MAX_EVENT_LINE_BYTES: Final = _limit("MAX_EVENT_LINE_BYTES", 4_194_304, "bytes", "design", "one line of an event file, written or read; every event fits")
MAX_SUMMARY_PATHS: Final = _limit("MAX_SUMMARY_PATHS", 16, "names", "odek notes 5.4", "programs or paths listed in the summary of one tool call's arguments")
MAX_SUMMARY_NAME_BYTES: Final = _limit("MAX_SUMMARY_NAME_BYTES", 512, "bytes", "odek notes 5.4", "one program, path or host in such a summary; the rest is cut off")
MAX_SUMMARY_ARGS_BYTES: Final = _limit("MAX_SUMMARY_ARGS_BYTES", 1_048_576, "bytes", "design", "arguments that are read for their summary; longer ones are unusable for it")
MAX_SUMMARY_COMMAND_CHARS: Final = _limit("MAX_SUMMARY_COMMAND_CHARS", 16_384, "characters", "design", "one command that is taken apart for its summary; of a longer one the beginning")
MAX_UNSYNCED_LOG_BYTES: Final = _limit("MAX_UNSYNCED_LOG_BYTES", 8_388_608, "bytes", "design", "written lines an event file keeps in memory, to write them anew, while its fsync fails; more are refused")
EVENT_RETRY_BASE_MS: Final = _limit("EVENT_RETRY_BASE_MS", 100, "ms", "design", "pause before an event that could not be written is tried again; each further one is twice as long")
EVENT_RETRY_CAP_MS: Final = _limit("EVENT_RETRY_CAP_MS", 5_000, "ms", "design", "longest such pause")
FOLLOW_INTERVAL_MS: Final = _limit("FOLLOW_INTERVAL_MS", 200, "ms", "design", "time between two looks at an event file that is followed")
EMITTER_CLOSE_MS: Final = _limit("EMITTER_CLOSE_MS", 5_000, "ms", "design", "time the command line leaves the consumers of its events at the end")

# -- extensions made with the author's kit -----------------------------------------------------------------------------
CONCURRENT_CALLS: Final = _limit("CONCURRENT_CALLS", 16, "requests", "design", "requests of the host an extension made with the kit works on at once, unless its author says otherwise")
MAX_HANDLER_THREADS: Final = _limit("MAX_HANDLER_THREADS", 64, "threads", "design", "plain functions that run at once in such an extension; the others wait")
MAX_OWN_REQUESTS_QUEUED: Final = _limit("MAX_OWN_REQUESTS_QUEUED", 1_024, "requests", "design", "requests of such an extension that wait because as many as the host takes are without an answer")
MAX_EVENTS_QUEUED: Final = _limit("MAX_EVENTS_QUEUED", 1_024, "events", "design", "events of one topic that wait for their handler in such an extension; a newer one is dropped and counted")
BINDING_WAIT_MS: Final = _limit("BINDING_WAIT_MS", 2_000, "ms", "design", "time a publication waits in such an extension for the binding and for its topic's declaration")
HANDLER_CANCEL_MS: Final = _limit("HANDLER_CANCEL_MS", 1_500, "ms", "design", "time a cancelled handler has before its call is answered without it; less than the host's grace")
HANDLER_FINISH_MS: Final = _limit("HANDLER_FINISH_MS", 1_000, "ms", "design", "time open handlers have at shutdown or the end of the input; less than the host's wait for the answer")
PLAIN_TURN_MS: Final = _limit("PLAIN_TURN_MS", 60_000, "ms", "design", "real time a plain function of such an extension has in memory, where everything else stands still meanwhile")
MAX_LOG_CHARS: Final = _limit("MAX_LOG_CHARS", 4_096, "characters", "design", "one message such an extension writes to stderr about itself; the middle is left out")

# -- command line ------------------------------------------------------------------------------------------------------
MAX_COMMAND_SECONDS: Final = _limit("MAX_COMMAND_SECONDS", 31_536_000, "s", "design", "a duration or timeout given on the command line")
MAX_SHOWN_ANSWER_CHARS: Final = _limit("MAX_SHOWN_ANSWER_CHARS", 1_048_576, "characters", "design", "text of one model's answer that the command line keeps to show it; the stream is cancelled above")
MAX_RECORDED_LINE_BYTES: Final = _limit("MAX_RECORDED_LINE_BYTES", 4_194_304, "bytes", "design", "one line of a process that a recording keeps; of a longer one the beginning and its length")
MAX_RECORDING_BYTES: Final = _limit("MAX_RECORDING_BYTES", 1_073_741_824, "bytes", "design", "one recording of a session; it ends there")
MAX_INSPECTED_RECORDS: Final = _limit("MAX_INSPECTED_RECORDS", 2_000, "records", "design", "records the inspector keeps to look at; the oldest are forgotten")
MAX_INSPECTED_STDERR_LINES: Final = _limit("MAX_INSPECTED_STDERR_LINES", 500, "lines", "design", "lines of one extension's stderr the inspector keeps")
MAX_INSPECTED_CHARS: Final = _limit("MAX_INSPECTED_CHARS", 65_536, "characters", "design", "one record as the inspector shows it in full; the rest is cut off")

# -- test kit ----------------------------------------------------------------------------------------------------------
SEQUENCE_COLUMNS: Final = _limit("SEQUENCE_COLUMNS", 100, "columns", "design", "one line of a sequence that a failed test shows")
MAX_SHOWN_ENTRIES: Final = _limit("MAX_SHOWN_ENTRIES", 60, "entries", "design", "entries of a sequence that are shown; first, last and marked ones are kept")
MAX_SHOWN_TEXT_CHARS: Final = _limit("MAX_SHOWN_TEXT_CHARS", 1_000, "characters", "design", "one error or line of stderr in a sequence; of a longer one the middle is left out")
MAX_RECORDED_ENTRIES: Final = _limit("MAX_RECORDED_ENTRIES", 100_000, "entries", "design", "entries a recorder keeps; the oldest are dropped and counted above")
MEMORY_PIPE_BYTES: Final = _limit("MEMORY_PIPE_BYTES", 65_536, "bytes", "design", "what an in-memory pipe holds that its reader has not read, where a schedule decides who reads when; as on Linux")
MAX_MEMORY_MOVES: Final = _limit("MAX_MEMORY_MOVES", 1_000_000, "moves", "design", "what may happen in memory without time passing, before a test is told that it never comes to rest")
MAX_IDLE_DEADLINES: Final = _limit("MAX_IDLE_DEADLINES", 1_000, "deadlines", "design", "deadlines in a row that have passed and stay, before a test is told whose they are")
MAX_SETTLE_MS: Final = _limit("MAX_SETTLE_MS", 86_400_000, "ms", "design", "virtual time a test waits for an outcome")
MAX_INTERLEAVING_STEPS: Final = _limit("MAX_INTERLEAVING_STEPS", 1_024, "steps", "design", "steps of a scenario whose order a search decides; later ones keep their order")
MAX_INTERLEAVING_CHOICE: Final = _limit("MAX_INTERLEAVING_CHOICE", 7, "choice", "design", "how many waiting steps one step may overtake in a search")

# -- conformance -------------------------------------------------------------------------------------------------------
CONFORM_ANSWER_MS: Final = _limit("CONFORM_ANSWER_MS", 3_000, "ms", "design", "time an extension under test gets for one answer, unless the command line says otherwise")
CONFORM_TOTAL_MS: Final = _limit("CONFORM_TOTAL_MS", 120_000, "ms", "design", "all scenarios of one extension under test together; what was not reached is skipped")
CONFORM_QUIET_MS: Final = _limit("CONFORM_QUIET_MS", 150, "ms", "design", "time in which nothing may come, waited after a sign that what went before was read")
CONFORM_HOST_MS: Final = _limit("CONFORM_HOST_MS", 15_000, "ms", "design", "time a host under test gets to end by itself")
MAX_CONFORM_PROCESSES: Final = _limit("MAX_CONFORM_PROCESSES", 6, "processes", "design", "processes under test at once")
MAX_CONFORM_TARGETS: Final = _limit("MAX_CONFORM_TARGETS", 3, "programs", "design", "extensions or servers examined at once")
MAX_CONFORM_HOSTS: Final = _limit("MAX_CONFORM_HOSTS", 10, "processes", "design", "hosts under test at once; they mostly wait")
MAX_CONFORM_EVIDENCE: Final = _limit("MAX_CONFORM_EVIDENCE", 3, "texts", "design", "observations reported for one rule")
MAX_CONFORM_EVIDENCE_CHARS: Final = _limit("MAX_CONFORM_EVIDENCE_CHARS", 480, "characters", "design", "one such observation")
MAX_CONFORM_TOOLS: Final = _limit("MAX_CONFORM_TOOLS", 16, "tools", "design", "tools of one extension that are called with made-up arguments")
MAX_CONFORM_OUTPUT_BYTES: Final = _limit("MAX_CONFORM_OUTPUT_BYTES", 67_108_865, "bytes", "design", "output of one process under test that is kept and looked at")
MAX_CONFORM_STDERR_BYTES: Final = _limit("MAX_CONFORM_STDERR_BYTES", 1_048_576, "bytes", "design", "stderr of one process under test over a handful of calls; more is a flood")
MAX_SYNTHESIS_DEPTH: Final = _limit("MAX_SYNTHESIS_DEPTH", 8, "levels", "design", "nested schemas followed to make arguments up")
# fmt: on
