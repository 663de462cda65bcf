#!/usr/bin/env python3
"""Runs a command under limits of the process, after checking that each of them is active.

usage: limited.py [--user UID] [--nofile N] [--nproc N] [--memory BYTES] [--fsize BYTES] [--ignore-xfsz] -- COMMAND..

Soft and hard limits are set to the same value. This process first runs into each limit itself, and then executes the
command. Exit: 125 if a limit is not active, else the exit code of the command.
"""

import argparse
import errno
import mmap
import os
import resource
import signal
import sys
import tempfile
import threading
import time


def expect(holds, what):
    if not holds:
        sys.exit(f"limited.py: expected {what}")


def limit_files(most):
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    opened = []
    try:
        for _ in range(most + 1):
            opened.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as error:
        expect(error.errno == errno.EMFILE, f"EMFILE beyond {most} descriptors, found {error}")
    expect(opened and opened[-1] == most - 1, f"{most} descriptors and no more, found {opened[-1:]}")
    for descriptor in opened:
        os.close(descriptor)


def limit_tasks(most):
    """Limits the processes and threads of the user. Root has no such limit, hence --user."""
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    done = threading.Event()
    threads = []
    refused = False
    for _ in range(most):  # one more than permitted, with the main thread
        thread = threading.Thread(target=done.wait)
        try:
            thread.start()
        except RuntimeError:
            refused = True
            break
        threads.append(thread)
    done.set()
    for thread in threads:
        thread.join()
    while len(os.listdir("/proc/self/task")) > 1:  # until then a thread that has ended counts against the limit
        time.sleep(0.001)
    expect(refused, f"fewer than {most} more threads, found {len(threads)}")


def limit_memory(most):
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    try:
        mmap.mmap(-1, most)
    except (OSError, MemoryError):
        return
    expect(False, f"no {most} bytes more of address space")


def limit_file_size(most):
    tempfile.gettempdir()  # it writes to find the directory, so it must run before the limit
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with tempfile.TemporaryFile() as file:
        if most:
            os.pwrite(file.fileno(), b"x", most - 1)
        try:
            os.pwrite(file.fileno(), b"x", most)
            expect(False, f"no write beyond {most} bytes")
        except OSError as error:
            expect(error.errno == errno.EFBIG, f"EFBIG beyond {most} bytes, found {error}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--user", type=int)
    parser.add_argument("--nofile", type=int)
    parser.add_argument("--nproc", type=int)
    parser.add_argument("--memory", type=int)
    parser.add_argument("--fsize", type=int)
    parser.add_argument("--ignore-xfsz", action="store_true")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    if args.user is not None:
        os.setgroups([])
        os.setgid(args.user)
        os.setuid(args.user)
    for limit, most in [
        (limit_files, args.nofile),
        (limit_tasks, args.nproc),
        (limit_file_size, args.fsize),
        (limit_memory, args.memory),
    ]:
        if most is not None:
            limit(most)
    # Python ignores both signals, and the command would inherit that
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN if args.ignore_xfsz else signal.SIG_DFL)
    os.execv(args.command[0], args.command)


if __name__ == "__main__":
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    try:
        main()
    except SystemExit as exit:
        if isinstance(exit.code, str):
            print(exit.code, file=sys.stderr)
            sys.exit(125)
        raise
