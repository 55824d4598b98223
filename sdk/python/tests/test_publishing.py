"""After a producer published, the server has everything, once, in order."""

import random
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import DEADLINE, LossyProxy, Server

from proscenium import Fact, Problem, Producer, ProsceniumError, Rejected, Run, Unreachable

PRODUCER = Path(__file__).parent / "numbered_producer.py"


def fact(text: str) -> Fact:
    return {"type": "text.delta", "messageId": "m", "payload": {"text": text}}


def texts(server: Server, run: str) -> list[str]:
    return [event["payload"]["text"] for event in server.events(run) if event["type"] == "text.delta"]


def test_a_block_publishes_the_start_its_facts_and_the_end(server: Server) -> None:
    with Run(server.url, "block", session="s1", agent="writer") as run:
        run.user_message("Which tide?", "u1")
        with run.message("a1") as message:
            message.reasoning("The user wants a table.")
            message.text("High ")
            message.text("water.")
    assert [event["type"] for event in server.events("block")] == [
        "run.status",
        "text.final",
        "run.started",
        "reasoning.delta",
        "reasoning.summary",
        "text.delta",
        "text.delta",
        "text.final",
        "run.finished",
    ]
    assert {event["sessionId"] for event in server.events("block")} == {"s1"}
    assert server.status("block") == "completed"
    assert run.counters.acknowledged == run.counters.published == 9


def test_an_exception_fails_the_run_and_a_cancellation_cancels_it(server: Server) -> None:
    with pytest.raises(ZeroDivisionError), Run(server.url, "raises") as run:
        run.status("acting")
        print(1 / 0)
    assert server.activity("raises", "run")["error"] == {"code": "ZeroDivisionError", "message": "division by zero"}
    with pytest.raises(KeyboardInterrupt), Run(server.url, "stopped"):
        raise KeyboardInterrupt
    assert (server.status("raises"), server.status("stopped")) == ("failed", "cancelled")


def test_a_run_with_an_open_action_waits_and_another_block_continues_it(server: Server) -> None:
    with Run(server.url, "waits") as run:
        action = run.require_action("tool_approval", "May I?", risk="high")
    assert server.status("waits") == "waiting"
    with Run(server.url, "waits").continuing() as run:
        run.resolve_action(action, "approved")
    assert server.activity("waits", "run")["attempt"] == 1
    assert server.activity("waits", "action")["outcome"] == "approved"
    assert server.status("waits") == "completed"


def test_lost_answers_lose_and_double_nothing(server: Server) -> None:
    proxy = LossyProxy(server.url, losses=3)
    with Run(proxy.url, "lossy") as run:
        for number in range(20_000):
            run.publish(fact(str(number)))
    proxy.close()
    assert proxy.losses == 0
    assert texts(server, "lossy") == [str(number) for number in range(20_000)]
    assert run.counters.repeated > 0, "the server had facts whose answer was lost"
    assert run.counters.acknowledged == 20_002


