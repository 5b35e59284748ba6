"""The results of a server's tools, by rule: content, envelopes, references to files."""

from __future__ import annotations

from typing import Any, Final

from broker.conform.mcp.bench import McpBench
from broker.errors import ArtifactError, BrokerError, ResultError
from broker.limits import MAX_ARTIFACT_FIELD_CHARS
from broker.wire.jsonrpc import json_type
from broker.wire.odek.artifact_ref import ArtifactRef, read_ref
from broker.wire.odek.envelope import RESULT_SCHEMA, Envelope, detect
from broker.wire.odek.result import read_result
from broker.wire.quoting import INVISIBLE_CHARACTER, quote

_MEMBERS: Final = {
    "text": (("text", str),),
    "image": (("data", str), ("mimeType", str)),
    "audio": (("data", str), ("mimeType", str)),
    "resource": (("resource", dict),),
    "resource_link": (("uri", str), ("name", str)),
}
_REF: Final = "odek.artifact-ref."
_REF_RULES: Final = tuple(
    _REF + word
    for word in (
        *("schema", "required", "id-unique", "uri-scheme", "path-clean", "inside-root", "regular-file", "size-match"),
        *("hash-match", "one-line"),
    )
)


def judge_result(bench: McpBench, tool: str, result: Any) -> None:
    """A result of ``tools/call``: shape, content, length, and what it refers to."""
    findings, shown = bench.findings, f"result of tool {quote(tool)}"
    if not _judge_shape(bench, shown, result):
        return
    texts = [item["text"] for item in result["content"] if item.get("type") == "text" and type(item.get("text")) is str]
    envelopes: list[Envelope] = []
    for text in texts:
        try:
            envelope = detect(text)
        except ResultError as error:
            count = error.limit == "MAX_ARTIFACTS"
            rule = "odek.envelope.artifact-count" if count else "odek.envelope.malformed-claim"
            findings.failed(rule, f"{shown}: {error}")
            return
        if envelope is not None:
            envelopes.append(envelope)
        elif f'"{RESULT_SCHEMA}"' in text:
            findings.failed(
                "odek.envelope.single-item", f"{shown}: an envelope with something around it: {quote(text)}"
            )
            return
    if envelopes:
        for rule in ("odek.envelope.malformed-claim", "odek.envelope.artifact-count"):
            findings.passed(rule)
        alone = len(texts) == 1
        findings.judge("odek.envelope.single-item", alone, f"{shown}: an envelope among {len(texts)} text items")
        is_error = result.get("isError") is True
        findings.judge("odek.envelope.is-error-envelope", not is_error, f"{shown}: isError beside an envelope")
        _judge_refs(bench, shown, [ref for envelope in envelopes for ref in envelope.artifacts])
    _judge_length(bench, tool, result)


def _judge_shape(bench: McpBench, shown: str, result: Any) -> bool:
    findings, rule = bench.findings, "odek.limits.result-malformed"
    content = result.get("content") if isinstance(result, dict) else None
    problem = None
    if not isinstance(result, dict):
        problem = f"must be an object, not {json_type(result)}"
    elif not isinstance(content, list):
        problem = "content is missing" if "content" not in result else f"content is {json_type(content)}, not an array"
    elif "isError" in result and type(result["isError"]) is not bool:
        problem = f"isError is {json_type(result['isError'])}, not a boolean"
    if problem is not None:
        findings.failed(rule, f"{shown}: {problem}")
        return False
    findings.passed(rule)
    for index, item in enumerate(content or ()):
        problem = _item_problem(item)
        what = f"{shown}: content[{index}] {problem}"
        findings.judge("odek.server.content-items", problem is None, what)
        if not isinstance(item, dict):
            return False
    return True


def _item_problem(item: Any) -> str | None:
    if not isinstance(item, dict):
        return f"is {json_type(item)}, not an object"
    kind = item.get("type")
    members = _MEMBERS.get(kind) if isinstance(kind, str) else None
    if members is None:
        return f"has the type {quote(repr(kind))}"
    for name, expected in members:
        if not isinstance(item.get(name), expected):
            found = json_type(item[name]) if name in item else "missing"
            return f"of type {kind}: {name} is {found}"
    return None


def _judge_length(bench: McpBench, tool: str, result: dict[str, Any]) -> None:
    """How long the result is as a model would be shown it; what is wrong with it otherwise was said already."""
    limit = bench.config.max_result_chars
    try:
        output = read_result(
            result, server=bench.config.name, tool=tool, max_result_chars=limit, verify=lambda ref: None
        )
    except BrokerError:
        return
    what = f"result of tool {quote(tool)}: {output.observed_chars} characters, max_result_chars is {limit}"
    bench.findings.judge("odek.server.result-within-limit", not output.truncated, what)


# -- references --------------------------------------------------------------------------------------------------------


def _judge_refs(bench: McpBench, shown: str, values: list[Any]) -> None:
    findings = bench.findings
    if not values:
        return
    seen: set[str] = set()
    for index, value in enumerate(values):
        try:
            ref = read_ref(value, place=f"artifacts[{index}]")
        except ArtifactError as error:
            findings.failed(_REF + _shape_word(error), f"{shown}: {error}")
            continue
        if ref.id in seen:
            findings.failed(_REF + "id-unique", f"{shown}: the id {quote(ref.id)} stands twice")
        seen.add(ref.id)
        for name, text in (("id", ref.id), ("media_type", ref.media_type), ("summary", ref.summary or "")):
            if len(text) > MAX_ARTIFACT_FIELD_CHARS or INVISIBLE_CHARACTER.search(text):
                findings.failed(_REF + "one-line", f"{shown}: {name} of artifact {quote(ref.id)}: {quote(text)}")
        _verify(bench, shown, ref)
    for rule in _REF_RULES:
        findings.passed(rule)


def _verify(bench: McpBench, shown: str, ref: ArtifactRef) -> None:
    try:
        bench.roots.verify(ref)
    except ArtifactError as error:
        bench.findings.failed(_REF + _file_word(str(error)), f"{shown}: {error}")


def _shape_word(error: ArtifactError) -> str:
    member = (error.path or "").rpartition(".")[2]
    if member == "uri" and not str(error).endswith(("is missing", "must not be empty")) and "string" not in str(error):
        return "path-clean" if "not clean" in str(error) or "NUL" in str(error) else "uri-scheme"
    return {"schema": "schema", "sha256": "hash-match", "size_bytes": "size-match", "summary": "one-line"}.get(
        member, "required"
    )


def _file_word(text: str) -> str:
    problem = text.rpartition("': ")[2]
    if "digest" in problem:
        return "hash-match"
    if "declared are" in problem or "are accepted" in problem:
        return "size-match"
    return "inside-root" if "artifact root" in problem else "regular-file"
