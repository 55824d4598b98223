"""A worker takes the controls of its agent."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
from conftest import LossyProxy, Server

from proscenium import Control, Problem, Run, worker


async def first(controls: AsyncIterator[Control]) -> Control:
    return await anext(controls)


def test_a_worker_runs_a_turn_asks_and_continues_after_the_decision(server: Server) -> None:
    async def main() -> None:
        controls = worker(server.url, "clerk")
        server.post("/v1/sessions/s-clerk/controls", {"control": "send", "agentId": "clerk", "value": "Delete a.txt"})
        send = await first(controls)
        assert (send.control, send.value, send.session_id, send.attempt) == ("send", "Delete a.txt", "s-clerk", 1)
        async with send.accept("turn-1") as run:
            assert server.get("/v1/sessions/s-clerk/controls")["controls"][0]["status"] == "acked"
            run.user_message("Delete a.txt")
            action = run.require_action("tool_approval", "May I?")
        assert server.status("turn-1") == "waiting"

        server.post("/v1/runs/turn-1/controls", {"control": "approve", "actionId": action})
        approve = await first(controls)
        assert (approve.control, approve.run_id, approve.action_id) == ("approve", "turn-1", action)
        async with approve.run() as run:
            run.resolve_action(action, "approved")
            await run.aflush()
            await approve.ack()
            with run.message() as message:
                message.text("Deleted.")
        assert server.status("turn-1") == "completed"
        assert server.activity("turn-1", "run")["attempt"] == 1

    asyncio.run(main())


def test_a_refused_control_says_why_and_a_requeued_one_comes_again(server: Server) -> None:
    async def main() -> None:
        controls = worker(server.url, "picky")
        server.post("/v1/sessions/s-picky/controls", {"control": "send", "agentId": "picky", "value": "x"})
        control = await first(controls)
        await control.nack("not now", requeue=True)
        again = await first(controls)
        assert (again.control_id, again.attempt) == (control.control_id, 2)
        with pytest.raises(Problem) as lost:
            await control.ack()
        assert lost.value.code == "lease_lost"
        await again.nack("never")
        [listed] = server.get("/v1/sessions/s-picky/controls")["controls"]
        assert listed["status"] == "nacked"

    asyncio.run(main())


def test_a_control_whose_lease_ends_is_handed_out_again(server: Server) -> None:
    async def main() -> None:
        controls = worker(server.url, "slow", lease_seconds=1)
        server.post("/v1/sessions/s-slow/controls", {"control": "send", "agentId": "slow", "value": "x"})
        control = await first(controls)
        again = await first(controls)
        assert (again.control_id, again.attempt) == (control.control_id, 2)
        await again.ack()

    asyncio.run(main())


def test_the_words_of_a_message_are_found_in_every_form(server: Server) -> None:
    message = {"role": "user", "id": "u1"}
    forms = [
        "hello",
        {"text": "hello"},
        {"messages": [{**message, "content": "hello"}]},
        {"messages": [{**message, "parts": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]}]},
    ]

    async def main() -> None:
        controls = worker(server.url, "reader")
        for value in forms:
            body = {"control": "send", "agentId": "reader", "value": value}
            server.post("/v1/sessions/s-reader/controls", body)
            control = await first(controls)
            assert control.text == "hello"
            await control.ack()

    asyncio.run(main())


def test_a_worker_waits_while_the_server_is_away(own_server: Server) -> None:
    async def main() -> None:
        controls = worker(own_server.url, "patient")
        waits = asyncio.create_task(first(controls))
        own_server.post("/v1/sessions/s/controls", {"control": "send", "agentId": "patient", "value": "1"})
        await (await waits).ack()
        own_server.kill()
        waits = asyncio.create_task(first(controls))
        await asyncio.sleep(0)
        own_server.start()
        own_server.post("/v1/sessions/s/controls", {"control": "send", "agentId": "patient", "value": "2"})
        assert (await waits).value == "2"

    asyncio.run(main())


def test_a_lost_answer_to_an_acknowledgement_is_repeated(server: Server) -> None:
    async def main() -> None:
        proxy = LossyProxy(server.url, losses=0)
        server.post("/v1/sessions/s-lossy/controls", {"control": "send", "agentId": "lossy", "value": "x"})
        control = await first(worker(proxy.url, "lossy"))
        proxy.losses = 1
        await control.ack()
        proxy.close()
        [listed] = server.get("/v1/sessions/s-lossy/controls")["controls"]
        assert listed["status"] == "acked"

    asyncio.run(main())


def test_a_refused_worker_raises(server: Server) -> None:
    with pytest.raises(Problem) as refused:
        asyncio.run(first(worker(server.url, "a", lease_seconds=0)))
    assert refused.value.code == "bad_query"


def test_a_full_queue_blocks_no_event_loop(server: Server) -> None:
    async def main() -> None:
        async with Run(server.url, "drained") as run:
            for _ in range(40_000):
                run.publish({"type": "text.delta", "messageId": "m", "payload": {"text": "x"}})
                await run.drain()
        assert run.counters.acknowledged == 40_002

    asyncio.run(main())


def test_a_block_that_is_silent_keeps_its_run_from_becoming_stale(
    monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    monkeypatch.setattr("proscenium._publisher.KEEP_ALIVE_S", 0.01)
    alive = threading.Event()
    with Run(server.url, "silent") as run:
        assert run._publisher is not None
        monkeypatch.setattr(run._publisher._transport, "keep_alive", alive.set)
        run.status("acting")
        assert alive.wait(60)
