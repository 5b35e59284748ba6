"""Approval tokens: proof, for the extension itself, that an intent was allowed a moment ago.

A token is 64 hexadecimal digits, belongs to one process generation and to one exact intent, is accepted once, and for
at most five minutes. Source: octet notes, section 5 (``policy/evaluate``).
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import Any

import orjson

from broker.clock import Clock
from broker.errors import InvalidParamsError
from broker.limits import APPROVAL_TOKEN_MS, MAX_APPROVAL_TOKENS


class ApprovalTokens:
    """The unused tokens of one process generation; the oldest are forgotten when there are more than 256."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._issued: OrderedDict[str, tuple[int, bytes]] = OrderedDict()

    def issue(self, intent: dict[str, Any]) -> str:
        """A new token for ``intent``."""
        token = secrets.token_hex(32)
        self._issued[token] = (self._clock.monotonic_ms() + APPROVAL_TOKEN_MS, _form(intent))
        while len(self._issued) > MAX_APPROVAL_TOKENS:
            self._issued.popitem(last=False)
        return token

    def redeem(self, token: str, intent: dict[str, Any]) -> None:
        """Use ``token`` up. Raises :class:`~broker.errors.InvalidParamsError` unless it is good for ``intent``.

        A token that is presented for another intent is used up as well: whoever mixes them up should ask again.
        """
        until, form = self._issued.pop(token, (-1, b""))
        if form != _form(intent) or self._clock.monotonic_ms() > until:
            raise InvalidParamsError("the approval token is unknown, used, expired or another's", path="approval_token")


def _form(intent: dict[str, Any]) -> bytes:
    return orjson.dumps(intent, option=orjson.OPT_SORT_KEYS)
