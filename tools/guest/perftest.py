#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Runs one of perftest's programs against itself in the test VM.

    perftest.py DEVICE PROGRAM [ARGUMENT...]     e.g.  perftest.py sluice0 ib_write_bw -s 65536

Server and client are two processes on the same device. Prints the client's last row as one line,
or both programs' output when one of them failed. Importable: see run().
"""

import os
import re
import signal
import subprocess
import sys
import time

SYSFS = "/sys/class/infiniband"
SLOW = int(os.environ.get("SLUICE_SLOW", 1))

BANDWIDTH = ("size", "iterations", "peak_mibs", "mibs", "mpps")
LATENCY = ("size", "iterations", "min_us", "max_us", "typical_us", "avg_us", "stdev_us",
           "p99_us", "p999_us")


class Failure(Exception):
    """A perftest program that did not run to its end; the text is what there is to read."""


class NoFigures(Exception):
    """It ran to its end, but on a machine too busy for perftest to find its clock's frequency."""


def gid_index(device):
    """The index of the device's RoCE v2 GID that is an IPv4 address."""
    types = f"{SYSFS}/{device}/ports/1/gid_attrs/types"
    for index in sorted(map(int, os.listdir(types))):
        try:
            with open(f"{types}/{index}", encoding="ascii") as file:
                version = file.read().strip()
            with open(f"{SYSFS}/{device}/ports/1/gids/{index}", encoding="ascii") as file:
                gid = file.read().strip()
        except OSError:  # an empty slot
            continue
        if version == "RoCE v2" and gid.startswith("0000:0000:0000:0000:0000:ffff:"):
            return index
    raise Failure(f"{device} has no IPv4 GID of type RoCE v2")


def listening(port):
    """Does anyone listen on this TCP port?"""
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="ascii") as file:
            for line in file.readlines()[1:]:
                fields = line.split()
                if fields[1].endswith(wanted) and fields[3] == "0A":
                    return True
    return False


def rows(output):
    """The rows of figures in a client's output, as dicts."""
    columns = LATENCY if "t_typical" in output else BANDWIDTH
    found = []
    for line in output.splitlines():
        fields = line.split()
        if len(fields) >= 4 and all(re.fullmatch(r"[0-9.]+", field) for field in fields):
            found.append(dict(zip(columns, map(float, fields))))
    return found


_port = 18515


def run(device, program, arguments=(), timeout=60 * SLOW):
    """Runs PROGRAM to its end; returns the client's rows. Raises Failure or NoFigures."""
    global _port
    _port += 1
    command = [program, "-d", device, "-x", str(gid_index(device)), "-F", "-p", str(_port)]
    command += list(map(str, arguments))

    def start(*peer):
        return subprocess.Popen(command + list(peer), stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, start_new_session=True)

    server = start()
    started = [("server", server)]
    deadline = time.monotonic() + timeout
    try:
        while not listening(_port):
            if server.poll() is not None or time.monotonic() > deadline:
                raise Failure("the server does not listen")
            time.sleep(0.01)
        client = start("127.0.0.1")
        started.append(("client", client))
        output = client.communicate(timeout=max(1, deadline - time.monotonic()))[0]
        if client.returncode != 0:
            raise Failure(f"the client exited with {client.returncode}:\n{output}")
        # A client that is content goes away; its server has seconds to do the same.
        server_output = server.communicate(timeout=10)[0]
        if server.returncode != 0:
            raise Failure(f"the server exited with {server.returncode}:\n{server_output}")
        figures = rows(output)
        if not figures and re.search(r"\binf\b", output):
            raise NoFigures
        if not figures:
            raise Failure(f"no figures in the client's output:\n{output}")
        return figures
    except (subprocess.TimeoutExpired, Failure) as error:
        text = [str(error) if isinstance(error, Failure) else f"not done after {timeout} s",
                "command: " + " ".join(command)]
        for name, process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            try:
                rest = process.communicate(timeout=10)[0]
            except subprocess.TimeoutExpired:
                rest = f"(process {process.pid} cannot be killed)"
            except ValueError:  # already read
                continue
            text.append(f"--- {name}:\n{rest}")
        raise Failure("\n".join(text)) from None


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    try:
        figures = run(sys.argv[1], sys.argv[2], sys.argv[3:])
    except NoFigures:
        print("ran to its end, without figures")
        return
    except Failure as failure:
        print(failure)
        sys.exit(1)
    print(" ".join(f"{name}={value:g}" for name, value in figures[-1].items()))


if __name__ == "__main__":
    main()
