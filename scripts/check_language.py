#!/usr/bin/env python3
"""Finds phrases that comments, docs and messages of this project must not have.

    scripts/check_language.py

They are the unambiguous ones of the habits that made the text hard to read: each has a plain term in the second column of
PHRASES. docs/notebook.md records the past and is not checked. Exit status: 0 if nothing is found, else 1.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PHRASES = [  # what to find, and what to write instead
    (r"\bthe same where\b", "name the function it resembles"),
    (r"\bso many\b", "a number, or: the number of .."),
    (r"\bso much\b", "an amount, or: that much"),
    (r"\bat hand\b", "current, available"),
    (r"\bas (?:it|they) (?:lies?|stands?)\b", "in place, as stored"),
    (r"\b(?:come|comes|came|coming) by\b", "visit, obtain"),
    (r"\b(?:is|are|was|were|be|been) told\b", "is stated, knows, returns"),
    (r"\b(?:tells|told) (?:of|whether|where|what|how|which)\b", "states, returns"),
    (r"\b(?:of|by) ours\b", "native"),
    (r"\b(?:shards?|data|data sets?|files?|generations?) of others\b", "foreign"),
    (r"\b(?:asks?|asked|asking) the system\b", "asks the kernel, prefetches"),
    (r"\bis asked for\b", "is requested, is prefetched"),
    (r"\bOf more\b", "a sentence with its subject first"),
    (r"\b(?:bytes|bits|ns|nanoseconds|us|lines?|calls?|descriptors?) an? (?:key|minishard|lookup|get|value|shard|row|hit|second)\b", "per"),
    (r"\bkeys a (?:minishard|shard|second)\b", "per"),
    (r"\bbehind (?:it|them|its|their|that|those|each|which)\b", "after"),
    (r"\bin the midst of\b", "during"),
    (r"\bsomebody else\b", "foreign, another program"),
    (r"\bthat there (?:is|are)\b\s*[.;]", "say what exists"),
]

CHECKED = (".rs", ".md", ".py", ".sh", ".toml")
NOT_CHECKED = {"docs/notebook.md", "scripts/check_language.py"}


def files():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for name in listed:
        if name not in NOT_CHECKED and (name.endswith(CHECKED) or name == ".ci/run"):
            if not name.startswith(("tests/data/", "fuzz/corpus/")) or name.endswith("README.md"):
                yield name


def main():
    found = 0
    phrases = [(re.compile(phrase), instead) for phrase, instead in PHRASES]
    for name in files():
        for number, line in enumerate((ROOT / name).read_text(errors="replace").splitlines(), 1):
            for phrase, instead in phrases:
                if match := phrase.search(line):
                    print(f'{name}:{number}: "{match[0]}": write {instead}')
                    found += 1
    print(f"{found} phrases found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
