"""A graph for LangGraph's server: it counts messages, has a tool, asks before it deletes, fails, and waits."""

import asyncio
from pathlib import Path

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
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
    if said.startswith("Remove "):
        path = said.removeprefix("Remove ")
        return {"messages": [AIMessage("", tool_calls=[{"name": "remove", "args": {"path": path}, "id": f"call-{path}"}])]}
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


async def review(state: MessagesState):
    call = state["messages"][-1].tool_calls[0]
    request = {"name": call["name"], "args": call["args"], "description": "May I?"}
    config = {"action_name": "remove", "allowed_decisions": ["approve", "reject"]}
    answer = interrupt({"action_requests": [request], "review_configs": [config]})
    done = "removed" if answer["decisions"][0]["type"] == "approve" else "kept"
    return {"messages": [ToolMessage(f"{done} {call['args']['path']}", tool_call_id=call["id"])]}


def route(state: MessagesState):
    calls = getattr(state["messages"][-1], "tool_calls", [])
    return "review" if calls and calls[0]["name"] == "remove" else tools_condition(state)


builder = StateGraph(MessagesState)
builder.add_node("answer", answer)
builder.add_node("tools", ToolNode([look]))
builder.add_edge(START, "answer")
builder.add_node("review", review)
builder.add_conditional_edges("answer", route, ["review", "tools", END])
builder.add_edge("review", "answer")
builder.add_edge("tools", "answer")
graph = builder.compile()
