"""The command ``sharddb``, which ``python -m sharddb`` runs too."""

import os
import signal
import sys

from sharddb._sharddb import _run_command


def main() -> int:
    """Run the command with the arguments of this process, and return its exit code."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the command has a handler; that of Python would raise KeyboardInterrupt afterwards
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # closed: a file that is opened later would get this number, and the output of the command
            os.open(os.devnull, os.O_RDWR)
    return _run_command(["sharddb", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
