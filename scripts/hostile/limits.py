"""The tests and the command under limits of the process: descriptors, threads, memory, length of files."""

import re
import shutil

import pairs as pair
from stage import IO, USER

MIB = 1 << 20
TESTS = [  # a test program, and words in the names of its tests
    ("lib", ["write::", "store::"]),
    ("it", ["bulk::", "refresh::", "store_v1::", "hostile_store::"]),
]
QUICK_TESTS = [  # those of the short form
    ("lib", ["store::tests::rolls_back_to_the_newest_complete_one_or_to_any", "store::tests::adopts_a_copy_or_the_directory_itself"]),
    ("it", ["bulk::values_larger_than_the_batch", "refresh::a_reader_follows_and_a_snapshot_stays"]),
]
TOO_LARGE = {
    "store::tests::adopts_no_manifest_or_info_of_a_gigabyte": "makes a file of 1 GiB itself",
    "shard_indexes_that_outweigh_the_data_are_refused_unless_allowed": "makes sparse files of 64 GiB itself",
}
# tests that need several threads or processes of their own
STARTS_MORE = {
    "write::model_tests": "starts threads itself, and loaders with several",
    "store::kill_tests": "starts processes itself",
    "object_store::": "runtimes start threads, which may end after them",
    "store::tests::new_stores_are_made_and_removed_at_once": "starts threads itself",
    "refreshes_at_once_swap_once": "starts threads itself",
}
# glibc reserves this much address space for each thread that allocates
ARENA = 64
RESULT = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (\w+)", re.MULTILINE)


def run(stage, report):
    """The Rust tests under each limit, then builds under increasing limits."""
    tests_under(stage, report, "64 descriptors", ["--nofile", "64"])
    tests_under(stage, report, "files of 64 MiB", ["--fsize", 64 * MIB, "--ignore-xfsz"], cannot=TOO_LARGE)
    tests_under(stage, report, "1280 MiB of memory", ["--memory", 1280 * MIB])
    if stage.is_root:
        tests_under(stage, report, "an unprivileged user", ["--user", USER])
        tests_under(stage, report, "6 threads", ["--user", USER, "--nproc", "6"], cannot=STARTS_MORE, at_once=1)
        few_threads(stage, report)
    else:
        report.cannot("few threads", "needs root, to become a user that runs nothing else")
    little_memory(stage, report)
    short_files(stage, report)


# ---- Rust tests ----


def tests_under(stage, report, name, limits, cannot={}, at_once=2):
    if stage.is_short:
        cannot = {}
    for test, why in cannot.items():
        report.cannot(f"{test} with {name}", why)
    for program, names in QUICK_TESTS if stage.is_short else TESTS:
        rust_tests(stage, report, program, names, limits, f"with {name}", cannot, at_once)


def rust_tests(stage, report, program, names, limits, where, cannot=(), at_once=2):
    """Runs tests of a program under limits, each as a case; returns their number."""
    copy = stage.work / program  # where every user may run it
    if not copy.exists():
        shutil.copy(stage.binaries[program], copy)
    temporary = stage.directory("tmp")
    outcome = stage.limited(
        [str(limit) for limit in limits],
        copy,
        *names,
        *(word for test in cannot for word in ("--skip", test)),
        f"--test-threads={at_once}",
        env={"TMPDIR": str(temporary)},
        name=f"{program} {where}",
    )
    results = RESULT.findall(outcome.out.decode(errors="replace"))
    absent = [name for name in names if not any(name in test for test, _ in results)]
    if absent:
        report.case(f"{program}: has the tests {where}", [f"expected tests with these words in their names, found none: {absent}"])
    for test, result in results:
        if result == "ignored":
            continue
        problems = [] if result == "ok" else [f"{result}: {reason(outcome, test)}"]
        report.case(f"{program}: {test} {where}", problems)
    ended = outcome.problems((0, 101)) if any(result == "FAILED" for _, result in results) else outcome.problems((0,))
    report.case(f"{program} {where} comes to its end", [problem for problem in ended if "panicked" not in problem])
    return len(results)


def reason(outcome, test):
    """The lines that a test printed, truncated."""
    _, _, text = outcome.out.decode(errors="replace").partition(f"---- {test} stdout ----\n")
    return " | ".join(text.split("\n\n")[0].splitlines())[:300]


# ---- builds ----


