/**
 * The real server, from PROSCENIUM_BIN (default target/debug/proscenium), and a proxy that loses answers.
 */

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const BINARY = process.env.PROSCENIUM_BIN ?? fileURLToPath(new URL("../../../target/debug/proscenium", import.meta.url));

/** The time after which a wait fails, in milliseconds. Only a hang takes as long. */
export const DEADLINE = 300_000;

/** The options of a test that waits. */
export const limit = { timeout: 2 * DEADLINE };

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits until `check` returns a truthy value, and returns it. */
export async function waitFor(what, check) {
  for (const end = Date.now() + DEADLINE; Date.now() < end; await sleep(10)) {
    const found = await check();
    if (found) return found;
  }
  throw new Error(`timed out waiting for ${what}`);
}

/** A server with a store on disk, which survives `kill` and `start`. It ends with the process. */
export async function startServer() {
  const directory = mkdtempSync(join(tmpdir(), "proscenium-sdk-"));
  let child;
  const server = {
    listen: "127.0.0.1:0",
    async start() {
      child = spawn(BINARY, ["serve", "--listen", server.listen, "--data-dir", directory, "--log", "error"], { stdio: ["ignore", "pipe", "inherit"] });
      for await (const line of createInterface({ input: child.stdout })) {
        server.url = line.match(/^listening on (http:\S+)$/)?.[1];
        break;
      }
      assert.ok(server.url, "the first line names the address");
      child.unref();
      child.stdout.unref();
      server.listen = server.url.slice("http://".length);
    },
    /** Kills the process as a crash does. */
    async kill() {
      child.ref();
      const ended = new Promise((resolve) => child.once("exit", resolve));
      child.kill("SIGKILL");
      await ended;
    },
    async get(path, query = {}) {
      const response = await fetch(`${server.url}${path}?${new URLSearchParams({ audience: "internal", ...query })}`);
      assert.equal(response.status, 200, `${path}: ${response.status}`);
      return response.json();
    },
    async post(path, body) {
      const response = await fetch(`${server.url}${path}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
      assert.ok(response.ok, `${path}: ${response.status} ${await response.clone().text()}`);
      return response.json();
    },
    /** All envelopes of a run, in order. */
    async events(run) {
      const events = [];
      for (let after = 0; after !== null; ) {
        const page = await server.get(`/v1/runs/${run}/events`, { after, limit: 1000 });
        events.push(...page.events);
        after = page.nextCursor;
      }
      return events;
    },
    /** Asserts that `proscenium check` has nothing to say about a run. */
    async assertClean(run) {
      const { code, stdout } = await promisify(execFile)(BINARY, ["check", run, "--url", server.url, "--strict"]).catch((error) => error);
      assert.equal(code, undefined, stdout);
    },
    async texts(run) {
      return (await server.events(run)).filter(({ type }) => type === "text.delta").map(({ payload }) => payload.text);
    },
    async activities(run, type, audience = "internal") {
      const { activities } = await server.get(`/v1/runs/${run}/activities`, { audience });
      return activities.filter(({ activityType }) => activityType === type);
    },
    async status(run) {
      return (await server.get(`/v1/runs/${run}`)).status;
    },
  };
  await server.start();
  process.once("exit", () => {
    child.kill("SIGKILL");
    rmSync(directory, { recursive: true, force: true });
  });
  return server;
}

/**
 * A proxy. `losses`: how many of the next answers it drops with their connection. `cutAfter`: it drops each connection
 * once it has passed on so many bytes of answers.
 */
export async function startProxy(url) {
  const [host, port] = url.slice("http://".length).split(":");
  const proxy = { losses: 0, cutAfter: Infinity, connections: 0 };
  const listener = createServer((client) => {
    proxy.connections += 1;
    const upstream = connect(Number(port), host);
    const cut = () => (client.destroy(), upstream.destroy());
    let passed = 0;
    client.unref();
    upstream.unref();
    client.on("data", (bytes) => upstream.write(bytes)).on("close", cut).on("error", cut);
    upstream.on("close", cut).on("error", cut).on("data", (bytes) => {
      if (proxy.losses > 0) return (proxy.losses -= 1), cut();
      const rest = bytes.subarray(0, Math.max(0, proxy.cutAfter - passed));
      passed += bytes.length;
      client.write(rest, () => passed > proxy.cutAfter && cut());
    });
  });
  await new Promise((resolve) => listener.listen(0, "127.0.0.1", resolve));
  listener.unref();
  proxy.url = `http://127.0.0.1:${listener.address().port}`;
  return proxy;
}

/** A seeded random generator: `random(n)` returns 0 to n - 1. */
export function seededRandom(seed) {
  let state = seed + 1;
  return (n) => {
    state = Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x297a2d39;
    return ((state ^ (state >>> 12)) >>> 0) % n;
  };
}
