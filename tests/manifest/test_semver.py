"""Versions and requirements, by example and against each other."""

from __future__ import annotations

from itertools import pairwise

import pytest

from broker.errors import InvalidParamsError
from broker.wire.octet.semver import Requirement, Version


@pytest.mark.spec("octet.manifest.requires-octet")
@pytest.mark.parametrize(
    ("requirement", "accepted", "refused"),
    [
        ("=0.8.0", "0.8.0", "0.8.1"),
        ("=0.8", "0.8.9", "0.9.0"),
        ("=1", "1.9.9", "2.0.0"),
        (">0.8", "0.9.0", "0.8.99"),
        (">0.8.0", "0.8.1", "0.8.0"),
        (">=0.8", "0.8.0", "0.7.9"),
        ("<0.8", "0.7.9", "0.8.0"),
        ("<0.8.1", "0.8.0", "0.8.1"),
        ("<=0.8", "0.8.99", "0.9.0"),
        ("<=0.8.0", "0.8.0", "0.8.1"),
        ("~1.2.3", "1.2.9", "1.3.0"),
        ("~1.2.3", "1.2.3", "1.2.2"),
        ("~1.2", "1.2.0", "1.3.0"),
        ("~1", "1.9.0", "2.0.0"),
        ("^1.2.3", "1.9.0", "2.0.0"),
        ("^1.2.3", "1.2.3", "1.2.2"),
        ("^0.2.3", "0.2.9", "0.3.0"),
        ("^0.0.3", "0.0.3", "0.0.4"),
        ("^0.0", "0.0.9", "0.1.0"),
        ("^0", "0.9.9", "1.0.0"),
        ("0.8", "0.8.4", "0.9.0"),
        ("1.2.*", "1.2.7", "1.3.0"),
        ("1.*", "1.9.0", "2.0.0"),
        ("1.*.*", "1.9.0", "2.0.0"),
        ("*", "0.0.1", "1.0.0-alpha"),
        (" >= 0.7 , < 0.9 ", "0.8.0", "0.9.0"),
        (">=0.7,<0.9,<=0.8.0", "0.8.0", "0.8.1"),
        ("=1.0.0-rc.1", "1.0.0-rc.1", "1.0.0"),
        (">=1.0.0-rc.1", "1.0.0-rc.2", "1.0.1-rc.3"),
        ("^1.0.0", "1.5.0", "2.0.0-alpha"),
        ("^1.0.0", "1.5.0", "1.5.0-alpha"),
        ("<1.0.0-rc.1", "1.0.0-rc.0", "1.0.0-rc.1"),
        ("=1.0.0", "1.0.0+build.7", "1.0.1"),
    ],
)
def test_a_requirement_accepts_and_refuses(requirement: str, accepted: str, refused: str) -> None:
    parsed = Requirement.parse(requirement)
    assert parsed.accepts(Version.parse(accepted))
    assert not parsed.accepts(Version.parse(refused))


@pytest.mark.spec("octet.manifest.requires-octet")
@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "1.0,",
        "==1",
        "=>1",
        "1.2.3.4",
        "01",
        "v1",
        "1.*.2",
        "1.*-rc",
        "*.1",
        ">*",
        "~>1",
        "1..2",
        "1.2-rc",
        "é",
        "9" * 30,
        "1 2",
        "1.0 1.1",
        "18446744073709551616",
    ],
)
def test_a_malformed_requirement_is_refused(text: str) -> None:
    with pytest.raises(InvalidParamsError, match="version comparator"):
        Requirement.parse(text)


@pytest.mark.spec("octet.manifest.version")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1.0",
        "1.0.0.0",
        "01.0.0",
        "1.0.0-",
        "1.0.0-01",
        "1.0.0+",
        "v1.0.0",
        "1.0.0 ",
        "\uff11.0.0",
        "1.0.0-é",
        "1.0.99999999999999999999",
    ],
)
def test_a_malformed_version_is_refused(text: str) -> None:
    with pytest.raises(InvalidParamsError, match="not a semantic version"):
        Version.parse(text)


def test_versions_are_ordered_by_precedence() -> None:
    texts = ["1.0.0-2", "1.0.0-10", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0", "1.0.1"]
    versions = [Version.parse(text) for text in texts]
    assert sorted(versions, reverse=True)[::-1] == versions
    assert all(a < b and not b <= a for a, b in pairwise(versions))
    assert Version.parse("1.0.0+a") == Version.parse("1.0.0+b")
