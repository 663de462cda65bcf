"""Starts programs that must end, or print a line, within a limit; those that do not are killed and reported."""

import re
import subprocess
import threading

LIMIT = 600  # seconds: many times what a program takes on a busy machine


def limited(command):
    """The words of a command that is killed after LIMIT seconds; its exit code is then 124 or 137."""
    return ["timeout", "--kill-after=10", str(LIMIT), *map(str, command)]


class Server:
    """A running server. `url` is the first match of `pattern` in what it prints."""

    def __init__(self, command, pattern, environment=None):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        watchdog = threading.Timer(LIMIT, self.process.kill)
        watchdog.start()
        self.printed, found = "", None
        while not found and (line := self.process.stdout.readline()):
            self.printed += line
            found = re.search(pattern, line)
        watchdog.cancel()
        if not found:
            self.stop()
            raise OSError(f"expected a URL from {command[0]} within {LIMIT} s, found its end: {self.printed}")
        self.url = found[0]
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self):
        for line in self.process.stdout:
            self.printed += line

    def stop(self):
        """Terminates the server, and kills it if it is still running after LIMIT seconds; returns its exit code."""
        self.process.terminate()
        try:
            return self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
