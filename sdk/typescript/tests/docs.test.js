/** The examples of the documentation run, and do what the text says. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { DEADLINE, startServer } from "./harness.js";

const directory = fileURLToPath(new URL("..", import.meta.url));
const PAGES = { "README.md": ["run-1"], "../../docs/src/guides/typescript.md": ["run-1", "run-2", "import-1"] };

for (const [page, runs] of Object.entries(PAGES)) {
  test(`the examples of ${page} run`, async () => {
    const server = await startServer();
    // The worker of the guide takes one control.
    await server.post("/v1/sessions/s1/controls", { control: "send", agentId: "clerk", value: { runId: "turn-1", messages: [{ role: "user", content: "Hello" }] } });
    const blocks = [...readFileSync(`${directory}/${page}`, "utf8").matchAll(/^```js\n(.*?)^```$/gms)].map(([, block]) => block);
    const script = blocks.join("\n").replaceAll("http://127.0.0.1:8787", server.url);
    // The standard input is a module of this package, which may import itself by its name.
    const { status, stdout, stderr } = spawnSync(process.execPath, ["--input-type=module"], { input: script, cwd: directory, encoding: "utf8", timeout: DEADLINE });
    assert.deepEqual([status, stdout], [0, ""], stderr);
    for (const run of runs) assert.equal(await server.status(run), "completed", run);
    const said = await server.activities("run-1", "message", "user");
    assert.deepEqual(said.map(({ content }) => content.status), ["complete", "complete"]);
    if (page !== "README.md") assert.equal(await server.status("turn-1"), "completed");
  });
}