def few_threads(stage, report):
    """A build that spills and cannot start its planned threads must succeed with two, and may be refused with one. A lookup
    needs one."""
    expected = pair.random_pairs(21, 24_000, 1000)
    source = stage.input(expected)
    cases = [(tasks, memory) for tasks in range(1, 13) for memory in ("16MiB", "1GiB")]
    for tasks, memory in stage.sample(cases, lambda case: (case[0] > 1, case[1])):
        store = stage.directory("few-threads") / "store"
        limits = ["--user", USER, "--nproc", tasks]
        outcome = stage.limited(
            [str(limit) for limit in limits],
            stage.command,
            *("build", store, "--input", source, "--memory", memory, "--threads", "8", "-q"),
            name="build",
        )
        problems = outcome.problems((0,) if tasks > 1 else (0, IO), names=["thread", "signals"])
        if outcome.code == 0:
            problems += stage.wrong_in(store, expected)
            key, value = next(iter(expected.items()))
            found = stage.limited([str(limit) for limit in limits], stage.command, "get", store, key, name="get")
            problems += found.problems((0,))
            if found.out != value:
                problems.append(f"get {key} with {tasks} tasks has another value")
        report.case(f"build in {memory} with {tasks} tasks", problems)
    source.unlink()


def little_memory(stage, report):
    """The budget plus 256 MiB of address space are enough for a build; threads beyond two need a glibc arena each."""
    expected = pair.random_pairs(22, 100_000, 1000)
    source = stage.input(expected)
    for memory, threads in stage.sample((memory, threads) for memory in (16, 64, 256) for threads in (1, 2, 4)):
        store = stage.directory("little-memory") / "store"
        beside = 256 + ARENA * max(threads - 2, 0)
        outcome = stage.limited(
            ["--memory", str((memory + beside) * MIB)],
            stage.command,
            *("build", store, "--input", source, "--memory", f"{memory}MiB", "--threads", threads, "-q"),
            name="build",
        )
        problems = outcome.problems((0,))
        if outcome.code == 0:
            problems += stage.wrong_in(store, expected)
        report.case(f"build --memory {memory}MiB --threads {threads} in {memory} + {beside} MiB", problems)
    source.unlink()


def short_files(stage, report):
    """If files may not be as long as needed, the command reports it and keeps the old generation."""
    old, new = pair.random_pairs(23, 20, 100), pair.random_pairs(24, 24_000, 1000)
    source = stage.input(new)
    base = stage.directory("short-files")
    stage.build(base / "old", old)
    stage.build(base / "new", new)
    record = sum(len(value) + 16 for value in new.values())
    for limit in stage.sample((0, 1, 15, 4096, MIB, 4 * MIB, 20 * MIB, record, 4 * record)):
        for name, arguments in {
            "build in 16 MiB": ["build", base / "place/store", "--input", source, "--memory", "16MiB", "-q"],
            "build in 1 GiB": ["build", base / "place/store", "--input", source, "--memory", "1GiB", "-q"],
            "publish": ["publish", base / "place/store", "--from", base / "new/current/"],
            "export": ["export", base / "new", "--format", "bin", "--output", base / "place/out"],
            "salvage": ["salvage", base / "new", base / "place/out"],
        }.items():
            stage.directory("place", base)
            shutil.copytree(base / "old", base / "place/store", symlinks=True)
            outcome = stage.limited(["--fsize", str(limit)], stage.command, *arguments, name=name)
            problems = outcome.problems((0, IO), names=[base / "place"])
            problems += after_write(stage, base / "place", name, outcome, old, new)
            report.case(f"{name} with files of at most {limit} bytes", problems)
    source.unlink()


def after_write(stage, place, name, outcome, old, new):
    """What is wrong after a subcommand that wrote `new` into `store`, which had `old`, or to `out`."""
    verb = name.split()[0]
    if verb in ("build", "publish"):
        problems = stage.wrong_in(place / "store", old if outcome.code else new)
        left = {path.name for path in (place / "store").iterdir()} - {"current", "history", "lock", "gen-0000000001"}
        if outcome.code and left:
            problems.append(f"expected nothing left behind, found {sorted(left)}")
        return problems
    if outcome.code == 0:
        if verb == "salvage":
            return stage.wrong_in(place / "out", new)
        return pair.wrong_in_file(place / "out", new)
    left = sorted(path.name for path in place.iterdir() if path.name != "store")
    return [f"expected nothing left behind, found {left}"] if left else []
