"""Runs a command under a watchdog and records how it ended."""

import os
import signal
import subprocess
import threading
from dataclasses import dataclass

WATCHDOG = 600  # seconds; the slowest program takes 30 on two busy cores
BUG = 70  # the exit code of a panic
KEPT = 16 << 20  # bytes of each output; the rest is read and dropped


@dataclass
class Outcome:
    """How a command ended, and what it wrote."""

    name: str
    code: int  # negative: the signal that killed it
    out: bytes
    err: str
    hung: bool

    def problems(self, codes, names=()):
        """What is wrong: a hang, a signal, a panic, another exit code, or an error that names none of `names`."""
        if self.hung:
            return [f"{self.name}: still running after {WATCHDOG} s{self._said()}"]
        if self.code < 0:
            return [f"{self.name}: ended by {signal.Signals(-self.code).name}{self._said()}"]
        if "panicked" in self.err and BUG not in codes:
            return [f"{self.name}: panicked{self._said()}"]
        if self.code not in codes:
            return [f"{self.name}: expected exit code {_one_of(codes)}, found {self.code}{self._said()}"]
        text = self.err + self.out[:KEPT].decode(errors="replace")
        if self.code and names and not any(str(name) in text for name in names):
            return [f"{self.name}: expected an error that names {_one_of(names)}, found{self._said()}"]
        return []

    def _said(self):
        text = " | ".join(line for line in self.err.splitlines() if line.strip())
        if self.hung:
            text += f" | output ends with {self.out[-400:].decode(errors='replace')!r}"
        return f": {text[-800:] if self.hung else text[:400]}" if text else ", without a word"


def run(argv, *, user=None, group=None, umask=-1, env=None, cwd=None, stdin=subprocess.DEVNULL, name=None):
    """Runs a command to its end. The watchdog kills it with all its children."""
    as_user = {"user": user, "group": group or user, "extra_groups": []} if user is not None else {}
    process = subprocess.Popen(
        [str(arg) for arg in argv],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=dict(os.environ if env is None else env, RUST_BACKTRACE="0"),
        cwd=cwd,
        umask=umask,
        **as_user,
    )
    outputs = [bytearray(), bytearray()]
    readers = [
        threading.Thread(target=_drain, args=pair, daemon=True)
        for pair in zip((process.stdout, process.stderr), outputs)
    ]
    for reader in readers:
        reader.start()
    hung = False
    try:
        process.wait(WATCHDOG)
    except subprocess.TimeoutExpired:
        hung = True
        os.killpg(process.pid, signal.SIGKILL)  # not reaped yet, so the id cannot belong to another process
        process.wait()
    for reader in readers:
        reader.join(WATCHDOG)
        hung |= reader.is_alive()  # a child of the command still has the pipe
    out, err = (bytes(output) for output in outputs)
    return Outcome(name or _name(argv), process.returncode, out, err.decode(errors="replace"), hung)


def _drain(pipe, kept):
    for block in iter(lambda: pipe.read1(1 << 16), b""):
        if len(kept) < KEPT:
            kept += block


def _name(argv):
    words = [os.path.basename(str(arg)) if "/" in str(arg) else str(arg) for arg in argv]
    return " ".join(words)[:120]


def _one_of(things):
    return " or ".join(str(thing) for thing in things)
