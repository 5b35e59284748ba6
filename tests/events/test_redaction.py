"""Secrets are found wherever they stand and however they are written, and looking for them takes linear time."""

from __future__ import annotations

import base64
import copy
import json
import re
import time
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import ResourceExhaustedError, UsageError
from broker.wire.odek.events.redaction import REDACTED, Redactor, names_secret, secret_values

KNOWN = "Tr0ub4dor&3 é!"
SHAPELESS = Redactor()

# Made up, and put together here so that nobody's scanner takes this file for a leak.
TOKENS = {
    "openai": "sk" + "-" + "aB3" * 11,
    "openai-project": "sk" + "-proj-" + "aB3_" * 10,
    "groq": "gsk" + "_" + "a1" * 12,
    "xai": "xai" + "-" + "a1" * 12,
    "huggingface": "hf" + "_" + "aB" * 12,
    **{f"github-{letter}": f"gh{letter}" + "_" + "a1B2" * 9 for letter in "pousr"},
    "github-fine": "github" + "_pat_" + "a1B2_" * 9,
    "npm": "npm" + "_" + "a1B2" * 9,
    "gitlab": "glpat" + "-" + "a1B2" * 5,
    "pypi": "pypi" + "-" + "AgEI" * 10,
    "aws": "AKIA" + "ABCD2345" * 2,
    "slack": "xoxb" + "-123456789012-abcdef",
    "slack-hook": "hooks.slack.com/" + "services/T000/B000/abcdefghijkl",
    "stripe": "sk" + "_live_" + "a1B2" * 6,
    "google": "AI" + "za" + "a1B2-" * 7,
    "twilio": "SK" + "0123456789abcdef" * 2,
    "vault": "hvs" + "." + "a1B2" * 6,
    "sendgrid": "SG" + "." + "a1B2" * 5 + "." + "c3D4" * 10,
    "telegram": "123456789" + ":" + "a1B2-" * 7,
    "discord": "M" + "a1B2" * 6 + ".a1B2c3." + "a1B2" * 7,
    "jwt": "ey" + "JhbGciOiJIUzI1NiJ9" + "." + "eyJzdWIiOiIxIn0" + "." + "dBjftJeZ4CVP",
}


@pytest.mark.parametrize("name", TOKENS)
@pytest.mark.parametrize("around", ["{}", "a {} b", "({})", "x={},y", '"{}"', "line\\n{}\\n", "a%20{}%20"])
def test_tokens_of_known_makers(name: str, around: str) -> None:
    shown = SHAPELESS.redact(around.format(TOKENS[name]))
    expected = around.format(REDACTED)
    if name == "telegram":  # begins with digits, and takes those of an escape along
        expected, shown = expected.replace("%20[", "["), shown.replace("%[", "[")
    assert shown == expected


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abcdefgh12345", "Authorization: Bearer [REDACTED]"),
        ('{"authorization": "Basic dXNlcjpwYXNz"}', '{"authorization": "Basic [REDACTED]"}'),
        ("curl -H 'bearer abc.def.ghi~1'", "curl -H 'bearer [REDACTED]'"),
        ("postgres://me:p/w@db.example/x", "postgres://me:[REDACTED]@db.example/x"),
        ("redis://:hunter22@cache:6379/0", "redis://:[REDACTED]@cache:6379/0"),
        ("https://user:tok@example.test/p", "https://user:[REDACTED]@example.test/p"),
        ("http://example.test:80/a?x=b@c", "http://example.test:80/a?x=b@c"),
        ("DefaultEndpointsProtocol=https;AccountKey=" + "Ab+/" * 8 + ";x", None),
        ("password=" + "x" * 20, "password=[REDACTED]"),
        ("password=" + "x" * 19, "password=" + "x" * 19),
        ('API_KEY: "' + "a b" * 7 + '" rest', 'API_KEY: "[REDACTED]" rest'),
        ('{\\"api-key\\":\\"' + "k" * 24 + '\\"}', '{\\"api-key\\":\\"[REDACTED]\\"}'),
        ("client_secret = " + "s" * 20 + ", b", "client_secret = [REDACTED], b"),
        ("task-" + "a" * 40, "task-" + "a" * 40),
        ("risk-" + "a" * 40, "risk-" + "a" * 40),
        ("-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nafter", "[REDACTED]\nafter"),
        ("a -----BEGIN PGP PRIVATE KEY BLOCK-----\nx\n-----END PGP PRIVATE KEY BLOCK----- b", "a [REDACTED] b"),
        ("cut off: -----BEGIN PRIVATE KEY-----\nMIIEvQ", "cut off: [REDACTED]"),
        ("-----BEGIN PUBLIC KEY-----\nMII\n-----END PUBLIC KEY-----", None),
        ("", ""),
        ("plain text, nothing to hide", "plain text, nothing to hide"),
    ],
)
@pytest.mark.spec("odek.event.no-credentials")
def test_labelled_values_and_blocks(text: str, shown: str | None) -> None:
    if shown is None:
        shown = text.replace("Ab+/" * 8, REDACTED)
    assert SHAPELESS.redact(text) == shown


