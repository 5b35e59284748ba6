"""Files that are written as a whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker.adapters.files import write_whole


@pytest.mark.parametrize("name", ["a", "n" * 255, "\U0001f600" * 63], ids=["short", "long", "wide"])
def test_every_name_that_a_file_can_have_can_be_written(tmp_path: Path, name: str) -> None:
    for content in (b"one", b"two"):
        write_whole(tmp_path / name, content)
        assert os.listdir(tmp_path) == [name]
        assert (tmp_path / name).read_bytes() == content
