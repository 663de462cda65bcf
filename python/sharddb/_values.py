"""Values that carry more than their bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, cast, final

from sharddb.errors import Unsupported

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Buffer


@final
class ValueWithPreamble(bytes):
    """A value, and its preamble: bytes that are stored directly before it, and never encoded.

    In a multi-resolution mesh the value is the manifest, and the preamble its fragments. ``Reader.items`` of data with preambles
    returns such values, and so does ``Reader.get_with_preamble``; ``Loader``, ``update`` and ``SpillWriter`` store the preambles.
    It equals the ``bytes`` of the value, whatever the preamble.

    >>> value = ValueWithPreamble(b"manifest", b"fragments")
    >>> value, value.preamble
    (ValueWithPreamble(b'manifest', b'fragments'), b'fragments')
    """

    _preamble: bytes | None

    def __new__(cls, value: Buffer | NDArray[Any], preamble: Buffer | NDArray[Any] | None, /) -> Self:
        self = super().__new__(cls, memoryview(cast("Buffer", value)))
        self._preamble = None if preamble is None else bytes(memoryview(cast("Buffer", preamble)))
        return self

    @property
    def preamble(self) -> bytes:
        """The preamble. Raises ``Unsupported`` if it is unknown: the value is that of a remote database, or is aligned and of a
        store that an early version wrote."""
        if self._preamble is None:
            raise Unsupported(
                "the preamble of this value is unknown: a remote database reads values only, so copy the data and open the copy; "
                "before an aligned value of an early version it may be padding, so build such a store again from its source"
            )
        return self._preamble

    def __getnewargs__(self) -> tuple[bytes, bytes | None]:  # type: ignore[override]
        return bytes(self), self._preamble

    def __repr__(self) -> str:
        return f"ValueWithPreamble({bytes(self)!r}, {self._preamble!r})"
