/**
 * The connector `openai-responses` against the published client of its API, and against a published server.
 *
 * The `openai` package has no server. So the endpoint here replays recorded streams, and the client of the package is
 * the reference: it sends the same requests as the connector, and reads the same answers from the same streams.
 * `@copilotkit/aimock` serves the API with a fake model, but neither approvals nor responses in the background.
 */

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { LLMock } from "@copilotkit/aimock";
import { ChatClient, fetchServerSentEvents } from "@tanstack/ai-client";
import OpenAI from "openai";
import { limit } from "../deadline.mjs";
import { chats } from "./ai-sdk.mjs";
import { post, startServer, waitFor } from "./harness.mjs";
import { pageOf, turnAfterRestart } from "./helper-page.mjs";

const stops = [];
after(async () => {
  for (const stop of stops.reverse()) await stop();
});

/** The streams of a recording: one for each response. */
function recordedStreams(name) {
  const file = fileURLToPath(new URL(`../recordings/openai-responses/${name}.ndjson`, import.meta.url));
  const streams = [];
  for (const line of readFileSync(file, "utf8").split("\n").filter(Boolean)) {
    const event = JSON.parse(line);
    if (event.type === "response.created") streams.push([]);
    // What the caller sent stands between the streams.
    if (event.type.startsWith("response.")) streams.at(-1).push(event);
  }
  return streams;
}

