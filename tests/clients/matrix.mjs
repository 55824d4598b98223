/**
 * Every recording, for one client: streamed whole, joined in the middle, cut and resumed.
 *
 * A client has a function `open({ url, agent, thread, run, user })`, which returns a page:
 *
 * - `begin()` requests the run, if the client does that, or follows it; `join()` follows a run that may have begun;
 *   `resume()` reconnects after a broken connection; `revisit()`, if it differs, follows a run that continued without it.
 *   Each resolves when the stream has ended, and rejects when it broke.
 * - `streams` records all its responses.
 * - `content()` returns all visible content as JSON. It must not depend on how the page got it.
 * - `excludes`, if there is one, names the recordings that the client is not tested with.
 * - `texts()` returns the texts of messages and reasoning, to compare with the native activities.
 */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { limit } from "../deadline.mjs";
import { FULL } from "../part.mjs";
import { ack, fetchActivities, requestJson, claim, mapConcurrently, collectComplaints, partOfRecordings, startCuttableProxy, spacedPoints, startServer, post, publish, within, waitFor } from "./harness.mjs";

/** The number of facts from which on a recording is long: the gate tests it at fewer points. */
const LONG_FACTS = 1000;

const pointsOf = ({ facts }) => {
  const count = FULL ? 10 : facts.length > LONG_FACTS ? 1 : 2;
  return spacedPoints(facts.length, count);
};

let scenarios = 0;

/** One run, one recording, one page. */
class Scenario {
  constructor({ server, page }, client, recording) {
    const name = `of-flow-${(scenarios += 1)}`;
    Object.assign(this, { server, page, client, recording, at: 0, run: `run-${name}`, thread: `thread-${name}`, agent: `agent-${name}`, user: `user-${name}` });
  }

  async open() {
    this.proxy = await startCuttableProxy(this.page);
    const { agent, thread, run, user } = this;
    this.screen = await this.client.open({ url: this.proxy.url, agent, thread, run, user });
  }

  /** Follows the run in the background. Sets `isDone` at the end of the stream. */
  watch(how) {
    this.isDone = false;
    this.failure = undefined;
    const watching = this.screen[how]();
    this.stream = watching.then(() => (this.isDone = true), (error) => (this.failure = error));
  }

  /** Publishes the facts up to this index, as the requested agent, in several batches. */
  async publish(upTo, pieces = 1) {
    const begins = this.at === 0 && !this.hasBegun;
    if (begins) {
      this.hasBegun = true;
      if (this.sendsRequest) await this.claimRequest();
      // The agent publishes the user's message.
      await publish(this.server, this.where(), [{ type: "text.final", messageId: this.user, payload: { role: "user", text: "Go on." } }]);
    }
    const size = Math.max(1, Math.ceil((upTo - this.at) / pieces));
    while (this.at < upTo) {
      const next = Math.min(upTo, this.at + size);
      const receipt = await publish(this.server, { ...this.where(), agent: this.agent, source: this.recording.source }, this.recording.facts.slice(this.at, next));
      // A node that follows answers once it has what the cursor names.
      if (receipt && this.page !== this.server) await requestJson(`${this.page}/v1/runs/${this.run}/events?after=${receipt.epoch}:${2 * receipt.lastSequence}&limit=1`);
      this.at = next;
    }
  }

  /** Whether the stream has ended, although its reader may be behind. */
  hasEnded() {
    return this.isDone || (this.hasBegun && this.proxy?.hasEnded);
  }

  where() {
    return { run: this.run, thread: this.thread };
  }

  /** Claims the request for the run, as a worker does. */
  async claimRequest() {
    const send = await claim(this.server, this.agent);
    assert.equal(send.control, "send");
    if (this.client.namesRuns) this.run = send.value.runId;
    assert.equal(send.value.runId, this.run);
    await ack(this.server, send);
  }

