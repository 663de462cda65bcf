#!/usr/bin/env python3
"""Checks the imports of the Rust sources against the layer table of docs/design.md.

    scripts/check_layers.py             check src/, cli/src/, python/src/ and crates/
    scripts/check_layers.py --planted   check that planted mistakes are found
    scripts/check_layers.py --edges     print the imports between modules as well

Two rules. A module imports only from its own layer and from layers above it in the table ("lowest first"). Modules with
the same parent do not import each other in a circle; a parent and its children may. Paths are resolved through `use`,
re-exports, globs and inline paths to the module that defines the item. Test code is not part of the layers.

Exit status: 0 if both rules hold, 1 if not.
"""

import re
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# ---- lexing ----

TOKEN = re.compile(
    r"""
    //[^\n]* | /\*.*?\*/                                  # comments (nested block comments are not used)
    | b?r(?P<hashes>\#*)".*?"(?P=hashes) | b?"(?:\\.|[^"\\])*"   # strings
    | b?'(?:\\(?:x..|u\{[^}]*\}|.)|[^'\\])'               # characters; a lifetime has no closing quote
    """,
    re.VERBOSE | re.DOTALL,
)


def code_of(text):
    """`text` without comments, strings and items for tests."""
    text = TOKEN.sub(lambda match: " " if match.group(0)[0] == "/" else '""', text)
    while match := re.search(r"#\[cfg\((?:test|all\(test[^\]]*|any\(test, feature[^\]]*)\)\]\s*(?:#\[[^\]]*\]\s*)*", text):
        text = text[: match.start()] + text[item_end(text, match.end()) :]
    return text


def item_end(text, start):
    """The end of the item that begins at `start`: its `;` or its closing brace."""
    depth = 0
    for at in range(start, len(text)):
        if text[at] in "{([":
            depth += 1
        elif text[at] in "})]":
            depth -= 1
            if depth == 0 and text[at] == "}" and not re.match(r"\s*;", text[at + 1 :]):
                return at + 1
        elif text[at] in ";," and depth == 0:
            return at + 1
    return len(text)


# ---- modules ----


class Module:
    def __init__(self, path, file, code):
        self.path = path  # ("read", "shard", "lookup")
        self.file = file
        self.code = code
        self.children = {}
        self.names = {}  # name -> path that a `use` binds to it
        self.globs = []

    def __str__(self):
        return "::".join(("crate", *self.path))


def load(crate_root):
    """All modules of a crate, by path, beginning with `lib.rs` or `main.rs`."""
    file = next(crate_root / name for name in ("lib.rs", "main.rs") if (crate_root / name).exists())
    modules = {}

    def add(path, file, code, directory):
        module = modules[path] = Module(path, file, code)
        while inline := re.search(r"\bmod\s+(\w+)\s*\{", module.code):  # a module in this file
            end = item_end(module.code, inline.end() - 1)
            body = module.code[inline.end() : end - 1]
            module.code = module.code[: inline.start()] + module.code[end:]
            module.children[inline[1]] = (*path, inline[1])
            add((*path, inline[1]), file, body, directory / inline[1])
        for name in re.findall(r"\bmod\s+(\w+)\s*;", module.code):
            child = directory / f"{name}.rs"
            if not child.exists():
                child = directory / name / "mod.rs"
            module.children[name] = (*path, name)
            add((*path, name), child, code_of(child.read_text()), directory / name)
        for tree in re.findall(r"\buse\s+([^;]+);", module.code):
            for name, target in use_tree(re.sub(r"\s+", " ", tree).strip(), ()):
                if name == "*":
                    module.globs.append(target)
                elif name != "_":
                    module.names[name] = target

    add((), file, code_of(file.read_text()), crate_root)
    return modules


def use_tree(tree, prefix):
    """The (name, path) pairs of one `use`."""
    tree = tree.strip()
    if (brace := tree.find("{")) >= 0:
        head = tuple(part for part in tree[:brace].strip().split("::") if part)
        depth, begin, body = 0, 0, tree[brace + 1 : tree.rindex("}")]
        for at, char in enumerate(body + ","):
            depth += (char == "{") - (char == "}")
            if char == "," and depth == 0:
                if part := body[begin:at].strip():
                    yield from use_tree(part, prefix + head)
                begin = at + 1
        return
    path, _, alias = tree.partition(" as ")
    parts = prefix + tuple(part.strip() for part in path.split("::") if part)
    if parts and parts[-1] == "self":
        parts = parts[:-1]
    if parts:
        yield (alias.strip() or parts[-1], parts[:-1] if parts[-1] == "*" else parts)


