"""The example of LangGraph asks, continues after the answer, and outlives a turn that fails."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from conftest import Server
from test_example import status, wait_for

EXAMPLE = Path(__file__).parents[1] / "examples/langgraph_agent.py"


def has(server: Server, run: str, expected: str) -> bool:
    return status(server, run) == expected


def test_a_graph_in_this_process_asks_and_continues_after_the_answer(own_server: Server) -> None:
    server = own_server
    environment = {**os.environ, "PROSCENIUM_URL": server.url}
    with subprocess.Popen([sys.executable, str(EXAMPLE)], env=environment, stdout=subprocess.PIPE, text=True) as agent:
        try:
            for session, text in [("wordless", ""), ("one", "Tidy up."), ("two", "Tidy up.")]:
                value = {"runId": f"run-{session}", "text": text}
                server.post(f"/v1/sessions/{session}/controls", {"control": "send", "value": value})
            wait_for(partial(has, server, "run-wordless", "failed"))
            # Each answer continues the thread of its own session, whichever comes first.
            for session, file in [("two", "b.txt"), ("one", "a.txt")]:
                run = f"run-{session}"
                wait_for(partial(has, server, run, "waiting"))
                [action] = server.get(f"/v1/sessions/{session}")["pendingActions"]
                body = {"control": "answer", "actionId": action["activityId"], "value": file}
                server.post(f"/v1/runs/{run}/controls", body)
                wait_for(partial(has, server, run, "completed"))
                server.assert_clean(run)
                assert f"{file} is gone." in str(server.get(f"/v1/runs/{run}/activities", surfaces="conversation"))
        finally:
            agent.kill()


def test_the_guide_shows_the_example() -> None:
    page = (Path(__file__).parents[3] / "docs/src/guides/python.md").read_text()
    assert EXAMPLE.read_text() in page