  /** Publishes the rest, and follows the run to its end. */
  async finish() {
    const { facts } = this.recording;
    await this.publish(facts.length, 8);
    const { status } = await requestJson(`${this.server}/v1/runs/${this.run}`);
    const isOver = !["accepted", "running"].includes(status) && !(status === "waiting" && this.client.endsWithRun);
    // The recording does not end its run.
    if (!isOver) await post(`${this.server}/v1/runs/${this.run}/settle`, {});
    await within("the end of the stream", this.stream);
    if (this.failure) throw this.failure;
    // The stream ended at a pause or after one of several turns, before the last fact: the client connects again.
    const { events } = await requestJson(`${this.server}/v1/runs/${this.run}/events?after=${this.screen.streams.lastSequence()}&limit=1`);
    if (events.length > 0) {
      this.watch(this.screen.revisit ? "revisit" : "resume");
      await within("the end of the continued stream", this.stream);
      if (this.failure) throw this.failure;
    }
    // A client that had read the end before the cut does not reconnect.
    if (this.wasCut) assert.ok(this.proxy.requests.length > this.wasCut.requests || this.screen.streams.hasEnded(this.wasCut.stream), "the client reconnected after the cut");
    await this.proxy.close();
    this.screen.close?.();
    const problem = this.screen.streams.findProblems();
    assert.equal(problem.length, 0, problem.join("\n"));
    const raw = this.screen.content();
    // Without the ids of this scenario, and the random ones of stored bodies.
    const content = JSON.parse(JSON.stringify(raw).replaceAll(this.run, "run").replace(/-of-flow-\d+/g, "").replace(/\/v1\/blobs\/[0-9a-f]{32}/g, "/v1/blobs/id"));
    return { raw, content, texts: this.screen.texts?.(), native: await fetchActivities(this.server, this.run) };
  }

  /** Waits until the server has answered. */
  opened() {
    return within("an answer", this.screen.streams.opened);
  }
}

async function streamWhole(server, client, recording) {
  const scenario = new Scenario(server, client, recording);
  await scenario.open();
  scenario.sendsRequest = client.sendsRequest;
  scenario.watch("begin");
  if (!client.sendsRequest) await scenario.opened();
  return scenario.finish();
}

async function joinAt(server, client, recording, point) {
  const scenario = new Scenario(server, client, recording);
  await scenario.publish(point);
  await scenario.open();
  scenario.watch("join");
  await scenario.opened();
  return scenario.finish();
}

async function cutAt(server, client, recording, point, inside) {
  const scenario = new Scenario(server, client, recording);
  await scenario.open();
  scenario.sendsRequest = client.sendsRequest;
  scenario.watch("begin");
  if (!client.sendsRequest) await scenario.opened();
  await scenario.publish(point, 3);
  // Before its first event a client has nothing to resume.
  await waitFor("the first event", () => scenario.hasEnded() || scenario.failure || scenario.screen.streams.lastSequence() > 0);
  await scenario.proxy.quiet();
  const more = point + Math.ceil((recording.facts.length - point) / 3);
  if (inside && !scenario.hasEnded()) {
    // Cut inside the next data, if any.
    scenario.proxy.cutInside = true;
    await scenario.publish(more);
    await scenario.proxy.quiet();
    scenario.proxy.cutInside = false;
  }
  if (!scenario.hasEnded()) {
    scenario.wasCut = { requests: scenario.proxy.requests.length, stream: scenario.screen.streams.list.at(-1) };
    scenario.proxy.cut();
    if (!client.reconnects) {
      await within("the break", scenario.stream);
      await scenario.publish(more);
      scenario.watch("resume");
    }
  }
  return scenario.finish();
}

/**
 * Runs all scenarios of a client. Returns the number of scenarios by kind, and the failures.
 * `page`: the node of a cluster to which the client connects, if it is another one than the agent's.
 */
