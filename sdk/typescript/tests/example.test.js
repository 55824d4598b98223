/** The example is an agent that a user can talk to. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { startServer, waitFor } from "./harness.js";

test("the example answers, asks and acts", async () => {
  const server = await startServer();
  const agent = spawn(process.execPath, [fileURLToPath(new URL("../examples/agent.js", import.meta.url))], { env: { ...process.env, PROSCENIUM_URL: server.url }, stdio: "ignore" });
  try {
    await server.post("/v1/sessions/wordless/controls", { control: "send", value: { runId: "wordless", text: "" } });
    await waitFor("the failure", async () => (await server.status("wordless").catch(() => undefined)) === "failed");
    // The failed turn has not ended the agent.
    const message = { id: "u1", role: "user", parts: [{ type: "text", text: "Tidy up." }] };
    await server.post("/v1/sessions/example/controls", { control: "send", value: { runId: "tidy", messages: [message] } });
    await waitFor("the question", async () => (await server.get("/v1/sessions", { needsAction: true })).sessions.length > 0);
    const [action] = await server.activities("tidy", "action");
    const [said] = await server.activities("tidy", "message", "user");
    assert.deepEqual([said.activityId, said.content.parts[0].text.join("")], ["u1", "Tidy up."]);
    const [tool] = await server.activities("tidy", "tool-call-progress", "user");
    assert.deepEqual([tool.content.tool_name, tool.content.output, tool.content.progress], ["list_files", ["a.txt", "b.txt"], 1]);
    await server.post("/v1/runs/tidy/controls", { control: "approve", actionId: action.activityId });
    await waitFor("the end", async () => (await server.status("tidy")) === "completed");
    await server.assertClean("tidy");
    assert.ok((await server.texts("tidy")).includes("It is gone."));
  } finally {
    agent.kill();
  }
});
