"""LangGraph: `await forward(graph.astream(…))`."""

from collections.abc import AsyncIterable, Iterable, Mapping
from typing import Any, TypeVar

from ._forward import Forward
from .run import Run

T = TypeVar("T")
SOURCE = "langgraph"


def forward(
    stream: AsyncIterable[T] | Iterable[T], run: Run | None = None, *, stream_mode: str = "updates"
) -> Forward[T]:
    """Publishes a graph's stream to the run, by default the run of the surrounding `with` block.

    The stream is that of `astream` or `stream` with any modes, of `astream_events`, or of a LangGraph server. With one
    mode only, the items do not name it: pass the same `stream_mode`. Ask for `messages` (tokens) and `updates`
    (interrupts, tool results). An interrupt leaves the run open.
    """

    def publish(run: Run, item: Any) -> None:
        fact = part(item, stream_mode)
        # Only events report the end of the graph. The stream of `astream` just stops.
        run.forward(SOURCE, fact, ends="event" in fact or fact.get("type") == "event")
        if interrupts(fact):
            run.suspend()

    return Forward(stream, run, publish)


def part(item: Any, stream_mode: str) -> Mapping[str, Any]:
    """Returns an item as the source reads it: the form of `astream(version="v2")`, or an event unchanged.

    The older form of a part is a tuple: its mode, where the graph streams several, after its namespace, where it
    streams subgraphs.
    """
    if isinstance(item, Mapping) and (
        "event" in item or {"type", "ns", "data"} <= item.keys() or item.get("type") == "event"
    ):
        return item
    namespace: tuple[str, ...] = ()
    # A message and its metadata are a tuple, too, but begin with neither a namespace nor a mode.
    if isinstance(item, tuple) and len(item) in (2, 3) and isinstance(item[0], tuple):
        namespace, *rest = item
        item = rest[0] if len(rest) == 1 else tuple(rest)
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
        stream_mode, item = item
    return {"type": stream_mode, "ns": list(namespace), "data": item}


def interrupts(fact: Mapping[str, Any]) -> bool:
    """Whether the part says that the graph waits."""
    data = fact.get("data")
    return bool(fact.get("interrupts")) or (isinstance(data, Mapping) and "__interrupt__" in data)