def known_forms(value: str) -> list[str]:
    data = value.encode()
    return [
        value,
        value[::-1],
        json.dumps(value)[1:-1],
        quote(value, safe=""),
        re.sub("%..", lambda found: found[0].lower(), quote(value, safe="")),
        data.hex(),
        data.hex().upper(),
        base64.b64encode(data).decode(),
        base64.b64encode(data).decode().rstrip("="),
        base64.urlsafe_b64encode(data).decode(),
    ]


@pytest.mark.parametrize("index", range(10))
def test_a_known_value_is_found_in_its_usual_forms(index: int) -> None:
    redactor = Redactor([KNOWN])
    form = known_forms(KNOWN)[index]
    assert redactor.redact(f"<{form}>") == f"<{REDACTED}>"
    assert SHAPELESS.redact(f"<{form}>") == f"<{form}>"


@given(st.binary(max_size=9), st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=12, max_size=24))
@settings(max_examples=60, deadline=None)
def test_a_known_value_inside_of_a_longer_base64_text(before: bytes, secret: str) -> None:
    text = base64.b64encode(before + secret.encode() + b"tail").decode()
    shown = Redactor([secret]).redact(text)
    assert REDACTED in shown
    # What is left beside it is what it shares with its neighbours.
    assert len(text) - len(shown) + len(REDACTED) >= len(secret) * 4 // 3 - 3


def test_what_two_findings_cover_together_is_gone() -> None:
    redactor = Redactor(["abcdefgh", "efghijkl"])
    assert redactor.redact("-abcdefghijkl-") == "-[REDACTED]-"
    assert redactor.redact("abcdefghefghijkl") == "[REDACTED][REDACTED]"
    assert Redactor(["inner-secret"]).redact("password=outer-inner-secret-outer") == "password=[REDACTED]"


def test_short_and_blank_values_are_no_secrets() -> None:
    redactor = Redactor(["", "   ", "1234567", " 12345678\n", "REDACTED"])
    assert redactor.redact("1234567 12345678 REDACTED") == "1234567 [REDACTED] REDACTED"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("OPENAI_API_KEY", True),
        ("api-key", True),
        ("GITHUBTOKEN", True),
        ("DB_PASS", True),
        ("AWS_CREDENTIALS", True),
        ("KEYBOARD", False),
        ("TOKENIZERS_PARALLELISM", False),
        ("PATH", False),
        ("SECRETARY", False),
    ],
)
def test_which_variables_are_secret(name: str, secret: bool) -> None:
    assert names_secret(name) is secret
    assert secret_values({name: "value"}) == (("value",) if secret else ())


@pytest.mark.spec("odek.event.redaction", "odek.event.caller-data")
def test_every_string_at_any_depth_and_the_value_stays() -> None:
    token = TOKENS["openai"]
    value: Any = {"a": [token, {"b": (f"x {token}", 7, True, None, 1.5)}], "list": [[[token]]], token: 1}
    before = copy.deepcopy(value)
    shown = SHAPELESS.redact_value(value)
    assert shown == {"a": [REDACTED, {"b": [f"x {REDACTED}", 7, True, None, 1.5]}], "list": [[[REDACTED]]], REDACTED: 1}
    assert value == before


def test_keys_that_become_alike_lose_no_member() -> None:
    first, second = TOKENS["openai"], TOKENS["groq"]
    assert SHAPELESS.redact_value({first: 1, second: 2}) == {REDACTED: 1, f"{REDACTED} 2": 2}


