"""The example is an agent that a user can talk to."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import DEADLINE, Server

EXAMPLE = Path(__file__).parents[1] / "examples/agent.py"


def wait_for(check: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + DEADLINE
    while not (found := check()):
        assert time.monotonic() < deadline, "the example did not get there"
        time.sleep(0.02)
    return found


def test_the_example_answers_asks_and_acts(server: Server) -> None:
    environment = {**os.environ, "PROSCENIUM_URL": server.url}
    with subprocess.Popen([sys.executable, str(EXAMPLE)], env=environment, stdout=subprocess.PIPE, text=True) as agent:
        try:
            server.post(
                "/v1/sessions/wordless/controls", {"control": "send", "value": {"runId": "wordless", "text": ""}}
            )
            wait_for(lambda: status(server, "wordless") == "failed")
            # The failed turn has not ended the agent.
            message = {
                "role": "user",
                "id": "u1",
                "content": [{"type": "text", "text": "Tidy "}, {"type": "text", "text": "up."}],
            }
            server.post(
                "/v1/sessions/example/controls", {"control": "send", "value": {"runId": "tidy", "messages": [message]}}
            )
            [action] = wait_for(lambda: server.get("/v1/sessions/example")["pendingActions"] if known(server) else None)
            shown = server.get("/v1/runs/tidy/activities", audience="user")["activities"]
            said = {one["activityId"]: one["content"] for one in shown if one["activityType"] == "message"}
            assert "".join(said["u1"]["parts"][0]["text"]) == "Tidy up."
            tool = server.activity("tidy", "tool-call-progress", audience="user")
            assert (tool["tool_name"], tool["output"], tool["progress"]) == ("list_files", ["a.txt", "b.txt"], 1.0)
            server.post("/v1/runs/tidy/controls", {"control": "approve", "actionId": action["activityId"]})
            wait_for(lambda: server.status("tidy") == "completed")
            server.assert_clean("tidy")
            assert any("It is gone." in str(event) for event in server.events("tidy"))
        finally:
            agent.kill()


def status(server: Server, run: str) -> str | None:
    """The status of a run that may not have begun."""
    return next((one["status"] for one in server.get("/v1/runs")["runs"] if one["runId"] == run), None)


def known(server: Server) -> bool:
    return any(session["sessionId"] == "example" for session in server.get("/v1/sessions")["sessions"])
