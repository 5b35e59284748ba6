"""Calling one tool, of an extension or of an MCP server, and showing the answer."""

from __future__ import annotations

import asyncio
from typing import Any

from broker.adapters.aio import AsyncSession
from broker.cli.views import View
from broker.errors import BrokerError
from broker.host import records
from broker.wire.odek.events.run import OpenCall


async def call_once(
    session: AsyncSession,
    view: View,
    extension: str,
    tool: str,
    arguments: Any,
    timeout: float | None = None,
    *,
    opened: OpenCall | None = None,
) -> dict[str, Any]:
    """Call a tool and show the answer; gives its record, ``ok`` or not. ``opened`` is told how it ended."""
    failure: BaseException | None = None
    try:
        if extension in session.session.servers:
            output = await session.call_server(extension, tool, arguments, timeout=timeout)
            record = records.from_output(extension, tool, output)
        else:
            record = records.from_result(
                extension, tool, await session.call(extension, tool, arguments, timeout=timeout)
            )
    except BrokerError as error:
        failure = error
        record = records.from_error(extension, tool, error)
    except asyncio.CancelledError as error:
        if opened is not None:
            opened.failed(error)
        raise
    view.show(record)
    if opened is not None and record["ok"]:
        text = "".join(part.get("text", "") for part in record["content"])
        opened.completed(text, artifact_count=len(record.get("artifacts", ())))
    elif opened is not None:
        opened.failed(failure)
    return record
