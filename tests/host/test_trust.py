"""Whether an extension may be started: enabled, workspace, program, in this order."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from broker.errors import TrustError
from broker.host import Grant, TrustPolicy, Verdict
from broker.testing import MemoryHost, ScriptedExtension, make_manifest

PATH = "/projects/tide/.octet/extensions/tide/extension.toml"
TIDE = make_manifest("tide", path=PATH)


@pytest.mark.spec("octet.manifest.trust-order")
@pytest.mark.parametrize(("disabled", "workspace", "granted"), list(product([True, False], repeat=3)))
@pytest.mark.parametrize("source", ["project", "global", "explicit"])
def test_the_first_thing_missing_decides(disabled: bool, workspace: bool, granted: bool, source: Any) -> None:
    policy = TrustPolicy(
        disabled=["tide"] if disabled else [],
        workspace_trusted=workspace,
        grants=[Grant("tide", PATH)] if granted else [],
    )
    if disabled:
        expected = Verdict.DISABLED
    elif source == "project" and not workspace:
        expected = Verdict.NEEDS_WORKSPACE_TRUST
    elif not granted and source != "explicit":
        expected = Verdict.NEEDS_HOST_AUTHORITY
    else:
        expected = Verdict.ALLOWED
    assert policy.decide(TIDE, source) is expected


@pytest.mark.parametrize(
    ("grant", "source", "allowed"),
    [
        (Grant("tide", PATH), "project", True),
        (Grant("tide", PATH), "global", True),
        (Grant("tide", "/elsewhere/tide/extension.toml"), "global", False),
        (Grant("tide"), "global", True),
        (Grant("tide"), "project", False),
        (Grant("tide", once=True), "project", True),
        (Grant("ebb", PATH), "project", False),
        (Grant("ebb", once=True), "global", False),
    ],
)
def test_what_a_grant_covers(grant: Grant, source: Any, allowed: bool) -> None:
    policy = TrustPolicy(workspace_trusted=True, grants=[grant])
    assert (policy.decide(TIDE, source) is Verdict.ALLOWED) is allowed


def test_full_access_trusts_programs_and_nothing_else() -> None:
    assert TrustPolicy(full_access=True).decide(TIDE, "global") is Verdict.ALLOWED
    assert TrustPolicy(full_access=True).decide(TIDE, "project") is Verdict.NEEDS_WORKSPACE_TRUST
    assert TrustPolicy(full_access=True, disabled=["tide"]).decide(TIDE, "explicit") is Verdict.DISABLED


@pytest.mark.spec("octet.manifest.trust-order", "octet.manifest.never-executed")
def test_what_may_not_be_started_is_not_even_added() -> None:
    with MemoryHost(trust=TrustPolicy(disabled=["ebb"])) as host, host.open_session() as session:
        for source, verdict in (("project", "needs workspace trust"), ("global", "needs host authority")):
            with pytest.raises(TrustError) as caught:
                session.add(TIDE, ScriptedExtension, source=source)
            assert (caught.value.verdict, caught.value.name) == (verdict, "capability_mismatch")
            assert caught.value.path == PATH
            assert str(caught.value) == f"tide ({source}): {verdict}"
        with pytest.raises(TrustError, match="disabled"):
            session.add(ScriptedExtension, name="ebb")
        session.run()
        assert (session.processes, dict(session.session.extensions)) == ([], {})
        session.start(TIDE, ScriptedExtension)
