/**
 * Every recording, as a client sees it: streamed whole, joined on the way, cut and come back.
 *
 * A client is given as `open({ url, agent, thread, run, user })`, which makes a screen:
 *
 * - `begin()` asks for the run, where the client does that, or begins to watch it; `join()` comes to one that may be under way;
 *   `back()` does what the client does when its connection broke; `again()`, where that is something else, when it looks again at
 *   what went on without it. Each resolves when the stream ended, and rejects when it broke.
 * - `streams` are all its responses, byte for byte.
 * - `picture()` is all there is to see, as JSON: it has to be the same whichever way it came about.
 * - `texts()` are the texts of messages and thoughts, to be held against the native activities.
 */

import assert from "node:assert/strict";
import { isDeepStrictEqual } from "node:util";
import { FULL, RECORDINGS, ack, activities, ask, claim, each, heard, phoneLine, points, post, publish, soon, until } from "./harness.mjs";

/** Facts of a recording from which on it is long: a gate looks at it at fewer points. */
const LONG = 1000;

const pointsOf = ({ facts }) => {
  const count = FULL ? 10 : facts.length > LONG ? 1 : 2;
  return points(facts.length, count);
};

let flows = 0;

/** One run, one recording, one screen. */
class Flow {
  constructor(server, client, recording) {
    const name = `of-flow-${(flows += 1)}`;
    Object.assign(this, { server, client, recording, at: 0, run: `run-${name}`, thread: `thread-${name}`, agent: `agent-${name}`, user: `user-${name}` });
  }

  async open() {
    this.line = await phoneLine(this.server);
    const { agent, thread, run, user } = this;
    this.screen = await this.client.open({ url: this.line.url, agent, thread, run, user });
  }

  /** Watches, in the background: `this.over` when that stream has come to its end. */
  watch(how) {
    this.over = false;
    this.broke = undefined;
    const watching = this.screen[how]();
    this.watching = watching.then(() => (this.over = true), (error) => (this.broke = error));
  }

  /** Publishes up to the fact of this number, as the agent that was asked, in pieces. */
  async publish(upTo, pieces = 1) {
    const begins = this.at === 0 && !this.hasBegun;
    if (begins) {
      this.hasBegun = true;
      if (this.asks) await this.take();
      // What the user said is the agent's to publish.
      await publish(this.server, this.where(), [{ type: "text.final", messageId: this.user, payload: { role: "user", text: "Go on." } }]);
    }
    const size = Math.max(1, Math.ceil((upTo - this.at) / pieces));
    while (this.at < upTo) {
      const next = Math.min(upTo, this.at + size);
      await publish(this.server, { ...this.where(), agent: this.agent, source: this.recording.source }, this.recording.facts.slice(this.at, next));
      this.at = next;
    }
  }

  /** Whether there is nothing more to come, though its reader may not have read it all. */
  isOver() {
    return this.over || (this.hasBegun && this.line?.isOver);
  }

  where() {
    return { run: this.run, thread: this.thread };
  }

  /** Takes the request for the run, as a worker does. */
  async take() {
    const send = await claim(this.server, this.agent);
    assert.equal(send.control, "send");
    if (this.client.namesRuns) this.run = send.value.runId;
    assert.equal(send.value.runId, this.run);
    await ack(this.server, send);
  }

  /** Publishes the rest, and watches until there is nothing more to come. */
  async finish() {
    const { facts } = this.recording;
    await this.publish(facts.length, 8);
    const { status } = await ask(`${this.server}/v1/runs/${this.run}`);
    const isOver = !["accepted", "running"].includes(status) && !(status === "waiting" && this.client.endsOnlyWithTheRun);
    // Nobody else will end it.
    if (!isOver) await post(`${this.server}/v1/runs/${this.run}/settle`, {});
    await soon("the end of the stream", this.watching);
    if (this.broke) throw this.broke;
    // It ended at a pause, or at the end of one of several turns, before all was said: somebody looks again.
    const { events } = await ask(`${this.server}/v1/runs/${this.run}/events?after=${this.screen.streams.toldUpTo()}&limit=1`);
    if (events.length > 0) {
      this.watch(this.screen.again ? "again" : "back");
      await soon("the end of the stream that goes on", this.watching);
      if (this.broke) throw this.broke;
    }
    // Whoever had heard the end already when the line was cut has nothing to come back for.
    if (this.wasCut) assert.ok(this.line.requests.length > this.wasCut.requests || this.screen.streams.isOver(this.wasCut.stream), "it came back after the cut");
    await this.line.close();
    this.screen.close?.();
    const wrong = this.screen.streams.wrong();
    assert.equal(wrong.length, 0, wrong.join("\n"));
    const whole = this.screen.picture();
    // Without the names that this flow alone has.
    const picture = JSON.parse(JSON.stringify(whole).replaceAll(this.run, "run").replace(/-of-flow-\d+/g, ""));
    return { whole, picture, texts: this.screen.texts?.(), native: await activities(this.server, this.run) };
  }

