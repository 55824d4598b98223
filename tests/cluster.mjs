/**
 * A cluster on loopback for the tests of clients and of the page: one NATS server, which scripts/nats installs, and nodes.
 * Nothing here waits for a fixed time.
 */

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { generateKeyPairSync } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { DEADLINE } from "./deadline.mjs";

/** Returns the first match of a pattern in the lines of a process. */
async function firstMatch(stream, pattern) {
  const lines = createInterface({ input: stream });
  for await (const line of lines) {
    const found = line.match(pattern)?.[1];
    if (found) {
      lines.close();
      stream.resume();
      return found;
    }
  }
  throw new Error(`a process ended without ${pattern}`);
}

async function repeat(what, check) {
  for (const end = Date.now() + DEADLINE; Date.now() < end; await new Promise((resolve) => setTimeout(resolve, 20))) {
    const result = await check();
    if (result) return result;
  }
  throw new Error(`timed out waiting for ${what}`);
}

/** Ends a process, and waits until it has ended. */
async function end(child, signal) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill(signal);
  await ended;
}

/** A node: its URL and its process. */
class Node {
  constructor(url, child) {
    Object.assign(this, { url, child, isAlive: true });
  }

  /** Ends the process as a crash would. */
  async kill() {
    this.isAlive = false;
    await end(this.child, "SIGKILL");
  }
}

export class Cluster {
  nodes = [];

  /** Starts so many nodes, and waits until all of them are ready and one leads. */
  static async start(binary, count, ...flags) {
    const cluster = new Cluster();
    cluster.dir = await mkdtemp(join(tmpdir(), "proscenium-cluster-"));
    const program = execFileSync(fileURLToPath(new URL("../scripts/nats", import.meta.url)), { encoding: "utf8" }).trim();
    cluster.nats = spawn(program, ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", join(cluster.dir, "nats")], { stdio: ["ignore", "ignore", "pipe"] });
    const port = await firstMatch(cluster.nats.stderr, /Listening for client connections on 127\.0\.0\.1:(\d+)/);
    const key = join(cluster.dir, "signing-key.pem");
    await writeFile(key, generateKeyPairSync("ed25519").privateKey.export({ type: "pkcs8", format: "pem" }));
    const own = ["--cluster", `nats://127.0.0.1:${port}`, "--cluster-name", "test", "--signing-key", key, "--cluster-allow-r1"];
    for (let index = 0; index < count; index += 1) {
      const args = ["serve", "--listen", "127.0.0.1:0", "--log", "error", "--data-dir", join(cluster.dir, `node-${index}`), ...own, ...flags];
      const child = spawn(binary, args, { stdio: ["ignore", "pipe", "inherit"] });
      cluster.nodes.push(new Node(await firstMatch(child.stdout, /^listening on (http:\S+)$/), child));
    }
    await cluster.ready();
    return cluster;
  }

  /** The nodes that run. */
  get alive() {
    return this.nodes.filter(({ isAlive }) => isAlive);
  }

  /** Waits until every running node is ready, and one of them leads. */
  async ready() {
    for (const { url } of this.alive) await repeat(`${url} to be ready`, async () => (await fetch(`${url}/readyz`)).ok);
    await repeat("a leader that takes writes", async () => {
      const leader = await this.leader();
      return (await (await fetch(`${leader.url}/metrics`)).text()).includes("proscenium_cluster_leader_info 1");
    });
  }

  /** The running node that leads, as a running node says. */
  async leader() {
    return repeat("a leader", async () => {
      const { leader, nodes } = await (await fetch(`${this.alive[0].url}/v1/cluster`)).json();
      const found = nodes.find(({ id }) => id === leader);
      return this.alive.find(({ url }) => url === found?.url);
    });
  }

  async follower() {
    const leader = await this.leader();
    const follower = this.alive.find((node) => node !== leader);
    assert.ok(follower, "a follower runs");
    return follower;
  }

  async stop() {
    await Promise.all(this.nodes.map(({ child }) => end(child, "SIGTERM")));
    if (this.nats) await end(this.nats, "SIGKILL");
    await rm(this.dir, { recursive: true, force: true });
  }
}
