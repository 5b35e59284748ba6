"""The TypeScript declarations take every golden value and refuse the hostile ones, as the compiler itself says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from broker.testing.contract_fixtures import expand
from broker.wire.octet.contract import METHODS

HERE = Path(__file__).parent
DECLARATIONS = HERE.parent.parent / "docs" / "contract" / "octet-0.3.d.ts"
SHAPES = ("missing", "null", "unknown", "type", "enum", "variant")


@pytest.fixture(scope="module")
def compiler() -> list[str]:
    """The TypeScript compiler; absent, the test is skipped, except where CI promises it."""
    modules = os.environ.get("BROKER_NPM_MODULES")
    found = shutil.which("tsc", path=str(Path(modules) / ".bin") if modules else None) or shutil.which("tsc")
    if found is None:
        assert "BROKER_REQUIRE_REAL_SERVERS" not in os.environ, "there is no tsc"
        pytest.skip("there is no tsc")
    return [found, "--noEmit", "--strict", "--exactOptionalPropertyTypes", "--lib", "es2022"]


def small(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["bytes"] <= 4_096]


def test_the_compiler_agrees_with_the_fixtures(compiler: list[str], tmp_path: Path) -> None:
    golden = small(json.loads((HERE / "golden.json").read_text(encoding="utf-8")))
    hostile = small(json.loads((HERE / "hostile.json").read_text(encoding="utf-8")))
    shutil.copy(DECLARATIONS, tmp_path / "octet.d.ts")
    lines = ["import type * as octet from './octet';"]
    for number, row in enumerate(golden):
        lines.append(f"export const golden{number}: octet.{row['model']} = {json.dumps(expand(row['value']))};")
    for number, row in enumerate(row for row in hostile if row["fault"] in SHAPES):
        lines.append("// @ts-expect-error")
        lines.append(f"export const hostile{number}: octet.{row['model']} = {json.dumps(expand(row['value']))};")
    (tmp_path / "check.ts").write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = subprocess.run([*compiler, "check.ts"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout[:4_000]
    assert len(lines) > 2_000


def test_every_usable_method_is_in_one_of_the_four_tables() -> None:
    text = DECLARATIONS.read_text(encoding="utf-8")
    for name, method in METHODS.items():
        count = text.count(f"  readonly {json.dumps(name)}: {{ readonly params: ")
        expected = 0 if method.status.value == "deferred" else 2 if method.direction.value == "bidirectional" else 1
        assert count == expected, name
