// The wire models of octet extension API 0.3. Generated; do not edit by hand.
//
// A member with "?" may be absent; absent and null are different things. Numbers are integers, at most 2^53 - 1.

export type JsonValue = null | boolean | number | string | readonly JsonValue[] | { readonly [key: string]: JsonValue };
export type NonNullJson = Exclude<JsonValue, null>;
export type RequestId = number | string;

/** The negotiated bounds: offered by the host, selected at or below the offer by the extension. */
export interface ProtocolLimits {
  readonly max_frame_bytes: number;
  readonly max_concurrent_requests: number;
  readonly max_tools: number;
}

/** What the host offers; made by broker.wire.octet.contract.build_offer. */
export interface ContractOffer {
  readonly schema: "octet.extension.api/0.3";
  readonly encoding: "octet-canonical-json-v1";
  readonly required_capabilities: readonly string[];
  readonly optional_capabilities: readonly string[];
  readonly required_methods: readonly string[];
  readonly optional_methods: readonly string[];
  readonly limits: ProtocolLimits;
}

/** What the extension selected from the offer. Shape only. */
export interface ContractSelection {
  readonly schema: string;
  readonly encoding: string;
  readonly capabilities: readonly string[];
  readonly methods: readonly string[];
  readonly limits: ProtocolLimits;
}

/** One tool of an extension's catalogue. output_schema is absent or a JSON Schema object, never null. */
export interface ToolDefinition {
  readonly name: string;
  readonly description: string;
  readonly parameters: NonNullJson;
  readonly output_schema?: NonNullJson;
}

export type ContentPart =
  { readonly type: "text"; readonly text: string };

/** The parameters of tool/call. arguments and context are any JSON but null. */
export interface ToolCallParams {
  readonly name: string;
  readonly arguments: NonNullJson;
  readonly context: NonNullJson;
}

/** A tool's own result, failed (is_error) or not. structured_content keeps absent and null apart. */
export interface ToolCallResult {
  readonly content: readonly ContentPart[];
  readonly is_error: boolean;
  readonly metadata: JsonValue;
  readonly structured_content?: JsonValue;
}

/** Who a session hook is about: the host's session and one generation of one extension process. */
export interface SessionBinding {
  readonly session_id: string;
  readonly extension_instance_id: string;
  readonly process_generation: number;
}

/** The payload of session_start. */
export interface SessionStart {
  readonly binding: SessionBinding;
}

/** The payload of session_end; duration_ms is the binding's age in milliseconds. */
export interface SessionEnd {
  readonly binding: SessionBinding;
  readonly outcome: "completed" | "failed" | "cancelled" | "interrupted" | "frontend_disconnected" | "shutdown" | "limit_reached";
  readonly reason: "shutdown" | "reload" | "crash" | "cancelled";
  readonly duration_ms: number;
}

export type SessionHookParams =
  { readonly hook: "session_start"; readonly payload: SessionStart } |
  { readonly hook: "session_end"; readonly payload: SessionEnd };

/** The result of hook/run. */
export interface SessionHookResult {
  readonly disposition: Disposition;
}

/** The parameters of $/cancelRequest: which request, and why. */
export interface CancelRequestParams {
  readonly id: RequestId;
  readonly reason?: string;
}

/** The terminal fact of a cancelled request. A model of the contract that no frame of it carries by itself. */
export interface CancelRequestResult {
  readonly terminal: "cancelled";
  readonly reason?: string;
}

/** The parameters of session/create: none. The new session is durable, and is not switched to. */
export type SessionCreateParams = Record<string, never>;

/** The parameters of session/fork: none. The active session is copied at its durable head, without a switch. */
export type SessionForkParams = Record<string, never>;

/** The parameters of session/switch: which session of the active workspace is to be the active one. */
export interface SessionSwitchParams {
  readonly session_id: string;
}

/** The parameters of session/reload: none. The active session is read from disk again. */
export type SessionReloadParams = Record<string, never>;

/** The result of each of the four: the session that was made, switched to or read again. */
export interface SessionLifecycleResult {
  readonly session_id: string;
}

/** The parameters of shutdown: none. */
export type ShutdownParams = Record<string, never>;

