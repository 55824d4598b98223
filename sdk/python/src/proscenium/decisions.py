"""What waits for people, what they decided, and share links: for pages, bots and audits of your own."""

from collections.abc import AsyncIterator
from datetime import datetime
from ssl import SSLContext
from typing import Any, Literal, TypedDict

import httpx

from ._server import Server, Token, path_segment
from .errors import Problem
from .vocabulary import Audience

_TIMEOUT = 20.0


class _DecidedBy(TypedDict):
    via: str
    # RFC 3339 in UTC.
    at: str


class DecidedBy(_DecidedBy, total=False):
    """Who decided, and by which face. Only the server writes it."""

    sub: str
    name: str
    # The person for whom the holder of the token decided.
    onBehalfOf: str
    # The last envelope of the question that the person saw.
    seen: int
    # Another person, whom the token may not see.
    other: bool


class Quorum(TypedDict):
    """The approvals of an action that needs several."""

    have: int
    need: int


class WaitStep(TypedDict):
    """A step of a rule of the operator."""

    step: int
    at: str


class _AttentionItem(TypedDict):
    actionId: str
    title: str
    # At most 2 KiB, without the bodies of diffs. `kind` says which further members it has.
    subject: dict[str, Any]
    agentId: str
    askedAt: str


class AttentionItem(_AttentionItem, total=False):
    """A pending action. `control`: a decision is under way."""

    sessionId: str
    runId: str
    risk: Any
    expiresAt: str
    control: Literal["submitted"]
    quorum: Quorum
    reminded: WaitStep
    escalated: WaitStep


class _Sequences(TypedDict):
    asked: int
    decided: int


class Sequences(_Sequences, total=False):
    """The envelopes of a decision."""

    shown: int
    resolved: int


class _Decision(TypedDict):
    actionId: str
    subject: dict[str, Any]
    callIds: list[str]
    sequences: Sequences


class Decision(_Decision, total=False):
    """A question as it was shown, and its answer."""

    runId: str
    controlId: str
    control: str
    # Absent until the action is resolved.
    outcome: str
    title: str
    options: list[dict[str, Any]]
    decidedBy: DecidedBy
    # All who approved, of an action that needs several approvals.
    approvals: list[DecidedBy]
    askedAt: str
    decidedAt: str
    waitedMs: int


class Link(TypedDict):
    """A link that was made. Its address has the secret, which the server does not keep."""

    id: str
    url: str
    until: str


class DecidedByLink(TypedDict):
    """The decision that a link made."""

    actionId: str
    controlId: str


class _OpenLink(TypedDict):
    id: str
    until: str
    createdAt: str
    can: list[Literal["read", "control"]]
    uses: int


class OpenLink(_OpenLink, total=False):
    """A link that has not ended."""

    runId: str
    sessionId: str
    at: int
    usedAt: str
    sub: str
    decided: DecidedByLink


async def attention(
    url: str,
    *,
    agent: str | None = None,
    audience: Audience = "user",
    token: Token = None,
    verify: SSLContext | bool = True,
) -> AsyncIterator[AttentionItem]:
    """Yields the pending actions that the token may see, the oldest first; with `agent` those of that agent alone."""
    query = {"audience": audience, "agentId": agent}
    async for item in _items(Server(url, token, verify), "/v1/attention", "items", query):
        yield item


async def decisions(
    url: str,
    *,
    run: str | None = None,
    session: str | None = None,
    audience: Audience = "user",
    token: Token = None,
    verify: SSLContext | bool = True,
) -> AsyncIterator[Decision]:
    """Yields the decisions of a run in their order, or those of a session run by run. Exactly one is required."""
    path = f"/v1/{_target(run, session)}/decisions"
    async for decision in _items(Server(url, token, verify), path, "decisions", {"audience": audience}):
        yield decision


async def make_link(
    url: str,
    until: datetime,
    *,
    run: str | None = None,
    session: str | None = None,
    at: int | None = None,
    can_decide: bool = False,
    token: Token = None,
    verify: SSLContext | bool = True,
) -> Link:
    """Makes a share link to a run or to a session: anyone who has it reads as `user`, until it ends.

    `at`: the sequence of the run after which it shows nothing. `can_decide`: it may decide one action, once, whose risk
    is stated and not high.
    """
    if until.tzinfo is None:
        raise ValueError(f"until is {until}, which has no time zone")
    _target(run, session)
    can = ["control"] if can_decide else None
    wanted = {"until": until.isoformat(), "runId": run, "sessionId": session, "at": at, "can": can}
    body = {member: value for member, value in wanted.items() if value is not None}
    link: Link = (await _send(Server(url, token, verify), "POST", "/v1/links", body=body)).json()
    return link


async def links(url: str, *, token: Token = None, verify: SSLContext | bool = True) -> AsyncIterator[OpenLink]:
    """Yields the open links that the holder of the token made, the newest first; for an administrator, all."""
    async for link in _items(Server(url, token, verify), "/v1/links", "links", {}):
        yield link


async def revoke_link(url: str, link_id: str, *, token: Token = None, verify: SSLContext | bool = True) -> None:
    """Revokes a link: its readers are cut off within a second."""
    await _send(Server(url, token, verify), "DELETE", f"/v1/links/{path_segment('link', link_id)}")


def _target(run: str | None, session: str | None) -> str:
    """Returns the path of the run or session below `/v1/`."""
    if run is not None and session is None:
        return f"runs/{path_segment('run', run)}"
    if session is not None and run is None:
        return f"sessions/{path_segment('session', session)}"
    raise ValueError(f"run is {run!r} and session is {session!r}; exactly one is required")


async def _items(server: Server, path: str, member: str, query: dict[str, str | None]) -> AsyncIterator[Any]:
    params = {name: value for name, value in query.items() if value is not None}
    while True:
        page = (await _send(server, "GET", path, params=params)).json()
        for item in page[member]:
            yield item
        if page["nextCursor"] is None:
            return
        params["cursor"] = page["nextCursor"]


async def _send(
    server: Server, method: str, path: str, *, params: dict[str, str] | None = None, body: Any = None
) -> httpx.Response:
    """Sends a request. Raises `Problem` if the server refuses it, and the error of httpx if it is away."""
    async with server.async_client(timeout=_TIMEOUT) as http:
        headers = dict(server.headers())
        response = await http.request(method, server.address(path), params=params, json=body, headers=headers)
    if not response.is_success:
        raise Problem.of(response)
    return response
