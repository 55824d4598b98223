/**
 * The server with a real identity provider: signing in through the page in a real browser, keys that rotate while a stream
 * is open, and a provider that is down.
 */

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { limit } from "../deadline.mjs";
import { requestJson, startServer, waitFor, within } from "./harness.mjs";
import { RESOURCE, makeKey, startProvider } from "./identity-provider.mjs";
import { openBrowser } from "./pages.mjs";

const MAPPING = "groups=ops:audience=internal,can=read+control+publish,sessions=*,agents=*";

/** The flags of a server that trusts a provider. */
const trusting = ({ issuer }, ...more) => ["--auth-issuer", issuer, "--auth-audience", RESOURCE, ...more];
const bearer = (token) => ({ authorization: `Bearer ${token}` });

/** Requests the list of runs, and returns the status and the body. */
async function ask(url, token) {
  const answer = await fetch(`${url}/v1/runs`, { headers: token ? bearer(token) : {} });
  return { status: answer.status, body: await answer.json() };
}

async function publish(url, token, facts) {
  await requestJson(`${url}/v1/runs/a-run/facts?sessionId=a-session`, { method: "POST", headers: { ...bearer(token), "content-type": "application/json" }, body: JSON.stringify(facts) });
}

/** Starts a server whose clocks a test sets forward. */
async function startClocked(...flags) {
  const folder = mkdtempSync(join(tmpdir(), "proscenium-clock-"));
  const path = join(folder, "clock");
  process.env.PROSCENIUM_TEST_CLOCK = path;
  const server = await startServer(...flags).finally(() => delete process.env.PROSCENIUM_TEST_CLOCK);
  const advance = (ms) => within("the clock", new Promise((resolve, reject) => {
    const socket = connect(path, () => socket.write(`advance ${ms}\n`));
    socket.on("error", reject).on("data", () => (socket.end(), resolve()));
  }));
  return { ...server, advance, stop: async () => (await server.stop(), rmSync(folder, { recursive: true })) };
}

test("a provider's token covers what the mappings say, and nothing without one", limit, async () => {
  const provider = await startProvider(makeKey("one"));
  const token = await provider.programToken();
  const mapped = await startServer(...trusting(provider, "--auth-claim", MAPPING));
  const unmapped = await startServer(...trusting(provider));
  const other = await startServer("--auth-jwks", `${provider.issuer}/jwks`, "--auth-issuer", "https://login.example", "--auth-audience", RESOURCE);
  const elsewhere = await startServer("--auth-issuer", provider.issuer);
  try {
    assert.equal((await ask(mapped.url, token)).status, 200);
    const { sub, can, audience } = await requestJson(`${mapped.url}/v1/me`, { headers: bearer(token) });
    assert.deepEqual({ sub, can, audience }, { sub: "worker", can: ["read", "publish", "control"], audience: "internal" });
    const nothing = await ask(unmapped.url, token);
    assert.equal(nothing.status, 403);
    assert.match(nothing.body.detail, /^The token permits nothing: .*--auth-claim/);
    assert.match((await ask(other.url, token)).body.detail, /another issuer/);
    assert.match((await ask(elsewhere.url, token)).body.detail, /another service/);
    assert.equal((await ask(mapped.url)).status, 401);
  } finally {
    await Promise.all([mapped, unmapped, other, elsewhere, provider].map((one) => one.stop()));
  }
});

test("keys rotate while a stream is open, which ends once its key is gone", limit, async () => {
  const [one, two] = [makeKey("one"), makeKey("two")];
  const provider = await startProvider(one);
  const server = await startClocked(...trusting(provider, "--auth-claim", MAPPING));
  try {
    const old = await provider.programToken();
    await publish(server.url, old, [{ type: "run.started" }]);
    const stream = await fetch(`${server.url}/v1/runs/a-run/stream`, { headers: bearer(old) });
    assert.equal(stream.status, 200);
    let text = "";
    const ended = (async () => {
      for await (const bytes of stream.body) text += Buffer.from(bytes).toString();
    })();
    await waitFor("the start of the stream", () => text.includes('"Hydrated"'));

    provider.rotate(two, one);
    const fresh = await provider.programToken();
    await publish(server.url, fresh, [{ type: "text.delta", messageId: "m", payload: { text: "with the new key" } }]);
    await waitFor("the next frame", () => text.includes("with the new key"));
    assert.equal((await ask(server.url, old)).status, 200);

    provider.rotate(two);
    assert.equal((await ask(server.url, old)).status, 200, "the server has not fetched the keys again");
    await server.advance(10 * 60 * 1000);
    await within("the end of the stream", ended);
    const last = JSON.parse(text.trim().split("\n").findLast((line) => line.startsWith("data: ")).slice(6));
    assert.deepEqual([last.frame, last.problem.status, last.problem.reason], ["Error", 401, "key_removed"]);
    assert.equal((await ask(server.url, old)).status, 401);
    assert.equal((await ask(server.url, fresh)).status, 200);
  } finally {
    await server.stop();
    await provider.stop();
  }
});

test("a server starts while its provider is down, and keeps its keys when that goes down later", limit, async () => {
  const provider = await startProvider(makeKey("one"));
  const token = await provider.programToken();
  provider.setDown(true);
  const server = await startClocked(...trusting(provider, "--auth-claim", MAPPING));
  try {
    const { status, body } = await ask(server.url, token);
    assert.deepEqual([status, body.code, body.retryAfter], [503, "keys_unavailable", 5]);
    assert.equal((await ask(server.url)).status, 401);
    provider.setDown(false);
    // The server tries again by itself.
    await waitFor("the keys", async () => (await server.advance(5000), (await ask(server.url, token)).status === 200));
    provider.setDown(true);
    const asked = provider.requests.length;
    await server.advance(10 * 60 * 1000);
    await waitFor("another attempt", () => provider.requests.length > asked);
    assert.equal((await ask(server.url, token)).status, 200);
  } finally {
    await server.stop();
    await provider.stop();
  }
});

