"""Snapshots of directory trees: every name with its kind, mode, bytes or link target."""

import hashlib
import os
import stat


def snapshot(root):
    """All names below `root`, each with its description. Follows no link and reads only regular files."""
    found = {}
    for directory, directories, files in os.walk(root):
        for name in directories + files:
            path = os.path.join(directory, name)
            found[os.path.relpath(path, root)] = describe(path)
    return found


def describe(path):
    """Kind, mode, and for links the target, for regular files a digest of the bytes."""
    status = os.lstat(path)
    mode = oct(stat.S_IMODE(status.st_mode))
    if stat.S_ISLNK(status.st_mode):
        return ("link", os.readlink(path))
    if stat.S_ISREG(status.st_mode):
        with open(path, "rb") as file:
            return ("file", mode, status.st_size, hashlib.file_digest(file, "sha256").hexdigest()[:16])
    if stat.S_ISFIFO(status.st_mode):
        return ("fifo", mode)
    return ("directory" if stat.S_ISDIR(status.st_mode) else "other", mode)


def differences(before, after, names=None):
    """The changes between two snapshots, for all names or for `names`."""
    names = sorted(set(before) | set(after)) if names is None else sorted(names)
    changed = []
    for name in names:
        if name not in after:
            changed.append(f"{name} was removed")
        elif name not in before:
            changed.append(f"{name} was added")
        elif before[name] != after[name]:
            changed.append(f"{name} was changed from {before[name]} to {after[name]}")
    return changed
