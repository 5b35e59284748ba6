"""What somebody may have meant who gave a name that there is not."""

from __future__ import annotations

from collections.abc import Iterable

from broker.limits import MAX_COMPARED_NAME_CHARS, MAX_LISTED_NAMES
from broker.wire.quoting import escape


def suggestion(name: object, known: Iterable[str], *, listed: str = "known are") -> str:
    """The end of an error text: the known name that is closest to ``name``, or else the first of those known.

    Names may be a peer's; they are escaped.
    """
    from difflib import get_close_matches

    names = [text[:MAX_COMPARED_NAME_CHARS] for text in known]
    if found := get_close_matches(str(name)[:MAX_COMPARED_NAME_CHARS], names, n=1):
        return f"; did you mean {escape(found[0])}?"
    more = f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
    return f"; {listed} {', '.join(map(escape, names[:MAX_LISTED_NAMES])) or 'none'}{more}"