/** Starts an endpoint that answers with these streams, one for each `POST …/responses`; a stream of `null` stays open. */
async function startEndpoint(...streams) {
  const requests = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    const received = { method: request.method, path: request.url, body: body ? JSON.parse(body) : undefined, isClosed: false };
    requests.push(received);
    response.on("close", () => (received.isClosed = true));
    if (request.url.endsWith("/cancel")) {
      response.writeHead(200, { "content-type": "application/json" }).end('{"id":"resp_open","object":"response","status":"cancelled","output":[]}');
      return requests.find(({ isOpen }) => isOpen)?.end();
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    const events = streams.shift();
    for (const event of events.filter(Boolean)) response.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
    if (events.at(-1) === null) Object.assign(received, { isOpen: true, end: () => response.end() });
    else response.end();
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  stops.push(() => new Promise((resolve) => (server.closeAllConnections(), server.close(resolve))));
  return { requests, url: `http://127.0.0.1:${server.address().port}/v1` };
}

const clientOf = ({ url }) => new OpenAI({ apiKey: "none", baseURL: url, maxRetries: 0 });

/** What the package's client reads from an endpoint. */
async function readByClient(stream) {
  let text = "";
  let last;
  for await (const event of stream) {
    if (event.type === "response.output_text.delta") text += event.delta;
    last = event;
  }
  return { text, last };
}

/** Writes the file of agents with this endpoint, and returns the flags that name it. */
function connectTo(endpoint, options) {
  const folder = mkdtempSync(join(tmpdir(), "proscenium-"));
  stops.push(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "agents.toml");
  writeFileSync(file, `[helper]\nprotocol = "openai-responses"\nurl = "${endpoint.url}"\noptions = ${options}\n`);
  return ["--connect-file", file];
}

/** Starts a server with the endpoint as its agent, and a page. */
async function openPage(endpoint, options, thread) {
  const server = await startServer(...connectTo(endpoint, options));
  stops.push(() => server.stop());
  return { server, ...pageOf(server, thread) };
}

const requestOf = ({ method, path, body }) => ({ method, path, body });

const runWith = (server, thread, status) =>
  waitFor(`a run that is ${status}`, async () => {
    const { runs } = await (await fetch(`${server.url}/v1/sessions/${thread}`)).json();
    return runs?.find((run) => run.status === status);
  });

describe("openai-responses", () => {
  test("two turns are the requests of the package's client, with the log's conversation", limit, async () => {
    const streams = () => ["endpoint-short_text", "endpoint-web_search_citations"].map((name) => recordedStreams(name)[0]);
    const [ours, theirs] = [await startEndpoint(...streams()), await startEndpoint(...streams())];
    const { say, texts } = await openPage(ours, '{ model = "m" }', "turns");
    await say("Hello");
    await say("Again");
    const client = clientOf(theirs);
    const input = [{ role: "user", content: "Hello" }];
    const first = await readByClient(await client.responses.create({ model: "m", stream: true, input }));
    input.push({ role: "assistant", content: first.text }, { role: "user", content: "Again" });
    const second = await readByClient(await client.responses.create({ model: "m", stream: true, input }));
    assert.deepEqual(ours.requests.map(requestOf), theirs.requests.map(requestOf));
    assert.deepEqual(texts(), [first.text, second.text]);
    assert.equal(second.last.type, "response.completed");
  });

  for (const approve of [true, false]) {
    test(`an approval is ${approve ? "granted" : "denied"} on the page, as the package's client does it`, limit, async () => {
      const streams = () => recordedStreams("endpoint-mcp_approval_approved_two_responses");
      const [ours, theirs] = [await startEndpoint(...streams()), await startEndpoint(...streams())];
      const { server, page, say, texts } = await openPage(ours, '{ model = "m" }', "approval");
      await say("Delete the note");
      const [interrupt] = page.pendingInterrupts;
      await page.runAgent({ resume: [{ interruptId: interrupt.id, status: "resolved", payload: { approved: approve } }] });
      const client = clientOf(theirs);
      const asked = await readByClient(await client.responses.create({ model: "m", stream: true, input: [{ role: "user", content: "Delete the note" }] }));
      const request = asked.last.response.output.find(({ type }) => type === "mcp_approval_request");
      const input = [{ type: "mcp_approval_response", approval_request_id: request.id, approve }];
      const answer = await readByClient(await client.responses.create({ model: "m", stream: true, previous_response_id: asked.last.response.id, input }));
      assert.deepEqual(ours.requests.map(requestOf), theirs.requests.map(requestOf));
      assert.equal(texts().at(-1), answer.text);
      const { runId } = await runWith(server, "approval", "completed");
      const { activities } = await (await fetch(`${server.url}/v1/runs/${runId}/activities`)).json();
      const contentOf = (type) => activities.find(({ activityType }) => activityType === type).content;
      assert.equal(contentOf("action").outcome, approve ? "approved" : "rejected");
      assert.equal(contentOf("run").attempt, 1);
    });
  }

  test("a response that fails in mid-stream ends the run as failed, as the package's client reads it", limit, async () => {
    const streams = () => recordedStreams("endpoint-failed_midstream");
    const [ours, theirs] = [await startEndpoint(...streams()), await startEndpoint(...streams())];
    const { server, say } = await openPage(ours, '{ model = "m" }', "failure");
    await say("Hello").catch(() => {});
    const { runId } = await runWith(server, "failure", "failed");
    const { last } = await readByClient(await clientOf(theirs).responses.create({ model: "m", stream: true, input: [{ role: "user", content: "Hello" }] }));
    const { activities } = await (await fetch(`${server.url}/v1/runs/${runId}/activities`)).json();
    const { error } = activities.find(({ activityType }) => activityType === "run").content;
    assert.equal(error.message, last.response.error.message);
  });

  for (const background of [true, false]) {
    test(`a stop ${background ? "cancels the response" : "closes the connection"}, as the package's client does it`, limit, async () => {
      const response = { id: "resp_open", object: "response", status: "in_progress", output: [] };
      const open = () => [{ type: "response.created", sequence_number: 0, response }, null];
      const [ours, theirs] = [await startEndpoint(open()), await startEndpoint(open())];
      const { server } = await openPage(ours, `{ model = "m"${background ? ", background = true" : ""} }`, "stop");
      const value = { runId: "r", messages: [{ id: "u", role: "user", content: "Work" }] };
      await post(`${server.url}/v1/sessions/stop/controls`, { control: "send", agentId: "helper", value });
      // The acceptance and the user's message come before the response.
      await waitFor("the response in the log", async () => (await (await fetch(`${server.url}/v1/runs/r`)).json()).lastSequence > 2);
      await post(`${server.url}/v1/runs/r/controls`, { control: "stop" });
      await runWith(server, "stop", "cancelled");
      const client = clientOf(theirs);
      const body = { model: "m", stream: true, ...(background && { background, store: true }), input: [{ role: "user", content: "Work" }] };
      const stream = await client.responses.create(body);
      for await (const event of stream) {
        assert.equal(event.type, "response.created");
        if (background) await client.responses.cancel("resp_open");
        else break;
      }
      await waitFor("the end of both connections", () => [ours, theirs].every(({ requests }) => requests[0].isClosed));
      assert.deepEqual(ours.requests.map(requestOf), theirs.requests.map(requestOf));
    });
  }
});

describe("openai-responses, served by a package", () => {
  const model = new LLMock({ port: 0 });
  const endpoint = {};
  before(async () => {
    await model.start();
    endpoint.url = `${model.url}/v1`;
  });
  after(() => model.stop());
  const answerAll = () => {
    model.clearFixtures();
    model.on({}, ({ messages }) => ({ content: `I have ${messages.length} messages.` }));
  };

  test("two turns have the log's conversation", limit, async () => {
    answerAll();
    const { say, texts } = await openPage(endpoint, '{ model = "m" }', "served");
    await say("Hello");
    await say("Again");
    assert.deepEqual(texts(), ["I have 1 messages.", "I have 3 messages."]);
  });

  /** A model that calls functions of the page, and then says what came back. */
  const askPage = (...names) => {
    model.clearFixtures();
    model.on({ hasToolResult: false }, { toolCalls: names.map((name) => ({ name, arguments: '{"zoom":3}', id: `call_${name}` })) });
    model.on({ hasToolResult: true }, ({ messages }) => ({ content: messages.filter(({ role }) => role === "tool").map(({ tool_call_id: id, content }) => `${id}: ${content}`).join(", ") }));
  };

  test("a function runs in an AG-UI page, whose result is in the next call", limit, async () => {
    askPage("locate", "measure");
    const { server, page, say, texts } = await openPage(endpoint, '{ model = "m" }', "ag-ui-function");
    await say("Where am I?");
    const calls = page.messages.flatMap(({ toolCalls }) => toolCalls ?? []);
    assert.deepEqual(calls.map(({ id, function: { name, arguments: input } }) => [id, name, input]), [["call_locate", "locate", '{"zoom":3}'], ["call_measure", "measure", '{"zoom":3}']]);
    assert.ok(!page.messages.some(({ role }) => role === "tool"), "the calls have no result");
    await runWith(server, "ag-ui-function", "completed");
    for (const { id } of calls) page.addMessage({ id: `result-${id}`, role: "tool", toolCallId: id, content: `of ${id}` });
    await page.runAgent();
    assert.deepEqual(texts(), ["call_locate: of call_locate, call_measure: of call_measure"]);
  });

  test("a call of a function that the page did not run is left out", limit, async () => {
    askPage("locate", "measure");
    const { page, say, texts } = await openPage(endpoint, '{ model = "m" }', "one-function");
    await say("Where am I?");
    page.addMessage({ id: "result", role: "tool", toolCallId: "call_measure", content: "Oslo" });
    await page.runAgent();
    assert.deepEqual(texts(), ["call_measure: Oslo"]);
  });

  for (const { name, version, library, createChat } of chats) {
    test(`a function runs in a page with ${name}, by onToolCall`, limit, async () => {
      askPage("locate", "fail");
      const { server } = await openPage(endpoint, '{ model = "m" }', "unused");
      const thread = `function-${version}`;
      const chat = createChat({
        id: thread,
        transport: new library.DefaultChatTransport({ api: `${server.url}/ai-sdk/helper?version=${version}` }),
        sendAutomaticallyWhen: library.lastAssistantMessageIsCompleteWithToolCalls,
        onToolCall({ toolCall: { toolCallId, toolName: tool, input } }) {
          const result = tool === "fail" ? { state: "output-error", errorText: "No position." } : { output: { city: "Oslo", ...input } };
          void chat.addToolOutput({ tool, toolCallId, ...result });
        },
      });
      await chat.sendMessage({ text: "Where am I?" });
      const textsOf = ({ parts }) => parts.filter(({ type }) => type === "text").map(({ text }) => text);
      const said = await waitFor("an answer", () => chat.status === "ready" && textsOf(chat.messages.at(-1)).at(-1));
      assert.equal(said, 'call_locate: {"city":"Oslo","zoom":3}, call_fail: {"error":{"message":"No position."}}');
      // A page that opens the chat again has the results, and nothing to run.
      const { messages } = await (await fetch(`${server.url}/ai-sdk/helper/${thread}?version=${version}`)).json();
      const tools = messages.flatMap(({ parts }) => parts.filter(({ type }) => type === "dynamic-tool"));
      assert.deepEqual(tools.map(({ state, providerExecuted }) => [state, providerExecuted]), [["output-available", true], ["output-error", true]]);
    });
  }

  test("a function runs in a page with TanStack AI", limit, async () => {
    askPage("locate");
    const { server } = await openPage(endpoint, '{ model = "m" }', "unused");
    const connection = fetchServerSentEvents(`${server.url}/ag-ui/helper`);
    const client = new ChatClient({ connection, threadId: "tanstack-function" });
    stops.push(() => client.dispose());
    const parts = () => client.getMessages().flatMap(({ parts }) => parts);
    await client.sendMessage("Where am I?");
    await waitFor("the end of the turn", () => !client.getIsLoading());
    const call = parts().find(({ type }) => type === "tool-call");
    assert.deepEqual([call.id, call.name, call.input, call.state], ["call_locate", "locate", { zoom: 3 }, "input-complete"]);
    await client.addToolResult({ toolCallId: call.id, tool: call.name, output: { city: "Oslo" } });
    const said = await waitFor("an answer", () => !client.getIsLoading() && parts().findLast(({ type }) => type === "text")?.content.includes("call_") && parts().findLast(({ type }) => type === "text"));
    assert.equal(said.content, 'call_locate: {"city":"Oslo"}');
  });

  test("a function is answered after a restart of the server", limit, async () => {
    askPage("locate");
    const folder = mkdtempSync(join(tmpdir(), "proscenium-"));
    stops.push(() => rmSync(folder, { recursive: true }));
    const flags = ["--data-dir", join(folder, "data"), ...connectTo(endpoint, '{ model = "m" }')];
    let server = await startServer(...flags);
    await pageOf(server, "restart").say("Where am I?");
    await server.stop();
    server = await startServer(...flags);
    stops.push(() => server.stop());
    const { page, texts } = pageOf(server, "restart");
    page.addMessage({ id: "result", role: "tool", toolCallId: "call_locate", content: "Oslo" });
    await page.runAgent();
    assert.equal(texts().at(-1), "call_locate: Oslo");
  });

  test("a turn after a restart of the server has the log's conversation", limit, async () => {
    answerAll();
    assert.equal(await turnAfterRestart("later", ...connectTo(endpoint, '{ model = "m" }')), "I have 3 messages.");
  });
});
