#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Compares sluice with rdma_rxe in the test VM: perftest, and how long the calls take that take
something away from running transfers; on both, alternating, in one boot.

    bench.py [--pairs N] [--rows NAME,...] [--json FILE]

Each row is measured N times on either device, in turns; the figures are medians. A ratio above 1
means sluice is better, for latencies too. Between the measurements of a bandwidth the kernel's own
memcpy is measured, the limit of anything that copies once; "of memcpy" is sluice's bandwidth
against it.

The calls are made by callbench, under each of sluice's policies. Their figures are percentiles over
all measurements of a row. rdma_rxe may get stuck in such a call and log a warning; that is said, and
the kernel's log is cleared of it.
"""

import argparse
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys

import perftest

SLUICE, RXE = "sluice0", "rxe0"
MEMBENCH = "/sluice/sluice_membench.ko"

CALLBENCH = "/sluice/callbench/callbench"
KNOBS = "/sys/class/infiniband/sluice0"

# How long one measurement shall take, in seconds; iterations are chosen accordingly.
DURATION = 0.8


class Row:
    """One line of the table: a perftest program, a message size, a number of QPs, and how many
    requests the program posts with one doorbell."""

    def __init__(self, test, size, qps=1, unit="MiB/s", post=1):
        self.test, self.size, self.qps, self.unit, self.post = test, size, qps, unit, post
        self.latency = unit == "us"
        self.name = test if post == 1 else f"{test} -l {post}"

    def figure(self, result):
        """The figure of this row in perftest's result."""
        return result[{"MiB/s": "mibs", "Mmsg/s": "mpps", "us": "typical_us"}[self.unit]]

    def measure(self, device, iterations):
        """Runs the program once; again if the machine was too busy for it to tell the time."""
        iterations = max(iterations // self.post, 1) * self.post
        arguments = ["-s", self.size, "-n", iterations]
        if self.post > 1:
            arguments += ["-l", self.post]
        if self.qps > 1:
            arguments += ["-q", self.qps]
        for _ in range(5):
            try:
                return perftest.run(device, self.test, arguments)[-1]
            except perftest.NoFigures:
                continue
        raise perftest.Failure("this machine is too busy to measure anything")

    def iterations(self, device):
        """How many iterations per QP take about DURATION on this device (found by a short run)."""
        few = 500 if self.latency else max(8, min(2000, (8 << 20) // self.size) // self.qps)
        result = self.measure(device, few)
        if self.latency:
            seconds = 2 * result["avg_us"] / 1e6  # a round trip is two of perftest's latencies
        else:
            seconds = self.qps / max(result["mpps"] * 1e6, result["mibs"] * (1 << 20) / self.size)
        return int(min(max(DURATION / seconds, 5), 2_000_000))


ROWS = {
    "write": Row("ib_write_bw", 65536),
    "read": Row("ib_read_bw", 65536),
    "send": Row("ib_send_bw", 65536),
    "write_1m": Row("ib_write_bw", 1 << 20),
    "write_16qp": Row("ib_write_bw", 65536, qps=16),
    "message_rate": Row("ib_write_bw", 8, unit="Mmsg/s"),
    "message_rate_l32": Row("ib_write_bw", 8, unit="Mmsg/s", post=32),
    "latency": Row("ib_write_lat", 2, unit="us"),
}


class Call:
    """Lines of the second table: a call, its policies, a message size, a number of QPs."""

    COUNT = 40  # calls per measurement
    STATISTICS = ("p50", "p99", "max")

    def __init__(self, call, size, knob="", policies=("",), qps=4):
        self.call, self.size, self.knob, self.policies = call, size, knob, policies
        self.qps = qps

    def measure(self, device):
        """Runs callbench once; returns the times in us and the rest of what it says."""
        command = [CALLBENCH, self.call, str(self.size), str(self.qps), str(self.COUNT)]
        process = subprocess.Popen(command, env={**os.environ, "SLUICE_DEV": device}, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        try:
            output = process.communicate(timeout=180)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise perftest.Failure(f"{self.call} on {device}: not done after 180 s") from None
        if process.returncode != 0:
            raise perftest.Failure(f"{self.call} on {device}: {output}")
        about, times = output.splitlines()[-2:]
        return [float(us) for us in times.split()[1:]], dict(re.findall(r"(\w+)=(\S+)", about))


SMALL, LARGE = 65536, 1 << 20
RESETS, REVOKES = ("drain", "abort"), ("cancel", "drain")
CALLS = {
    "dereg_mr": [Call("dereg_mr", size, "revoke_policy", REVOKES) for size in (SMALL, LARGE)],
    "reset": [Call("reset", size, "reset_policy", RESETS) for size in (SMALL, LARGE)],
    "error": [Call("error", size, "reset_policy", RESETS) for size in (SMALL, LARGE)],
    "destroy": [Call("destroy", size, "reset_policy", RESETS) for size in (SMALL, LARGE)],
    "grace": [Call("grace", LARGE)],
}


def statistics_of(times):
    """Median, 99th percentile and maximum."""
    times = sorted(times)
    return [times[math.ceil(share * len(times)) - 1] for share in (0.5, 0.99, 1)]


def memcpy():
    """MiB/s of the kernel's memcpy right now, by size; empty when it cannot be measured."""
    # The module measures when it is loaded, and then refuses to stay.
    subprocess.run(["insmod", MEMBENCH], stderr=subprocess.DEVNULL, check=False)
    log = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
    lines = [line for line in log.splitlines() if "sluice_membench: memcpy_" in line]
    if not lines:
        return {}
    return {int(size): float(rate) for size, rate in re.findall(r"memcpy_(\d+)=(\d+)", lines[-1])}


def size_text(size):
    """A message size as people write it."""
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def number(value):
    """A figure with three significant digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table_line(*cells):
    print("{:<18}{:>8}{:>5}{:>12}{:>12}  {:<8}{:>8}{:>12}".format(*cells), flush=True)


def run_row(row, pairs, limits):
    """Measures one row; returns its dict for the JSON file."""
    figures = {SLUICE: [], RXE: []}
    iterations = {device: row.iterations(device) for device in figures}
    copies = []
    for _ in range(pairs):
        for device, values in figures.items():
            values.append(row.figure(row.measure(device, iterations[device])))
        if row.unit == "MiB/s":
            for size, rate in memcpy().items():
                limits.setdefault(size, []).append(rate)
                if size == row.size:
                    copies.append(rate)
    sluice, rxe = (statistics.median(figures[device]) for device in (SLUICE, RXE))
    better, worse = (rxe, sluice) if row.latency else (sluice, rxe)
    entry = {"test": row.name, "size": row.size, "qps": row.qps, "sluice": sluice, "rxe": rxe,
             "ratio": round(better / worse, 2) if worse else None, "unit": row.unit}

    of_memcpy = ""
    if copies:
        entry["memcpy"] = statistics.median(copies)
        entry["percent_of_memcpy"] = round(100 * sluice / entry["memcpy"], 1)
        of_memcpy = f"{entry['percent_of_memcpy']:.0f} %"
    table_line(row.name, size_text(row.size), row.qps, number(sluice), number(rxe), row.unit,
               f"{entry['ratio']:.1f} x" if entry["ratio"] else "", of_memcpy)
    return entry


def knob(name, value=None):
    """Reads one of sluice's policies, or sets it."""
    with open(f"{KNOBS}/{name}", "w" if value else "r", encoding="ascii") as file:
        return file.write(value) if value else file.read().strip()


def rxe_trouble():
    """What the kernel has logged of rdma_rxe's trouble, by its first line; clears the log then."""
    check = subprocess.run(["/sluice/guest/check-dmesg"], capture_output=True, text=True,
                           check=False)
    # sluice is idle meanwhile; but if it is named, this is for everybody to see.
    if check.returncode == 0 or re.search(r"sluice_|\[sluice\]", check.stdout):
        return ""
    with open("/out/dmesg-rxe", "a", encoding="utf-8") as file:
        subprocess.run(["dmesg", "--read-clear"], stdout=file, check=True)
    first = re.search(r".*(WARNING|BUG|blocked for).*", check.stdout)
    return first.group(0) if first else "trouble in the kernel's log"


def measure_rxe(call, notes):
    """The times on rdma_rxe; what went wrong is added to the notes."""
    try:
        times, about = call.measure(RXE)
    except perftest.Failure as failure:
        times, about = [], {}
        notes.append(str(failure))
    if int(about.get("failed", 0)):
        notes.append(f"{call.call} failed: {os.strerror(int(about['errno']))}")
    if float(about.get("renew_max_us", 0)) > 5e6:
        seconds = float(about["renew_max_us"]) / 1e6
        notes.append(f"taking the rest down afterwards took {seconds:.0f} s")
    trouble = rxe_trouble()
    if trouble:
        notes.append(trouble)
    return times


def short(value):
    """A figure in four columns, if it is below 10,000."""
    if value is None:
        return "-"
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def call_line(*cells):
    print("{:<9}{:<7}{:>7}{:>4}{:>6}{:>6}{:>6} {:>6}{:>6}{:>6} {:>5}{:>5}{:>5}".format(*cells),
          flush=True)


def run_call(call, pairs):
    """Measures one call under each policy; returns dicts for the JSON file."""
    times = {policy: [] for policy in call.policies}
    rxe, notes, entries = [], [], []
    before = knob(call.knob) if call.knob else None
    try:
        for _ in range(pairs):
            for turn, (policy, values) in enumerate(times.items()):
                if policy:
                    knob(call.knob, policy)
                new, about = call.measure(SLUICE)
                if int(about["failed"]):
                    raise perftest.Failure(f"{call.call}: {os.strerror(int(about['errno']))}")
                values += new
                # rdma_rxe has no policies: once in each turn.
                if turn == 0:
                    rxe += measure_rxe(call, notes)
    finally:
        if before:
            knob(call.knob, before)
    of_rxe = statistics_of(rxe) if rxe else [None] * 3
    for policy, values in times.items():
        of_sluice = statistics_of(values)
        if call.call == "grace":
            of_rxe = of_sluice  # the kernel's, as memcpy is
        ratios = [b and round(b / a, 2) for a, b in zip(of_sluice, of_rxe)]
        for which, ours, theirs, ratio in zip(Call.STATISTICS, of_sluice, of_rxe, ratios):
            name = " ".join(filter(None, (call.call, policy, which)))
            entries.append({"test": name, "size": call.size, "qps": call.qps, "sluice": ours,
                            "rxe": theirs, "ratio": ratio, "unit": "us"})
        figures = [short(us and us / 1000) for us in of_sluice + of_rxe]
        call_line(call.call, policy, size_text(call.size), call.qps, *figures,
                  *map(short, ratios))
    for note in dict.fromkeys(notes):
        print(f"    rdma_rxe, {notes.count(note)} x: {note}", flush=True)
    if notes:
        entries[0]["rxe_notes"] = notes
    return entries


def run_calls(names, pairs):
    """The second table; returns its dicts for the JSON file, and whether all went well."""
    table, good = [], True
    if names:
        print("\nHow long calls take, in ms, while 4 queue pairs stream RDMA WRITEs.")
        call_line("call", "policy", "size", "QPs", "", "sluice", "", "", "rxe", "", "", "ratio", "")
        call_line("", "", "", "", *2 * Call.STATISTICS, *Call.STATISTICS)
    for name in names:
        for call in CALLS[name]:
            try:
                table += run_call(call, pairs)
            except perftest.Failure as failure:
                good = False
                print(f"{name} of {size_text(call.size)}: failed\n{failure}", flush=True)
    return table, good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--rows", default=",".join([*ROWS, *CALLS]))
    parser.add_argument("--json", default="/out/bench.json")
    options = parser.parse_args()

    names = options.rows.split(",")
    rows = [name for name in names if name in ROWS]
    calls = [name for name in names if name in CALLS]
    unknown = set(names) - set(rows) - set(calls)
    if unknown:
        parser.error(f"no such row: {', '.join(unknown)}")

    table, limits, failed = [], {}, False
    if rows:
        table_line("test", "size", "QPs", "sluice", "rdma_rxe", "", "ratio", "of memcpy")
    for name in rows:
        row = ROWS[name]
        try:
            table.append(run_row(row, options.pairs, limits))
        except perftest.Failure as failure:
            failed = True
            print(f"{row.name} of {size_text(row.size)}, {row.qps} QPs: failed\n{failure}",
                  flush=True)
    for size, rates in limits.items():
        # The kernel's memcpy is the same for both; it stands in the table for comparison.
        rate = statistics.median(rates)
        table_line("memcpy", size_text(size), "", number(rate), number(rate), "MiB/s", "", "")
        table.append({"test": "memcpy", "size": size, "qps": 1, "sluice": rate, "rxe": rate,
                      "ratio": 1.0, "unit": "MiB/s"})
    more, good = run_calls(calls, options.pairs)
    table += more
    failed |= not good
    with open(options.json, "w", encoding="ascii") as file:
        json.dump(table, file, indent=1)
        file.write("\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
