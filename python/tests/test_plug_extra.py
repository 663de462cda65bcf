"""The packages that ShardDb plugs into are optional: without them, only the module that needs one cannot be imported."""

import pytest
from conftest import run_program

PACKAGES = ["cloudvolume", "neuroglancer", "zarr"]


def run(code: str) -> str:
    return run_program(code).strip()


@pytest.mark.parametrize("package", PACKAGES)
def test_the_error_names_the_extra(package: str) -> None:
    message = run(f"""
import sys
sys.modules[{package!r}] = None  # cannot be imported
import sharddb.references
try:
    import sharddb.{package}
except ImportError as error:
    print(error)
""")
    assert message.endswith(f": pip install 'sharddb[{package}]'")
    assert package in message.removesuffix(f": pip install 'sharddb[{package}]'")


def test_the_package_imports_none_of_them() -> None:
    loaded = run(
        "import sys, sharddb, sharddb.references; print(*{name.partition('.')[0] for name in sys.modules})"
    ).split()
    assert "sharddb" in loaded
    assert not {*PACKAGES, "tqdm", "fsspec", "icechunk", "torch"} & {*loaded}