def test_what_is_no_json_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for value in (object(), b"bytes", float("nan"), float("inf"), endless):
        with pytest.raises(UsageError):
            SHAPELESS.redact_value(value)


def test_a_lone_surrogate_is_replaced() -> None:
    assert SHAPELESS.redact("x\ud835y") == "x\ufffdy"
    assert Redactor(["pass\ud835word"]).redact("pass\ud835word").encode()


def test_the_number_of_secrets_is_bounded() -> None:
    Redactor([f"secret-{n:04}" for n in range(1024)])
    with pytest.raises(ResourceExhaustedError) as caught:
        Redactor([f"secret-{n:04}" for n in range(1025)])
    assert (caught.value.limit, caught.value.observed, caught.value.maximum) == ("MAX_KNOWN_SECRETS", 1025, 1024)


HOSTILE = [
    "sk-", "sk-a ", "eyJ", "eyJaaaaaaaa.", "eyJaaaaaaaa.eyJaaaaaaaa ", "-----BEGIN PRIVATE KEY-----", "-----END ",
    "-----BEGIN A", "password=", "password: \"", "token=token='", "authorization:", "bearer ", "bearer bearer.",
    "://a:", "redis://a:b", "redis://:", "postgres://x:y/", "1234567:", "a.", "MMMM", "SG.", "SG.aaaaaaaaaaaaaaaa.",
    "AKIA", "gl", "glpat-", "x", " ", "\\n", "%20", "\\u0041", "accountkey=", "hooks.slack.com/services/", "=", "aaaa:",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_texts_take_linear_time(piece: str) -> None:
    # Quadratic work over half a million characters would take hours.
    redactor = Redactor(["a" * 40 + "b", "=" * 12, "password"])
    started = time.process_time()
    redactor.redact(piece * (500_000 // len(piece)))
    redactor.redact(piece[:3] * 100_000 + piece)
    assert time.process_time() - started < 10


@given(st.text(max_size=200), st.sampled_from(sorted(TOKENS.values())), st.text(max_size=50))
@settings(max_examples=100, deadline=None)
def test_a_token_between_spaces_never_survives(before: str, token: str, after: str) -> None:
    assert token not in SHAPELESS.redact(f"{before} {token} {after}")


@given(st.text(max_size=100))
@settings(deadline=None)
def test_redacting_again_changes_nothing(text: str) -> None:
    once = Redactor([KNOWN]).redact(text)
    assert Redactor([KNOWN]).redact(once) == once


@pytest.mark.parametrize("before", range(4060, 4100, 3))
def test_a_cut_text_shows_no_part_of_a_secret(before: int) -> None:
    for secret, redactor in ((TOKENS["openai"], SHAPELESS), (KNOWN * 20, Redactor([KNOWN * 20]))):
        text = "a" * before + " " + secret + " " + "b" * 50_000
        shown = redactor.redact(text, max_chars=4096)
        assert len(shown) <= 4096 and shown.endswith("…")
        assert not any(secret[:size] in shown for size in range(6, len(secret)))


def test_a_short_text_that_grows_by_its_redaction_is_cut() -> None:
    redactor = Redactor(["12345678"])
    assert redactor.redact("12345678 12345678", max_chars=17) == "[REDACTED] [REDA…"
    assert redactor.redact("12345678", max_chars=10) == "[REDACTED]"


def test_a_huge_text_takes_the_time_of_a_bounded_one() -> None:
    huge = "redis://:" * 2_000_000
    started = time.process_time()
    for _ in range(10):
        SHAPELESS.redact(huge, max_chars=4096)
    assert time.process_time() - started < 5


def test_remembering_innocent_texts_changes_nothing_and_is_bounded() -> None:
    redactor = Redactor([KNOWN])
    for _ in range(2):
        for number in range(1_500):
            assert redactor.redact(f"innocent {number}") == f"innocent {number}"
        assert redactor.redact(f"x {KNOWN}") == "x [REDACTED]"
        assert redactor.redact("innocent 7", max_chars=5) == "inno…"
        assert redactor.redact("://:x@") == "://:[REDACTED]@"
        assert redactor.redact("lone \ud800 one") == "lone \ufffd one"
