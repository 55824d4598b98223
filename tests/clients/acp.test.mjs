/**
 * The face of the Agent Client Protocol with the published SDK as the editor: by `proscenium acp` on standard streams, and
 * by WebSocket. The agent behind the server is one of the same SDK.
 */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, test } from "node:test";
import { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { client, methods, ndJsonStream } from "@agentclientprotocol/sdk";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import { WebSocket } from "undici";
import { limit } from "../deadline.mjs";
import { BINARY, startServer, within } from "./harness.mjs";

const stops = [];
after(async () => {
  for (const stop of stops.reverse()) await stop();
});

async function startHelper() {
  const agent = fileURLToPath(new URL("acp-agent.mjs", import.meta.url));
  const server = await startServer("--connect", `helper=acp:${process.execPath} ${agent}`);
  stops.push(() => server.stop());
  return server;
}

/** An editor by the SDK. `decide` answers permissions and forms. */
function editor(stream, decide = {}) {
  const updates = [];
  const asked = [];
  const waiting = [];
  const app = client({ name: "editor" })
    .onNotification(methods.client.session.update, ({ params }) => {
      updates.push(params);
      waiting.splice(0).forEach((wake) => wake());
    })
    .onRequest(methods.client.session.requestPermission, ({ params, signal }) => {
      asked.push(params);
      return decide.permission?.(params, signal) ?? { outcome: { outcome: "cancelled" } };
    })
    .onRequest(methods.client.elicitation.create, ({ params }) => {
      asked.push(params);
      return decide.form?.(params) ?? { action: "cancel" };
    });
  const connection = app.connect(stream);
  const request = (method, params) => within(method, connection.agent.request(method, params));
  return { updates, asked, request, connection, moved: () => new Promise((resolve) => waiting.push(resolve)) };
}

function onStreams(url, ...flags) {
  const child = spawn(BINARY, ["acp", "--url", url, ...flags], { stdio: ["pipe", "pipe", "inherit"] });
  stops.push(() => child.kill());
  return ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
}

const onSocket = (url, query = "") => createWebSocketStream(`${url.replace("http", "ws")}/acp${query}`, { WebSocket, cookies: "omit" });

async function initialize({ request }) {
  const clientCapabilities = { elicitation: { form: {} } };
  const answer = await request(methods.agent.initialize, { protocolVersion: 1, clientCapabilities, clientInfo: { name: "editor", version: "1.0.0" } });
  assert.equal(answer.protocolVersion, 1);
  assert.equal(answer.agentCapabilities.loadSession, true);
  return answer;
}

const text = (updates, kind = "agent_message_chunk") =>
  updates.filter(({ update }) => update.sessionUpdate === kind).map(({ update }) => update.content.text).join("");
const prompt = (sessionId, words) => ({ sessionId, prompt: [{ type: "text", text: words }] });

test("an editor on standard streams works with an agent behind the server", limit, async () => {
  const { url } = await startHelper();
  const choose = (optionId) => ({ outcome: { outcome: "selected", optionId } });
  const own = editor(onStreams(url, "--agent", "helper"), {
    permission: ({ options }) => choose(options.find(({ kind }) => kind === "allow_once").optionId),
    form: () => ({ action: "accept", content: { path: "a.txt" } }),
  });
  await initialize(own);
  const { sessionId } = await own.request(methods.agent.session.new, { cwd: "/srv/demo", mcpServers: [] });
  for (const [words, expected] of [
    ["Hello", "Turn 1: Hello"],
    ["Delete a.txt", "chosen: go"],
    ["Ask", 'accept: {"path":"a.txt"}'],
  ]) {
    own.updates.length = 0;
    const { stopReason } = await own.request(methods.agent.session.prompt, prompt(sessionId, words));
    assert.equal(stopReason, "end_turn");
    assert.equal(text(own.updates), expected);
  }
  const [permission, form] = own.asked;
  assert.deepEqual(permission.options.map(({ optionId, kind }) => [optionId, kind]), [["go", "allow_once"], ["stay", "reject_once"]]);
  assert.equal(permission.toolCall.title, "delete a.txt");
  assert.equal(permission.toolCall.kind, "delete");
  assert.equal(form.requestedSchema.properties.path.title, "Path");
  await assert.rejects(own.request(methods.agent.session.prompt, prompt(sessionId, "Fail")));

  const listed = await own.request(methods.agent.session.list, {});
  assert.deepEqual(listed.sessions.map((entry) => [entry.sessionId, entry.cwd]), [[sessionId, "/srv/demo"]]);

  // Another editor, by WebSocket, has the same, and both see what follows.
  const other = editor(onSocket(url));
  await initialize(other);
  await other.request(methods.agent.session.load, { sessionId, cwd: "/srv/demo", mcpServers: [] });
  assert.match(text(other.updates), /Turn 1: Hellochosen: goaccept/);
  assert.match(text(other.updates, "user_message_chunk"), /HelloDelete a.txtAsk/);
  other.updates.length = own.updates.length = 0;
  const turn = own.request(methods.agent.session.prompt, prompt(sessionId, "Work"));
  while (text(other.updates) !== "Working") await within("an update", other.moved());
  await other.connection.agent.notify(methods.agent.session.cancel, { sessionId });
  assert.equal((await turn).stopReason, "cancelled");

  await other.request(methods.agent.session.delete, { sessionId });
  await assert.rejects(own.request(methods.agent.session.load, { sessionId, cwd: "/", mcpServers: [] }), { code: -32002 });
});

test("the first of two editors to answer wins, and the other one's request is cancelled", limit, async () => {
  const { url } = await startHelper();
  let release;
  const held = new Promise((resolve) => (release = resolve));
  const slow = { permission: (_, signal) => new Promise((resolve) => signal.addEventListener("abort", () => (release(), resolve({ outcome: { outcome: "cancelled" } })))) };
  const one = editor(onSocket(url, "?agentId=helper"), slow);
  const two = editor(onStreams(url, "--agent", "helper"), { permission: () => ({ outcome: { outcome: "selected", optionId: "stay" } }) });
  await initialize(one);
  await initialize(two);
  const { sessionId } = await one.request(methods.agent.session.new, { cwd: "/", mcpServers: [] });
  await two.request(methods.agent.session.resume, { sessionId, cwd: "/" });
  const turn = one.request(methods.agent.session.prompt, prompt(sessionId, "Delete a.txt"));
  await within("the cancellation of the other request", held);
  assert.equal((await turn).stopReason, "end_turn");
  assert.equal(text(one.updates), "chosen: stay");
});
