"""Runs the fenced blocks of a Markdown document in a directory, and compares what they print with what they say.

    text      not run
    sh        commands; a line that begins with cargo is not run
    console   `$ COMMAND` and what it prints; `...` is any text, and times are not compared. `sharddb serve` runs until the end.
              Exit code 1 is no failure of a lookup or a comparison
    python    statements; the comment after an expression is its value, up to a semicolon. All blocks are one program
    rust      a whole program; it runs again with each commented-out line that begins with `let` instead of the line before it
"""

import ast
import os
import re
import subprocess
from pathlib import Path

from programs import Server, limited

ROOT = Path(__file__).resolve().parent.parent


def blocks(document):
    """The language and the text of each block."""
    return re.findall(r"^```(.*?)\n(.*?)^```$", document, flags=re.DOTALL | re.MULTILINE)


class Place:
    """A directory with links to the data of the project, in which blocks run; `python` is the interpreter."""

    def __init__(self, directory, sharddb, python):
        self.directory, self.python = Path(directory), python
        self.environment = os.environ | {"PATH": f"{sharddb.parent}{os.pathsep}{os.environ['PATH']}"}
        self.servers = []
        for name in ("crates", "examples", "tests"):
            (self.directory / name).symlink_to(ROOT / name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.stop()

    def run(self, command, cwd=None, **environment):
        """The exit code, and what was printed."""
        done = subprocess.run(
            limited(command), cwd=cwd or self.directory, env=self.environment | environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.returncode, done.stdout

    def shell(self, script):
        return self.run(["bash", "-e", "-u", "-o", "pipefail", "-c", script])

    def check(self, language, text):
        """Yields what was run and, if it is not as the document says, why."""
        run = {"sh": self.sh, "console": self.console, "rust": self.rust, "text": lambda _: ()}
        yield from run[language](text) if language in run else [(text, f"expected one of {list(run)}, found {language!r}")]

    def sh(self, text):
        script = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("cargo "))
        if script:
            yield script, failure(*self.shell(script))

    def console(self, text):
        for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, flags=re.MULTILINE):
            if command.startswith("sharddb serve"):
                served = ["env", "-C", self.directory, "bash", "-c", f"exec {command}"]
                self.servers.append(Server(served, r"page\t\S+", self.environment))
                code, printed = 0, self.servers[-1].printed
            else:
                code, printed = self.shell(command)
            is_answer = code == 1 and re.match("sharddb (get|contains|diff) ", command)
            yield command, failure(0 if is_answer else code, printed) or differs(expected, printed)

    def program(self, text):
        """Runs the python blocks as one program."""
        lines, checked = text.splitlines(), 0
        for statement in reversed(ast.parse(text).body):
            last = statement.end_lineno - 1
            value = re.fullmatch(r" +# (.*?)(; .*)?", lines[last].encode()[statement.end_col_offset :].decode())
            if isinstance(statement, ast.Expr) and value:
                first, code = statement.lineno - 1, ast.unparse(statement.value)
                lines[first : last + 1] = [f"_found = repr({code}); assert _found == {value[1]!r}, _found"]
                checked += 1
        yield "a value of Python", "" if checked else "expected one, found none"
        yield f"{checked} values of Python", failure(*self.run([self.python, "-c", "\n".join(lines)]))

    def rust(self, text):
        """Runs the program in a new package that depends on the checkout."""
        package, target = self.directory / "trial", Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
        code, printed = self.run(["cargo", "new", "--quiet", "--vcs", "none", package])
        if code == 0:
            (package / "Cargo.lock").write_bytes((ROOT / "Cargo.lock").read_bytes())
            code, printed = self.run(["cargo", "add", "--quiet", "sharddb", "--path", ROOT], cwd=package)
        yield "cargo add", failure(code, printed)
        alternatives = re.sub(r"^.*\n( *)// (let .*\n)", r"\1\2", text, flags=re.MULTILINE)
        yield "a second way", "" if alternatives != text else "expected a commented-out let, found none"
        for program in (text, alternatives):
            (package / "src/main.rs").write_text(program)
            run = ["cargo", "run", "--quiet", "--manifest-path", package / "Cargo.toml"]
            yield program, failure(*self.run(run, CARGO_TARGET_DIR=str(target / "trial")))


def failure(code, printed):
    return f"exit code {code}\n{printed[-2000:]}" if code else ""


def differs(expected, printed):
    """Why what was printed is not what the document says; times are equal."""
    timeless = [re.sub(r"\bin \d+\.\d s\b", "in S s", text) for text in (expected, printed)]
    pattern = ".*".join(re.escape(part) for part in timeless[0].rstrip("\n").split("..."))
    return "" if re.fullmatch(pattern, timeless[1].rstrip("\n"), flags=re.DOTALL) else f"expected\n{expected}found\n{printed}"
