"""Values that carry more than their bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, final

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

    preamble: bytes

    def __new__(cls, value: Buffer | NDArray[Any], preamble: Buffer | NDArray[Any], /) -> Self:
        self = super().__new__(cls, memoryview(value))
        self.preamble = bytes(memoryview(preamble))
        return self

    def __getnewargs__(self) -> tuple[bytes, bytes]:  # type: ignore[override]
        return bytes(self), self.preamble

    def __repr__(self) -> str:
        return f"ValueWithPreamble({bytes(self)!r}, {self.preamble!r})"
