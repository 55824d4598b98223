#!/usr/bin/env python3
"""Compare builds by eight NDJSON bodies posted at once, and by the disk that the data directory then takes.

  scripts/bodies.py NAME=PATH [NAME=PATH …] [--rounds 5] [--facts 100000]

Each build starts on an empty directory. The builds take turns, round after round. The server and the eight `curl -T` share
the machine. The script prints the medians: facts per second, CPU time of the server per fact, and bytes of disk per fact and
per byte of the bodies once the server has stopped.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import tempfile
import time

BODIES = 8
WORDS = "the agent reads a file and writes what it found into a report for its user".split()


def body(at, facts):
    """Return one run as NDJSON: messages of 200 deltas, each with some words of text."""
    lines = [{"type": "run.started", "payload": {}}]
    for n in range(facts - 1):
        text = " ".join(WORDS[(n * 7 + i * i + at) % len(WORDS)] for i in range(8))
        lines.append({"type": "text.delta", "messageId": f"m{n // 200}", "partId": "p", "payload": {"text": f"{n} {text} "}})
    return "\n".join(map(json.dumps, lines)).encode()


def measure(binary, bodies):
    with tempfile.TemporaryDirectory(dir=".") as directory:
        server = subprocess.Popen([binary, "serve", "--listen", "127.0.0.1:0", "--data-dir", directory],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        address = re.search(r"http://[^\s/]+", server.stdout.readline())[0]
        begun = time.monotonic()
        posts = [subprocess.Popen(["curl", "-sSf", "-o", "/dev/null", "-H", "content-type: application/x-ndjson", "-X", "POST",
                                   "-T", path, f"{address}/v1/runs/{path.stem}/facts"]) for path in bodies]
        if any(post.wait() for post in posts):
            raise SystemExit(f"{binary} refused a body")
        took = time.monotonic() - begun
        server.send_signal(signal.SIGTERM)
        _, status, used = os.wait4(server.pid, 0)
        if status:
            raise SystemExit(f"{binary} ended with {status}")
        files = [path.stat() for path in pathlib.Path(directory).rglob("*") if path.is_file()]
        return took, used.ru_utime + used.ru_stime, sum(file.st_blocks * 512 for file in files)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("builds", nargs="+", metavar="NAME=PATH")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--facts", type=int, default=150_000, help="facts of each body")
    given = options.parse_args()
    builds = dict(build.split("=", 1) for build in given.builds)
    facts = given.facts * BODIES
    with tempfile.TemporaryDirectory(dir=".") as directory:
        bodies = [pathlib.Path(directory, f"run-{at}.ndjson") for at in range(BODIES)]
        for at, path in enumerate(bodies):
            path.write_bytes(body(at, given.facts))
        size = sum(path.stat().st_size for path in bodies)
        found = {name: [] for name in builds}
        for _ in range(given.rounds):
            for name, binary in builds.items():
                found[name].append(measure(binary, bodies))
    print(f"{BODIES} bodies of {given.facts} facts, {size >> 20} MiB in all, medians of {given.rounds}")
    print("build            facts/s  CPU us/fact  disk B/fact  disk/bodies")
    for name, rounds in found.items():
        took, cpu, disk = map(statistics.median, zip(*rounds))
        print(f"{name:12} {facts / took:11.0f} {cpu * 1e6 / facts:12.2f} {disk / facts:12.1f} {disk / size:12.2f}")


if __name__ == "__main__":
    main()
