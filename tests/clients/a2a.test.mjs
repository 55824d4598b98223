/**
 * An agent of the server for other agents: the published SDK of A2A is the client, in both versions of the protocol, and
 * the agent behind the server is one of the same SDK.
 */

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { spawn } from "node:child_process";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { startServer, within } from "./harness.mjs";

const python = process.env.PROSCENIUM_PYTHON;
const skip = python ? false : "PROSCENIUM_PYTHON is not set";

const stops = [];
after(async () => {
  for (const stop of stops.reverse()) await stop();
});

function startProgram(...args) {
  const cwd = fileURLToPath(new URL("python", import.meta.url));
  return spawn(`${python}/python`, args, { cwd, stdio: ["ignore", "pipe", "inherit"] });
}

async function startHelper(...flags) {
  const agent = startProgram("a2a_agent.py");
  stops.push(() => agent.kill());
  const [line] = await once(createInterface({ input: agent.stdout }), "line");
  const server = await startServer("--connect", `helper=a2a:${line.replace("listening on ", "")}/agent`, ...flags);
  stops.push(() => server.stop());
  return server;
}

/** What the client got of these steps, each as one object. */
async function talk(server, version, ...steps) {
  const client = startProgram("a2a_client.py", `${server.url}/a2a/helper`, version, ...steps);
  const got = [];
  createInterface({ input: client.stdout }).on("line", (line) => got.push(JSON.parse(line)));
  const [code] = await within("the client", once(client, "close"));
  assert.equal(code, 0, JSON.stringify(got));
  return got;
}

const last = (got, of) => got.findLast((item) => item.of === of);

for (const version of ["1.0", "0.3"]) {
  test(`a client of A2A ${version} sends a message, follows its task, and reads it again`, { skip }, async () => {
    const server = await startHelper();
    const got = await talk(server, version, "Hello", "get", "subscribe", "Again");
    assert.equal(got[0].supportedInterfaces[0].protocolVersion.slice(0, 3), version);
    const stream = got.filter(({ of }) => of === "Hello");
    assert.equal(stream[0].task.status.state, "TASK_STATE_WORKING");
    assert.equal(stream.at(-1).statusUpdate.status.state, "TASK_STATE_COMPLETED");
    const text = (item) => item.artifacts.flatMap(({ parts }) => parts.map((part) => part.text)).join("");
    assert.equal(last(got, "get").status.state, "TASK_STATE_COMPLETED");
    assert.match(text(last(got, "get")), /Turn 1: Hello/);
    assert.equal(last(got, "subscribe").statusUpdate.status.state, "TASK_STATE_COMPLETED");
    const again = got.filter(({ of }) => of === "Again");
    assert.notEqual(again[0].task.id, stream[0].task.id, "another task");
    assert.equal(again[0].task.contextId, stream[0].task.contextId, "of the same context");
  });

  test(`a client of A2A ${version} sends files, which the agent gets and the history has`, { skip }, async () => {
    const server = await startHelper();
    const got = await talk(server, version, "Files", "get");
    const task = last(got, "get");
    const said = [...(task.artifacts ?? []).flatMap(({ parts }) => parts), ...(task.status.message?.parts ?? [])];
    const text = said.map((part) => part.text ?? "").join("");
    assert.match(text, /a\.png image\/png AB; .*application\/pdf https:\/\/a\.example\/b\.pdf/, JSON.stringify(task));
    const [, image, link] = task.history[0].parts;
    assert.deepEqual([image.mediaType, image.filename], ["image/png", "a.png"]);
    assert.deepEqual([link.mediaType, link.url], ["application/pdf", "https://a.example/b.pdf"]);
    const read = await fetch(server.url + image.url);
    assert.equal(await read.text(), "AB");
  });

  test(`a client of A2A ${version} answers what its task waits for, and hears of its end`, { skip }, async () => {
    const receiver = createServer().listen(0, "127.0.0.1");
    await once(receiver, "listening");
    stops.push(() => receiver.close());
    const told = new Promise((tell) => {
      receiver.on("request", async (request, response) => {
        const body = JSON.parse((await request.toArray()).join(""));
        response.end();
        tell({ token: request.headers["x-a2a-notification-token"], body });
      });
    });
    const host = `127.0.0.1:${receiver.address().port}`;
    const server = await startHelper("--push-host", host);
    const got = await talk(server, version, "Delete", `push:http://${host}/tasks`, "reply:a.txt", "get");
    assert.equal(last(got, "push").configs[0].id, "mine");
    const { token, body } = await within("the notification", told);
    assert.equal(token, "known");
    assert.match(JSON.stringify(body), version === "1.0" ? /"statusUpdate".*TASK_STATE_COMPLETED/ : /"kind":"task".*"completed"/);
    const asked = last(got, "Delete").statusUpdate.status;
    assert.equal(asked.state, "TASK_STATE_INPUT_REQUIRED");
    assert.equal(asked.message.parts[0].text, "Which file?");
    assert.equal(last(got, "reply:a.txt").statusUpdate.status.state, "TASK_STATE_COMPLETED");
    assert.match(JSON.stringify(last(got, "get").artifacts), /answer: a.txt/);
  });
}

test("a client of A2A 1.0 lists the tasks of its context page by page", { skip }, async () => {
  const server = await startHelper();
  const got = await talk(server, "1.0", "Hello", "Again", "list:", "list:artifacts");
  const pages = got.filter(({ of }) => of === "list:");
  assert.equal(pages.length, 2);
  const tasks = pages.flatMap((page) => page.tasks);
  assert.deepEqual(tasks.map(({ status }) => status.state), ["TASK_STATE_COMPLETED", "TASK_STATE_COMPLETED"]);
  assert.deepEqual(
    new Set(tasks.map(({ id }) => id)),
    new Set(got.filter(({ task }) => task).map(({ task }) => task.id)),
  );
  assert.deepEqual([pages[0].totalSize, pages[0].pageSize, tasks[0].artifacts], [2, 1, undefined]);
  const whole = got.filter(({ of }) => of === "list:artifacts").flatMap((page) => page.tasks);
  assert.match(JSON.stringify(whole.map(({ artifacts }) => artifacts)), /Turn 2: Again.*Turn 1: Hello/);
});
