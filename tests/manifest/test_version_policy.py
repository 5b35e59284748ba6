"""The version policy: which versions there are, how they stand, what installs from a bundle, what is new."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import ManifestError, SetupError
from broker.wire.octet.bundle import check_installable, new_manifest
from broker.wire.octet.manifest import Manifest, parse_manifest
from broker.wire.versions import CURRENT_API_VERSION, POLICY


def manifest(version: str, requires: str | None) -> Manifest:
    line = "" if requires is None else f'requires_octet = "{requires}"\n'
    text = f'name = "tide"\nversion = "1.0.0"\napi_version = "{version}"\n{line}[entrypoint]\ncommand = "main"\n'
    return parse_manifest(text.encode(), path="/srv/tide/extension.toml")


@pytest.mark.spec("octet.version.v01", "octet.version.v02", "octet.version.v03", "octet.version.v04")
def test_the_policy_is_the_table_of_the_reference() -> None:
    assert [(row.api_version, row.status, row.wire, row.installable) for row in POLICY.values()] == [
        ("0.1", "frozen", "legacy-json-rpc", False),
        ("0.2", "supported", "legacy-json-rpc", True),
        ("0.3", "supported", "canonical-json-rpc", True),
        ("0.4", "current", "legacy-json-rpc", True),
    ]
    for version in POLICY:
        assert manifest(version, None).policy is POLICY[version]


@pytest.mark.spec("octet.version.bundles", "octet.version.v01", "octet.version.v03")
@pytest.mark.parametrize("version", ["0.2", "0.3", "0.4"])
def test_a_bundle_installs_with_one_exact_host_version(version: str) -> None:
    for exact in ("=0.8.0", "= 0.8.0"):
        check_installable(manifest(version, exact))
    for wrong in (None, ">=0.8.0", "^0.8", "=0.8", "0.8.0", "=0.8.0, <1.0.0", "*"):
        with pytest.raises(SetupError) as caught:
            check_installable(manifest(version, wrong))
        assert (caught.value.name, caught.value.path) == ("invalid_params", "requires_octet")
    with pytest.raises(SetupError) as caught:
        check_installable(manifest("0.1", "=0.8.0"))
    assert (caught.value.name, caught.value.path) == ("version_mismatch", "api_version")


@pytest.mark.spec("octet.version.current-for-new")
def test_a_new_manifest_declares_0_4() -> None:
    text = new_manifest("tide", "main.py", version="1.2.3", tools=["high", "low"])
    parsed = parse_manifest(text.encode(), path="x")
    assert CURRENT_API_VERSION == "0.4"
    assert (parsed.api_version, parsed.policy.status) == ("0.4", "current")
    assert (parsed.name, parsed.version, parsed.entrypoint.command) == ("tide", "1.2.3", "main.py")
    assert parsed.contributes.tools == ("high", "low")


@pytest.mark.spec("octet.version.current-for-new")
@given(command=st.text(min_size=1, max_size=20))
def test_a_new_manifest_says_what_was_asked_for_or_is_refused(command: str) -> None:
    try:
        text = new_manifest("tide", command)
    except ManifestError:
        return
    assert parse_manifest(text.encode(), path="x").entrypoint.command == command


@pytest.mark.parametrize(("name", "tools"), [("Tide", []), ("tide", ["no spaces"]), ("tide", ["a", "a"])])
def test_a_new_manifest_is_a_valid_one(name: str, tools: list[str]) -> None:
    with pytest.raises(ManifestError):
        new_manifest(name, "main.py", tools=tools)
