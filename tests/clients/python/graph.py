"""A graph for LangGraph's server: it counts messages, asks before it deletes, fails, and waits when told to."""

import asyncio
from pathlib import Path

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt


async def answer(state: MessagesState):
    said = state["messages"][-1].content
    if said == "Delete":
        return {"messages": [AIMessage(f"answer: {interrupt({'question': 'Which file?'})}")]}
    if said == "Delete a.txt":
        request = {"name": "delete", "args": {"path": "a.txt"}, "description": "May I?"}
        config = {"action_name": "delete", "allowed_decisions": ["approve", "reject"]}
        answer = interrupt({"action_requests": [request], "review_configs": [config]})
        return {"messages": [AIMessage(f"decision: {answer['decisions'][0]['type']}")]}
    if said == "Work":
        await asyncio.Event().wait()
    if said == "Fail":
        raise RuntimeError("It broke.")
    if said.startswith("Wait "):
        while not await asyncio.to_thread(Path(said.removeprefix("Wait ")).exists):
            await asyncio.sleep(0.02)
        return {"messages": [AIMessage("I waited.")]}
    return {"messages": [AIMessage(f"I have {len(state['messages'])} messages.")]}


builder = StateGraph(MessagesState)
builder.add_node("answer", answer)
builder.add_edge(START, "answer")
builder.add_edge("answer", END)
graph = builder.compile()
