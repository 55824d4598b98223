/**
 * A model for agents on loopback, without a key: the streams of OpenAI's two APIs and of Anthropic's.
 *
 *     node examples/fake-model.mjs [--port 8100]
 *
 * prints the variables for the terminal of the agent. The model greets with the number of the user's messages. Asked to
 * delete a file ("Delete a.txt"), it calls the tool that can, and then says what came back.
 */

import { createServer } from "node:http";
import { parseArgs } from "node:util";

/** How the tools of the agents delete a file, by their names. */
const TOOLS = {
  delete_file: (path) => ({ path }),
  exec_command: (path) => ({ cmd: `rm ${path}` }),
  shell: (path) => ({ command: ["rm", path] }),
  shell_command: (path) => ({ command: `rm ${path}` }),
  Bash: (path) => ({ command: `rm ${path}`, description: `Delete ${path}` }),
};

const textOf = (content) => (typeof content === "string" ? content : (content ?? []).map((part) => part.text ?? "").join(" ")).trim();

/** What the model says to a conversation: `{ text }`, or `{ call: { name, input } }`. */
function reply({ asked, result, count, tools }) {
  if (result !== undefined) return { text: `The tool says: ${result}` };
  const [, path] = /^Delete (\S+)/.exec(asked) ?? [];
  const name = path && tools.find((tool) => tool in TOOLS);
  if (name) return { call: { name, input: TOOLS[name](path) } };
  return { text: `Hello! You wrote ${count} message${count === 1 ? "" : "s"}.` };
}

/** Messages that agents add in the user's name, such as their environment. */
const isOfAgent = (text) => /^(<|#)/.test(text);

let calls = 0;
const idOf = (kind) => `${kind}_fake_${(calls += 1)}`;

/** Reads the input of a Responses API request. */
function readResponses({ input, tools = [] }) {
  const items = typeof input === "string" ? [{ role: "user", content: input }] : input;
  const last = items.at(-1);
  const texts = items.filter(({ role }) => role === "user").map(({ content }) => textOf(content)).filter((text) => !isOfAgent(text));
  const result = last.type === "function_call_output" ? textOf(last.output) : undefined;
  return { asked: texts.at(-1) ?? "", result, count: texts.length, tools: tools.map(({ name }) => name) };
}

function* responsesEvents({ text, call }, model) {
  const id = idOf("resp");
  const item = call
    ? { id: idOf("fc"), type: "function_call", call_id: idOf("call"), name: call.name, arguments: JSON.stringify(call.input), status: "completed" }
    : { id: idOf("msg"), type: "message", role: "assistant", status: "completed", content: [{ type: "output_text", text, annotations: [] }] };
  const response = (status, output) => ({
    id, object: "response", created_at: 1, status, model, output, parallel_tool_calls: true, tool_choice: "auto", tools: [],
    error: null, incomplete_details: null, instructions: null, metadata: {}, temperature: 1, top_p: 1,
    usage: status === "completed" ? { input_tokens: 1, output_tokens: 1, total_tokens: 2, input_tokens_details: { cached_tokens: 0 }, output_tokens_details: { reasoning_tokens: 0 } } : null,
  });
  const place = { item_id: item.id, output_index: 0 };
  yield { type: "response.created", response: response("in_progress", []) };
  yield { type: "response.in_progress", response: response("in_progress", []) };
  if (call) {
    yield { type: "response.output_item.added", output_index: 0, item: { ...item, arguments: "", status: "in_progress" } };
    yield { type: "response.function_call_arguments.delta", ...place, delta: item.arguments };
    yield { type: "response.function_call_arguments.done", ...place, arguments: item.arguments, name: item.name };
  } else {
    const part = { type: "output_text", text: "", annotations: [] };
    yield { type: "response.output_item.added", output_index: 0, item: { ...item, content: [], status: "in_progress" } };
    yield { type: "response.content_part.added", ...place, content_index: 0, part };
    for (const delta of text.split(/(?<= )/)) yield { type: "response.output_text.delta", ...place, content_index: 0, delta, logprobs: [] };
    yield { type: "response.output_text.done", ...place, content_index: 0, text, logprobs: [] };
    yield { type: "response.content_part.done", ...place, content_index: 0, part: { ...part, text } };
  }
  yield { type: "response.output_item.done", output_index: 0, item };
  yield { type: "response.completed", response: response("completed", [item]) };
}

/** Reads a Chat Completions request. */
function readCompletions({ messages, tools = [] }) {
  const texts = messages.filter(({ role }) => role === "user").map(({ content }) => textOf(content));
  const last = messages.at(-1);
  return { asked: texts.at(-1) ?? "", result: last.role === "tool" ? textOf(last.content) : undefined, count: texts.length, tools: tools.map((one) => one.function.name) };
}

function* completionsEvents({ text, call }, model) {
  const chunk = (delta, finish_reason = null) => ({ id: "chatcmpl_fake", object: "chat.completion.chunk", created: 1, model, choices: [{ index: 0, delta, finish_reason }] });
  if (call) yield chunk({ role: "assistant", tool_calls: [{ index: 0, id: idOf("call"), type: "function", function: { name: call.name, arguments: JSON.stringify(call.input) } }] });
  for (const content of text?.split(/(?<= )/) ?? []) yield chunk({ role: "assistant", content });
  yield chunk({}, call ? "tool_calls" : "stop");
}

/** Reads a Messages API request. */
function readMessages({ messages, tools = [] }) {
  const parts = messages.filter(({ role }) => role === "user").flatMap(({ content }) => (typeof content === "string" ? [{ type: "text", text: content }] : content));
  const texts = parts.filter(({ type }) => type === "text").map(({ text }) => text.trim()).filter((text) => !isOfAgent(text));
  const last = parts.findLast(({ type, text }) => type === "tool_result" || !isOfAgent(text.trim()));
  const result = last?.type === "tool_result" ? textOf(last.content) || "done" : undefined;
  return { asked: texts.at(-1) ?? "", result, count: texts.length, tools: tools.map(({ name }) => name) };
}

function* messagesEvents({ text, call }, model) {
  const usage = { input_tokens: 1, output_tokens: 1 };
  yield { type: "message_start", message: { id: idOf("msg"), type: "message", role: "assistant", model, content: [], stop_reason: null, stop_sequence: null, usage } };
  if (call) {
    yield { type: "content_block_start", index: 0, content_block: { type: "tool_use", id: idOf("toolu"), name: call.name, input: {} } };
    yield { type: "content_block_delta", index: 0, delta: { type: "input_json_delta", partial_json: JSON.stringify(call.input) } };
  } else {
    yield { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } };
    for (const piece of text.split(/(?<= )/)) yield { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: piece } };
  }
  yield { type: "content_block_stop", index: 0 };
  yield { type: "message_delta", delta: { stop_reason: call ? "tool_use" : "end_turn", stop_sequence: null }, usage };
  yield { type: "message_stop" };
}

