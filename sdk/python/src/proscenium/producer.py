"""The base of runs and reporters: one numbered producer, from one process, to one run."""

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Mapping
from ssl import SSLContext
from typing import Any, TypeVar

from ._json import to_json
from ._publisher import STALL_TIMEOUT, Counters, Publisher
from ._server import Server, Token, check_id, path_segment
from ._transport import Acknowledged, Body, HttpTransport, Transport
from .calls import ToolCall
from .vocabulary import Fact

Self = TypeVar("Self", bound="Producer")


class Producer:
    """Sends facts to one run, each once and in order. All methods may be called from any thread.

    * `url`: the server, such as `http://127.0.0.1:8787`. `None` makes a producer whose methods do nothing.
    * `session`, `thread`, `agent`, `parent_session`: the ids of facts that name none.
    * `token`: a bearer token, or a function that returns one for each request.
    * `producer_id`: an id that outlives this process. A restarted producer with the same id replaces its predecessor.
      Default: a random id.
    * `epoch`: the generation of the producer. A larger one starts again at number 0 and ends the older one; with the
      same one `resume` continues. Default: the time in microseconds.
    * `verify`: for `https`, as httpx takes it. Proxies of the environment are not used.
    * `stall_timeout`: seconds without progress of the server after which nothing waits for it any longer.
    """

    def __init__(
        self,
        url: str | None,
        run: str,
        *,
        session: str | None = None,
        thread: str | None = None,
        agent: str | None = None,
        parent_session: str | None = None,
        token: Token = None,
        producer_id: str | None = None,
        epoch: int | None = None,
        verify: SSLContext | bool = True,
        stall_timeout: float = STALL_TIMEOUT,
    ):
        self.run_id, self.session_id, self.agent_id = run, session, agent
        ids = {"sessionId": session, "threadId": thread, "agentId": agent, "parentSessionId": parent_session}
        path = f"/v1/runs/{path_segment('run', run)}/facts"
        known = {member: check_id(member, text) for member, text in ids.items() if text is not None}
        self._publisher: Publisher | None = None
        if url is None:
            return
        producer_id = producer_id or f"python-{uuid.uuid4().hex}"
        if not check_id("producer_id", producer_id).isascii():
            raise ValueError(f"producer_id {producer_id!r} is not ASCII, which its HTTP header requires")
        epoch = _next_epoch() if epoch is None else epoch
        transport = HttpTransport(Server(url, token, verify), path, known, producer_id, epoch)
        self._publisher = Publisher(transport, stall_timeout)

    @classmethod
    def recording(cls: type[Self], run: str = "recording") -> "tuple[Self, Recording]":
        """Returns a producer that records into memory, for tests."""
        producer, recording = cls(None, run), Recording()
        transport: Transport = recording
        producer._publisher = Publisher(transport)
        return producer, recording

    def resume(self) -> int:
        """Asks the server how many facts it has from this `producer_id` and `epoch`, and continues after them.

        Call it before the first fact. A producer that makes the same facts again after a crash skips that many.
        """
        return self._publisher.resume() if self._publisher else 0

    def call(self, call_id: str, tool_name: str) -> ToolCall:
        """Returns a call, by the runtime's id of the call."""
        return ToolCall(self._report if self._publisher else None, check_id("call_id", call_id), tool_name)

    def flush(self) -> None:
        """Waits until all facts so far are durable.

        Raises `Unreachable` if the server makes no progress within the stall timeout, `Rejected` if it rejected facts
        since the last call, and `Problem` if it refuses this producer.
        """
        if self._publisher:
            self._publisher.flush()

    def close(self) -> None:
        """Accepts no more facts, and flushes.

        Raises for facts that are not durable within the stall timeout: they are lost.
        """
        if self._publisher:
            self._publisher.close()

    async def drain(self) -> None:
        """Waits while the queue is full, without blocking the event loop."""
        if self._publisher and self._publisher.is_full:
            await asyncio.to_thread(self._publisher.wait_for_room)

    async def aflush(self) -> None:
        """`flush` without blocking the event loop."""
        await asyncio.to_thread(self.flush)

    async def aclose(self) -> None:
        """`close` without blocking the event loop."""
        await asyncio.to_thread(self.close)

    @property
    def counters(self) -> Counters:
        """The facts so far, by outcome."""
        return self._publisher.counters if self._publisher else Counters()

    def _report(self, fact: Fact, waits: bool = True) -> bool:
        """Sends a report, which never raises."""
        return self._publisher is not None and self._publisher.put(to_json(fact), waits=waits)

    def _send(self, fact: Mapping[str, Any], source: str) -> None:
        """Sends a fact. Raises if the server accepts nothing from this producer."""
        if self._publisher and not self._publisher.put(to_json(fact), source):
            raise self._publisher.loss()


_epoch_lock = threading.Lock()
_last_epoch = 0


def _next_epoch() -> int:
    """Returns the time in microseconds, and more than before: two producers may start at once."""
    global _last_epoch
    with _epoch_lock:
        _last_epoch = max(time.time_ns() // 1000, _last_epoch + 1)
        return _last_epoch


class Recording:
    """The facts of a producer in memory, in order. Flush the producer before you read them."""

    def __init__(self) -> None:
        self.facts: list[dict[str, Any]] = []
        self.sources: list[str] = []

    def send(self, source: str, number: int, body: Body) -> Acknowledged:
        facts = [json.loads(line) for chunk in body for line in chunk.splitlines()]
        self.facts += facts
        self.sources += [source] * len(facts)
        return Acknowledged(repeated=0)

    def expected(self) -> int:
        return len(self.facts)

    def keep_alive(self) -> None:
        pass

    def close(self) -> None:
        pass
