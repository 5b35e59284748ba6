"""``migration/*``: the host says what may be read, the adapter answers within it, and nothing is written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from telling import start

from broker.adapters.source_roots import SourceRoots
from broker.errors import (
    BrokerError,
    CancelledError,
    CapabilityMismatchError,
    ExitedError,
    ExtensionError,
    InvalidParamsError,
    RemoteError,
    ResultError,
    SetupError,
    TimedOutError,
    UsageError,
)
from broker.host import DetectedSetup, Health, HostServices

SERVICE = "migration.adapter.v1"
DETECTED = {"detected": True, "config_paths": ["aider.toml", "skills/review.md"], "diagnostics": []}
IMPORTED = {
    "models": [{"path": "aider.toml", "provider": "acme", "model": "small"}],
    "skills": [{"path": "skills/review.md", "name": "review", "content": "# Review\n"}],
    "mcp_servers": [{"path": "aider.toml", "name": "files", "command": "files-server", "args": ["--root", "."]}],
    "diagnostics": [{"path": "$", "severity": "warning", "reason": "no theme was found"}],
}


class Adapter:
    """A session with one adapter, and a setup on disk."""

    def __init__(self, told: Any, tmp_path: Path) -> None:
        self.root = tmp_path / "home"
        (self.root / "skills").mkdir(parents=True)
        (self.root / "aider.toml").write_text("model = 'small'\n")
        (self.root / "skills" / "review.md").write_text("# Review\n")
        self.world = told(HostServices(migrations=SourceRoots(tmp_path)), restart=False)
        self.extension = start(self.world, SERVICE)

    def asked(self, method: str) -> list[Any]:
        return self.extension.far.params_of(method)  # type: ignore[no-any-return]

    def answer(self, result: Any) -> None:
        (*_, request) = (m for m in self.extension.far.received if m.get("method", "").startswith("migration/"))
        self.extension.far.answer(request["id"], result)
        self.world.run()

    def detect(self, result: Any = DETECTED) -> DetectedSetup:
        outcome = self.extension.migration.detect(str(self.root))
        self.world.run()
        self.answer(result)
        return outcome.result()  # type: ignore[no-any-return]


@pytest.fixture
def adapter(told: Any, tmp_path: Path) -> Adapter:
    return Adapter(told, tmp_path)


@pytest.mark.spec("octet.capability.migration", "octet.method.migration-detect", "octet.method.migration-import")
@pytest.mark.spec("octet.migration.read-only", "octet.migration.root-path")
def test_a_setup_is_detected_and_imported_and_nothing_is_written(adapter: Adapter) -> None:
    before = {path: path.stat() for path in sorted(adapter.root.rglob("*"))}
    setup = adapter.detect()
    assert adapter.asked("migration/detect") == [{"source_root": str(adapter.root)}]
    assert (setup.extension, setup.source_root, setup.generation) == ("ext", str(adapter.root), 1)
    assert setup.config_paths == ("aider.toml", "skills/review.md")
    outcome = adapter.extension.migration.import_from(setup)
    adapter.world.run()
    assert adapter.asked("migration/import") == [
        {"source_root": str(adapter.root), "config_paths": ["aider.toml", "skills/review.md"]}
    ]
    adapter.answer(IMPORTED)
    result = outcome.result()
    assert [(model.provider, model.model) for model in result.models] == [("acme", "small")]
    assert [(skill.name, skill.content) for skill in result.skills] == [("review", "# Review\n")]
    assert [(server.name, server.command, server.args) for server in result.mcp_servers] == [
        ("files", "files-server", ("--root", "."))
    ]
    assert [(one.path, one.severity) for one in result.diagnostics] == [("$", "warning")]
    assert {path: path.stat().st_mtime_ns for path in sorted(adapter.root.rglob("*"))} == {
        path: found.st_mtime_ns for path, found in before.items()
    }


@pytest.mark.spec("octet.capability.migration", "octet.capability.offered-when-bound")
def test_it_is_offered_only_when_directories_are_bound(told: Any, tmp_path: Path) -> None:
    bare = start(told(), SERVICE)
    assert SERVICE not in bare.far.received[0]["params"]["contract"]["optional_capabilities"]
    with pytest.raises(CapabilityMismatchError, match="no migration adapter here"):
        bare.migration.detect(str(tmp_path))
    plain = start(told(HostServices(migrations=SourceRoots())), name="plain")
    assert SERVICE in plain.far.received[0]["params"]["contract"]["optional_capabilities"]
    with pytest.raises(CapabilityMismatchError, match="has not selected migration/detect"):
        plain.migration.detect(str(tmp_path))


@pytest.mark.spec("octet.migration.source-root")
def test_a_source_root_is_canonical_there_and_allowed(adapter: Adapter, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(adapter.root)
    (tmp_path / "sub").symlink_to(tmp_path)
    for root, problem, name in [
        ("home", "is not an absolute path", "invalid_params"),
        ("", "is not an absolute path", "invalid_params"),
        (None, "is not an absolute path", "invalid_params"),
        (f"{adapter.root}\0", "is not an absolute path", "invalid_params"),
        (str(tmp_path / "nothing"), "No such file or directory", "internal_error"),
        (str(adapter.root / "aider.toml"), "is no directory", "invalid_params"),
        (str(tmp_path / "link"), "is a link", "invalid_params"),
        (str(tmp_path / "sub" / "home"), "is not canonical", "invalid_params"),
        (f"{adapter.root}/", "is not canonical", "invalid_params"),
        (f"{tmp_path}/x/../home", "No such file", "internal_error"),
        (f"{adapter.root}/skills/..", "is not canonical", "invalid_params"),
        ("/", "is not among the directories", "capability_mismatch"),
        (str(tmp_path.parent), "is not among the directories", "capability_mismatch"),
        ("/" + "x" * 4_096, "is too long", "resource_exhausted"),
    ]:
        outcome = adapter.extension.migration.detect(root)
        assert isinstance(outcome.error, SetupError), root
        assert (problem in str(outcome.error), outcome.error.name) == (True, name), root
    adapter.world.run()
    assert adapter.asked("migration/detect") == []
    assert SourceRoots().check_root("/") == "/"
    assert SourceRoots("/").check_root(str(adapter.root)) == str(adapter.root)
    with pytest.raises(SetupError):
        SourceRoots(adapter.root).check_root(str(tmp_path))


@pytest.mark.spec("octet.migration.relative-paths")
def test_detected_paths_are_there_and_lead_nowhere_else(adapter: Adapter, tmp_path: Path) -> None:
    outside = tmp_path / "outside.toml"
    outside.write_text("")
    (adapter.root / "link.toml").symlink_to(outside)
    (adapter.root / "linked").symlink_to(tmp_path)
    os.mkfifo(adapter.root / "pipe")
    for path, problem in [
        ("nothing.toml", "No such file"),
        ("link.toml", "goes over a link"),
        ("linked/outside.toml", "goes over a link"),
        ("pipe", "neither a file nor a directory"),
        ("aider.toml/x", "Not a directory"),
        ("../outside.toml", "must have no empty part"),
        ("/etc/passwd", "must be relative"),
    ]:
        with pytest.raises(ResultError, match=problem):
            adapter.detect({**DETECTED, "config_paths": [path]})
    with pytest.raises(ResultError, match="' appears twice"):
        adapter.detect({**DETECTED, "config_paths": ["aider.toml", "aider.toml"]})
    assert adapter.detect({**DETECTED, "config_paths": ["skills"]}).config_paths == ("skills",)
    assert adapter.extension.health is Health.READY


@pytest.mark.spec("octet.migration.detect-first")
def test_only_what_was_detected_is_imported_each_once(adapter: Adapter) -> None:
    setup = adapter.detect()
    migration = adapter.extension.migration
    for paths, problem in [
        (["other.toml"], "'other.toml' was not detected"),
        (["aider.toml", "aider.toml"], "'aider.toml' appears twice"),
        (["./aider.toml"], "was not detected"),
    ]:
        with pytest.raises(InvalidParamsError, match=problem):
            migration.import_from(setup, paths)
    assert adapter.asked("migration/import") == []
    outcome = migration.import_from(setup, ["skills/review.md"])
    adapter.world.run()
    assert adapter.asked("migration/import")[0]["config_paths"] == ["skills/review.md"]
    adapter.answer(IMPORTED)
    assert outcome.done and outcome.error is None
    nothing = adapter.detect({"detected": False, "config_paths": [], "diagnostics": []})
    with pytest.raises(InvalidParamsError, match="nothing was detected"):
        migration.import_from(nothing)
    with pytest.raises(UsageError, match="detect it again"):
        migration.import_from(setup)


def test_what_is_no_setup_and_no_paths_is_refused(adapter: Adapter) -> None:
    nothing: Any = None
    with pytest.raises(UsageError, match="detect it again"):
        adapter.extension.migration.import_from(nothing)
    setup = adapter.detect()
    paths: Any
    for paths in ("aider.toml", 5, {"aider.toml"}):
        with pytest.raises(UsageError, match="paths: needs a sequence"):
            adapter.extension.migration.import_from(setup, paths)
    assert adapter.asked("migration/import") == []


def test_a_root_that_cannot_be_told_is_refused() -> None:
    with pytest.raises(SetupError, match="no UTF-8 form"):
        SourceRoots().check_root(os.fsdecode(b"/srv/\xff"))


@pytest.mark.spec("octet.migration.detect-first")
def test_a_new_generation_has_detected_nothing(adapter: Adapter) -> None:
    setup = adapter.detect()
    adapter.world.settle(adapter.extension.reload())
    with pytest.raises(UsageError, match="detect it again"):
        adapter.extension.migration.import_from(setup)


@pytest.mark.spec("octet.migration.one-at-a-time")
def test_an_adapter_works_on_one_request_within_15_s(adapter: Adapter) -> None:
    migration = adapter.extension.migration
    outcome = migration.detect(str(adapter.root))
    adapter.world.run()
    with pytest.raises(UsageError, match="works on a migration already"):
        migration.detect(str(adapter.root))
    adapter.world.advance(14_999)
    assert not outcome.done
    adapter.world.advance(1)
    assert isinstance(outcome.error, TimedOutError) and outcome.error.maximum == 15_000
    assert len(adapter.asked("$/cancelRequest")) == 1
    adapter.answer(DETECTED)
    adapter.detect()


@pytest.mark.spec("octet.migration.error-aborts")
@pytest.mark.parametrize("answer", ["error", "malformed"])
def test_an_error_ends_the_migration(adapter: Adapter, answer: str) -> None:
    setup = adapter.detect()
    outcome = adapter.extension.migration.import_from(setup)
    adapter.world.run()
    if answer == "error":
        (*_, request) = (m for m in adapter.extension.far.received if m.get("method") == "migration/import")
        error = {"code": -32603, "message": "internal error", "data": {"reason": "unreadable"}}
        adapter.extension.far.send({"jsonrpc": "2.0", "id": request["id"], "error": error})
        adapter.world.run()
        assert isinstance(outcome.error, RemoteError)
    else:
        adapter.answer({**IMPORTED, "secrets": []})
        assert isinstance(outcome.error, ResultError)
    with pytest.raises(UsageError, match="detect it again"):
        adapter.extension.migration.import_from(setup)
    adapter.detect()


@pytest.mark.spec("octet.migration.read-only")
@pytest.mark.parametrize("change", ["write", "remove", "replace"])
def test_a_source_that_changes_under_the_adapter_is_noticed(adapter: Adapter, change: str) -> None:
    setup = adapter.detect()
    outcome = adapter.extension.migration.import_from(setup)
    adapter.world.run()
    file = adapter.root / "aider.toml"
    if change == "write":
        file.write_text("model = 'another'\n")
    else:
        file.unlink()
        if change == "replace":
            file.mkdir()
    adapter.answer(IMPORTED)
    assert isinstance(outcome.error, ExtensionError)
    assert ("changed while it was being read" in str(outcome.error)) is (change != "remove")


@pytest.mark.spec("octet.migration.one-frame")
def test_an_import_fits_one_frame(adapter: Adapter) -> None:
    """Skills of nearly the frame bound in all pass; a larger answer ends the stream, as any frame over it does."""
    skill = {"path": "a", "name": "n", "content": "x" * 131_072}
    empty: dict[str, Any] = {"models": [], "skills": [], "mcp_servers": [], "diagnostics": []}
    outcome = adapter.extension.migration.import_from(adapter.detect())
    adapter.world.run()
    adapter.answer({**empty, "skills": [skill] * 7})
    assert len(outcome.result().skills) == 7
    outcome = adapter.extension.migration.import_from(adapter.detect())
    adapter.world.run()
    adapter.answer({**empty, "skills": [skill] * 8})
    assert isinstance(outcome.error, BrokerError) and outcome.error.limit == "MAX_FRAME_BYTES"


@pytest.mark.parametrize("step", ["detect", "import"])
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_the_end_of_the_process_ends_the_migration_once(adapter: Adapter, step: str, how: str) -> None:
    migration = adapter.extension.migration
    outcome = migration.import_from(adapter.detect()) if step == "import" else migration.detect(str(adapter.root))
    settled: list[Any] = []
    outcome.add_callback(settled.append)
    adapter.world.run()
    if how == "kill":
        adapter.extension.far.exit(-9)
        adapter.world.run()
        assert isinstance(outcome.error, ExitedError)
    else:
        adapter.world.settle(adapter.extension.stop())
        assert isinstance(outcome.error, CancelledError | ExitedError)
    assert settled == [outcome]
    with pytest.raises(ExtensionError, match="does not serve"):
        _ = adapter.extension.migration
