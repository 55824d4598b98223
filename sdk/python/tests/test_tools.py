"""Tools that report their progress, and functions that report their calls."""

import asyncio
import dataclasses
import datetime
import json
import math
from typing import Any

import pytest
from conftest import Server

from proscenium import Rejected, Reporter, Run, current_call, current_run, observe
from proscenium._json import to_json


def test_a_call_reports_progress_an_activity_and_its_changes(server: Server) -> None:
    with Run(server.url, "tools"), Reporter(server.url, "tools") as reporter:
        call = reporter.call("call-1", "index_docs")
        call.report_progress("running", "Starting indexing")
        call.report_progress("running", "Indexed batch 3/10", 0.3, loaded=3, total=10)
        call.report_activity("code-generation", {"lines": ["fn hello() {}"]})
        call.report_activity_delta("code-generation", {"op": "add", "path": "/lines/-", "value": "hello();"})
        call.child("call-2", "read_file").report_progress("done")
        reporter.flush()
        activities = server.get("/v1/runs/tools/activities", audience="user")["activities"]
        by_key = {(one["activityType"], one["activityId"]): one["content"] for one in activities}
        progress = by_key["tool-call-progress", "call-1"]
        assert {
            "schema": "tool-call-progress.v1",
            "node_id": "call-1",
            "tool_name": "index_docs",
        }.items() <= progress.items()
        assert (progress["progress"], progress["loaded"], progress["total"]) == (0.3, 3, 10)
        assert progress["message"] == "Indexed batch 3/10"
        assert by_key["tool-call-progress", "call-2"]["parent_call_id"] == "call-1"
        assert by_key["code-generation", "call-1"] == {"lines": ["fn hello() {}", "hello();"]}


def test_an_emitted_event_is_internal_and_does_not_decide_who_sees_the_call(server: Server) -> None:
    with Run(server.url, "emits") as run, run.tool("index", call_id="c") as call:
        run.call("hidden", "other").emit("128 documents", 12.5)
        call.report_progress("running")
        call.emit("128 documents", 12.5)
        call.output("line 1\n", "stderr")
    events = {event["sequence"]: event for event in server.events("emits")}
    assert [event["audience"] for event in events.values() if event["type"] == "tool.progress"] == [
        "internal",
        "user",
        "internal",
    ]
    shown = server.activity("emits", "tool-call-progress", audience="user")
    assert (shown["call_id"], shown["status"], shown.get("progress")) == ("c", "done", None)
    assert server.activity("emits", "tool-call-progress", audience="internal")["progress"] == 0.125


def test_an_observed_function_reports_its_input_output_and_failure() -> None:
    @observe(audience="user")
    def search(query: str, *, limit: int = 10) -> list[str]:
        current_call().report_progress("running", "half", 0.5)
        return [query] * limit

    @observe(name="broken_tool")
    async def broken() -> None:
        search("inner", limit=1)
        raise ValueError("no")

    run, recording = Run.recording()
    with run:
        assert search("tides", limit=2) == ["tides", "tides"]
        with pytest.raises(ValueError, match="no"):
            asyncio.run(broken())
        with pytest.raises(TypeError, match="missing"):
            search()  # type: ignore[call-arg]
    facts = [fact for fact in recording.facts if fact["type"].startswith("tool.")]
    assert [fact["type"].removeprefix("tool.") for fact in facts] == [
        *("started", "progress", "result"),
        *("started", "started", "progress", "result", "failed"),
        *("started", "failed"),
    ]
    assert facts[0]["payload"] == {"toolName": "search", "input": {"query": "tides", "limit": 2}}
    assert (facts[2]["payload"]["output"], facts[2]["audience"]) == (["tides", "tides"], "user")
    assert facts[7]["payload"] == {"toolName": "broken_tool", "error": {"message": "no", "code": "ValueError"}}
    assert facts[4]["payload"]["parentToolCallId"] == facts[3]["toolCallId"]
    assert current_call().call_id == ""


def test_observed_functions_that_run_at_once_keep_their_own_calls() -> None:
    @observe
    async def work(name: str) -> str:
        await asyncio.sleep(0)
        current_call().report_activity("name", name)
        return name

    async def main() -> None:
        async with run:
            assert list(await asyncio.gather(work("a"), work("b"))) == ["a", "b"]

    run, recording = Run.recording()
    asyncio.run(main())
    calls = {
        fact["toolCallId"]: fact["payload"]["input"]["name"]
        for fact in recording.facts
        if fact["type"] == "tool.started"
    }
    named = {
        fact["toolCallId"]: fact["payload"]["content"] for fact in recording.facts if fact["type"] == "tool.progress"
    }
    assert named == calls and sorted(named.values()) == ["a", "b"]


def test_without_a_run_an_observed_function_just_runs() -> None:
    @observe
    def double(number: int) -> int:
        current_call().report_progress("running")
        return 2 * number

    assert current_run() is None
    assert double(2) == 4


def test_a_generator_cannot_be_observed() -> None:
    with pytest.raises(TypeError, match="is a generator"):

        @observe
        def numbers() -> Any:
            yield 1


def test_reports_never_fail_a_tool_and_flush_says_what_was_lost(server: Server) -> None:
    with Reporter(server.url, "quiet") as reporter:
        reporter.call("c", "t").report_activity("deep", nested(80))
        reporter.call("c", "t").report_activity("fine", "text")
        with pytest.raises(Rejected):
            reporter.flush()
    reporter.call("c", "t").report_progress("done")
    assert (reporter.counters.acknowledged, reporter.counters.rejected, reporter.counters.dropped) == (1, 1, 1)


@dataclasses.dataclass
class Point:
    x: float
    tags: set[str]


class Model:
    def model_dump(self) -> dict[str, Any]:
        return {"model": Point(1, {"a"})}


class Opaque:
    def model_dump(self) -> None:
        raise RuntimeError("cannot")

    def __repr__(self) -> str:
        return "Opaque()"


cycle: dict[str, Any] = {"name": "cycle"}
cycle["self"] = cycle


def nested(depth: int) -> Any:
    value: Any = "bottom"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (Model(), {"model": {"x": 1, "tags": ["a"]}}),
        (datetime.date(2026, 11, 24), "2026-11-24"),
        ([math.nan, math.inf, 1.5], [None, None, 1.5]),
        ({(1, 2): b"\x00", 3: "\ud800"}, {"(1, 2)": "AA==", "3": "?"}),
        (Opaque(), "Opaque()"),
        (cycle, {"name": "cycle", "self": "…"}),
    ],
)
def test_every_value_has_a_json_form(value: Any, form: Any) -> None:
    assert json.loads(to_json(value)) == form


def test_a_value_too_deep_for_python_is_cut_off() -> None:
    form = to_json(nested(5000))
    assert form.startswith(b"[[") and (b'"bottom"' in form or "…".encode() in form)
