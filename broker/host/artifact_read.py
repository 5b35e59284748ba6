"""``artifact_read``: the tool by which a model reads an artifact of its session, by id and never by path.

A host offers :func:`artifact_read_tool` beside its other tools and answers a call of it with :func:`artifact_read`.
It is a tool of the parent: a sub-agent is not offered it. Source: odek notes, section 8.5.
"""

from __future__ import annotations

import base64
import codecs
import json
import secrets
from typing import Any

from attrs import frozen

from broker.errors import BrokerError
from broker.host.artifacts import ArtifactRegistry, ArtifactWindow
from broker.limits import ARTIFACT_READ_DEFAULT_BYTES, MAX_ARTIFACT_READ_BYTES
from broker.wire.jsonrpc import json_type
from broker.wire.odek.rendering import flat
from broker.wire.odek.untrusted import wrap_untrusted_from


def artifact_read_tool() -> dict[str, Any]:
    """The tool as a model is told of it, in the form of a ``tools/list``."""
    return {
        "name": "artifact_read",
        "description": "Read part of an artifact by its id. What cannot be shown as text is given in base64.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "id": {"type": "string"},
                "offset": {"type": "integer", "minimum": 0, "default": 0},
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_ARTIFACT_READ_BYTES,
                    "default": ARTIFACT_READ_DEFAULT_BYTES,
                },
            },
            "required": ["id"],
        },
    }


@frozen
class ArtifactReadResult:
    """What the tool answers. With ``is_error`` the text is an object with ``error``, and nothing of a file is in it."""

    text: str
    is_error: bool = False


def artifact_read(registry: ArtifactRegistry, arguments: Any) -> ArtifactReadResult:
    """Answer a call: the window that was asked for, verified anew, wrapped as somebody else's words.

    A line before it says which bytes these are and where the next begin. A window that would cut a character ends
    before it. Unknown arguments are ignored. Blocks on the file; raises nothing that a model or a file can cause.
    """
    if not isinstance(arguments, dict):
        return _failure(f"arguments must be an object, not {json_type(arguments)}")
    given = {key: value for key in ("offset", "limit") if (value := arguments.get(key)) is not None}
    try:
        window = registry.read(arguments.get("id", ""), **given)
    except BrokerError as error:
        return _failure(str(error))
    return ArtifactReadResult(_shown(window))


def _failure(problem: str) -> ArtifactReadResult:
    return ArtifactReadResult(json.dumps({"error": problem}), is_error=True)


def _shown(window: ArtifactWindow) -> str:
    text, taken = _text(window)
    end = window.offset + taken
    facts = f"{flat(window.media_type)}, bytes {window.offset} to {end} of {window.size}"
    if text is None:
        facts, text = f"{facts}, in base64", base64.b64encode(window.data).decode()
    if end < window.size:
        facts = f"{facts}, more from offset {end}"
    body = wrap_untrusted_from(f"artifact:{window.id}", text, nonce=secrets.token_hex(8))
    return f"artifact {json.dumps(flat(window.id), ensure_ascii=False)} ({facts})" + (f"\n{body}" if body else "")


def _text(window: ArtifactWindow) -> tuple[str | None, int]:
    """The window as text, without a character that it cuts, and how many bytes that are; ``None`` if it is none."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(window.data, final=window.at_end)
    except UnicodeDecodeError:
        return None, len(window.data)
    taken = len(window.data) - len(decoder.getstate()[0])
    return (text, taken) if taken or not window.data else (None, len(window.data))
