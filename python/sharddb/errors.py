"""The exceptions of the package: ``Error``, and one subclass per kind of error.

``Io`` and ``NotFound`` are ``OSError`` with ``errno``, ``strerror`` and ``filename``, so far as they are known. ``db[k]``
raises ``KeyError`` if the key is absent. Arguments of a wrong type raise ``TypeError``, and keys outside of 0 to
2**64 - 1 raise ``OverflowError``.
"""

import errno as _errno
import os
from typing import Any, ClassVar


class Error(Exception):
    """An error of ShardDb. The message states what was expected and found, where, and what to do."""

    kind: ClassVar[str] = "error"
    """The kind in lowercase, for logs: ``"too-large"``, for example."""

    path: str | None
    """The file or directory that the error refers to; ``None`` if there is none or it is not known."""

    key: int | None
    """The key that the error refers to, or ``None``."""

    shard: int | None
    """The number of the shard, or ``None``."""

    minishard: int | None
    """The number of the minishard within the shard, or ``None``."""

    offset: int | None
    """The byte offset in the file, or ``None``."""

    def __init__(
        self,
        message: str = "",
        *,
        path: str | None = None,
        key: int | None = None,
        shard: int | None = None,
        minishard: int | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(message)
        self.path = path
        self.key = key
        self.shard = shard
        self.minishard = minishard
        self.offset = offset


class _SystemError(Error, OSError):
    """An error with the attributes of ``OSError``. They are properties, so that the message and pickling are ``Error``'s."""

    def __init__(self, message: str = "", *, errno: int | None = None, **place: Any) -> None:
        super().__init__(message, **place)
        self._errno = errno

    @property
    def errno(self) -> int | None:  # type: ignore[override]
        """The error number of the kernel, such as ``errno.ENOSPC``; ``None`` if it is not known."""
        return self._errno

    @property
    def strerror(self) -> str | None:  # type: ignore[override]
        """The text of ``errno``."""
        return None if self._errno is None else os.strerror(self._errno)

    @property
    def filename(self) -> str | None:
        """The same as ``path``."""
        return self.path

    def __reduce__(self) -> tuple[Any, ...]:
        # that of `OSError` makes other libraries, such as tblib for Dask, assign the properties
        return type(self), self.args, self.__dict__


class Io(_SystemError):
    """A system call failed: no permission, no space, or a missing file, for example."""

    kind = "io"


class NotFound(_SystemError, FileNotFoundError):  # pyright: ignore[reportIncompatibleVariableOverride]
    """The path is not a database: it does not exist, is something else, or is a store without a generation."""

    kind = "not-found"

    def __init__(self, message: str = "", *, errno: int | None = _errno.ENOENT, **place: Any) -> None:
        super().__init__(message, errno=errno, **place)


class AbsentKey(Error, KeyError):
    """A key that must exist is absent: one that ``update(strict=True)`` was to delete."""

    kind = "absent-key"

    def __str__(self) -> str:
        return str(self.args[0])  # `KeyError` shows the repr


class Corrupt(Error):
    """A file breaks a rule of the format, or a checksum does not match."""

    kind = "corrupt"


class TooLarge(Error):
    """A read or a decode would exceed a cap or the available memory."""

    kind = "too-large"


class InvalidSpec(Error, ValueError):
    """The sharding specification, the metadata that contains it, or the requested configuration is not valid."""

    kind = "invalid-spec"


class Unsupported(Error):
    """A later version of ShardDb wrote the file, or it needs a feature that this build lacks."""

    kind = "unsupported"


class DuplicateKey(Error, ValueError):
    """The same key was inserted twice."""

    kind = "duplicate-key"


class OutOfOrder(Error, ValueError):
    """A pair was inserted out of order, or belongs to another shard."""

    kind = "out-of-order"


class InvalidInput(Error, ValueError):
    """An argument is not valid: an option, a path, or a handle that is closed."""

    kind = "invalid-input"


class Empty(Error, ValueError):
    """There are no pairs, and the store has some, which were not replaced: ``allow_empty=True`` replaces them."""

    kind = "empty"


class Locked(Error):
    """Another writer holds the store."""

    kind = "locked"


class GenerationGone(Error):
    """The generation was removed."""

    kind = "generation-gone"


class Superseded(Error):
    """A publication of parts is repeated whose generation was rolled back or replaced. ``path`` is that of its mark."""

    kind = "superseded"


class Cancelled(Error):
    """The operation was cancelled by the caller."""

    kind = "cancelled"


class Internal(Error):
    """A bug in ShardDb. Nothing was published. Please report it."""

    kind = "internal"


_CLASSES: dict[str, type[Error]] = {
    cls.kind: cls
    for cls in (
        Io,
        NotFound,
        AbsentKey,
        Corrupt,
        TooLarge,
        InvalidSpec,
        Unsupported,
        DuplicateKey,
        OutOfOrder,
        InvalidInput,
        Empty,
        Locked,
        GenerationGone,
        Superseded,
        Cancelled,
        Internal,
    )
}
"""The class of each kind, for the extension module."""
