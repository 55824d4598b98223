"""A LangGraph agent in your own process: it asks before it deletes, and continues after the answer.

It needs `pip install langgraph`. Start it, open the server's address, and write to the agent `default`.
"""

import asyncio
import logging
import os
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from proscenium import Control, langgraph, worker

URL = os.environ.get("PROSCENIUM_URL", "http://127.0.0.1:8787")


def tidy_up(state: MessagesState) -> dict[str, Any]:
    if not state["messages"][-1].content:
        raise ValueError("the message has no words")
    answer = interrupt("Which file may I delete?")
    return {"messages": [AIMessage(f"{answer} is gone.")]}


builder = StateGraph(MessagesState)
builder.add_node(tidy_up)
builder.add_edge(START, "tidy_up")
builder.add_edge("tidy_up", END)
# A process that restarts needs a checkpointer on disk.
graph = builder.compile(checkpointer=InMemorySaver())


async def stream(control: Control, graph_input: Any) -> None:
    """Runs the graph on the thread of the control's session, and publishes what it streams."""
    config: Any = {"configurable": {"thread_id": control.session_id}}
    await langgraph.forward(graph.astream(graph_input, config, stream_mode=["messages", "updates"]))


async def begin(control: Control) -> None:
    async with control.accept() as run:
        run.user_message(control.text, control.message_id)
        await stream(control, {"messages": [HumanMessage(control.text)]})


async def answer(control: Control) -> None:
    async with control.run() as run:
        run.resolve_action(control.action_id or "", "answered")
        await run.aflush()
        await control.ack()
        # By its id: the answer reaches the interrupt that the card showed, and no other.
        await stream(control, Command(resume={control.action_id: control.value}))


async def main() -> None:
    print(f"at work for {URL}", flush=True)
    handlers = {"send": begin, "answer": answer}
    async for control in worker(URL):
        try:
            if handler := handlers.get(control.control):
                await handler(control)
            else:
                await control.nack(f"this agent does not take {control.control}")
        except Exception:
            # The block of the run has reported the failure. It ends this turn, and not the agent.
            logging.exception("the control %s failed", control.control_id)


if __name__ == "__main__":
    asyncio.run(main())
