#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Compares sluice with rdma_rxe in the test VM: perftest on both, alternating, in one boot.

    bench.py [--pairs N] [--rows NAME,...] [--json FILE]

Each row is measured N times on either device, in turns; the figures are medians. A ratio above 1
means sluice is better, for latencies too. Between the measurements of a bandwidth the kernel's own
memcpy is measured, the limit of anything that copies once; "of memcpy" is sluice's bandwidth
against it.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys

import perftest

SLUICE, RXE = "sluice0", "rxe0"
MEMBENCH = "/sluice/sluice_membench.ko"

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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--json", default="/out/bench.json")
    options = parser.parse_args()

    table_line("test", "size", "QPs", "sluice", "rdma_rxe", "", "ratio", "of memcpy")
    table, limits, failed = [], {}, False
    for name in options.rows.split(","):
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
    with open(options.json, "w", encoding="ascii") as file:
        json.dump(table, file, indent=1)
        file.write("\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
