"""How many facts a second one producer streams: `PROSCENIUM_BIN=…/proscenium python bench/throughput.py`.

It starts a server with a store on disk, publishes tokens to one run, and stops the clock when all of them are durable.
"""

import argparse
import os
import subprocess
import tempfile
import time

from proscenium import Run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--facts", type=int, default=200_000, help="how many facts (default: 200000)")
    facts = parser.parse_args().facts
    with tempfile.TemporaryDirectory() as directory:
        command = [
            os.environ["PROSCENIUM_BIN"],
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
            directory,
            "--log",
            "error",
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            url = server.stdout.readline().split()[-1]
            begun = time.perf_counter()
            with Run(url, "throughput", session="bench") as run, run.message() as message:
                for number in range(facts):
                    message.text(f"token {number} ")
            seconds = time.perf_counter() - begun
            print(f"{run.counters.acknowledged} facts in {seconds:.2f} s: {facts / seconds:,.0f} facts/s, all durable")
            server.terminate()


if __name__ == "__main__":
    main()
