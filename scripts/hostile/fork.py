"""The tests of what a forked child may do with a database or a writer: Rust tests, which are found by their names."""

import limits


def run(stage, report):
    """Runs every test with `fork` in its name."""
    found = 0
    for program in stage.binaries.keys() - {"sharddb"}:
        listed = stage.limited([], stage.binaries[program], "--list")
        if any("fork" in line and line.endswith(": test") for line in listed.out.decode().splitlines()):
            found += limits.rust_tests(stage, report, program, ["fork"], [], "after fork")
    report.case("there are tests", [] if found else ["expected tests with fork in their names, found none"])