@pytest.mark.parametrize("seed", range(2))
def test_kills_of_the_producer_and_of_the_server_lose_and_double_nothing(own_server: Server, seed: int) -> None:
    """A producer that is killed makes the same facts again; `resume` tells it where to continue."""
    facts = 12_000
    choose = random.Random(seed)
    points = sorted(choose.sample(range(1, facts // 100), 8))
    kills = [(100 * point, choose.choice(["producer", "server", "both"])) for point in points]
    starts = 1
    command = [sys.executable, str(PRODUCER), own_server.url, "killed", str(facts)]
    producer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for point, victim in kills:
        # The producer prints the facts in its queue, which the server has not acknowledged yet.
        assert producer.stdout is not None
        while int(producer.stdout.readline() or facts) < point:
            pass
        if victim != "server":
            producer.send_signal(signal.SIGKILL)
            producer.wait()
            producer.stdout.close()
        if victim != "producer":
            own_server.kill()
            own_server.start()
        if victim != "server":
            producer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            starts += 1
    producer.communicate(timeout=DEADLINE)
    assert producer.returncode == 0
    assert starts > 1
    assert texts(own_server, "killed") == [str(number) for number in range(facts)]
    assert [event["type"] for event in own_server.events("killed")].count("run.started") == 1
    assert own_server.status("killed") == "completed"


def test_resume_tells_how_many_facts_the_server_has(server: Server) -> None:
    first = Run(server.url, "resumed", producer_id="importer", epoch=1)
    assert first.resume() == 0
    first.publish(fact("0"), fact("1"))
    first.close()
    second = Run(server.url, "resumed", producer_id="importer", epoch=1)
    assert second.resume() == 2
    with second:
        second.publish(fact("2"))
    assert texts(server, "resumed") == ["0", "1", "2"]
    third = Run(server.url, "resumed", producer_id="importer", epoch=1)
    third.publish(fact("ignored"))
    with pytest.raises(RuntimeError, match="before the first fact"):
        third.resume()
    third.close()
    assert third.counters.repeated == 2, "its number was taken: the same fact again"


def test_a_restarted_producer_ends_its_predecessor(server: Server) -> None:
    old = Run(server.url, "fenced", producer_id="p")
    old.publish(fact("old"))
    old.flush()
    new = Run(server.url, "fenced", producer_id="p").continuing()
    new.publish(fact("new"))
    new.flush()
    old.publish(fact("late"))
    with pytest.raises(Problem) as refused:
        old.flush()
    assert refused.value.code == "producer_fenced"
    with pytest.raises(Problem):
        old.publish(fact("later"))
    new.close()
    assert texts(server, "fenced") == ["old", "new"]
    assert (old.counters.acknowledged, old.counters.dropped) == (2, 2)


def test_a_rejected_fact_is_named_and_loses_no_other(server: Server) -> None:
    no_type: Fact = {"payload": {"text": "no type"}}  # type: ignore[typeddict-item]
    with pytest.raises(Rejected) as rejected, Run(server.url, "rejects") as run:
        run.publish(fact("a"), no_type, fact("b"), {"type": "text.delta", "messageId": "\n"}, fact("c"))
    assert [(one.number, one.problem.code) for one in rejected.value.facts] == [(2, "no_type"), (4, "bad_member")]
    assert '"no type"' in str(rejected.value) and "1 more facts" in str(rejected.value)
    assert texts(server, "rejects") == ["a", "b", "c"]
    assert server.status("rejects") == "completed"
    counters = run.counters
    assert (counters.published, counters.acknowledged, counters.rejected) == (7, 5, 2)


def test_a_refused_producer_raises_the_servers_problem(server: Server) -> None:
    with pytest.raises(Problem) as refused, Run(server.url, "refused") as run:
        run.forward("no-such-source", {"type": "x"})
        run.flush()
    assert (refused.value.code, refused.value.status) == ("unknown_source", 400)
    assert "agentui" in refused.value.detail


def test_an_unreachable_server_ends_the_wait_and_counts_the_loss() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    run = Run(url, "unreachable", stall_timeout=0.2)
    run.publish(fact("a"))
    with pytest.raises(Unreachable, match="2 facts wait"):
        run.flush()
    with pytest.raises(Unreachable):
        run.close()
    with pytest.raises(ProsceniumError, match="closed"):
        run.publish(fact("b"))


def test_facts_of_many_threads_keep_the_order_of_each(server: Server) -> None:
    def publish(name: str) -> None:
        for number in range(500):
            run.publish(fact(f"{name} {number}"))

    with Run(server.url, "threads") as run:
        threads = [threading.Thread(target=publish, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    got = texts(server, "threads")
    for name in "abcd":
        assert [text for text in got if text.startswith(name)] == [f"{name} {number}" for number in range(500)]


def test_without_a_server_nothing_happens() -> None:
    with Run(None, "disabled") as run:
        run.publish(fact("a"))
        with run.tool("search", {"q": 1}) as call:
            call.report_progress("running")
    assert run.counters.published == 0
    assert run.resume() == 0


@pytest.mark.parametrize("url", ["", "127.0.0.1:8787", "ftp://127.0.0.1", "http://"])
def test_an_address_that_is_none_is_named(url: str) -> None:
    with pytest.raises(ValueError, match="is not a server's address"):
        Producer(url, "r")


@pytest.mark.parametrize(
    ("run", "why"), [("", "0 bytes"), ("x" * 257, "257 bytes"), ("a\nb", "control"), ("..", "URL path")]
)
def test_an_id_that_the_server_would_reject_is_named(run: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"run.*{why}"):
        Producer("http://127.0.0.1:1", run)


def test_an_id_may_have_any_printable_character(server: Server) -> None:
    name = "Grüße / 走 #1?%"
    with Run(server.url, name, session="s & t"):
        pass
    run = next(run for run in server.get("/v1/runs", limit=1000)["runs"] if run["runId"] == name)
    assert run["sessionId"] == "s & t"
