"""What a secret looks like when nobody said that it is one: prefixes of well-known tokens, key blocks, labelled values.

Each pattern takes time linear in the text, whatever it holds. Either a run is taken whole and never given back
(``{32,}+``), or what is tried at one place is bounded, or a place inside a run is no start. A pattern runs only over
texts that hold one of its words.

Source: odek notes, section 5.6.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from attrs import frozen

# After a letter or a digit nothing starts, unless they are the end of an escape: \n of JSON, %20 of a URI.
_START: Final = r"(?:(?<![A-Za-z0-9])|(?<=\\[bfnrt])|(?<=%[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4}))"
_RUN_START: Final = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[bfnrt])|(?<=%[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4}))"
_LABEL_WORDS: Final = (
    "password passwd passphrase pwd secret token credential apikey api_key api-key "
    "accesskey access_key access-key privatekey private_key private-key"
).split()
_DATABASES: Final = (
    "postgres postgresql mysql mariadb mongodb mongodb+srv redis rediss amqp amqps mssql sqlserver oracle clickhouse "
    "cockroachdb"
).split()


@frozen
class Shape:
    """One kind of secret. ``pattern`` matches it; where it has a group, the group alone is secret.

    ``words`` are texts of which one is in every match; those of a shape that ignores case are lower-case.
    """

    name: str
    words: tuple[str, ...]
    pattern: re.Pattern[str]

    def spans(self, text: str, folded: str) -> Iterator[tuple[int, int]]:
        """Where in ``text`` such secrets stand; ``folded`` is the text in lower case."""
        looked_at = folded if self.pattern.flags & re.IGNORECASE else text
        if any(word in looked_at for word in self.words):
            for found in self.pattern.finditer(text):
                yield found.span(found.lastindex or 0)


def _token(name: str, prefix: str, rest: str, *words: str) -> Shape:
    return Shape(name, words, re.compile(f"{_START}{prefix}{rest}"))


def _labelled(name: str, label: str, words: list[str]) -> Shape:
    quoted, bare = r"""\\?["']((?:[^"'\\\r\n]|\\(?!["'])){20,}+)""", r"""([^\s"'\\,;&]{20,}+)"""
    pattern = rf"""(?:{label})s?(?:\\?["'])?\s{{0,8}}[:=]\s{{0,8}}(?:{quoted}|{bare})"""
    return Shape(name, tuple(words), re.compile(pattern, re.IGNORECASE))


SHAPES: Final = (
    _token("OpenAI and alike", "sk-", r"[A-Za-z0-9_-]{32,}+", "sk-"),
    _token("Groq", "gsk_", r"[A-Za-z0-9]{20,}+", "gsk_"),
    _token("xAI", "xai-", r"[A-Za-z0-9_-]{20,}+", "xai-"),
    _token("HuggingFace", "hf_", r"[A-Za-z0-9]{20,}+", "hf_"),
    _token("GitHub", "gh[opsur]_", r"[A-Za-z0-9]{20,}+", "gho_", "ghp_", "ghs_", "ghu_", "ghr_"),
    _token("GitHub, fine-grained", "github_pat_", r"[A-Za-z0-9_]{20,}+", "github_pat_"),
    _token("npm", "npm_", r"[A-Za-z0-9]{20,}+", "npm_"),
    _token("GitLab", "gl[a-z]{2,8}-", r"[A-Za-z0-9_-]{16,}+", "gl"),
    _token("PyPI", "pypi-", r"[A-Za-z0-9_-]{32,}+", "pypi-"),
    _token("AWS key id", "A(?:KIA|SIA|BIA|CCA|GPA|IDA|ROA|IPA|NPA|NVA)", r"[A-Z0-9]{16}(?![A-Za-z0-9])", "A"),
    _token("Slack", "x(?:ox[abceoprs]|app)-", r"[A-Za-z0-9-]{10,}+", "xox", "xapp-"),
    _token("Slack hook", r"hooks\.slack\.com/(?:services|workflows)/", r"[A-Za-z0-9_/-]{16,}+", "hooks.slack.com/"),
    _token("Stripe", "(?:[prs]k_(?:live|test)|whsec)_", r"[A-Za-z0-9]{10,}+", "k_live_", "k_test_", "whsec_"),
    _token("Google", "(?:AIza|GOCSPX-)", r"[A-Za-z0-9_-]{24,}+", "AIza", "GOCSPX-"),
    _token("Google access token", r"ya29\.", r"[A-Za-z0-9_-]{16,}+", "ya29."),
    _token("Twilio", "(?:SK|AC)", r"[0-9a-f]{32}(?![0-9a-f])", "SK", "AC"),
    _token("Vault", r"hv[brs]\.", r"[A-Za-z0-9_-]{20,}+", "hvb.", "hvr.", "hvs."),
    _token("SendGrid", r"SG\.", r"[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+", "SG."),
    Shape("Telegram", (":",), re.compile(r"(?<![0-9])[0-9]{6,12}+:[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])")),
    Shape(
        "Discord",
        (".",),
        re.compile(rf"{_RUN_START}[MNO][A-Za-z0-9_-]{{23,27}}\.[A-Za-z0-9_-]{{6}}\.[A-Za-z0-9_-]{{27,}}+"),
    ),
    Shape(
        "JSON web token",
        ("eyJ",),
        re.compile(rf"{_RUN_START}eyJ[A-Za-z0-9_-]{{8,}}+\.[A-Za-z0-9_-]{{8,}}+\.[A-Za-z0-9_-]*+"),
    ),
    Shape(
        # One without its end is secret up to the end of the text.
        "private key block",
        ("PRIVATE KEY",),
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}?PRIVATE KEY(?: BLOCK)?-----(?:(?!-----END ).)*+(?:-----END [^-]{0,60}+-----)?",
            re.DOTALL,
        ),
    ),
    Shape(
        "Authorization",
        ("authorization", "bearer"),
        re.compile(
            r"""(?:authorization(?:\\?["'])?\s{0,8}[:=]\s{0,8}(?:\\?["'])?(?:[a-z]{1,16}\s{1,8})?([^\s"'\\,;]{8,}+)"""
            r"""|bearer\s{1,8}([A-Za-z0-9._~+/=-]{8,}+))""",
            re.IGNORECASE,
        ),
    ),
    Shape(
        "Azure",
        ("accountkey=", "accesskey="),
        re.compile(r"a(?:ccount|ccess)key=([A-Za-z0-9+/=]{20,}+)", re.IGNORECASE),
    ),
    Shape(
        "database with a password",
        ("://",),
        re.compile(
            rf"(?:{'|'.join(map(re.escape, _DATABASES))})://[^\s:/@]{{0,128}}+:([^\s\"']{{1,512}})@", re.IGNORECASE
        ),
    ),
    Shape("URI with a password", ("://",), re.compile(r"://[^\s:/@?#\"']{0,128}+:([^\s:/@?#\"']{1,512}+)@")),
    _labelled("labelled", "|".join(map(re.escape, _LABEL_WORDS)), _LABEL_WORDS),
)
"""Every shape. A text may have several, and what two of them find together is all secret."""
