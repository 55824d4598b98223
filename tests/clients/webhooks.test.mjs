/** The receivers of the guide "Told when it waits", with the published libraries. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { limit } from "../deadline.mjs";
import { requestJson, startServer, waitFor } from "./harness.mjs";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const GUIDE = readFileSync(here("../../docs/src/guides/told-when-it-waits.md"), "utf8");
const PYTHON = process.env.PROSCENIUM_PYTHON ?? here("../../target/python/bin");
const SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/** The first block of the guide in a language. */
const block = (language) => new RegExp(`\`\`\`${language}\n([^]*?)\`\`\``).exec(GUIDE)[1];

const freePort = () => new Promise((resolve) => {
  const server = createServer().listen(0, "127.0.0.1", () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  });
});

for (const [language, program, file] of [["js", process.execPath, "receiver.mjs"], ["python", `${PYTHON}/python`, "receiver.py"]]) {
  test(`the receiver in ${language} takes the server's messages and no forged one`, limit, async () => {
    const folder = mkdtempSync(here("../../target/tmp/receiver-"));
    writeFileSync(join(folder, file), block(language));
    symlinkSync(here("node_modules"), join(folder, "node_modules"));
    const port = await freePort();
    const url = `http://127.0.0.1:${port}/hook`;
    writeFileSync(join(folder, "proscenium.toml"), `[[webhooks]]\nname = "oncall"\nurl = "${url}"\nsecrets = ["${SECRET}"]\nallow-private = true\nevents = ["run.waiting"]\n`);
    const receiver = spawn(program, [file], { cwd: folder, env: { ...process.env, PORT: String(port), ONCALL_SECRET: SECRET }, stdio: ["ignore", "pipe", "inherit"] });
    let printed = "";
    receiver.stdout.on("data", (text) => (printed += text));
    const server = await startServer("--config", join(folder, "proscenium.toml"));
    try {
      const post = (path, body) => requestJson(`${server.url}${path}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
      await waitFor("the receiver", async () => (await post("/v1/webhooks/oncall/test", {})).delivered);
      await post("/v1/runs/r/facts", [{ type: "run.started" }, { type: "action.required", actionId: "a", payload: { title: "Go on?" } }]);
      await waitFor("the line", () => printed.includes("run.waiting: Go on? /#run=r"));
      const forged = await fetch(url, { method: "POST", headers: { "webhook-id": "msg_1", "webhook-timestamp": String(Math.floor(Date.now() / 1000)), "webhook-signature": "v1,AAAA" }, body: "{}" });
      assert.equal(forged.status, 400);
    } finally {
      await server.stop();
      receiver.kill();
      rmSync(folder, { recursive: true });
    }
  });
}
