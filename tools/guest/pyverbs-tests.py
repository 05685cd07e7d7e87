#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Runs rdma-core's own pyverbs tests on a device in the test VM, measured against another device.

    pyverbs-tests.py DEVICE YARDSTICK KNOWN MODULE...     e.g.  sluice0 rxe0 vm/pyverbs.known test_mr test_qp

Prints KTAP. A test passes when it passes on DEVICE. What does not pass there is run on
YARDSTICK, too: if that is no better the test counts as skipped. So does a known difference, a line
of the file KNOWN: a test's name (a shell pattern), blanks, the reason. Everything else fails.

The tests run in child processes, as some of them crash the interpreter.
"""

import fnmatch
import importlib
import json
import os
import subprocess
import sys
import types
import unittest

import perftest

TESTS = "/usr/share/pyverbs-tests"

# How long one child may go without finishing a test.
TIMEOUT = 120 * int(os.environ.get("SLUICE_SLOW", 1))


# --- in the child: one process, one device, some tests ---------------------------------------


class Lines(unittest.TestResult):
    """Writes one JSON line for each test that ends."""

    def startTest(self, test):
        super().startTest(test)
        self.outcome, self.text = "ok", ""

    def stopTest(self, test):
        super().stopTest(test)
        line = {"test": test.id(), "outcome": self.outcome, "text": self.text}
        os.write(3, (json.dumps(line) + "\n").encode())

    def _set(self, outcome, text):
        self.outcome, self.text = outcome, text

    def addSkip(self, test, reason):
        self._set("skip", reason)

    def addFailure(self, test, err):
        self._set("fail", self._exc_info_to_string(err, test))

    def addError(self, test, err):
        self._set("fail", self._exc_info_to_string(err, test))

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self._set("fail", self._exc_info_to_string(err, test))


def flatten(suite):
    """The test cases of a suite of suites."""
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flatten(item)
        else:
            yield item


def child(device, names):
    """Runs tests by name; a name without a dot is a module whose tests are listed."""
    sys.path.insert(0, TESTS)
    sys.argv = ["pyverbs", "--dev", device, "--gid", str(perftest.gid_index(device))]
    importlib.import_module("args_parser").parser.parse_args()
    # The folder is the package "tests" to its modules. Its own __init__ would import all of them.
    package = types.ModuleType("tests")
    package.__path__ = [TESTS]
    sys.modules["tests"] = package
    loader = unittest.TestLoader()
    for name in names:
        if "." not in name:
            module = importlib.import_module(f"tests.{name}")
            for test in flatten(loader.loadTestsFromModule(module)):
                os.write(3, (json.dumps({"test": test.id(), "outcome": "listed"}) + "\n").encode())
        else:
            loader.loadTestsFromName(name).run(Lines())


# --- in the parent ----------------------------------------------------------------------------


def spawn(device, names):
    """Runs a child; returns its lines and why it ended, empty if in good order."""
    read, write = os.pipe()
    command = [sys.executable, __file__, "--child", device, *names]
    # File descriptor 3 is the child's way to its parent: programs may print what they like.
    script = f'exec "$@" 3>&{write} 2>&1'
    with subprocess.Popen(["bash", "-c", script, "pyverbs", *command], pass_fds=[write],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        os.close(write)
        try:
            output = process.communicate(timeout=TIMEOUT)[0].decode(errors="replace")
            end = "" if process.returncode == 0 else f"exit code {process.returncode}\n{output}"
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            end = f"not done after {TIMEOUT} s"
    with os.fdopen(read, encoding="utf-8") as file:
        return [json.loads(line) for line in file], end


def run(device, names):
    """Yields a line for each test, in order, whatever happens to the children."""
    while names:
        lines, end = spawn(device, names)
        yield from lines
        names = names[len(lines):]
        if names and end:
            yield {"test": names[0], "outcome": "fail", "text": f"the process died: {end}"}
            names = names[1:]
        elif names and not lines:
            yield {"test": names[0], "outcome": "fail", "text": "no result"}
            names = names[1:]


def known_differences(path):
    """The file of known differences as a list of (pattern, reason)."""
    found = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            fields = line.split(None, 1)
            if fields and not fields[0].startswith("#"):
                found.append((fields[0], fields[1].strip() if len(fields) > 1 else "known"))
    return found


def short(name):
    """A test's name as the reader knows it."""
    return name.removeprefix("tests.")


class Report:
    """Numbers and prints KTAP lines."""

    def __init__(self):
        self.count, self.failed = 0, False
        print("KTAP version 1", flush=True)

    def ok(self, name, skip=""):
        """A test that passed, or was skipped for a reason."""
        self.count += 1
        print(f"ok {self.count} {short(name)}" + (f" # SKIP {skip}" if skip else ""), flush=True)

    def not_ok(self, name, text):
        """A test that failed, and why."""
        self.count += 1
        self.failed = True
        for line in text.splitlines():
            print(f"# {line}")
        print(f"not ok {self.count} {short(name)}", flush=True)


def compare(device, yardstick, known, names, report):
    """Runs tests on the device, and those that do not pass there on the yardstick."""
    doubtful = []
    for line in run(device, names):
        reasons = [reason for pattern, reason in known
                   if fnmatch.fnmatch(short(line["test"]), pattern)]
        if line["outcome"] == "ok":
            report.ok(line["test"])
        elif reasons:
            report.ok(line["test"], f"known: {reasons[0]}")
        else:
            doubtful.append(line)
    for line, other in zip(doubtful, run(yardstick, [line["test"] for line in doubtful])):
        if other["outcome"] == "ok":
            report.not_ok(line["test"], line["text"])
        else:
            last = line["text"].strip().splitlines()[-1:]
            report.ok(line["test"], f"{yardstick} is no better: {''.join(last)}")


def main():
    if sys.argv[1] == "--child":
        child(sys.argv[2], sys.argv[3:])
        return
    device, yardstick, known_path, *modules = sys.argv[1:]
    known = known_differences(known_path)
    report = Report()
    for module in modules:
        lines, end = spawn(device, [module])
        if end or not lines:
            report.not_ok(f"{module}: cannot be loaded", end)
        compare(device, yardstick, known, [line["test"] for line in lines], report)
    print(f"1..{report.count}")
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
