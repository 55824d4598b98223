/** The receivers of the guide "Told when it waits" and of `examples/`, with the published libraries. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer as createHttpServer } from "node:http";
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

/**
 * Runs a receiver beside a server whose webhook `oncall` it is.
 * @param {[string, string]} program The program and its file.
 * @param {string} source The text of the file.
 * @param {Record<string, string>} variables
 * @param {(stage: { url: string, output: () => string, post: (path: string, body: unknown) => Promise<any> }) => Promise<void>} work
 */
async function withReceiver([program, file], source, variables, work) {
  const folder = mkdtempSync(here("../../target/tmp/receiver-"));
  writeFileSync(join(folder, file), source);
  symlinkSync(here("node_modules"), join(folder, "node_modules"));
  const port = await freePort();
  const url = `http://127.0.0.1:${port}/hook`;
  writeFileSync(join(folder, "proscenium.toml"), `[[webhooks]]\nname = "oncall"\nurl = "${url}"\nsecrets = ["${SECRET}"]\nallow-private = true\nevents = ["run.waiting"]\n`);
  const receiver = spawn(program, [file], { cwd: folder, env: { ...process.env, ...variables, PORT: String(port), ONCALL_SECRET: SECRET }, stdio: ["ignore", "pipe", "inherit"] });
  let printed = "";
  receiver.stdout.on("data", (text) => (printed += text));
  const server = await startServer("--config", join(folder, "proscenium.toml"));
  try {
    const post = (path, body) => requestJson(`${server.url}${path}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
    await waitFor("the receiver", async () => (await post("/v1/webhooks/oncall/test", {})).delivered);
    await work({ url, output: () => printed, post });
    const forged = await fetch(url, { method: "POST", headers: { "webhook-id": "msg_1", "webhook-timestamp": String(Math.floor(Date.now() / 1000)), "webhook-signature": "v1,AAAA" }, body: "{}" });
    assert.equal(forged.status, 400);
  } finally {
    await server.stop();
    receiver.kill();
    rmSync(folder, { recursive: true });
  }
}

const asks = (title) => [{ type: "run.started", agentId: "coder" }, { type: "action.required", actionId: "a", payload: { title } }];

for (const [language, program, file] of [["js", process.execPath, "receiver.mjs"], ["python", `${PYTHON}/python`, "receiver.py"]]) {
  test(`the receiver in ${language} takes the server's messages and no forged one`, limit, () => withReceiver([program, file], block(language), {}, async ({ output, post }) => {
    await post("/v1/runs/r/facts", asks("Go on?"));
    await waitFor("the line", () => output().includes("run.waiting: Go on? /#run=r"));
  }));
}

test("the example for Slack posts a question with a button to the page, once, also if Slack fails at first", limit, async () => {
  const messages = [];
  let status = 500;
  const slack = createHttpServer(async (request, response) => {
    let body = "";
    for await (const part of request) body += part;
    if (status === 200) messages.push(JSON.parse(body));
    response.writeHead(status).end();
    status = 200;
  });
  await new Promise((resolve) => slack.listen(0, "127.0.0.1", resolve));
  try {
    const variables = { SLACK_URL: `http://127.0.0.1:${slack.address().port}/services/T/B/X`, PAGE_URL: "https://agents.example.com/" };
    await withReceiver([process.execPath, "slack.mjs"], readFileSync(here("../../examples/slack.mjs"), "utf8"), variables, async ({ post }) => {
      await post("/v1/runs/r/facts?sessionId=s&agentId=coder", asks("Run `rm -r a & b`, <now>?"));
      // The server tries again after five seconds.
      await waitFor("the message", () => messages.length > 0);
      const [{ text, blocks: [section, context, actions] }] = messages;
      assert.equal(text, "Waiting: Run `rm -r a &amp; b`, &lt;now&gt;?");
      assert.equal(section.text.text, "*A run waits for you*\nRun `rm -r a &amp; b`, &lt;now&gt;?");
      assert.equal(context.elements[0].text, "Agent coder, session s");
      const address = new URL(actions.elements[0].url);
      assert.equal(address.origin, "https://agents.example.com");
      assert.deepEqual(["session", "run"].map((name) => new URLSearchParams(address.hash.slice(1)).get(name)), ["s", "r"]);
      assert.equal(messages.length, 1);
    });
  } finally {
    slack.close();
  }
});
