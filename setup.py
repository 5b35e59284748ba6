"""The build. ``BROKER_COMPILE=1`` compiles the kernel of the bus to machine code; without it, the wheel is pure Python.

Everything else is said in ``setup.cfg``.
"""

import os

from setuptools import setup

KERNEL = ["bus", "delivery", "event", "hold", "inbox", "kernel", "peer", "screening", "topic", "watching"]
# The compiler reads types, so it needs whatever the kernel imports.
COMPILER = ["mypy[mypyc]>=1.15", "attrs", "cattrs", "orjson", "sortedcontainers", "sortedcontainers-stubs"]

if os.environ.get("BROKER_COMPILE") == "1":
    try:
        from mypyc.build import mypycify
    except ImportError:  # so far the build is only asked what it needs
        setup(setup_requires=COMPILER)
    else:
        modules = [f"broker/bus/{name}.py" for name in KERNEL]
        setup(setup_requires=COMPILER, ext_modules=mypycify(["--strict", *modules], opt_level="3"))
else:
    setup()
