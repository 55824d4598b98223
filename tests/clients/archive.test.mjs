/** Old runs and backups on S3: the server and its commands against a published S3 server, which vanishes. */

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { limit } from "../deadline.mjs";
import { BINARY, publish, requestJson, startServer, waitFor } from "./harness.mjs";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const PYTHON = process.env.PROSCENIUM_PYTHON ?? here("../../target/python/bin");

const freePort = () => new Promise((resolve) => {
  const server = createServer().listen(0, "127.0.0.1", () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  });
});

/** Starts the S3 server with a bucket. */
async function startS3(port) {
  const child = spawn(join(PYTHON, "moto_server"), ["-H", "127.0.0.1", "-p", String(port)], { stdio: "ignore" });
  await waitFor("the S3 server", () => fetch(`http://127.0.0.1:${port}/agents`, { method: "PUT" }).then(({ ok }) => ok, () => false));
  return child;
}

/** The names of the objects in the bucket. */
const objects = async (port) => [...(await (await fetch(`http://127.0.0.1:${port}/agents`)).text()).matchAll(/<Key>([^<]*)<\/Key>/g)].map(([, key]) => key);

/** The value of a metric. */
const metric = async (url, name) => Number(new RegExp(`^${name} (\\d+)$`, "m").exec(await (await fetch(`${url}/metrics`)).text())[1]);

/** What a command with `--json` prints, or what it refuses with. */
const command = (...args) => new Promise((resolve) => {
  execFile(BINARY, args, (error, stdout, stderr) => resolve(error ? { refused: stderr } : JSON.parse(stdout)));
});

test("a backup goes to S3, sends only what is new, goes on when it was cut off, and is restored from there", limit, async () => {
  const port = await freePort();
  Object.assign(process.env, { AWS_ACCESS_KEY_ID: "test", AWS_SECRET_ACCESS_KEY: "test", AWS_REGION: "us-east-1", AWS_ENDPOINT: `http://127.0.0.1:${port}`, AWS_ALLOW_HTTP: "true" });
  const folder = mkdtempSync(here("../../target/tmp/backup-"));
  const place = "s3://agents/kept";
  let s3 = await startS3(port);
  const server = await startServer("--data-dir", join(folder, "data"));
  const backup = (...more) => command("backup", "--json", "--to", place, "--url", server.url, ...more);
  const restore = (to) => command("restore", "--json", "--from", place, "--data-dir", join(folder, to));
  // A client with the server's credentials: what one has stored, no stranger may read or replace.
  const s3Client = (call) => promisify(execFile)(join(PYTHON, "python"), ["-c", `import boto3; boto3.client("s3", endpoint_url="http://127.0.0.1:${port}").${call}`]);
  const put = (name, size) => s3Client(`put_object(Bucket="agents", Key="kept/${name}", Body=bytes(${size}))`);
  try {
    const note = () => ({ type: "custom.note", payload: { text: randomBytes(12_000).toString("base64") } });
    // A table is larger than what one request sends.
    for (let n = 0; n < 40; n++) await publish(server.url, { run: `r${n % 4}` }, Array.from({ length: 30 }, note));
    assert.match((await restore("none")).refused, /s3:\/\/agents\/kept.*it has no backup/s);
    const first = await backup();
    assert.ok(first.sentBytes > 9_000_000 && first.place === place, JSON.stringify(first));
    const again = await backup();
    assert.ok(again.sentBytes < first.sentBytes / 100, JSON.stringify(again));
    assert.deepEqual((await objects(port)).filter((name) => name.includes("lock") || name.includes(".part") || name.includes("unfinished")), []);
    assert.equal((await restore("restored")).position, again.position);
    const doctor = await command("doctor", "--json", "--data-dir", join(folder, "restored"));
    assert.deepEqual(doctor.findings, []);

    // Content of another size is not taken for what its name says, and damage of the same size is found by --check.
    const sizes = async () => {
      const list = await (await fetch(`http://127.0.0.1:${port}/agents`)).text();
      return new Map([...list.matchAll(/<Key>kept\/([^<]*)<\/Key>.*?<Size>(\d+)<\/Size>/gs)].map(([, name, size]) => [name, Number(size)]));
    };
    const [name, size] = [...await sizes()].filter(([key]) => key.startsWith("files/")).sort(([, a], [, b]) => b - a)[0];
    await put(name, 5);
    const replaced = await backup();
    assert.ok(replaced.sentFiles >= 1, JSON.stringify(replaced));
    assert.equal((await sizes()).get(name), size);
    await put(name, size);
    assert.match((await restore("damaged")).refused, /is damaged: its SHA-256 is.*backup --check/s);
    assert.ok((await backup("--check")).sentFiles >= 1);
    assert.ok((await sizes()).has(name.replace("files", "damaged")));
    assert.ok((await restore("repaired")).backup);

    await put("lock", 0);
    assert.match((await backup()).refused, /kept\/lock: another backup is being written here.*delete this object/s);
    await s3Client(`delete_object(Bucket="agents", Key="kept/lock")`);
    assert.ok((await backup()).backup);
    const older = await objects(port);
    const newest = await backup("--keep", "1");
    // A backup at the same position within the same second has the same name, and replaces the one before.
    const others = older.filter((key) => key.startsWith("kept/backups/") && !key.includes(newest.backup));
    assert.equal(newest.removed.length, others.length);
    assert.ok((await restore("newest")).logs >= first.logs);
  } finally {
    await server.stop();
    s3.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  }
});

