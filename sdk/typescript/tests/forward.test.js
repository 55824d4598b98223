/** Streams of frameworks, forwarded in the form that their sources read. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { langgraph, openai, Run } from "proscenium-client";
import { startServer } from "./harness.js";

const server = await startServer();

/** A message of LangChain: an object of a class, with its type behind a method. */
class Chunk {
  lc_kwargs = { content: "Hi" };
  id = "m1";
  content = "Hi";
  tool_call_chunks = [];
  getType() {
    return "ai";
  }
}
const CHUNK = { type: "ai", id: "m1", content: "Hi", tool_call_chunks: [] };
const METADATA = { langgraph_node: "agent" };

async function* stream(items) {
  yield* items;
}

/** Forwards the items, and returns the facts. */
async function forwarded(forward, items) {
  const [run, recording] = Run.recording();
  await run.during(() => forward(stream(items)).done());
  return recording.facts;
}

test("a forwarded source starts the run that a worker accepted", async () => {
  const [run, recording] = Run.recording();
  await run.during(() => {
    run.status("accepted");
    run.userMessage("Hi");
    run.forward(openai.SOURCE, [{ type: "response.created" }], { ends: true });
  });
  assert.deepEqual(recording.facts.map(({ type }) => type), ["run.status", "text.final", "response.created"]);
});

const bare = ({ timestamp: _, ...fact }) => fact;

test("every form of a LangGraph part is the same fact, and the run ends after it", async () => {
  for (const item of [["messages", [new Chunk(), METADATA]], [[], "messages", [new Chunk(), METADATA]]]) {
    const [fact, end] = await forwarded(langgraph.forward, [item]);
    assert.deepEqual(fact, { type: "messages", ns: [], data: [CHUNK, METADATA] });
    assert.equal(end.type, "run.finished");
  }
  const alone = await forwarded((items) => langgraph.forward(items, { streamMode: "messages" }), [[new Chunk(), METADATA]]);
  assert.deepEqual(alone[0], { type: "messages", ns: [], data: [CHUNK, METADATA] });
  for (const item of [[["agent:1"], "updates", { node: null }], [["agent:1"], { node: null }]]) {
    assert.deepEqual((await forwarded(langgraph.forward, [item]))[0], { type: "updates", ns: ["agent:1"], data: { node: null } });
  }
});

test("a whole LangGraph message does not look like a piece of one", async () => {
  const [fact] = await forwarded(langgraph.forward, [["updates", { agent: { messages: [new Chunk()] } }]]);
  assert.deepEqual(fact.data.agent.messages, [{ type: "ai", id: "m1", content: "Hi" }]);
});

test("an interrupt leaves the run open", async () => {
  const facts = await forwarded(langgraph.forward, [["updates", { __interrupt__: [{ id: "i1", value: "Sure?" }] }]]);
  assert.deepEqual(facts.map(({ type }) => type), ["updates"]);
});

test("events report the start and the end themselves", async () => {
  const events = [{ event: "metadata", data: { run_id: "1" } }, { event: "on_chain_end", run_id: "1", data: {} }];
  assert.deepEqual(await forwarded(langgraph.forward, events), events);
  const responses = [{ type: "response.created", response: { id: "r" } }, { type: "response.completed", response: { id: "r" } }];
  assert.deepEqual(await forwarded(openai.forward, responses), responses);
});

test("events of the Agents SDK have the names and members that the source knows", async () => {
  const agent = (name) => ({ name, instructions: "secret" });
  const raw = { type: "response.output_text.delta", delta: "Hi" };
  const facts = await forwarded(openai.forward, [
    { type: "raw_model_stream_event", data: { type: "model", event: raw } },
    { type: "raw_model_stream_event", data: { type: "output_text_delta", delta: "Hi" } },
    { type: "run_item_stream_event", name: "tool_output", item: { type: "tool_call_output_item", rawItem: { type: "function_call_result", callId: "c", providerData: {} }, output: "42", agent: agent("A") } },
    { type: "run_item_stream_event", name: "handoff_occurred", item: { type: "handoff_output_item", rawItem: {}, sourceAgent: agent("A"), targetAgent: agent("B") } },
    { type: "agent_updated_stream_event", agent: agent("B") },
    { type: "run_item_stream_event", name: "tool_approval_requested", item: { rawItem: { callId: "c2" } } },
  ]);
  assert.deepEqual(facts.map(bare), [
    { type: "raw_response_event", data: raw },
    { type: "run_item_stream_event", name: "tool_output", item: { type: "tool_call_output_item", raw_item: { type: "function_call_output", call_id: "c" }, output: "42", agent: { name: "A" } } },
    { type: "run_item_stream_event", name: "handoff_occured", item: { type: "handoff_output_item", raw_item: {}, source_agent: { name: "A" }, target_agent: { name: "B" } } },
    { type: "agent_updated_stream_event", new_agent: { name: "B" } },
    { type: "action.required", actionId: "c2", toolCallId: "c2", payload: { kind: "tool_approval" } },
  ]);
});

test("a stream passes through, and its failure ends the run", async () => {
  const [run, recording] = Run.recording();
  const seen = [];
  const work = run.during(async () => {
    const broken = (async function* () {
      yield ["custom", "one"];
      throw new RangeError("the model is away");
    })();
    for await (const item of langgraph.forward(broken, { run })) seen.push(item);
  });
  await assert.rejects(work, /away/);
  assert.deepEqual(seen, [["custom", "one"]]);
  assert.deepEqual(recording.sources, ["langgraph", "agentui"]);
  assert.deepEqual(recording.facts.at(-1).payload, { error: { code: "RangeError", message: "the model is away" } });
  assert.throws(() => langgraph.forward([]), /inside `run.during/);
});

const STREAMS = {
  langgraph: [langgraph, [["messages", [new Chunk(), METADATA]], ["updates", { agent: { messages: [{ type: "ai", id: "m1", content: "Hi" }] } }]]],
  "openai-responses": [openai, [
    { type: "response.created", sequence_number: 0, response: { id: "r", output: [] } },
    { type: "response.output_item.added", sequence_number: 1, output_index: 0, item: { id: "i", type: "message", role: "assistant", content: [] } },
    { type: "response.output_text.delta", sequence_number: 2, item_id: "i", output_index: 0, content_index: 0, delta: "Hi" },
    { type: "response.output_text.done", sequence_number: 3, item_id: "i", output_index: 0, content_index: 0, text: "Hi" },
    { type: "response.completed", sequence_number: 4, response: { id: "r", status: "completed", output: [] } },
  ]],
};
for (const [source, [adapter, items]] of Object.entries(STREAMS)) {
  test(`the server shows a forwarded stream of ${source}`, async () => {
    const run = `forwarded-${source}`;
    await new Run({ base: server.url, run }).during(() => adapter.forward(stream(items)).done());
    const [{ content }] = await server.activities(run, "message");
    assert.deepEqual([content.parts[0].status, content.parts[0].text.join("")], ["complete", "Hi"]);
    const [{ content: shown }] = await server.activities(run, "run");
    assert.deepEqual([shown.status, shown.attempt], ["completed", 1]);
  });
}
