"""Streams of frameworks, forwarded in the form that their sources read."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest
from conftest import Server

from proscenium import Run, langgraph, openai


@dataclasses.dataclass
class Interrupt:
    id: str
    value: str


class Message:
    def __init__(self, **members: Any):
        self.members = members

    def model_dump(self) -> dict[str, Any]:
        return self.members


TOKEN = Message(type="AIMessageChunk", id="m1", content="Hi", tool_call_chunks=[])
METADATA = {"langgraph_node": "agent"}


async def stream(*items: Any) -> AsyncIterator[Any]:
    for item in items:
        yield item


def forwarded(forward: Any, *items: Any) -> list[dict[str, Any]]:
    """Forwards the items inside a block, and returns the facts."""

    async def main() -> None:
        async with run:
            await forward(stream(*items))

    run, recording = Run.recording()
    asyncio.run(main())
    return recording.facts


def test_a_forwarded_source_starts_the_run_that_a_worker_accepted() -> None:
    run, recording = Run.recording()
    with run:
        run.status("accepted")
        run.user_message("Hi")
        run.forward(openai.SOURCE, {"type": "response.created"}, ends=True)
    assert [fact["type"] for fact in recording.facts] == ["run.status", "text.final", "response.created"]


@pytest.mark.parametrize(
    "item",
    [
        {"type": "messages", "ns": (), "data": (TOKEN, METADATA)},
        ("messages", (TOKEN, METADATA)),
        ((), "messages", (TOKEN, METADATA)),
    ],
)
def test_every_form_of_a_langgraph_part_is_the_same_fact(item: Any) -> None:
    fact, end = forwarded(langgraph.forward, item)
    assert fact == {"type": "messages", "ns": [], "data": [TOKEN.members, METADATA]}
    assert end["type"] == "run.finished", "the source reports the start, and the stream of astream no end"


def test_a_langgraph_part_of_a_subgraph_keeps_its_namespace() -> None:
    for item in [(("agent:1",), "updates", {"node": None}), (("agent:1",), {"node": None})]:
        assert forwarded(langgraph.forward, item)[0] == {"type": "updates", "ns": ["agent:1"], "data": {"node": None}}


def test_the_only_mode_of_a_langgraph_stream_is_named_by_the_caller() -> None:
    facts = forwarded(lambda items: langgraph.forward(items, stream_mode="messages"), (TOKEN, METADATA))
    assert (facts[0]["type"], facts[0]["data"]) == ("messages", [TOKEN.members, METADATA])
    assert forwarded(langgraph.forward, {"node": {"x": 1}})[0]["type"] == "updates"


def test_an_interrupt_leaves_the_run_open() -> None:
    facts = forwarded(langgraph.forward, ("updates", {"__interrupt__": (Interrupt("i1", "Sure?"),)}))
    assert facts[0]["data"] == {"__interrupt__": [{"id": "i1", "value": "Sure?"}]}
    assert len(facts) == 1


def test_events_of_langgraph_report_the_start_and_the_end_themselves() -> None:
    events = [{"event": "metadata", "data": {"run_id": "1"}}, {"event": "on_chain_end", "run_id": "1", "data": {}}]
    assert forwarded(langgraph.forward, *events) == events


class Agent:
    """An agent of the Agents SDK has a name, and much that must not leave the process."""

    def __init__(self, name: str):
        self.name = name
        self.instructions = "secret"


class Event:
    def __init__(self, **members: Any):
        self.__dict__.update(members)


def test_events_of_the_agents_sdk_have_the_members_that_the_source_knows() -> None:
    raw = Message(type="response.output_text.delta", delta="Hi")
    item = Event(
        type="handoff_output_item",
        raw_item={"call_id": "c"},
        agent=Agent("A"),
        source_agent=Agent("A"),
        target_agent=Agent("B"),
    )
    facts = forwarded(
        openai.forward,
        Event(type="raw_response_event", data=raw),
        Event(type="run_item_stream_event", name="handoff_occured", item=item),
        Event(type="agent_updated_stream_event", new_agent=Agent("B")),
    )
    agents = {"agent": {"name": "A"}, "source_agent": {"name": "A"}, "target_agent": {"name": "B"}}
    members = {"type": "handoff_output_item", "raw_item": {"call_id": "c"}, **agents}
    assert facts == [
        {"type": "raw_response_event", "data": {"type": "response.output_text.delta", "delta": "Hi"}},
        {"type": "run_item_stream_event", "name": "handoff_occured", "item": members},
        {"type": "agent_updated_stream_event", "new_agent": {"name": "B"}},
    ]


def test_events_of_the_responses_api_are_facts_as_they_are() -> None:
    events = [
        Message(type="response.created", response={"id": "r"}),
        Message(type="response.completed", response={"id": "r"}),
    ]
    assert forwarded(openai.forward, *events) == [event.members for event in events]


def test_a_stream_passes_through_and_a_failure_ends_the_run() -> None:
    async def broken() -> AsyncIterator[Any]:
        yield ("custom", "one")
        raise OSError("the model is away")

    async def main() -> None:
        async with run:
            async for item in langgraph.forward(broken()):
                seen.append(item)

    seen: list[Any] = []
    run, recording = Run.recording()
    with pytest.raises(OSError, match="away"):
        asyncio.run(main())
    assert seen == [("custom", "one")]
    assert recording.facts[-1]["payload"] == {"error": {"message": "the model is away", "code": "OSError"}}


def test_a_plain_iterator_can_be_forwarded_too() -> None:
    async def main() -> None:
        await langgraph.forward(iter([("custom", 1), ("custom", 2)]), run)
        await run.aclose()

    run, recording = Run.recording()
    asyncio.run(main())
    assert [fact.get("data") for fact in recording.facts] == [1, 2]
    assert recording.sources == ["langgraph", "langgraph"]


def test_forward_needs_a_run() -> None:
    with pytest.raises(LookupError, match="inside `with Run"):
        langgraph.forward(stream())


@pytest.mark.parametrize("source", [langgraph.SOURCE, openai.SOURCE])
def test_the_server_shows_a_forwarded_stream(server: Server, source: str) -> None:
    items: dict[str, list[Any]] = {
        langgraph.SOURCE: [
            ("messages", (TOKEN, METADATA)),
            ("updates", {"agent": {"messages": [{"type": "ai", "id": "m1", "content": "Hi"}]}}),
        ],
        openai.SOURCE: [
            {"type": "response.created", "sequence_number": 0, "response": {"id": "r", "output": []}},
            {
                "type": "response.output_item.added",
                "sequence_number": 1,
                "output_index": 0,
                "item": {"id": "i", "type": "message", "role": "assistant", "content": []},
            },
            {
                "type": "response.output_text.delta",
                "sequence_number": 2,
                "item_id": "i",
                "output_index": 0,
                "content_index": 0,
                "delta": "Hi",
            },
            {
                "type": "response.output_text.done",
                "sequence_number": 3,
                "item_id": "i",
                "output_index": 0,
                "content_index": 0,
                "text": "Hi",
            },
            {
                "type": "response.completed",
                "sequence_number": 4,
                "response": {"id": "r", "status": "completed", "output": []},
            },
        ],
    }
    forward: Any = {langgraph.SOURCE: langgraph.forward, openai.SOURCE: openai.forward}[source]

    async def main() -> None:
        async with Run(server.url, f"forwarded-{source}"):
            await forward(stream(*items[source]))

    asyncio.run(main())
    [part] = server.activity(f"forwarded-{source}", "message")["parts"]
    assert (part["status"], "".join(part["text"])) == ("complete", "Hi")
    run = server.activity(f"forwarded-{source}", "run")
    assert (run["status"], run["attempt"]) == ("completed", 1)
