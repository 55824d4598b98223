"""The real server, from `PROSCENIUM_BIN`, and a proxy that loses answers."""

import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

BINARY = os.environ.get("PROSCENIUM_BIN", str(Path(__file__).parents[3] / "target/debug/proscenium"))
# Only a hang takes as long, in seconds.
DEADLINE = 300.0


class Server:
    """A server with a store on disk, which survives `kill` and `start`."""

    def __init__(self, directory: str):
        self._directory = directory
        self._listen = "127.0.0.1:0"
        self.start()

    def start(self) -> None:
        command = [BINARY, "serve", "--listen", self._listen, "--data-dir", self._directory, "--log", "error"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("listening on "), f"the server said {line!r}"
        self.url = line.split()[-1]
        self._listen = self.url.removeprefix("http://")

    def kill(self) -> None:
        """Kills the process as a crash does."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def get(self, path: str, **params: Any) -> Any:
        response = httpx.get(self.url + path, params={"audience": "internal", **params})
        assert response.status_code == 200, response.text
        return response.json()

    def post(self, path: str, body: Any) -> Any:
        response = httpx.post(self.url + path, json=body)
        assert response.is_success, response.text
        return response.json()

    def events(self, run: str) -> list[dict[str, Any]]:
        """All envelopes of a run, in order."""
        events: list[dict[str, Any]] = []
        cursor: Any = 0
        while cursor is not None:
            page = self.get(f"/v1/runs/{run}/events", after=cursor, limit=1000)
            events += page["events"]
            cursor = page["nextCursor"]
        return events

    def activity(self, run: str, kind: str, **params: Any) -> dict[str, Any]:
        """The content of a run's only activity of this type."""
        activities = self.get(f"/v1/runs/{run}/activities", **params)["activities"]
        [found] = [activity for activity in activities if activity["activityType"] == kind]
        content: dict[str, Any] = found["content"]
        return content

    def status(self, run: str) -> str:
        return str(self.get(f"/v1/runs/{run}")["status"])

    def assert_clean(self, run: str) -> None:
        """Asserts that `proscenium check` has nothing to say about a run."""
        checked = subprocess.run([BINARY, "check", run, "--url", self.url, "--strict"], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server that all tests share."""
    with tempfile.TemporaryDirectory() as directory:
        server = Server(directory)
        yield server
        server.kill()


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that the test may kill."""
    with tempfile.TemporaryDirectory() as directory:
        server = Server(directory)
        yield server
        server.kill()


class LossyProxy:
    """Forwards to a server, and drops the connection instead of the first `losses` answers."""

    def __init__(self, upstream: str, losses: int):
        self.losses = losses
        host, port = upstream.removeprefix("http://").split(":")
        self._upstream = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            upstream = socket.create_connection(self._upstream)
            threading.Thread(target=self._forward, args=(client, upstream, False), daemon=True).start()
            threading.Thread(target=self._forward, args=(upstream, client, True), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        try:
            while data := source.recv(65536):
                if is_answer and self.losses > 0:
                    self.losses -= 1
                    break
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()
