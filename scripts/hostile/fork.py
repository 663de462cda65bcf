"""The tests of forked children with a database, a writer or a loader: Rust tests, which are found by name."""

import limits


def run(stage, report):
    """Runs all of tests/fork.rs, and every other test with `fork` in its name."""
    found = limits.rust_tests(stage, report, "fork", [], [], "after fork") if "fork" in stage.binaries else 0
    for program in sorted(stage.binaries.keys() - {"sharddb", "fork"}):
        listed = stage.limited([], stage.binaries[program], "--list")
        if any("fork" in line and line.endswith(": test") for line in listed.out.decode().splitlines()):
            found += limits.rust_tests(stage, report, program, ["fork"], [], "after fork")
    report.case("there are tests", [] if found else ["expected tests after fork, found none"])