/** The result of shutdown, exactly {"terminal":"shutdown"}. */
export interface ShutdownResult {
  readonly terminal: "shutdown";
}

/** The parsed value of one flag the manifest declares. */
export interface InitializeFlagValue {
  readonly name: string;
  readonly value: NonNullJson;
}

/** The parameters of initialize. The four JSON members are the host's own and opaque here. */
export interface InitializeRequest {
  readonly api_version: "0.3";
  readonly octet_version: string;
  readonly extension: NonNullJson;
  readonly workspace: string;
  readonly capabilities: NonNullJson;
  readonly contributes: NonNullJson;
  readonly flag_values: readonly InitializeFlagValue[];
  readonly host: NonNullJson;
  readonly contract: ContractOffer;
}

/** The result of initialize: the complete catalogue and the selection. Shape only. */
export interface InitializeResponse {
  readonly api_version: string;
  readonly tools: readonly ToolDefinition[];
  readonly contract: ContractSelection;
}

/** Something a person should know about a source file; path may be $ for the root. */
export interface MigrationDiagnostic {
  readonly path: string;
  readonly severity: "warning" | "error";
  readonly reason: string;
}

/** The parameters of migration/detect: the directory the host lets the adapter read. */
export interface MigrationDetectParams {
  readonly source_root: string;
}

/** Whether there is a setup below the root, and the files that hold it. */
export interface MigrationDetectResult {
  readonly detected: boolean;
  readonly config_paths: readonly string[];
  readonly diagnostics: readonly MigrationDiagnostic[];
}

/** The parameters of migration/import: the same root, and paths that detection gave. */
export interface MigrationImportParams {
  readonly source_root: string;
  readonly config_paths: readonly string[];
}

/** A model the source setup selects, and the file that says so. */
export interface MigrationModel {
  readonly path: string;
  readonly provider: string;
  readonly model: string;
}

/** A skill of the source setup, with its text. */
export interface MigrationSkill {
  readonly path: string;
  readonly name: string;
  readonly content: string;
}

/** A local MCP server of the source setup: its command and arguments, and nothing else. */
export interface MigrationMcpServer {
  readonly path: string;
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
}

/** What could be converted. The host decides what of it is written, and where. */
export interface MigrationImportResult {
  readonly models: readonly MigrationModel[];
  readonly skills: readonly MigrationSkill[];
  readonly mcp_servers: readonly MigrationMcpServer[];
  readonly diagnostics: readonly MigrationDiagnostic[];
}

/** An error: one code and message of the error table, and what else there is to say. Absent and null data differ. */
export interface ErrorObject {
  readonly code: number;
  readonly message: "parse error" | "invalid request" | "unknown or unnegotiated method" | "invalid params" | "internal error" | "extension API version mismatch" | "extension capability mismatch" | "extension resource exhausted" | "request cancelled";
  readonly data?: JsonValue;
}

export type Disposition =
  { readonly kind: "continue"; readonly reason?: string } |
  { readonly kind: "deny"; readonly reason: string } |
  { readonly kind: "defer"; readonly reason: string };

/** A call that is answered under id. */
export interface JsonRpcRequest {
  readonly jsonrpc: "2.0";
  readonly id: RequestId;
  readonly method: string;
  readonly params: NonNullJson;
}

/** A message that is never answered. */
export interface JsonRpcNotification {
  readonly jsonrpc: "2.0";
  readonly method: string;
  readonly params: NonNullJson;
}

/** The answer to a request that succeeded. */
export interface JsonRpcSuccessResponse {
  readonly jsonrpc: "2.0";
  readonly id: RequestId;
  readonly result: NonNullJson;
}

/** The answer to a request that failed. */
export interface JsonRpcErrorResponse {
  readonly jsonrpc: "2.0";
  readonly id: RequestId;
  readonly error: ErrorObject;
}

/** The class of authorisation a provider needs. none takes neither subject nor scopes, oauth a subject and perhaps scopes, host_credential a subject alone. */
export interface ProviderAuthRequirement {
  readonly kind: "none" | "oauth" | "host_credential";
  readonly subject?: string;
  readonly scopes?: readonly string[];
}

/** A provider as its extension declares it; id is unique in the host. */
export interface ProviderDefinition {
  readonly id: string;
  readonly label: string;
  readonly auth: ProviderAuthRequirement;
}