const APIS = { "/responses": [readResponses, responsesEvents], "/chat/completions": [readCompletions, completionsEvents], "/messages": [readMessages, messagesEvents] };

/** Starts the model, on a free port unless one is given. `url` has no path; `requests` are the bodies that it got. */
export async function startModel(port = 0) {
  const requests = [];
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const { pathname } = new URL(request.url, "http://model");
    const api = Object.keys(APIS).find((end) => pathname.endsWith(end));
    if (!api || request.method !== "POST") return void response.writeHead(404, { "content-type": "application/json" }).end('{"error":{"message":"the fake model has no such address"}}');
    const body = JSON.parse(Buffer.concat(chunks).toString());
    requests.push({ pathname, ...body });
    const [read, events] = APIS[api];
    response.writeHead(200, { "content-type": "text/event-stream" });
    let number = 0;
    for (const event of events(reply(read(body)), body.model)) response.write(`${event.type ? `event: ${event.type}\n` : ""}data: ${JSON.stringify({ ...event, sequence_number: number++ })}\n\n`);
    response.end(pathname.endsWith("/chat/completions") ? "data: [DONE]\n\n" : "");
  });
  await new Promise((resolve, fail) => server.once("error", fail).listen(port, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}`, requests, stop: () => new Promise((resolve) => (server.closeAllConnections(), server.close(resolve))) };
}

if (import.meta.main ?? process.argv[1] === import.meta.filename) {
  const { values } = parseArgs({ options: { port: { type: "string", default: "8100" } } });
  const { url } = await startModel(Number(values.port));
  console.log(`export OPENAI_BASE_URL=${url}/v1 OPENAI_API_KEY=fake\nexport ANTHROPIC_BASE_URL=${url} ANTHROPIC_API_KEY=fake`);
}
