"""The packages that ShardDb plugs into. Each is optional: an extra of this package."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Makes the ``ImportError`` of a package that is not installed name the extra that installs it."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{error}: pip install 'sharddb[{extra}]'", name=error.name, path=error.path) from error
