/**
 * An agent in one file: it answers messages, uses a tool, and asks before it deletes.
 *
 * Start it, open the server's address, and write to the agent `default`; or use `curl`:
 *
 *     curl http://127.0.0.1:8787/v1/sessions/s1/controls --json '{"control": "send", "value": "Tidy up."}'
 */

import { setTimeout as sleep } from "node:timers/promises";
import { currentCall, observe, worker } from "proscenium-client";

const base = process.env.PROSCENIUM_URL ?? "http://127.0.0.1:8787";

const listFiles = observe(async (/** @type {string} */ folder) => {
  for (let done = 1; done <= 3; done += 1) {
    await sleep(100); // … do work …
    currentCall().reportProgress("running", `Read ${done} of 3 folders below ${folder}`, done / 3);
  }
  return ["a.txt", "b.txt"];
}, { name: "list_files", audience: "user" });

/** @param {import("proscenium-client").Control} control */
const begin = (control) => control.accept(async (run) => {
  run.userMessage(control.text, control.messageId);
  if (!control.text) throw new Error("the message has no words");
  const message = run.message();
  for (const word of ["Let ", "me ", "look ", "around."]) {
    message.text(word);
    await sleep(50);
  }
  message.close();
  const [file] = await listFiles(".");
  // The run waits for the answer after this, without memory here: it may come days later, to another process.
  run.requireAction("tool_approval", `May I delete ${file}?`, { risk: "high", toolName: "delete_file", input: { path: file } });
});

/** @param {import("proscenium-client").Control} control */
const decide = (control) => control.run().during(async (run) => {
  const isApproved = control.control === "approve";
  run.resolveAction(control.claimed.actionId ?? "", isApproved ? "approved" : "rejected");
  await run.flush();
  await control.ack();
  const message = run.message();
  message.text(isApproved ? "It is gone." : "Then it stays.");
  message.close();
});

console.log(`at work for ${base}`);
for await (const control of worker({ base })) {
  try {
    // A longer turn is not awaited here, so that this loop takes its `interrupt` meanwhile.
    if (control.control === "send") await begin(control);
    else if (control.control === "approve" || control.control === "reject") await decide(control);
    else await control.nack(`this agent does not take ${control.control}`);
  } catch (error) {
    // The run has reported the failure. It ends this turn, and not the agent.
    console.error(`the control ${control.claimed.controlId} failed:`, error);
  }
}
