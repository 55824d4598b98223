"""An A2A agent by the published SDK: it counts turns, asks before it deletes, fails, waits, and works until cancelled."""

import asyncio
import socket
from collections import Counter
from pathlib import Path

import uvicorn
from a2a.helpers.proto_helpers import new_text_message
from a2a.server.agent_execution.agent_executor import AgentExecutor
from a2a.server.request_handlers.default_request_handler_v2 import DefaultRequestHandlerV2
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.server.tasks.inmemory_task_store import InMemoryTaskStore
from a2a.server.tasks.task_updater import TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, Task, TaskState, TaskStatus
from starlette.applications import Starlette

turns = Counter()


class Agent(AgentExecutor):
    async def execute(self, context, event_queue):
        said = context.get_user_input()
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        if context.current_task is not None:
            return await updater.complete(new_text_message(f"answer: {said}"))
        status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
        await event_queue.enqueue_event(Task(id=context.task_id, context_id=context.context_id, status=status))
        await updater.start_work()
        turns[context.context_id] += 1
        if said == "Delete":
            return await updater.requires_input(new_text_message("Which file?"))
        if said == "Files":
            files = [part for part in context.message.parts if part.media_type]
            shown = [f"{part.filename} {part.media_type} {part.url or part.raw.decode()}" for part in files]
            return await updater.complete(new_text_message("; ".join(shown)))
        if said == "Work":
            await asyncio.Event().wait()
        if said == "Fail":
            raise RuntimeError("It broke.")
        if said.startswith("Wait "):
            while not Path(said.removeprefix("Wait ")).exists():
                await asyncio.sleep(0.02)
            return await updater.complete(new_text_message("I waited."))
        await updater.complete(new_text_message(f"Turn {turns[context.context_id]}: {said}"))

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


card = AgentCard(name="test-agent", capabilities=AgentCapabilities(streaming=True))
handler = DefaultRequestHandlerV2(agent_executor=Agent(), task_store=InMemoryTaskStore(), agent_card=card)
app = Starlette(routes=create_jsonrpc_routes(handler, "/agent", enable_v0_3_compat=True))
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
asyncio.run(uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve(sockets=[listener]))
