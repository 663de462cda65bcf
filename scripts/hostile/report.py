"""The report: what passed, what failed, and what cannot run on this machine."""

import threading


class Report:
    """Counts cases and prints those that did not pass. Threads may share it."""

    def __init__(self):
        self.passed = self.failed = self.missing = 0
        self._environment = ""
        self._of_environment = [0, 0, 0]
        self._lock = threading.Lock()

    def begin(self, environment):
        """Starts the cases of an environment."""
        self._environment = environment
        self._of_environment = [0, 0, 0]
        print(f"== {environment}", flush=True)

    def end(self, seconds):
        """Prints the totals of an environment."""
        passed, failed, missing = self._of_environment
        text = f"   {self._environment}: {passed} cases passed, {failed} failed"
        if missing:
            text += f", {missing} cannot run here"
        print(f"{text}, in {seconds:.0f} s", flush=True)
        if passed + failed + missing == 0:
            self.case("has cases", ["expected at least one case, found none"])

    def case(self, name, problems):
        """Counts a case: passed if there are no problems, else failed."""
        with self._lock:
            self._of_environment[bool(problems)] += 1
            if not problems:
                self.passed += 1
                return
            self.failed += 1
            print(f"FAILED {self._environment}: {name}", flush=True)
            for problem in problems:
                print(f"       {problem}", flush=True)

    def cannot(self, name, why):
        """Counts a case that this machine cannot run."""
        with self._lock:
            self._of_environment[2] += 1
            self.missing += 1
            print(f"CANNOT {self._environment}: {name}: {why}", flush=True)

    def totals(self):
        """Prints all totals; returns whether nothing failed."""
        if self.missing:
            print(f"{self.missing} cannot run here (lines CANNOT above)")
        print(f"{self.passed} passed, {self.failed} failed", flush=True)
        return self.failed == 0