/** What a model can do. Parallel tool calls need tools. */
export interface ProviderModelCapabilities {
  readonly tools: boolean;
  readonly parallel_tool_calls: boolean;
  readonly structured_output: boolean;
  readonly reasoning: boolean;
}

/** A model of a provider; its two sizes are in tokens, and max_output_tokens is at most context_window. */
export interface ProviderModelDefinition {
  readonly id: string;
  readonly api_name: string;
  readonly protocol: "openai_chat" | "openai_responses" | "anthropic_messages";
  readonly context_window: number;
  readonly max_output_tokens: number;
  readonly capabilities: ProviderModelCapabilities;
  readonly display_name?: string;
}

/** The parameters of providers/register: a provider that is new, and all its models. */
export interface ProviderRegisterParams {
  readonly provider: ProviderDefinition;
  readonly models: readonly ProviderModelDefinition[];
}

/** The parameters of providers/update: a provider one has, and all its models, anew. */
export interface ProviderUpdateParams {
  readonly provider: ProviderDefinition;
  readonly models: readonly ProviderModelDefinition[];
}

/** The parameters of providers/unregister: which provider goes. */
export interface ProviderUnregisterParams {
  readonly provider_id: string;
}

/** The parameters of the notification providers/complete: none. */
export type ProviderCatalogCompleteParams = Record<string, never>;

/** The result of a change: the registry's revision after it, and the ids now declared, models as provider/model. */
export interface ProviderCatalogResult {
  readonly revision: number;
  readonly provider_ids: readonly string[];
  readonly model_ids: readonly string[];
}

/** The parameters of provider/stream. request is any JSON but null, in the words of the model's protocol. */
export interface ProviderStreamRequest {
  readonly stream_id: string;
  readonly provider_id: string;
  readonly model_id: string;
  readonly request: NonNullJson;
  readonly authorization_lease?: string;
}

/** The result of provider/stream: whether events follow. It never allows the request to be sent again. */
export interface ProviderStreamAccepted {
  readonly stream_id: string;
  readonly accepted: boolean;
  readonly reason?: string;
}

/** The parameters of the notification provider/event; sequence counts from 0 without a gap. */
export interface ProviderStreamEvent {
  readonly stream_id: string;
  readonly sequence: number;
  readonly kind: "started" | "text_start" | "text_delta" | "text_end" | "reasoning_start" | "reasoning_delta" | "reasoning_end" | "tool_call_start" | "tool_call_args_delta" | "tool_call_end" | "usage" | "finished" | "error" | "heartbeat";
  readonly payload: NonNullJson;
}

/** The parameters of the notification provider/cancel. */
export interface ProviderStreamCancelParams {
  readonly stream_id: string;
  readonly reason?: string;
}

/** The parameters of provider/auth/request and /revoke; interactive allows to ask a person. */
export interface ProviderAuthorizationRequest {
  readonly provider_id: string;
  readonly action: "authorize" | "refresh" | "revoke";
  readonly interactive: boolean;
  readonly scopes?: readonly string[];
}

/** The host's decision. lease is opaque to all but the host, comes with ready only, and is not shown. */
export interface ProviderAuthorizationResult {
  readonly status: "pending" | "ready" | "unavailable" | "revoked";
  readonly lease?: string;
}

/** The parameters of theme/select. scope has one value, so that a selection reaches no further. */
export interface ThemeSelectParams {
  readonly namespace: string;
  readonly theme_id: string;
  readonly role: "accent" | "border" | "diff_added" | "diff_context" | "diff_header" | "diff_hunk" | "diff_removed" | "dim" | "error" | "foreground" | "md_code" | "md_code_block" | "md_emphasis" | "md_heading" | "md_link" | "md_list_bullet" | "md_quote" | "md_strong" | "muted" | "success" | "syntax_comment" | "syntax_function" | "syntax_keyword" | "syntax_number" | "syntax_operator" | "syntax_punctuation" | "syntax_string" | "syntax_type" | "syntax_variable" | "warning";
  readonly scope: "extension";
}

