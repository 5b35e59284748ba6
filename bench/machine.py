"""What a measurement was made on; without it no figure means anything to anybody else."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

LIBRARIES = (
    "extension-broker attrs cattrs orjson sortedcontainers "
    "blinker psygnal pyee pluggy bubus pydantic pyzmq mcp pytest-benchmark matplotlib"
).split()


def describe() -> dict[str, str]:
    """Processor, system, interpreter, how that was built, and the version of each library in the run."""
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    arguments = shlex.split(sysconfig.get_config_var("CONFIG_ARGS") or "")
    flags = " ".join(flag for flag in arguments if flag.startswith(("--enable", "--with", "--disable")))
    return {
        "processor": f"{_cpu_model()}, {_cores()}, {platform.machine()}",
        "system": f"{platform.system()} {platform.release()}",
        "interpreter": f"{platform.python_implementation()} {platform.python_version()}"
        + ("" if gil else ", without the GIL"),
        "build": ", ".join(part for part in platform.python_build() if part) + f"; {platform.python_compiler()}",
        "configured with": flags or "no flags",
        "compiled with": " ".join((sysconfig.get_config_var("OPT") or "unknown").split()),
        "broker compiled": "yes" if _compiled() else "no, pure Python",
        "libraries": ", ".join(f"{name} {found}" for name in LIBRARIES if (found := _version(name))),
    }


def _cores() -> str:
    there = os.cpu_count()
    used = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else there
    return f"{there} cores" if used == there else f"{used} of {there} cores used"


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _compiled() -> bool:
    from broker.bus import kernel

    return not str(kernel.__file__).endswith(".py")
