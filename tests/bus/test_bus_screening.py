"""Screening: what may not travel in a value, what resembles it and may, and how long it takes."""

from __future__ import annotations

import pytest

from broker import Bus, Field, Peer
from broker.bus.screening import refusal
from broker.errors import InvalidParamsError

MEBIBYTE = 1_048_576

CONTROL = "contains a control character"
AT = "contains '@'"
ABSOLUTE = "is an absolute path"
HOME = "is a path in a home directory"
DRIVE = "is a drive path"
PEM = "looks like a PEM block"
TOKEN = "looks like an access token"
PHONE = "looks like a phone number"
BEARER = "looks like a bearer credential"


def expect(reason: str, *texts: str) -> None:
    assert [(text, refusal(text)) for text in texts] == [(text, reason) for text in texts]


def passes(*texts: str) -> None:
    assert [(text, refusal(text)) for text in texts] == [(text, None) for text in texts]


@pytest.mark.spec("octet.bus.screen-control")
def test_control_characters() -> None:
    expect(CONTROL, *(f"a{chr(code)}b" for code in (*range(0x20), *range(0x7F, 0xA0))), "\n", "a\r\n", "\x1b[2J")
    passes("a b", "a\xa0b", "a\xadb", "a\u2028b", "a\u200bb", "a\ufeffb", "e\u0301")


@pytest.mark.spec("octet.bus.screen-at")
def test_the_at_sign() -> None:
    expect(AT, "@", "a@b", "me@example.org", "@here", "see @", "é@")
    passes("at", "a(at)b", "\uff20")


@pytest.mark.spec("octet.bus.screen-path")
def test_paths() -> None:
    expect(ABSOLUTE, "/", "/etc/hosts", "//server/x", "  /etc", "\u3000/etc ", "\\\\server\\share")
    expect(HOME, "~", "~/x", " ~/x", "~\\x", "~root/x", "~a.b-c_d\\x", "~ ")
    expect(DRIVE, "C:\\x", "c:/x", "  Z:/", "C:\\")
    passes(
        "etc/hosts",
        "./x",
        "../x",
        "a /etc",
        "a\\b",
        "\\x",
        "~5 minutes",
        "~x",
        "C:",
        "C:x",
        "1:/x",
        "ab:/x",
        "http://x",
    )


@pytest.mark.spec("octet.bus.screen-pem")
def test_armoured_keys() -> None:
    expect(PEM, "-----BEGIN", "-----begin x", "x -----BeGiN RSA", "------BEGIN-----")
    passes("----BEGIN", "-----END", "begin -----", "----- begin")


@pytest.mark.spec("octet.bus.screen-bearer")
def test_bearer_credentials() -> None:
    expect(BEARER, "bearer x", "Bearer ", "xBEARER y", "a bearer\u3000b", "the bearer of news")
    passes("bearer", "bearers of news", "bearer-x", "bear er", "forbearer.")


@pytest.mark.spec("octet.bus.screen-token")
@pytest.mark.parametrize(
    "prefix",
    [
        "sk",
        "pk",
        "rk",
        "ghp",
        "gho",
        "ghu",
        "ghs",
        "github_pat",
        "xoxa",
        "xoxb",
        "xoxp",
        "xoxr",
        "xoxs",
        "SK",
        "Ghp",
        "XOXB",
    ],
)
def test_access_tokens(prefix: str) -> None:
    expect(
        TOKEN,
        f"{prefix}-12345678",
        f"{prefix}_12345678",
        f"use {prefix}-abcdEFGH9 now",
        f"({prefix}_a-b_c-d9)",
        f"é{prefix}-12345678",
        f"my_{prefix}-12345678",
    )
    passes(f"{prefix}-1234567", f"{prefix}_1234567", f"{prefix}-1234 5678", f"{prefix}12345678", f"{prefix}.12345678")
    passes(f"a{prefix}-12345678", f"9{prefix}_12345678")


@pytest.mark.spec("octet.bus.screen-phone")
def test_telephone_numbers() -> None:
    expect(PHONE, "1 234567", "+1234567", "+1 (234) 5", "0151-2345", "12345678-", "12.34.56", " 555 1234 ", "1 -+().23")
    passes(
        "1 23456", "+123456", "12345678", "123456789012", "(1) 23456", "-1234567", "1 23456x", "1/234567", "x1 234567"
    )
    passes("1234567", " 1 23456 ", " 12345678 ", "+", "++1234567", "1,234,567", "12:34:56")


@pytest.mark.spec("octet.bus.screen-lookalikes")
def test_ordinary_text_passes() -> None:
    passes(
        "", " ", "green", "All 312 tests passed.", "task-force-alpha", "disk_usage_high", "1.2.3", "risk-assessment-12",
        "desk_number_12345678", "50% done (3/6)", "src/broker/bus.py:12: error", "naïve café", "日本語のテキスト",
        "😀 done", 'say "yes" \\ no', "a_b-c", "2024-01", "v10.20.30", "sk", "--begin", "x - y",
        "key=value; other=1", "-5", "{}", "c'est",
    )  # fmt: skip


@pytest.mark.spec("octet.bus.screen-linear")
@pytest.mark.parametrize(
    "text",
    [
        "-" * MEBIBYTE,
        "-----begi" * (MEBIBYTE // 9),
        "sk-1234567 " * (MEBIBYTE // 11),
        "sk-" * (MEBIBYTE // 3) + " ",
        "github_pat_" * (MEBIBYTE // 11) + "!",
        "1 " * (MEBIBYTE // 2) + "x",
        "+" + "(" * MEBIBYTE,
        "~" + "a" * MEBIBYTE,
        "~" + "a.-_" * (MEBIBYTE // 4) + " ",
        "beare " * (MEBIBYTE // 6),
        "bearer" * (MEBIBYTE // 6),
        " " * MEBIBYTE + "x ",
        "\u3000" * MEBIBYTE,
        "a_" * (MEBIBYTE // 2),
        "xox" * (MEBIBYTE // 3) + "-",
    ],
    ids=lambda text: f"{text[:12].strip()}...",
)
def test_a_mebibyte_of_hostile_text_is_screened_in_one_pass(text: str) -> None:
    # Quadratic work over a mebibyte would take hours, so the time limit of every test says it all.
    refusal(text)


@pytest.fixture
def talker(bus: Bus) -> Peer:
    talker = bus.attach("talker")
    talker.declare("bus.talker.said", [Field.string("text")])
    return talker


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a\tb", CONTROL), ("me@here", AT), (" /etc", ABSOLUTE), ("~/x", HOME), ("c:\\x", DRIVE), ("-----BEGIN X", PEM),
        ("ghp_12345678", TOKEN), ("+1 2345678", PHONE), ("Bearer abc", BEARER),
    ],
)  # fmt: skip
def test_a_screened_value_is_invalid_params_with_its_path(talker: Peer, text: str, reason: str) -> None:
    with pytest.raises(InvalidParamsError) as caught:
        talker.publish("bus.talker.said", {"text": text})
    assert [(fault.path, fault.problem) for fault in caught.value.faults] == [("payload.text", reason)]
    assert text not in str(caught.value)
    talker.publish("bus.talker.said", {"text": "harmless"})
