"""OpenAI: `await forward(stream)`, for the Responses API and the Agents SDK."""

from collections.abc import AsyncIterable, Iterable, Mapping
from typing import Any, TypeVar

from ._forward import Forward
from .run import Run

T = TypeVar("T")
SOURCE = "openai-responses"
_ITEM_MEMBERS = ("type", "raw_item", "output", "tool_name", "tool_origin")
_ITEM_AGENTS = ("agent", "source_agent", "target_agent")


def forward(stream: AsyncIterable[T] | Iterable[T], run: Run | None = None) -> Forward[T]:
    """Publishes a stream to the run, by default the run of the surrounding `with` block.

    The stream is that of `client.responses.create(stream=True)`, or `stream_events()` of the Agents SDK. Its facts
    report the start and the end of the run.
    """

    def publish(run: Run, item: Any) -> None:
        run.forward(SOURCE, event(item), ends=True)

    return Forward(stream, run, publish)


def event(item: Any) -> Mapping[str, Any]:
    """Returns an event as the source reads it.

    The events of the Agents SDK are objects without a JSON form. Only the members that the source knows leave them: an
    agent has instructions and functions, too.
    """
    match getattr(item, "type", None):
        case "raw_response_event":
            return {"type": item.type, "data": item.data}
        case "run_item_stream_event":
            members = {
                name: getattr(item.item, name) for name in _ITEM_MEMBERS if getattr(item.item, name, None) is not None
            }
            agents = {name: _agent(getattr(item.item, name)) for name in _ITEM_AGENTS if getattr(item.item, name, None)}
            return {"type": item.type, "name": item.name, "item": members | agents}
        case "agent_updated_stream_event":
            return {"type": item.type, "new_agent": _agent(item.new_agent)}
        case _:
            # An event of the Responses API, or a mapping.
            return item if isinstance(item, Mapping) else item.model_dump()


def _agent(agent: Any) -> dict[str, Any]:
    return {"name": agent.name}
