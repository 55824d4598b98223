"""An agent in one file: it answers messages, uses a tool, and asks before it deletes.

Start it, open the server's address, and write to the agent `default`; or use `curl`:

    curl http://127.0.0.1:8787/v1/sessions/s1/controls --json '{"control": "send", "value": "Tidy up."}'
"""

import asyncio
import logging
import os

from proscenium import Control, current_call, observe, worker

URL = os.environ.get("PROSCENIUM_URL", "http://127.0.0.1:8787")


@observe(audience="user")
async def list_files(folder: str) -> list[str]:
    for done in range(1, 4):
        await asyncio.sleep(0.1)  # … do work …
        current_call().report_progress("running", f"Read {done} of 3 folders below {folder}", done / 3)
    return ["a.txt", "b.txt"]


async def begin(control: Control) -> None:
    async with control.accept() as run:
        run.user_message(control.text, control.message_id)
        if not control.text:
            raise ValueError("the message has no words")
        with run.message() as message:
            for word in ["Let ", "me ", "look ", "around."]:
                message.text(word)
                await asyncio.sleep(0.05)
        files = await list_files(".")
        # The run waits for the answer after the block, without memory here: it may come days later, to another process.
        question = f"May I delete {files[0]}?"
        run.require_action("tool_approval", question, risk="high", toolName="delete_file", input={"path": files[0]})


async def decide(control: Control) -> None:
    is_approved = control.control == "approve"
    async with control.run() as run:
        run.resolve_action(control.action_id or "", "approved" if is_approved else "rejected")
        await run.aflush()
        await control.ack()
        with run.message() as message:
            message.text("It is gone." if is_approved else "Then it stays.")


async def main() -> None:
    print(f"at work for {URL}", flush=True)
    handlers = {"send": begin, "approve": decide, "reject": decide}
    async for control in worker(URL):
        try:
            if handler := handlers.get(control.control):
                # A longer turn runs in a task of its own, so that this loop takes its `interrupt` meanwhile.
                await handler(control)
            else:
                await control.nack(f"this agent does not take {control.control}")
        except Exception:
            # The block of the run has reported the failure. It ends this turn, and not the agent.
            logging.exception("the control %s failed", control.control_id)


if __name__ == "__main__":
    asyncio.run(main())