  /** Until the server has answered. */
  opened() {
    return soon("an answer", this.screen.streams.opened);
  }
}

async function whole(server, client, recording) {
  const flow = new Flow(server, client, recording);
  await flow.open();
  flow.asks = client.asks;
  flow.watch("begin");
  if (!client.asks) await flow.opened();
  return flow.finish();
}

async function joinedAt(server, client, recording, point) {
  const flow = new Flow(server, client, recording);
  await flow.publish(point);
  await flow.open();
  flow.watch("join");
  await flow.opened();
  return flow.finish();
}

async function cutAt(server, client, recording, point, inside) {
  const flow = new Flow(server, client, recording);
  await flow.open();
  flow.asks = client.asks;
  flow.watch("begin");
  if (!client.asks) await flow.opened();
  await flow.publish(point, 3);
  // Before it was told anything a client does not know that there is something to come back to.
  await until("the first that is told", () => flow.isOver() || flow.broke || flow.screen.streams.toldUpTo() > 0);
  await flow.line.quiet();
  const more = point + Math.ceil((recording.facts.length - point) / 3);
  if (inside && !flow.isOver()) {
    // In the middle of what comes next, if anything does.
    flow.line.cutInside = true;
    await flow.publish(more);
    await flow.line.quiet();
    flow.line.cutInside = false;
  }
  if (!flow.isOver()) {
    flow.wasCut = { requests: flow.line.requests.length, stream: flow.screen.streams.list.at(-1) };
    flow.line.cut();
    if (!client.comesBackByItself) {
      await soon("the break", flow.watching);
      await flow.publish(more);
      flow.watch("back");
    }
  }
  return flow.finish();
}

/** All of it for one client: what is wrong, by recording, and how much was looked at. */
export async function play(server, client) {
  const row = { client: client.name, whole: 0, joined: 0, cut: 0, failures: [] };
  await each(RECORDINGS, client.atOnce ?? 4, async (recording) => {
    let reference;
    const look = async (what, does) => {
      row[what.split(" ")[0]] += 1;
      let failure;
      const complaints = await heard(async () => {
        try {
          failure = compare(client, await does(), reference, (seen) => (reference ??= seen));
        } catch (error) {
          failure = error.stack ?? String(error);
        }
      });
      // That a line is cut is something to complain about.
      const told = complaints.filter((complaint) => !(what.startsWith("cut") && complaint.includes("TypeError: terminated")));
      for (const wrong of [failure, ...told].filter(Boolean)) row.failures.push(`${recording.name}, ${what}: ${wrong}`);
    };
    await look("whole", () => whole(server, client, recording));
    for (const point of pointsOf(recording)) await look(`joined at ${point}`, () => joinedAt(server, client, recording, point));
    for (const [n, point] of pointsOf(recording).entries()) {
      await look(`cut at ${point}${n % 2 ? " inside of a frame" : ""}`, () => cutAt(server, client, recording, point, n % 2 === 1));
    }
  });
  return row;
}

/** What is wrong with what was seen; nothing, if all is well. */
function compare(client, seen, reference, keep) {
  const wrong = client.check?.(seen);
  if (wrong) return wrong;
  const texts = client.nativeTexts && difference(seen.texts, client.nativeTexts(seen.native));
  if (texts) return `texts differ from the native ones: ${texts}`;
  if (!reference) keep(seen.picture);
  const other = reference && difference(seen.picture, reference);
  return other && `differs from the one streamed whole: ${other}`;
}

/** Where two values differ first, briefly. */
export function difference(left, right, path = "") {
  if (isDeepStrictEqual(left, right)) return undefined;
  const isObject = (value) => typeof value === "object" && value !== null;
  if (isObject(left) && isObject(right)) {
    for (const key of new Set([...Object.keys(left), ...Object.keys(right)])) {
      const found = difference(left[key], right[key], `${path}/${key}`);
      if (found) return found;
    }
  }
  const brief = (value) => (JSON.stringify(value) ?? "nothing").slice(0, 200);
  return `${path || "/"} is ${brief(left)} instead of ${brief(right)}`;
}

/** The table that says it all at the end. */
export function table(rows) {
  const columns = ["client", "whole", "joined", "cut", "wrong"];
  const lines = [columns, ...rows.map((row) => [row.client, row.whole, row.joined, row.cut, row.failures.length].map(String))];
  const widths = columns.map((_, at) => Math.max(...lines.map((line) => line[at].length)));
  return lines.map((line) => line.map((cell, at) => (at ? cell.padStart(widths[at]) : cell.padEnd(widths[at]))).join("  ")).join("\n");
}
