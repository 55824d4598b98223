/**
 * What people see of waits: approvals that an action needs, what a rule did, who decided, and the webhooks of the server.
 */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, test } from "node:test";
import { BINARY, Stage, limit, text } from "./stage.js";

let stage, page, dir, key, receiver;
/** The messages that the receiver got, and its answer to the next ones. */
const received = [];
let status = 204;

before(async () => {
  dir = await mkdtemp(join(tmpdir(), "proscenium-waits-"));
  key = join(dir, "key");
  receiver = createServer(async (request, response) => {
    let body = "";
    for await (const part of request) body += part;
    received.push({ id: request.headers["webhook-id"], ...JSON.parse(body) });
    response.writeHead(status).end();
  });
  await new Promise((resolve) => receiver.listen(0, "127.0.0.1", resolve));
  const config = join(dir, "proscenium.toml");
  await writeFile(config, `
    [[webhooks]]
    name = "oncall"
    url = "http://127.0.0.1:${receiver.address().port}/"
    secrets = ["whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="]
    events = ["run.waiting"]
    audience = "user"
    allow-private = true

    [[waits]]
    tool = "slow"
    after = "1s"
    then = "remind"

    [[waits]]
    tool = "slow"
    after = "2s"
    then = "escalate"
    to = "oncall"

    [[waits]]
    tool = "stale"
    after = "1s"
    then = "reject"
  `);
  execFileSync(BINARY, ["token", "--key", key, "--generate", "--sessions", "*", "--can", "read"]);
  stage = await Stage.open("--auth-key", key, "--config", config);
}, limit);

after(async () => {
  await stage?.close();
  receiver?.close();
  if (dir) await rm(dir, { recursive: true, force: true });
});
afterEach(() => page?.close());

const token = (...rights) => execFileSync(BINARY, ["token", "--key", key, "--sessions", "*", ...rights], { encoding: "utf8" }).trim();

/** A person's request, which must succeed. */
async function send(sub, path, body) {
  const rights = token("--sub", sub, "--can", "read,publish,control", "--audience", "internal", "--agents", "*");
  const answer = await fetch(`${stage.url}${path}`, { method: "POST", headers: { "content-type": "application/json", authorization: `Bearer ${rights}` }, body: JSON.stringify(body) });
  assert.ok(answer.ok, await answer.clone().text());
  return answer.json();
}

/** Publishes a run of a session that asks. */
async function asks(run, payload) {
  const action = { type: "action.required", actionId: "a", payload: { kind: "tool_approval", title: "Deploy?", ...payload } };
  await send("worker", `/v1/runs/${run}/facts?sessionId=${run}`, [{ type: "run.started" }, action]);
}

/** Takes the decisions that are under way, and resolves the action of a run, as its runtime would. */
async function resolve(run, outcome) {
  const { controls } = await send("worker", "/v1/agents/default/controls/claim?wait=30&max=100", {});
  for (const { controlId, lease } of controls) await send("worker", `/v1/controls/${controlId}/ack`, { lease });
  await send("worker", `/v1/runs/${run}/facts`, [{ type: "action.resolved", actionId: "a", payload: { outcome } }]);
}

/** Opens the page of a person on a session. */
async function openAs(sub, hash, ...rights) {
  page = await stage.look(hash);
  await page.locator("#token").waitFor({ state: "visible" });
  await page.locator("#token input").fill(token("--sub", sub, ...rights));
  await page.locator("#token input").press("Enter");
  await page.locator("#account-button").waitFor();
  // Without a token, requests were refused.
  page.problems.length = 0;
  return page;
}