# ---- resolution ----


def resolve(modules, at, parts, seen=()):
    """The path of the module that defines what `parts` names in module `at`; None outside the crate."""
    if (at, parts) in seen:
        return None
    seen = (*seen, (at, parts))
    if parts[0] == "crate":
        at, parts = (), parts[1:]
    elif parts[0] == "self":
        parts = parts[1:]
    elif parts[0] == "super":
        at, parts = at[:-1], parts[1:]
        while parts and parts[0] == "super":
            at, parts = at[:-1], parts[1:]
    elif parts[0] not in modules[at].children and parts[0] not in modules[at].names:
        return None
    while parts:
        module, name = modules[at], parts[0]
        if name in module.children:
            at, parts = module.children[name], parts[1:]
        elif name in module.names:
            path = module.names[name]
            return None if path[0] == name else resolve(modules, at, path + parts[1:], seen)  # `use name::name` is of a crate
        else:
            for glob in module.globs:
                target = resolve(modules, at, glob, seen)
                if target is not None and defines(modules, target, name):
                    return resolve(modules, target, ("self", *parts), seen)
            return at  # an item of this module
    return at


def defines(modules, at, name):
    module = modules[at]
    return name in module.children or name in module.names or re.search(
        rf"\b(?:fn|struct|enum|union|trait|type|const|static|macro_rules!)\s+{name}\b", module.code
    )


def imports(modules):
    """Each (importing module, defining module, path as written)."""
    for at, module in modules.items():
        paths = set(module.names.values()) | set(module.globs)
        for match in re.finditer(r"(?<![\w:])((?:crate|super|self|[a-z]\w*)(?:::\w+)+)", module.code):
            paths.add(tuple(match[1].split("::")))
        for parts in sorted(paths):
            target = resolve(modules, at, parts)
            if target is not None and target != at:
                yield at, target, "::".join(parts)


# ---- rules ----


