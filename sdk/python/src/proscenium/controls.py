"""The controls of an agent: claimed under leases, acknowledged, refused."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from ssl import SSLContext
from typing import Any

import httpx

from ._publisher import delay
from ._server import Server, Token, path_segment
from .calls import new_id
from .decisions import DecidedBy
from .errors import Problem
from .run import Run

logger = logging.getLogger("proscenium")

# Attempts to answer a control before the error reaches the caller.
ANSWER_ATTEMPTS_MAX = 5


@dataclass(frozen=True)
class Control:
    """A control that this worker holds under a lease, until `lease_expires_at`.

    Answer it with `ack` or `nack` before; then the lease is over. The server hands out an unanswered control again,
    with `attempt` one higher. `ack` says that the control was accepted, not that the work is done.
    """

    control: str
    control_id: str
    agent_id: str
    lease: str = field(repr=False)
    lease_expires_at: datetime
    attempt: int
    run_id: str | None
    session_id: str | None
    thread_id: str | None
    action_id: str | None
    tool_call_id: str | None
    task_id: str | None
    # The text or the data. `redacted`: the server no longer has the secret in it, so the worker refuses it.
    value: Any
    redacted: bool
    # The actions that a message supersedes: they no longer take a decision.
    supersedes: tuple[str, ...]
    # Who submitted it.
    decided_by: DecidedBy | None
    # The whole control, with further members.
    document: dict[str, Any] = field(repr=False)
    _server: Server = field(repr=False, compare=False)

    @property
    def text(self) -> str:
        """The words of a message: the value, its `text`, or the last words of the user of an AG-UI or AI SDK client."""
        text = self.value.get("text") if isinstance(self.value, dict) else self.value
        if isinstance(text, str):
            return text
        content = self._user_message.get("content", self._user_message.get("parts"))
        parts = content if isinstance(content, list) else [{"text": content}]
        return "".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))

    @property
    def message_id(self) -> str | None:
        """The id of that message in the client, under which the run publishes it."""
        return self._user_message.get("id")

    @property
    def _user_message(self) -> dict[str, Any]:
        messages = self.value.get("messages") if isinstance(self.value, dict) else None
        return next((one for one in reversed(messages or []) if one.get("role") == "user"), {})

    async def ack(self) -> None:
        """Accepts the control. Raises `Problem` with the code `lease_lost` if the lease is over."""
        await self._answer("ack", {})

    async def nack(self, reason: str, *, requeue: bool = False) -> None:
        """Refuses the control. `requeue`: it returns to the queue, for any worker of the agent."""
        await self._answer("nack", {"reason": reason, "requeue": requeue})

    async def _answer(self, verb: str, body: dict[str, Any]) -> None:
        address = self._server.address(f"/v1/controls/{path_segment('control', self.control_id)}/{verb}")
        # A client of its own: the worker that claimed this control may have ended.
        async with self._server.async_client(timeout=20.0) as http:
            for attempt in range(ANSWER_ATTEMPTS_MAX):
                try:
                    await _post(self._server, http, address, body={"lease": self.lease, **body})
                    return
                except (httpx.TransportError, Problem) as error:
                    is_final = isinstance(error, Problem) and not error.is_transient
                    if is_final or attempt == ANSWER_ATTEMPTS_MAX - 1:
                        raise
                    await _back_off(error, attempt)

    def run(self, run_id: str | None = None) -> Run:
        """Returns the run that this control is about; for a new turn that of the client, else a new one."""
        named = self.value.get("runId") if isinstance(self.value, dict) else None
        server = self._server
        run = Run(
            server.url,
            run_id or named or self.run_id or new_id("run"),
            session=self.session_id,
            agent=self.agent_id,
            token=server.token,
            verify=server.verify,
        )
        return run.continuing() if run.run_id == self.run_id and run_id is None else run

    @asynccontextmanager
    async def accept(self, run_id: str | None = None) -> AsyncIterator[Run]:
        """Begins the run of this control, and acknowledges it once the first fact is durable.

        In this order a client that reloads meanwhile finds the run.
        """
        async with self.run(run_id) as run:
            run.status("accepted")
            await run.aflush()
            await self.ack()
            yield run


async def worker(
    url: str,
    agent: str = "default",
    *,
    token: Token = None,
    max: int = 1,
    lease_seconds: int = 30,
    wait_seconds: int = 30,
    verify: SSLContext | bool = True,
) -> AsyncIterator[Control]:
    """Yields the controls of an agent as they come, in the order of its queue.

    It holds at most `max` at once, each for `lease_seconds` (1 to 600). It waits while the server is away, and raises
    `Problem` if the server refuses the worker.
    """
    server = Server(url, token, verify)
    path = server.address(f"/v1/agents/{path_segment('agent', agent)}/controls/claim")
    params = {"wait": wait_seconds, "max": max, "leaseSeconds": lease_seconds}
    async with server.async_client(timeout=wait_seconds + 20.0) as http:
        attempt = 0
        while True:
            try:
                claimed = await _post(server, http, path, params=params)
            except (httpx.TransportError, Problem) as error:
                if isinstance(error, Problem) and not error.is_transient:
                    raise
                await _back_off(error, attempt)
                attempt += 1
                continue
            attempt = 0
            for document in claimed["controls"]:
                yield _control(server, agent, document)


async def _post(
    server: Server, http: httpx.AsyncClient, address: str, *, params: Any = None, body: Any = None
) -> dict[str, Any]:
    response = await http.post(address, params=params, json=body, headers=dict(server.headers()))
    if response.status_code != 200:
        raise Problem.of(response)
    answer: dict[str, Any] = response.json()
    return answer


async def _back_off(error: Exception, attempt: int) -> None:
    if attempt == 0:
        logger.warning("the server does not answer the worker, which tries again: %s", error)
    after = error.retry_after if isinstance(error, Problem) else 0.0
    await asyncio.sleep(delay(attempt, after))


def _control(server: Server, agent: str, document: dict[str, Any]) -> Control:
    return Control(
        control=document["control"],
        control_id=document["controlId"],
        agent_id=document.get("agentId", agent),
        lease=document["lease"],
        lease_expires_at=datetime.fromisoformat(document["leaseExpiresAt"].replace("Z", "+00:00")),
        attempt=document["attempt"],
        run_id=document.get("runId"),
        session_id=document.get("sessionId"),
        thread_id=document.get("threadId"),
        action_id=document.get("actionId"),
        tool_call_id=document.get("toolCallId"),
        task_id=document.get("taskId"),
        value=document.get("value"),
        redacted=bool(document.get("redacted")),
        supersedes=tuple(document.get("supersedes", ())),
        decided_by=document.get("decidedBy"),
        document=document,
        _server=server,
    )
