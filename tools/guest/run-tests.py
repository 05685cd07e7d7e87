#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Runs test programs in the test VM, one after the other; understands KTAP.

    run-tests.py NAME...        paths below /sluice: selftests/NAME, vm/NAME.sh

Prints, for tools/test and for a person:

    RUN  name
    PASS name: case
    SKIP name: case (reason)
    FAIL name: case             and below it, indented, what the program said
    DONE name (seconds)

A program passes or fails by its exit code where it prints no KTAP. Trouble in the kernel's log during
a program fails it. What a program wrote is in /out/logs. A program that cannot be killed ends the
run with exit code 75: the VM is of no use then.
"""

import os
import re
import selectors
import signal
import subprocess
import sys
import time

SLUICE = "/sluice"
LOGS = "/out/logs"

# How long a whole program may take. Programs have limits of their own for each case.
SLOW = int(os.environ.get("SLUICE_SLOW", 1))
TIMEOUT = {".sh": 900 * SLOW, "": 300 * SLOW}

RESULT = re.compile(r"^(not )?ok +\d+ *-? *(.*?) *(?:# *(SKIP|XFAIL|TODO|ERROR|TIMEOUT)\b *(.*))?$")
PLAN = re.compile(r"^1\.\.(\d+)")
EXIT_SKIP = 4


class Unkillable(Exception):
    """A process that stays after SIGKILL."""


def say(line):
    print(line, flush=True)


class Kernel:
    """The kernel's log, as far as it has not been looked at."""

    def __init__(self):
        self.seen = len(self.lines())

    @staticmethod
    def lines():
        return subprocess.run(["dmesg"], capture_output=True, text=True, errors="replace",
                              check=True).stdout.splitlines()

    def trouble(self):
        """What check-dmesg finds in the lines that are new; empty when all is well."""
        lines = self.lines()
        new, self.seen = lines[self.seen:], len(lines)
        check = subprocess.run([f"{SLUICE}/guest/check-dmesg", "-"], input="\n".join(new),
                               capture_output=True, text=True, check=False)
        return check.stdout if check.returncode else ""


class Report:
    """Turns one program's output into result lines."""

    def __init__(self, name):
        self.name = name
        self.planned = None
        self.results = self.failures = 0
        self.context = []

    def line(self, line):
        """Takes one line of output."""
        plan, result = PLAN.match(line), RESULT.match(line)
        if plan and self.planned is None:
            self.planned = int(plan.group(1))
        if not result:
            self.context.append(line)
            return
        bad, case, directive, reason = result.groups()
        self.results += 1
        if directive == "SKIP":
            say(f"SKIP {self.name}: {case}" + (f" ({reason})" if reason else ""))
        elif bad and directive != "XFAIL":
            self.fail(case)
        else:
            say(f"PASS {self.name}: {case}")
        self.context = []

    def fail(self, what):
        """Reports a failure with the lines that led to it."""
        self.failures += 1
        say(f"FAIL {self.name}: {what}")
        for line in self.context[-40:]:
            say(f"     | {line}")
        self.context = []

    def end(self, code):
        """Takes the exit code (None: it had to be killed)."""
        if code is None:
            self.fail("did not end in time, killed")
        elif self.results == 0 and code == 0:
            say(f"PASS {self.name}: exit code 0")
        elif self.results == 0 and code == EXIT_SKIP:
            say(f"SKIP {self.name}: {' '.join(self.context[-1:])}")
        elif self.planned is not None and self.results < self.planned:
            self.fail(f"ended after {self.results} of {self.planned} cases, exit code {code}")
        elif code not in (0, EXIT_SKIP) and self.failures == 0:
            self.fail(f"exit code {code}")


def kill(process):
    """Ends a process and what it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        raise Unkillable from None


def execute(path, report, log):
    """Runs a program, feeding its output to the report; returns its exit code, None if killed."""
    deadline = time.monotonic() + TIMEOUT[os.path.splitext(path)[1]]
    # pylint: disable=consider-using-with
    process = subprocess.Popen([path], cwd=SLUICE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, start_new_session=True)
    output = process.stdout
    os.set_blocking(output.fileno(), False)
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while True:
            # A child left behind may hold the pipe open: its parent's end is the end.
            ended = process.poll() is not None
            if selector.select(timeout=0.2):
                data = output.read()
                if not data:
                    break
                log.write(data)
                *lines, pending = (pending + data).split(b"\n")
                for line in lines:
                    report.line(line.decode(errors="replace").rstrip())
            elif ended:
                break
            if time.monotonic() > deadline:
                kill(process)
                return None
    if pending:
        report.line(pending.decode(errors="replace").rstrip())
    try:
        return process.wait(timeout=max(1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        kill(process)
        return None


def run(name, kernel):
    """Runs one program and judges it."""
    say(f"RUN  {name}")
    report = Report(name)
    start = time.monotonic()
    # The test before may have taken the devices away.
    subprocess.run([f"{SLUICE}/guest/setup"], check=False)
    with open(f"{LOGS}/{name.replace('/', '-')}.log", "wb") as log:
        code = execute(f"{SLUICE}/{name}", report, log)
    report.end(code)
    trouble = kernel.trouble()
    if trouble:
        report.context = trouble.splitlines()
        report.fail("trouble in the kernel log")
    say(f"DONE {name} ({time.monotonic() - start:.1f} s)")


def main():
    os.makedirs(LOGS, exist_ok=True)
    kernel = Kernel()
    for name in sys.argv[1:]:
        try:
            run(name, kernel)
        except Unkillable:
            say(f"FAIL {name}: cannot be killed")
            say(f"DONE {name}")
            sys.exit(75)


if __name__ == "__main__":
    main()
