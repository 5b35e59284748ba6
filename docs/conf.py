"""How the documentation is built."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "broker"
author = "the broker authors"
copyright = author
release = metadata.version("extension-broker")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
    "broker_tables",
    "contract_tables",
    "conform_tables",
]
exclude_patterns = ["_build", "changelog.d", "examples"]
default_role = "py:obj"

html_theme = "furo"
html_title = f"broker {release}"

autodoc_default_options = {"members": True, "undoc-members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False