export async function runAll(url, client, { page = url, recordings }) {
  const server = { server: url, page };
  const result = { client: client.name, whole: 0, joined: 0, cut: 0, failures: [] };
  const wanted = recordings.filter(({ name }) => !client.excludes?.includes(name));
  await mapConcurrently(wanted, client.concurrency ?? 4, async (recording) => {
    let reference;
    const run = async (what, play) => {
      result[what.split(" ")[0]] += 1;
      let failure;
      const complaints = await collectComplaints(async () => {
        try {
          failure = compare(client, await play(), reference, (observed) => (reference ??= observed));
        } catch (error) {
          failure = error.stack ?? String(error);
        }
      });
      // A warning about the cut itself is expected.
      const relevant = complaints.filter((complaint) => !(what.startsWith("cut") && complaint.includes("TypeError: terminated")));
      for (const problem of [failure, ...relevant].filter(Boolean)) result.failures.push(`${recording.name}, ${what}: ${problem}`);
    };
    await run("whole", () => streamWhole(server, client, recording));
    for (const point of pointsOf(recording)) await run(`joined at ${point}`, () => joinAt(server, client, recording, point));
    for (const [n, point] of pointsOf(recording).entries()) {
      await run(`cut at ${point}${n % 2 ? " inside a frame" : ""}`, () => cutAt(server, client, recording, point, n % 2 === 1));
    }
  });
  return result;
}

/** Returns the problem of the observed content; `undefined` if it is right. */
function compare(client, observed, reference, setReference) {
  const problem = client.check?.(observed);
  if (problem) return problem;
  const texts = client.nativeTexts && difference(observed.texts, client.nativeTexts(observed.native));
  if (texts) return `texts differ from the native ones: ${texts}`;
  if (!reference) setReference(observed.content);
  const other = reference && difference(observed.content, reference);
  return other && `differs from the run that was streamed whole: ${other}`;
}

/** Times of the server, which differ between two runs with the same facts. */
const SERVER_TIME = /\/decidedBy\/at$/;

/** Describes the first difference of two values. */
export function difference(left, right, path = "") {
  if (SERVER_TIME.test(path)) return undefined;
  if (isDeepStrictEqual(left, right)) return undefined;
  const isObject = (value) => typeof value === "object" && value !== null;
  if (isObject(left) && isObject(right) && Array.isArray(left) === Array.isArray(right)) {
    for (const key of new Set([...Object.keys(left), ...Object.keys(right)])) {
      const found = difference(left[key], right[key], `${path}/${key}`);
      if (found) return found;
    }
    return undefined;
  }
  const brief = (value) => (JSON.stringify(value) ?? "nothing").slice(0, 200);
  return `${path || "/"} is ${brief(left)} instead of ${brief(right)}`;
}

/** The maximum number of failures in a message. */
const SHOWN_FAILURES = 20;

/** The clients to test: all, or those of which PROSCENIUM_CLIENT is a part of the name. */
export const chosen = (clients) => clients.filter(({ name }) => name.includes(process.env.PROSCENIUM_CLIENT ?? ""));

/** Tests each of these clients with a part of the recordings, each with another part. */
export function testClients(clients) {
  const rows = [];
  let server;
  before(async () => (server = await startServer()));
  after(async () => {
    await server.stop();
    console.log(`\nScenarios and failures by client:\n\n${table(rows)}\n`);
  });
  for (const [at, client] of chosen(clients).entries()) {
    test(`${client.name} shows every recording alike: streamed whole, joined in the middle, cut and resumed`, { timeout: FULL ? 10 * limit.timeout : limit.timeout }, async () => {
      const row = await runAll(server.url, client, { recordings: partOfRecordings(at) });
      rows.push(row);
      const summary = row.failures.slice(0, SHOWN_FAILURES).map((failure) => failure.slice(0, 2000)).join("\n");
      assert.equal(row.failures.length, 0, `${row.failures.length} failures:\n${summary}`);
    });
  }
}

/** Formats the summary table. */
function table(rows) {
  const columns = ["client", "whole", "joined", "cut", "failures"];
  const lines = [columns, ...rows.map((row) => [row.client, row.whole, row.joined, row.cut, row.failures.length].map(String))];
  const widths = columns.map((_, at) => Math.max(...lines.map((line) => line[at].length)));
  return lines.map((line) => line.map((cell, at) => (at ? cell.padStart(widths[at]) : cell.padEnd(widths[at]))).join("  ")).join("\n");
}
