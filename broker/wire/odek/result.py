"""From the result object of ``tools/call`` to the text a model is shown: decode, detect, verify, render, cut.

Everything fails closed and as a whole. References are all verified before anything is rendered, rendering comes before
cutting, and errors go through the same bounds as results. Files are looked at by the ``verify`` that a host passes in.

Source: odek contract, "Timeout and limit behavior", "Tool-result envelope" and "Artifact-ref schema"; odek notes,
sections 4.1 to 4.6; design, "Decisions on odek-extension/v1".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import orjson
from attrs import frozen

from broker.errors import ArtifactError, BrokerError, CanonicalError, McpError, ResultError
from broker.wire.jsonrpc import json_type
from broker.wire.odek.artifact_ref import ArtifactRef, read_ref
from broker.wire.odek.envelope import Envelope, check_artifact_count, detect
from broker.wire.odek.rendering import Bounds, Rendered, render, shown_id
from broker.wire.quoting import quote, scalar

Verify: TypeAlias = Callable[[ArtifactRef], None]
"""Checks the file of a reference; raises a :class:`~broker.errors.BrokerError` to refuse it."""

_UNKNOWN_ERROR: Final = "unknown error"


@frozen
class ToolOutput:
    """What a tool call came to. ``is_error``: the tool says that it failed, and ``text`` says how.

    ``text`` keeps the limit; ``observed_chars`` is what there would have been without it. ``artifact_count`` is the
    number of ``artifacts`` and never taken from the text. These are verified; their paths are not in the text.
    ``artifact_ids`` is filled in by a host: the id under which each can be read, another than shown if that was taken.
    """

    text: str
    artifact_count: int
    artifacts: tuple[ArtifactRef, ...]
    truncated: bool
    observed_chars: int
    is_error: bool
    artifact_ids: tuple[str, ...] = ()


def read_result(
    result: Any, *, server: str, tool: str, max_result_chars: int, verify: Verify | None = None
) -> ToolOutput:
    """The output of a result object as a server sent it.

    ``verify`` checks the file of each reference; ``None`` stands for a server without artifact roots, none of whose
    references is accepted. Raises :class:`~broker.errors.ResultError` for a result or an envelope of the wrong shape
    and :class:`~broker.errors.ArtifactError` for a reference, or what ``verify`` raises; each names server and tool.
    """
    bounds = Bounds(server, tool, max_result_chars)
    try:
        return _read(result, bounds, verify)
    except BrokerError as error:
        # Whoever found the fault knows what is wrong, not whose result it is.
        error.extension, error.tool = server, tool
        error.args = (f"{server}: tool {tool}: {error}",)
        raise


def read_error(error: McpError, *, server: str, tool: str, max_result_chars: int) -> ToolOutput:
    """The output of a call that the server answered with an error: its code and its whole message, within the limit."""
    bounds = Bounds(server=server, tool=tool, max_result_chars=max_result_chars)
    code = "" if error.rpc_code is None else f" {error.rpc_code}"
    return _output(render(scalar(f"error{code}: {error.rpc_message}"), (), "", bounds), is_error=True)


def _read(result: Any, bounds: Bounds, verify: Verify | None) -> ToolOutput:
    texts, is_error, unshown = _decode(result)
    envelopes, plain = _split(texts)
    if is_error:
        # An envelope is shown by its text alone: what it refers to is not delivered, so nobody may learn where it is.
        shown = "\n".join(text for text in (*(envelope.text for envelope in envelopes), *plain) if text)
        return _output(render(shown or _UNKNOWN_ERROR, (), "", bounds, unshown=unshown), is_error=True)
    if not envelopes:
        return _output(render("\n".join(plain), (), "", bounds, unshown=unshown))
    refs = _read_refs([artifact for envelope in envelopes for artifact in envelope.artifacts])
    if refs and verify is None:
        raise ArtifactError(
            f"artifact {quote(refs[0].id)}: the server has no artifact roots, so that no reference is accepted",
            artifact=refs[0].id,
        )
    for ref in refs:
        assert verify is not None
        _verify(ref, verify)
    text = "\n".join(envelope.text for envelope in envelopes if envelope.text)
    extra = "\n".join(item for item in plain if item.strip())
    return _output(render(text, refs, extra, bounds, unshown=unshown), refs)


def _decode(result: Any) -> tuple[list[str], bool, int]:
    """The texts of a result, whether it is an error, and the characters that count without being shown."""
    if not isinstance(result, dict):
        raise ResultError(f"a result must be an object, not {json_type(result)}")
    content, is_error = result.get("content"), result.get("isError")
    if content is None:
        content = []
    if type(content) is not list:
        raise ResultError(f"content must be an array, not {json_type(content)}", path="content")
    if is_error is not None and type(is_error) is not bool:
        raise ResultError(f"isError must be a boolean, not {json_type(is_error)}", path="isError")
    texts = []
    for index, item in enumerate(content):
        if not isinstance(item, dict):
            path = f"content[{index}]"
            raise ResultError(f"{path} must be an object, not {json_type(item)}", path=path)
        if item.get("type") != "text":
            continue
        text = item.get("text")
        if text is None:
            text = ""
        if type(text) is not str:
            path = f"content[{index}].text"
            raise ResultError(f"{path} must be a string, not {json_type(text)}", path=path)
        texts.append(scalar(text))
    structured = result.get("structuredContent")
    return texts, is_error is True, 0 if structured is None else _structured_chars(structured)


def _structured_chars(value: Any) -> int:
    """The characters of structured content. It is not shown, but its tool produced it: it counts."""
    try:
        return len(orjson.dumps(value).decode())
    except orjson.JSONEncodeError as error:
        raise ResultError(f"structuredContent cannot be read: {error}", path="structuredContent") from error


def _split(texts: Sequence[str]) -> tuple[list[Envelope], list[str]]:
    """The envelopes among the text items, and the items that are none. Items may be one envelope only together."""
    if len(texts) == 1:
        envelope = detect(texts[0])
        return ([], [*texts]) if envelope is None else ([envelope], [])
    if texts:
        try:
            joined = detect("\n".join(texts))
        except ResultError as error:
            # An envelope with a note behind it is no JSON as a whole; its items decide.
            if not isinstance(error.__cause__, CanonicalError):
                raise
            joined = None
        if joined is not None:
            return [joined], []
    envelopes: list[Envelope] = []
    plain: list[str] = []
    for text in texts:
        envelope = detect(text)
        if envelope is None:
            plain.append(text)
        else:
            envelopes.append(envelope)
    check_artifact_count(sum(len(envelope.artifacts) for envelope in envelopes))
    return envelopes, plain


def _read_refs(artifacts: Sequence[Any]) -> tuple[ArtifactRef, ...]:
    refs = tuple(read_ref(artifact, place=f"artifacts[{index}]") for index, artifact in enumerate(artifacts))
    seen: dict[str, int] = {}
    for index, ref in enumerate(refs):
        # What is shown alike would be asked for alike.
        first = seen.setdefault(shown_id(ref), index)
        if first != index:
            path = f"artifacts[{index}].id"
            raise ArtifactError(
                f"{path}: {quote(ref.id)} is also the id of artifacts[{first}]", artifact=ref.id, path=path
            )
    return refs


def _verify(ref: ArtifactRef, verify: Verify) -> None:
    try:
        verify(ref)
    except ArtifactError as error:
        error.artifact = ref.id
        if quote(ref.id) not in str(error):
            error.args = (f"artifact {quote(ref.id)}: {error}",)
        raise


def _output(rendered: Rendered, refs: tuple[ArtifactRef, ...] = (), *, is_error: bool = False) -> ToolOutput:
    return ToolOutput(rendered.text, len(refs), refs, rendered.truncated, rendered.observed, is_error)
