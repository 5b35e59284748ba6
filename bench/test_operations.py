"""Single operations: screening, bounds, churn, threads, canonical JSON. A round is 64 operations, with threads 2000."""

from __future__ import annotations

from typing import Any

import pytest

from bench import operations

OPERATIONS = 64
GROUPS = {
    "delivered to 8": operations.DELIVERED,
    "published": operations.PUBLISHED,
    "text of each size to 8": operations.TEXTS,
    "bounds and churn": operations.BOUNDS,
    "threads": operations.THREADS,
    "expiry when nothing expires": operations.EXPIRY,
    "screening of 1024 B": operations.SCREENING,
    "encoding": operations.ENCODING,
    "decoding": operations.DECODING,
}


@pytest.mark.parametrize(("group", "name"), [(group, name) for group, named in GROUPS.items() for name in named])
def test_operation(benchmark: Any, group: str, name: str) -> None:
    workload = GROUPS[group][name]()
    benchmark.group = group
    benchmark.pedantic(workload.run, setup=lambda: ((workload.feed(OPERATIONS),), {}), rounds=50, warmup_rounds=1)
