"""Writes what is generated from the records of the octet 0.3 contract, or checks that it is what it should be.

    python docs/generate.py [--check]

``--check`` writes nothing and ends with status 1 if a file differs or is missing. What it writes is not edited by hand.
The package must be importable; ``tox -e generate`` sees to that.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from broker import canonical
from broker.testing import contract_fixtures
from broker.wire.octet.json_schema import contract_schema
from broker.wire.octet.typescript import declarations

ROOT: Final = Path(__file__).parent.parent
SHOWN_BYTES: Final = 1_024  # a longer value is given by its recipe and digest alone


def artifacts() -> Mapping[str, str]:
    """Every generated file: its path below the root of the repository, and its text."""
    golden = [
        {
            "model": one.model,
            "case": one.case,
            "value": one.value,
            "bytes": len(one.canonical),
            "sha256": one.sha256,
            **({"canonical": one.canonical.decode()} if len(one.canonical) <= SHOWN_BYTES else {}),
        }
        for one in contract_fixtures.golden_values()
    ]
    hostile = []
    for bad in contract_fixtures.hostile_values():
        data = canonical.encode(contract_fixtures.expand(bad.value))
        hostile.append(
            {
                "model": bad.model,
                "fault": bad.fault,
                "path": bad.path,
                "error": bad.error,
                "value": bad.value,
                "bytes": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
            }
        )
    return {
        "docs/contract/octet-0.3.schema.json": json.dumps(contract_schema(), indent=1) + "\n",
        "docs/contract/octet-0.3.d.ts": declarations(),
        "tests/contract/golden.json": _lines(golden),
        "tests/contract/hostile.json": _lines(hostile),
    }


def differing(root: Path) -> list[str]:
    """The generated files below ``root`` that are not what they should be."""
    return [
        name
        for name, text in artifacts().items()
        if not (root / name).is_file() or (root / name).read_text(encoding="utf-8") != text
    ]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Write the files generated from the octet 0.3 contract.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is not what it should be")
    given = parser.parse_args(arguments)
    stale = differing(ROOT)
    for name in stale:
        if given.check:
            print(f"{name} is not what docs/generate.py makes; run: tox -e generate", file=sys.stderr)
        else:
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_text(artifacts()[name], encoding="utf-8")
            print(f"wrote {name}")
    return 1 if stale and given.check else 0


def _lines(rows: list[dict[str, Any]]) -> str:
    return "[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