test("runs move to S3 in one request or in parts, are read from there, and are erased there; a bucket that vanishes is named", limit, async () => {
  const port = await freePort();
  Object.assign(process.env, { AWS_ACCESS_KEY_ID: "test", AWS_SECRET_ACCESS_KEY: "test", AWS_REGION: "us-east-1", AWS_ENDPOINT: `http://127.0.0.1:${port}`, AWS_ALLOW_HTTP: "true" });
  const folder = mkdtempSync(here("../../target/tmp/archive-"));
  const start = () => startServer("--data-dir", join(folder, "data"), "--archive-to", "s3://agents/old/runs", "--archive-after", "1s");
  let s3 = await startS3(port);
  let server = await start();
  try {
    // Text that does not compress: the object is larger than what one request sends.
    const note = () => ({ type: "custom.note", payload: { text: randomBytes(12_000).toString("base64") } });
    const batches = { small: 1, large: 30 };
    for (const [run, count] of Object.entries(batches)) {
      for (let n = 0; n < count; n++) await publish(server.url, { run }, Array.from({ length: run === "small" ? 1 : 30 }, note));
      await publish(server.url, { run }, [{ type: "run.finished" }]);
    }
    const get = (run, what) => fetch(`${server.url}/v1/runs/${run}/${what}?audience=internal`).then(async (answer) => ({ status: answer.status, text: await answer.text() }));
    const read = (run) => get(run, "export");
    const before = { small: await read("small"), large: await read("large") };
    assert.ok(before.large.text.length > 14_000_000);
    await waitFor("the archive", async () => (await metric(server.url, "proscenium_archived_runs_total")) === 2, 60_000);
    assert.equal((await objects(port)).length, 2);
    assert.ok((await objects(port)).every((name) => name.startsWith("old/runs/")));
    assert.ok((await metric(server.url, "proscenium_archived_bytes_total")) > 9_000_000, "the large one goes in parts");
    for (const run of Object.keys(batches)) assert.deepEqual(await read(run), before[run], run);
    assert.equal(await metric(server.url, "proscenium_archive_fetches_total"), 2);

    await publish(server.url, { run: "erased" }, [{ type: "run.started" }, { type: "run.finished" }]);
    await waitFor("its object", async () => (await objects(port)).length === 3);
    assert.equal((await fetch(`${server.url}/v1/runs/erased`, { method: "DELETE" })).status, 204);
    assert.equal((await objects(port)).length, 2);

    // The bucket vanishes: what is in the cache is read, and after a start nothing is.
    s3.kill("SIGKILL");
    assert.deepEqual(await read("small"), before.small);
    await server.stop();
    server = await start();
    const refused = await get("small", "events");
    assert.equal(refused.status, 503, refused.text);
    const problem = JSON.parse(refused.text);
    assert.equal(problem.code, "archive_unavailable");
    assert.match(problem.detail, /small.*s3:\/\/agents\/old\/runs/);
    assert.equal((await fetch(`${server.url}/v1/runs/large`, { method: "DELETE" })).status, 503, "nothing was erased");
    await publish(server.url, { run: "new" }, [{ type: "run.started" }]);
    assert.equal((await requestJson(`${server.url}/v1/runs`)).runs.length, 3);
  } finally {
    await server.stop();
    s3.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  }
});