def layers(design):
    """The module paths of each row of the layer table, lowest first."""
    section = design.split("## Layers", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")][2:]
    return [
        [tuple(part for part in name.strip("/").split("/")) for name in re.findall(r"`([^`]+)`", row)]
        for row in rows
    ]


def is_facade(modules, path):
    """Whether a module of lib.rs holds re-exports or guides and nothing else."""
    module = modules[path]
    rest = re.sub(r"\bpub use [^;]*;|\bwhole!\([^)]*\);|#\[(?:doc|cfg)[^\]]*\]|\bpub\b", "", module.code).strip()
    return module.file == modules[()].file and (module.names or module.children) and not rest


def upward(modules, table, edges):
    rank = {path: number for number, row in enumerate(table) for path in row}
    for name, child in modules[()].children.items():
        if (name,) not in rank and not is_facade(modules, child):
            yield f"`{name}` is in no row of the layer table"
    for path in rank:
        if path not in modules:
            yield f"`{'/'.join(path)}` is in the layer table, but not in src"

    def rank_of(path):
        return next((rank[path[:length]] for length in range(len(path), 0, -1) if path[:length] in rank), None)

    for at, target, path in edges:
        importer, definer = rank_of(at), rank_of(target)
        if importer is None or definer is None or definer <= importer:
            continue
        yield f"{modules[at].file}: imports {path} of a later layer ({modules[target]})"


def circles(modules, edges):
    between = {}  # (parent) -> {child: {child: example}}
    for at, target, path in edges:
        common = next(i for i in range(len(at) + 1) if at[: i + 1] != target[: i + 1] or i in (len(at), len(target)))
        if common < len(at) and common < len(target):
            children = between.setdefault(at[:common], {})
            children.setdefault(at[common], {}).setdefault(target[common], f"{modules[at].file}: {path}")
    for parent, graph in between.items():
        for circle in components(graph):
            yield f"{modules[parent]}: {', '.join(circle)} import each other:" + "".join(
                f"\n    {graph[a][b]}" for a in circle for b in circle if b in graph.get(a, {})
            )


def components(graph):
    """The sets of more than one node that reach each other."""

    def reached(start):
        found, waiting = set(), [start]
        while waiting:
            for node in graph.get(waiting.pop(), {}):
                if node not in found:
                    found.add(node)
                    waiting.append(node)
        return found

    reach = {node: reached(node) for node in graph}
    done = set()
    for node in sorted(graph):
        circle = {other for other in reach[node] if node in reach.get(other, ())}
        if len(circle) > 1 and node not in done:
            done |= circle
            yield sorted(circle)


def findings(root, print_edges=False):
    library = load(root / "src")
    others = [load(source) for source in (root / "cli/src", root / "python/src", *sorted(root.glob("crates/*/src")))]
    table = layers((root / "docs/design.md").read_text())
    edges = list(imports(library))
    if print_edges:
        for at, target, path in edges:
            print(f"{library[at]} -> {library[target]}  ({path})")
    return [
        *upward(library, table, edges),
        *circles(library, edges),
        *(finding for crate in others for finding in circles(crate, list(imports(crate)))),
    ]


# ---- planted mistakes ----

PLANTED = [  # a mistake, and the lines that make it
    ("an upward import", {"src/plan/skew.rs": "use crate::store::Store;"}),
    ("an upward import through a re-export", {"src/plan/skew.rs": "use crate::Snapshot;"}),
    ("an upward import in a group", {"src/fs/mod.rs": "use crate::{plan::Profile, store::{self as s, Store}};"}),
    ("an upward inline path", {"src/bytes/mod.rs": "fn planted() { crate::verify::planted(); }"}),
    ("an upward path by `super`", {"src/plan/skew.rs": "fn planted() { super::super::write::planted(); }"}),
    ("an upward import by a glob", {"src/plan/skew.rs": "use crate::read::*;"}),
    (
        "a circle of siblings",
        {"src/store/gc.rs": "use super::history;", "src/store/history.rs": "use super::gc;"},
    ),
    (
        "a circle of siblings in the formats",
        {"crates/format/src/checks.rs": "use crate::shard_index;", "crates/format/src/shard_index.rs": "use crate::checks;"},
    ),
    (
        "a circle of siblings in the containers",
        {"crates/container/src/sharded.rs": "use crate::zarr;", "crates/container/src/zarr/mod.rs": "use crate::sharded;"},
    ),
    (
        "a circle of siblings in the remote reader",
        {"crates/remote/src/block.rs": "use crate::snapshot;", "crates/remote/src/snapshot.rs": "use crate::block;"},
    ),
    (
        "a circle of siblings in the server",
        {"crates/serve/src/token.rs": "use crate::routes;", "crates/serve/src/routes.rs": "use crate::token;"},
    ),
    (
        "a circle of siblings in the command",
        {"cli/src/size.rs": "use crate::plan;", "cli/src/plan/mod.rs": "use crate::size;"},
    ),
    (
        "a circle of siblings in the Python package",
        {"python/src/errors.rs": "use crate::store;", "python/src/store.rs": "use crate::errors;"},
    ),
    ("a module in no layer", {"src/lib.rs": "mod planted {}"}),
]


def planted():
    failed = 0
    for name, lines in PLANTED:
        with tempfile.TemporaryDirectory() as directory:
            copy = Path(directory)
            for source in ("src", "cli/src", "python/src", "crates"):
                shutil.copytree(ROOT / source, copy / source, ignore=shutil.ignore_patterns("tests"))
            (copy / "docs").mkdir()
            shutil.copy(ROOT / "docs/design.md", copy / "docs")
            before = findings(copy)
            for file, line in lines.items():
                path = copy / file
                path.write_text(path.read_text() + f"\n{line}\n")
            found = set(findings(copy)) - set(before)
            print(f"{'found' if found else 'NOT FOUND'}: {name}")
            failed += not found
    print(f"{len(PLANTED) - failed} passed, {failed} failed")
    return failed


def main():
    if "--planted" in sys.argv[1:]:
        return 1 if planted() else 0
    found = findings(ROOT, "--edges" in sys.argv[1:])
    for finding in found:
        print(finding)
    print(f"{len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