/** The host's decision; theme_id is the theme it resolved the request to. */
export interface ThemeSelectResult {
  readonly status: "selected" | "denied" | "unavailable";
  readonly theme_id?: string;
  readonly reason?: string;
}

/** One scalar field of a topic. max_bytes and values are always sent, whatever the kind. */
export interface BusFieldSpec {
  readonly name: string;
  readonly kind: "string" | "integer" | "boolean" | "enum";
  readonly required: boolean;
  readonly max_bytes: number;
  readonly values: readonly string[];
  readonly minimum?: number;
  readonly maximum?: number;
}

/** The parameters of bus/declare. */
export interface BusDeclareParams {
  readonly binding_id: string;
  readonly topic: string;
  readonly fields: readonly BusFieldSpec[];
}

/** The parameters of bus/subscribe and bus/unsubscribe. */
export interface BusTopicParams {
  readonly binding_id: string;
  readonly topic: string;
}

/** The result of bus/declare and bus/unsubscribe. */
export interface BusAck {
  readonly binding_id: string;
}

/** The parameters of bus/publish. Publisher, generation, sequence and time are the host's and have no member. */
export interface BusPublishParams {
  readonly binding_id: string;
  readonly topic: string;
  readonly payload: NonNullJson;
}

/** The result of bus/publish: admitted to every subscriber, under this sequence, at this Unix millisecond. */
export interface BusPublishResult {
  readonly binding_id: string;
  readonly sequence: number;
  readonly published_at_ms: number;
}

/** The parameters of the notification bus/event. */
export interface BusEventParams {
  readonly binding_id: string;
  readonly topic: string;
  readonly publisher: string;
  readonly publisher_instance_id: string;
  readonly process_generation: number;
  readonly sequence: number;
  readonly published_at_ms: number;
  readonly payload: NonNullJson;
}

export type BusSubscribeResult =
  { readonly state: "pending"; readonly binding_id: string; readonly topic_revision: number } |
  { readonly state: "active"; readonly binding_id: string; readonly topic_revision: number; readonly publisher_instance_id: string; readonly process_generation: number };

export type BusLifecycleParams =
  { readonly kind: "binding"; readonly binding_id: string; readonly binding_revision: number } |
  { readonly kind: "topic_available"; readonly binding_id: string; readonly topic: string; readonly topic_revision: number; readonly publisher_instance_id: string; readonly process_generation: number } |
  { readonly kind: "topic_unavailable"; readonly binding_id: string; readonly topic: string; readonly topic_revision: number; readonly publisher_instance_id: string; readonly process_generation: number };

/** The model has begun; response_id is what its provider calls the answer. */
export interface StreamStarted {
  readonly response_id?: string;
}

/** The part index of the answer is text and begins. */
export interface TextStart {
  readonly index: number;
}

/** More text of the part index. */
export interface TextDelta {
  readonly index: number;
  readonly delta: string;
}

/** The part index is complete. */
export interface TextEnd {
  readonly index: number;
}

/** The part index of the answer is reasoning and begins. */
export interface ReasoningStart {
  readonly index: number;
}

/** More reasoning of the part index. */
export interface ReasoningDelta {
  readonly index: number;
  readonly delta: string;
}

/** The part index is complete. */
export interface ReasoningEnd {
  readonly index: number;
}

/** The part index of the answer is a call of the tool name, under the model's own id. */
export interface ToolCallStart {
  readonly index: number;
  readonly id: string;
  readonly name: string;
}

/** More of the arguments' JSON text of the part index. */
export interface ToolCallArgsDelta {
  readonly index: number;
  readonly delta: string;
}

/** The part index is complete. */
export interface ToolCallEnd {
  readonly index: number;
}

/** Counts of tokens so far; a count the provider does not have is absent. */
export interface Usage {
  readonly input_tokens?: number;
  readonly cache_read_tokens?: number;
  readonly cache_write_tokens?: number;
  readonly cache_write_1h_tokens?: number;
  readonly output_tokens?: number;
  readonly reasoning_tokens?: number;
  readonly total_tokens?: number;
}

/** The answer is complete; stop_reason is the provider's word for why. */
export interface Finished {
  readonly stop_reason: string;
}

