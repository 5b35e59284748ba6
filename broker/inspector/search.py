"""The inspector's search line: ``kind:event topic:bus.board.* -who:noisy timeout``.

Words are separated by spaces and all of them must be met. ``kind:``, ``who:`` and ``topic:`` match a whole value, in
which ``*`` stands for anything; any other word is looked for in the record's text, upper and lower case alike. A ``-``
before a word turns it round.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fnmatch import translate
from typing import TYPE_CHECKING, Final

from broker.errors import UsageError

if TYPE_CHECKING:
    from broker.inspector.inspection import InspectedRecord

KEYS: Final = ("kind", "who", "topic")

_KEYED: Final = re.compile(r"([a-z]+):(.*)", re.DOTALL)


class Search:
    """One parsed search line; an empty one finds everything.

    Raises :class:`~broker.errors.UsageError` for a key that does not exist, or one without a value.
    """

    def __init__(self, text: str = "") -> None:
        self.text: str = text
        self._tests: list[tuple[Callable[[InspectedRecord], bool], bool]] = []
        for word in text.split():
            wanted = not (word.startswith("-") and len(word) > 1)
            self._tests.append((_test(word if wanted else word[1:]), wanted))

    def finds(self, entry: InspectedRecord) -> bool:
        """Whether every word is met by ``entry``."""
        return all(test(entry) is wanted for test, wanted in self._tests)


def _test(word: str) -> Callable[[InspectedRecord], bool]:
    keyed = _KEYED.fullmatch(word)
    if keyed is None or (keyed[1] not in KEYS and not keyed[2]):
        folded = word.casefold()
        return lambda entry: folded in _text(entry)
    key, pattern = keyed.groups()
    if key not in KEYS:
        raise UsageError(f"no key {key!a:.40}: a search knows {', '.join(f'{known}:' for known in KEYS)}", path=key)
    if not pattern:
        raise UsageError(f"{key}: needs a value, such as {key}:*", path=key)
    matches = re.compile(translate(pattern.replace("[", "[[]"))).fullmatch
    return lambda entry: matches(str(getattr(entry, key))) is not None


def _text(entry: InspectedRecord) -> str:
    return f"{entry.line()} {json.dumps(entry.record, ensure_ascii=False)}".casefold()
