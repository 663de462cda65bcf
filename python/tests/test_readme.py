"""The Python lines of the README and of the tutorial print what these say."""

import doctest
from pathlib import Path

import pytest

PYTHON = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", ["README.md", "TUTORIAL.md"])
def test_the_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testfile(str(PYTHON / name), module_relative=False)
    assert result.attempted > 10 and result.failed == 0