const browser = openBrowser();
after(async () => (await browser).close());

/** A server with a sign-in, a session to see, and a page of it that waits for a person. */
async function startSignIn(hash = "") {
  const provider = await startProvider(makeKey("one"));
  const flags = ["--auth-claim", MAPPING, "--sign-in-client-id", "page", "--sign-in-scope", "openid profile offline_access", "--sign-in-parameter", `resource=${RESOURCE}`];
  const server = await startServer(...trusting(provider, ...flags));
  await publish(server.url, await provider.programToken(), [{ type: "run.started" }, { type: "text.final", messageId: "m", payload: { role: "assistant", text: "Signed in." } }]);
  const page = await (await browser).context.newPage();
  const problems = [];
  page.on("pageerror", (error) => problems.push(String(error)));
  // The browser keeps the provider's cookies, and every provider of these tests has the same host.
  await page.context().clearCookies();
  const open = () => page.goto(`${server.url}/${hash}`);
  const stop = async () => {
    await page.close();
    await server.stop();
    await provider.stop();
  };
  return { provider, server, page, problems, open, stop };
}

/** Signs in at the provider's own pages. */
async function signIn(page, name) {
  await page.locator("#sign-in-button").click();
  await page.locator("input[name=login]").fill(name);
  await page.locator("input[name=password]").fill("any");
  await page.locator("button[type=submit]").click();
  await page.locator("button[type=submit]", { hasText: "Continue" }).click();
}

test("a person signs in through the page, sees their rights, and signs out", limit, async () => {
  const { server, page, problems, open, stop } = await startSignIn("#session=a-session");
  try {
    const addresses = [];
    page.on("framenavigated", (frame) => addresses.push(frame.url()));
    await open();
    await signIn(page, "alice");
    await page.locator(".speech .body", { hasText: "Signed in." }).waitFor();
    // The page is where it was, and the code has left the address.
    assert.match(page.url(), /#session=a-session/);
    assert.ok(!page.url().includes("code="));
    await page.locator("#account-button", { hasText: "Name of alice" }).click();
    const menu = await page.locator("#account-menu").innerText();
    for (const text of ["alice", "read, publish, control", "internal", "Until"]) assert.ok(menu.includes(text), `${text}: ${menu}`);
    const token = await page.evaluate(() => sessionStorage.getItem("proscenium.token"));
    assert.equal((await requestJson(`${server.url}/v1/me`, { headers: bearer(token) })).name, "Name of alice");
    for (const address of addresses) assert.ok(!address.includes(token), address);

    await page.reload();
    await page.locator("#account-button", { hasText: "Name of alice" }).click();
    await page.locator("#sign-out").click();
    await page.locator("button[name=logout]").click();
    await page.locator("#sign-in-button").waitFor();
    assert.equal(new URL(page.url()).origin, server.url);
    assert.equal(await page.evaluate(() => sessionStorage.length), 0);
    assert.deepEqual(problems, []);
  } finally {
    await stop();
  }
});

test("the page renews a token before it ends", limit, async () => {
  const { provider, page, open, stop } = await startSignIn();
  try {
    await page.clock.install();
    await open();
    await signIn(page, "bob");
    await page.locator("#account-button").waitFor();
    const exchanges = () => provider.requests.filter((request) => request === "POST /token").length;
    const [before, token] = [exchanges(), await page.evaluate(() => sessionStorage.getItem("proscenium.token"))];
    await page.clock.fastForward("59:30");
    await waitFor("another token", async () => (await page.evaluate(() => sessionStorage.getItem("proscenium.token"))) !== token);
    assert.equal(exchanges(), before + 1);
    assert.ok(await page.locator("#token").isHidden());
  } finally {
    await stop();
  }
});

test("an answer that belongs to no sign-in of the tab is refused", limit, async () => {
  const { provider, server, page, open, stop } = await startSignIn();
  try {
    const exchanges = () => provider.requests.filter((request) => request === "POST /token").length;
    const before = exchanges();
    await page.goto(`${server.url}/?code=stolen&state=guessed`);
    await page.locator("#sign-in [role=alert]", { hasText: "does not belong to a sign-in of this tab" }).waitFor();
    assert.equal(page.url(), `${server.url}/`);
    assert.equal(exchanges(), before);
    // A person who changes their mind at the provider comes back to the form, with the reason.
    await open();
    await page.locator("#sign-in-button").click();
    await page.locator("a", { hasText: "Cancel" }).click();
    await page.locator("#sign-in [role=alert]").waitFor();
    assert.ok(!page.url().includes("error="));
  } finally {
    await stop();
  }
});

test("the policy of the page names the provider, and only with a sign-in", limit, async () => {
  const { provider, server, stop } = await startSignIn();
  const plain = await startServer(...trusting(provider));
  try {
    const policy = async (url) => (await fetch(url)).headers.get("content-security-policy").match(/connect-src ([^;]*)/)[1];
    assert.equal(await policy(server.url), `'self' ${provider.issuer}`);
    assert.equal(await policy(plain.url), "'self'");
    assert.deepEqual(await requestJson(`${plain.url}/v1/sign-in`), {});
    const { provider: described } = await requestJson(`${server.url}/v1/sign-in`);
    assert.equal(described.tokenEndpoint, `${provider.issuer}/token`);
  } finally {
    await plain.stop();
    await stop();
  }
});