/** The payload of each kind of `provider/event`; those of `error` and `heartbeat` are not looked at. */
export interface StreamPayloads {
  readonly started: StreamStarted;
  readonly text_start: TextStart;
  readonly text_delta: TextDelta;
  readonly text_end: TextEnd;
  readonly reasoning_start: ReasoningStart;
  readonly reasoning_delta: ReasoningDelta;
  readonly reasoning_end: ReasoningEnd;
  readonly tool_call_start: ToolCallStart;
  readonly tool_call_args_delta: ToolCallArgsDelta;
  readonly tool_call_end: ToolCallEnd;
  readonly usage: Usage;
  readonly finished: Finished;
  readonly error: NonNullJson;
  readonly heartbeat: NonNullJson;
}

export interface HostRequests {
  readonly "hook/run": { readonly params: SessionHookParams; readonly result: SessionHookResult };
  readonly "initialize": { readonly params: InitializeRequest; readonly result: InitializeResponse };
  readonly "migration/detect": { readonly params: MigrationDetectParams; readonly result: MigrationDetectResult };
  readonly "migration/import": { readonly params: MigrationImportParams; readonly result: MigrationImportResult };
  readonly "provider/stream": { readonly params: ProviderStreamRequest; readonly result: ProviderStreamAccepted };
  readonly "shutdown": { readonly params: ShutdownParams; readonly result: ShutdownResult };
  readonly "tool/call": { readonly params: ToolCallParams; readonly result: ToolCallResult };
}

export interface HostNotifications {
  readonly "$/cancelRequest": { readonly params: CancelRequestParams };
  readonly "bus/event": { readonly params: BusEventParams };
  readonly "bus/lifecycle": { readonly params: BusLifecycleParams };
  readonly "provider/cancel": { readonly params: ProviderStreamCancelParams };
}

export interface ExtensionRequests {
  readonly "bus/declare": { readonly params: BusDeclareParams; readonly result: BusAck };
  readonly "bus/publish": { readonly params: BusPublishParams; readonly result: BusPublishResult };
  readonly "bus/subscribe": { readonly params: BusTopicParams; readonly result: BusSubscribeResult };
  readonly "bus/unsubscribe": { readonly params: BusTopicParams; readonly result: BusAck };
  readonly "provider/auth/request": { readonly params: ProviderAuthorizationRequest; readonly result: ProviderAuthorizationResult };
  readonly "provider/auth/revoke": { readonly params: ProviderAuthorizationRequest; readonly result: ProviderAuthorizationResult };
  readonly "providers/register": { readonly params: ProviderRegisterParams; readonly result: ProviderCatalogResult };
  readonly "providers/unregister": { readonly params: ProviderUnregisterParams; readonly result: ProviderCatalogResult };
  readonly "providers/update": { readonly params: ProviderUpdateParams; readonly result: ProviderCatalogResult };
  readonly "session/create": { readonly params: SessionCreateParams; readonly result: SessionLifecycleResult };
  readonly "session/fork": { readonly params: SessionForkParams; readonly result: SessionLifecycleResult };
  readonly "session/reload": { readonly params: SessionReloadParams; readonly result: SessionLifecycleResult };
  readonly "session/switch": { readonly params: SessionSwitchParams; readonly result: SessionLifecycleResult };
  readonly "theme/select": { readonly params: ThemeSelectParams; readonly result: ThemeSelectResult };
}

export interface ExtensionNotifications {
  readonly "$/cancelRequest": { readonly params: CancelRequestParams };
  readonly "provider/event": { readonly params: ProviderStreamEvent };
  readonly "providers/complete": { readonly params: ProviderCatalogCompleteParams };
}

/** The only pairs that an error may carry. */
export type ErrorPair =
  | { readonly code: -32700; readonly message: "parse error" }
  | { readonly code: -32600; readonly message: "invalid request" }
  | { readonly code: -32601; readonly message: "unknown or unnegotiated method" }
  | { readonly code: -32602; readonly message: "invalid params" }
  | { readonly code: -32603; readonly message: "internal error" }
  | { readonly code: -32010; readonly message: "extension API version mismatch" }
  | { readonly code: -32011; readonly message: "extension capability mismatch" }
  | { readonly code: -32012; readonly message: "extension resource exhausted" }
  | { readonly code: -32800; readonly message: "request cancelled" };
