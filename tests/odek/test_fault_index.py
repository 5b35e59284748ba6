"""Every numbered fault has a test that exists, or a reason."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def load_faults() -> dict[int, tuple[str, ...]]:
    spec = importlib.util.spec_from_file_location("fault_index", Path(__file__).with_name("fault_index.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    faults: dict[int, tuple[str, ...]] = module.FAULTS
    return faults


def functions_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_fault_is_there_once() -> None:
    assert list(load_faults()) == [*range(1, 123)]
    assert all(load_faults().values())


def test_every_named_test_exists() -> None:
    named = {name for names in load_faults().values() for name in names if name.startswith("tests/")}
    files = {path: functions_in(path) for path in {name.partition("::")[0] for name in named}}
    missing = [name for name in named if name.partition("::")[2] not in files[name.partition("::")[0]]]
    assert missing == []
    assert len(named) > 60