test("a card and the inbox say how many have approved, and the approver what the answer waits for", limit, async () => {
  await asks("two", { approvals: 2 });
  await openAs("bob", { session: "two", audience: "dashboard" }, "--can", "read,control", "--audience", "dashboard", "--agents", "*");
  const card = page.locator("ps-conversation ps-action");
  await card.locator(".ask").waitFor();
  assert.ok(!(await text(card)).includes("approvals"));
  await card.locator(".yes .button").first().click();
  await card.locator(".tag", { hasText: "1 of 2 approvals" }).waitFor();
  await card.locator("[role=status]", { hasText: "Your approval counts. It goes out once the others have approved." }).waitFor();
  await page.locator("#needs-you").click();
  await page.locator(".inbox-row", { hasText: "1 of 2 approvals" }).waitFor();
  await page.locator("#back").click();

  await send("alice", "/v1/runs/two/controls", { control: "approve", actionId: "a" });
  await resolve("two", "approved");
  const line = card.locator(".summary");
  await line.filter({ hasText: "by bob through the page" }).waitFor();
  await line.click();
  await card.locator(".facts", { hasText: "2 of 2 approvals" }).waitFor();
});

test("a card and the inbox say that a rule reminded and escalated", limit, async () => {
  await asks("slow", { toolName: "slow" });
  await openAs("bob", { session: "slow" }, "--can", "read,control");
  const card = page.locator("ps-conversation ps-action .ask");
  for (const word of ["Reminded", "Escalated"]) await card.locator(".tag", { hasText: word }).waitFor();
  await page.locator("#needs-you").click();
  for (const word of ["Reminded", "Escalated"]) await page.locator(".inbox-row", { hasText: word }).waitFor();
});

test("a decided card says who decided: a person, a rule, or the runtime", limit, async () => {
  await asks("stale", { toolName: "stale" });
  await asks("own", {});
  await asks("other", {});
  await send("worker", "/v1/runs/own/facts", [{ type: "action.resolved", actionId: "a", payload: { outcome: "cancelled" } }]);
  await resolve("stale", "rejected");
  await send("alice", "/v1/runs/other/controls", { control: "reject", actionId: "a" });
  await resolve("other", "rejected");
  for (const [run, audience, says] of [["own", "user", "by the runtime"], ["stale", "user", "by a rule"], ["other", "dashboard", "by alice through REST"], ["other", "user", "through REST"]]) {
    await openAs("bob", { session: run, audience }, "--can", "read", "--audience", "dashboard");
    const line = page.locator("ps-conversation ps-action .summary", { hasText: says });
    await line.waitFor();
    assert.ok(audience !== "user" || !(await text(line)).includes("alice"), "users do not see who");
    await page.close();
  }
});

test("an administrator sees webhooks and their deliveries, sends a test, and sends a message again", limit, async () => {
  await asks("hooked", {});
  while (!received.some(({ data }) => data.runId === "hooked")) await new Promise((resolve) => setTimeout(resolve, 50));
  await openAs("ops", { session: "hooked" }, "--can", "admin", "--audience", "internal");
  await page.locator("#account-button").click();
  await page.locator("#account-menu").getByRole("button", { name: "Webhooks" }).click();
  const dialog = page.locator("#webhooks");
  const webhook = dialog.locator('[data-id="oncall"]');
  await webhook.getByText("run.waiting").waitFor();
  await webhook.getByRole("button", { name: "Send a test" }).click();
  await dialog.locator(".note", { hasText: "oncall took the test message." }).waitFor();
  status = 503;
  await webhook.getByRole("button", { name: "Send a test" }).click();
  await dialog.locator(".note", { hasText: "oncall did not take the test message: 503 status." }).waitFor();
  status = 204;
  await webhook.getByRole("button", { name: "Deliveries" }).click();
  const delivery = webhook.locator(".deliveries li", { hasText: "hooked" });
  await delivery.getByText("Delivered").waitFor();
  await delivery.getByRole("button", { name: "Send again" }).click();
  await dialog.locator(".note", { hasText: "The message is sent again." }).waitFor();
  const ids = () => received.filter(({ data }) => data.runId === "hooked").map(({ id }) => id);
  while (ids().length < 2) await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(new Set(ids()).size, 1, "the same message, with its id");
  assert.deepEqual(page.problems, []);
});

test("webhooks are not offered to a token that may not read them", limit, async () => {
  await openAs("bob", {}, "--can", "read,control");
  await page.locator("#account-button").click();
  await page.locator("#account-menu").getByText("Subject").waitFor();
  assert.equal(await page.locator("[data-setting=Webhooks]").count(), 0);
});
