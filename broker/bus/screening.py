"""What a bus name or string may not contain, so that a payload stays inert: no secrets, addresses, paths or controls.

Rules: design, "The bus", and the octet reference, ``BusFieldSpec``. Everything runs in linear time. The rules are few
and the strings mostly harmless, so each expensive test stands behind a cheap one.
"""

from __future__ import annotations

import re
from typing import Final

from broker.limits import MIN_BUS_PHONE_CHARS, MIN_BUS_TOKEN_CHARS

FORBIDDEN_NAME_FRAGMENTS: Final = (
    "apikey",
    "authorization",
    "capability",
    "credential",
    "cookie",
    "handle",
    "keychain",
    "oauth",
    "passwd",
    "password",
    "path",
    "pem",
    "private",
    "secret",
    "session",
    "token",
    "trust",
)

_NOT_ALPHANUMERIC = re.compile(r"[^a-z0-9]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_HOME = re.compile(r"~(?:[/\\]|\Z|[A-Za-z0-9._-]++[/\\])")
_DRIVE = re.compile(r"[A-Za-z]:[/\\]")
_CASES_OF_ASCII = (("\u0130", "i"), ("\u0131", "i"), ("\u017f", "s"), ("\u212a", "k"))
# For lower-cased text. A prefix counts at the start of a word only: "disk-capacity-report" is no "sk-..." key. Each
# pattern begins with a letter or more that it can be searched for by, and looks back from there.
_BEARER = re.compile(r"bearer\s")
_TAIL = rf"[a-z0-9_-]{{{MIN_BUS_TOKEN_CHARS}}}"
_TOKENS = (
    ("k", re.compile(rf"k[-_](?<![a-z0-9].k[-_])(?<=[spr]k[-_]){_TAIL}", re.DOTALL)),
    ("gh", re.compile(rf"gh[pous][-_](?<![a-z0-9]gh.[-_]){_TAIL}", re.DOTALL)),
    ("github_pat", re.compile(rf"github_pat[-_](?<![a-z0-9]github_pat[-_]){_TAIL}")),
    ("xox", re.compile(rf"xox[abprs][-_](?<![a-z0-9]xox.[-_]){_TAIL}", re.DOTALL)),
)
_PHONE = re.compile(r"\+?[0-9][0-9+ ().-]*")
_PHONE_SEPARATOR = re.compile(r"[+ ().-]")


def forbidden_fragment(name: str) -> str | None:
    """The forbidden fragment in a field name (letters and digits only, lower-cased), or None."""
    plain = _NOT_ALPHANUMERIC.sub("", name.lower())
    for fragment in FORBIDDEN_NAME_FRAGMENTS:
        if fragment in plain:
            return fragment
    return None


def refusal(text: str) -> str | None:
    """Why a string may not travel over the bus, or None. A string of letters and digits alone is always fine."""
    if text.isalnum() or not text:
        return None
    # The only white space that is printable is the space.
    blanks = "r " in text or "R " in text
    if not text.isprintable():
        if _CONTROL.search(text):
            return "contains a control character"
        blanks = True
    if "@" in text:
        return "contains '@'"
    if ":" in text or not text[0].isalpha():
        reason = _address_like(text.strip())
        if reason is not None:
            return reason
    hyphen, underscore = text.find("-"), text.find("_")
    if hyphen >= 0 or underscore >= 0:
        first = hyphen if underscore < 0 or 0 <= hyphen < underscore else underscore
        if len(text) - first > MIN_BUS_TOKEN_CHARS:
            lower = _lower(text)
            if "-----begin" in lower:
                return "looks like a PEM block"
            for letters, token in _TOKENS:
                if letters in lower and token.search(lower):
                    return "looks like an access token"
    if blanks and "bearer" in (lower := _lower(text)) and _BEARER.search(lower):
        return "looks like a bearer credential"
    return None


def _lower(text: str) -> str:
    """``text`` in lower case, with the four letters beyond ASCII that are another case of one within."""
    if not text.isascii():
        for letter, ascii_letter in _CASES_OF_ASCII:
            text = text.replace(letter, ascii_letter)
    return text.lower()


def _address_like(trimmed: str) -> str | None:
    """Why a string that does not begin with a word is a path or a phone number, or None."""
    first = trimmed[:1]
    if first == "/" or trimmed[:2] == "\\\\":
        return "is an absolute path"
    if first == "~" and _HOME.match(trimmed):
        return "is a path in a home directory"
    if trimmed[1:2] == ":" and _DRIVE.match(trimmed):
        return "is a drive path"
    if (
        (first == "+" or first.isdigit())
        and len(trimmed) >= MIN_BUS_PHONE_CHARS
        and _PHONE.fullmatch(trimmed)
        and _PHONE_SEPARATOR.search(trimmed)
    ):
        return "looks like a phone number"
    return None
