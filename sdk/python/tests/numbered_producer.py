"""Publishes the same facts at every start, for a test that kills it: URL, run, number of facts."""

import sys

from proscenium import Run

url, run_id, facts = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Run(url, run_id, producer_id="numbered", epoch=1) as run:
    for number in range(run.resume(), facts):
        run.publish({"type": "text.delta", "messageId": "m", "payload": {"text": str(number)}})
        if number % 100 == 0:
            print(number, flush=True)
        if number % 500 == 0:
            # Kills thus find everything from all of it acknowledged to nothing.
            run.flush()
