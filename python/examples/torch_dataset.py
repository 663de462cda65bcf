"""A PyTorch dataset over a database: each worker of a ``DataLoader`` opens the same generation for itself.

    python torch_dataset.py STORE

It runs without PyTorch too: then the class is an ordinary sequence.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

import sharddb

try:
    from torch.utils.data import Dataset
except ImportError:
    Dataset = object


class Values(Dataset):  # type: ignore[misc]
    """The values of ``keys``, by default of all keys, as arrays of bytes.

    Pickles as the path, the generation and the keys, so the workers of a ``DataLoader`` may be forked or spawned.
    """

    def __init__(self, path: str, keys: npt.NDArray[np.uint64] | None = None) -> None:
        self.db = sharddb.open(path)
        self.keys = self.db.keys() if keys is None else keys

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self.db[self.keys[index]], np.uint8)

    def __getitems__(self, indices: Sequence[int]) -> list[npt.NDArray[np.uint8]]:
        """Returns a batch with one lookup. A ``DataLoader`` calls this if it is there."""
        data, offsets, found = self.db.get_ragged(self.keys[indices])
        if not found.all():
            raise KeyError(self.keys[indices][~found])
        return np.split(data, offsets[1:-1])


def main() -> None:
    dataset = Values(sys.argv[1])
    try:
        from torch.utils.data import DataLoader
    except ImportError:
        batches = (dataset.__getitems__(range(at, min(at + 256, len(dataset)))) for at in range(0, len(dataset), 256))
    else:
        batches = iter(DataLoader(dataset, batch_size=256, shuffle=True, num_workers=2, collate_fn=list))
    print(sum(len(value) for batch in batches for value in batch), "bytes in", len(dataset), "values")


if __name__ == "__main__":
    main()
