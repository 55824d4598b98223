"""A graph for LangGraph's server: it counts messages, has a tool, asks before it deletes, fails, and waits."""

import asyncio
from pathlib import Path

from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt


@tool
def look(path: str) -> str:
    """Looks for a file."""
    return f"{path} is there"


async def answer(state: MessagesState):
    last = state["messages"][-1]
    said = last.content
    if last.type == "tool":
        return {"messages": [AIMessage(f"result: {said}")]}
    if said == "Look":
        return {"messages": [AIMessage("", tool_calls=[{"name": "look", "args": {"path": "a.txt"}, "id": "call-1"}])]}
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
builder.add_node("tools", ToolNode([look]))
builder.add_edge(START, "answer")
builder.add_conditional_edges("answer", tools_condition)
builder.add_edge("tools", "answer")
graph = builder.compile()
