"""What waits for people, what they decided, and share links."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta, timezone
from typing import TypeVar

import httpx
import pytest
from conftest import Server

from proscenium import Problem, Run, attention, decisions, links, make_link, revoke_link, worker

Item = TypeVar("Item")


async def all_of(items: AsyncIterator[Item]) -> list[Item]:
    return [item async for item in items]


def test_a_pending_action_is_listed_until_it_is_decided_and_then_in_the_record(server: Server) -> None:
    async def main() -> None:
        async with Run(server.url, "asked", session="s-asked", agent="asker") as run:
            action = run.require_action("tool_approval", "Deploy?")
            await run.aflush()
            [item] = await all_of(attention(server.url, agent="asker"))
            assert (item["actionId"], item["title"], item["runId"]) == (action, "Deploy?", "asked")
            assert "control" not in item and "quorum" not in item and "escalated" not in item
            assert await all_of(attention(server.url, agent="somewhere-else")) == []

            server.post("/v1/runs/asked/controls", {"control": "approve", "actionId": action})
            [item] = await all_of(attention(server.url, agent="asker"))
            assert item["control"] == "submitted"
            control = await anext(worker(server.url, "asker"))
            assert control.decided_by is not None and control.decided_by["via"] == "rest"
            run.resolve_action(action, "approved")
            await run.aflush()
            await control.ack()
        assert await all_of(attention(server.url, agent="asker")) == []
        for made in (decisions(server.url, run="asked"), decisions(server.url, session="s-asked")):
            [decision] = await all_of(made)
            assert (decision["actionId"], decision["outcome"], decision["control"]) == (action, "approved", "approve")
            assert decision["decidedBy"]["via"] == "rest" and decision["waitedMs"] >= 0

    asyncio.run(main())


def test_a_list_is_read_page_by_page(server: Server) -> None:
    async def main() -> None:
        async with Run(server.url, "many", agent="many") as run:
            asked = [run.require_action("tool_approval", f"{n}?") for n in range(60)]
            await run.aflush()
            listed = await all_of(attention(server.url, agent="many"))
            assert [item["actionId"] for item in listed] == asked

    asyncio.run(main())


def test_a_link_opens_its_run_until_it_is_revoked(server: Server) -> None:
    async def main() -> None:
        server.post("/v1/runs/shared/facts", [{"type": "run.started"}])
        until = datetime.now(timezone.utc) + timedelta(hours=1)
        made = await make_link(server.url, until, run="shared")
        secret = {"secret": made["url"].split("#link=")[1]}
        assert server.post("/v1/links/exchange", secret)["runId"] == "shared"
        [listed] = [link async for link in links(server.url) if link["id"] == made["id"]]
        assert (listed["runId"], listed["can"], listed["uses"]) == ("shared", ["read"], 1)
        await revoke_link(server.url, made["id"])
        assert httpx.post(f"{server.url}/v1/links/exchange", json=secret).status_code == 404
        with pytest.raises(Problem) as unknown:
            await revoke_link(server.url, made["id"])
        assert unknown.value.code == "no_such_link"

    asyncio.run(main())


def test_what_the_server_would_refuse_is_refused_before(server: Server) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="exactly one"):
            await all_of(decisions(server.url))
        with pytest.raises(ValueError, match="exactly one"):
            await make_link(server.url, datetime.now(timezone.utc), run="r", session="s")
        with pytest.raises(ValueError, match="time zone"):
            await make_link(server.url, datetime.now(), run="r")

    asyncio.run(main())
