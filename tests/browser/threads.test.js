/**
 * Sessions as people keep them: rename, archive, pin, read, delete. On a server without tokens, where the browser keeps
 * the marks, and on one that knows each person.
 */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, test } from "node:test";
import { BINARY, Stage, axe, limit, text, until } from "./stage.js";

/** `open` has no authentication, `guarded` requires tokens. */
let open, guarded, dir, key;
/** The pages of a test. */
const pages = [];

before(async () => {
  dir = await mkdtemp(join(tmpdir(), "proscenium-threads-"));
  key = join(dir, "key");
  execFileSync(BINARY, ["token", "--key", key, "--generate", "--sessions", "*", "--can", "read"]);
  [open, guarded] = await Promise.all([Stage.open(), Stage.open("--auth-key", key)]);
}, limit);

after(async () => {
  await Promise.all([open?.close(), guarded?.close()]);
  if (dir) await rm(dir, { recursive: true, force: true });
});

afterEach(async () => {
  for (const page of pages) await page.evaluate(() => localStorage.clear());
  for (const page of pages.splice(0)) await page.close();
});

const fact = (type, payload, ids) => ({ type, ...ids, payload });
const said = (messageId, words) => fact("text.final", { text: words }, { messageId });
const token = (sub, can) => execFileSync(BINARY, ["token", "--key", key, "--sessions", "*", "--sub", sub, "--can", can], { encoding: "utf8" }).trim();

/** Sends a request of an operator, who may do everything; returns the answer. */
async function call(stage, method, path, body) {
  const headers = { ...(body && { "content-type": "application/json" }), ...(stage === guarded && { authorization: `Bearer ${token("operator", "admin,read,control,publish,erase")}` }) };
  return fetch(`${stage.url}${path}`, { method, headers, ...(body && { body: JSON.stringify(body) }) });
}

async function publish(stage, session, facts, query = {}) {
  const answer = await call(stage, "POST", `/v1/runs/r-${session}/facts?${new URLSearchParams({ sessionId: session, ...query })}`, facts);
  assert.equal(answer.status, 200, await answer.clone().text());
}

/** Begins a session, by default with a title of its runtime. */
const begin = (stage, session, title, query) => publish(stage, session, [...(title ? [fact("session.opened", { title })] : []), fact("run.started"), said("m", `Hello from ${session}`), fact("run.finished")], query);

/** The entry of a session as the server lists it. */
async function entry(stage, session) {
  const { sessions } = await (await call(stage, "GET", "/v1/sessions?archived=all&limit=1000")).json();
  return sessions.find((one) => one.sessionId === session);
}

/** Waits until the page knows what it may offer. It shows the account, or without tokens the button to share. */
const knowsRights = (page) => page.locator("#account:not([hidden]) #account-button, #share:not([hidden])").first().waitFor({ state: "attached" });

/** Opens the workbench, with a token if one is given. */
async function look(stage, hash, bearer) {
  const page = await stage.look(hash);
  pages.push(page);
  if (!bearer) await knowsRights(page);
  if (!bearer) return page;
  await page.locator("#token").waitFor({ state: "visible" });
  await page.locator("#token input").fill(bearer);
  await page.locator("#token input").press("Enter");
  await knowsRights(page);
  return page;
}

const rowOf = (page, session) => page.locator(`#sessions button[data-session="${session}"]`);
const nameOf = (page, session) => text(rowOf(page, session).locator(".name"));

/** Opens the menu of a session in the rail, and returns it. */
async function menuOf(page, session) {
  // A tab in the background draws rarely.
  await page.bringToFront();
  await rowOf(page, session).hover();
  await page.locator(`#sessions li:has(> button[data-session="${session}"]) > .session-actions [aria-haspopup="menu"]`).click();
  return page.getByRole("menu");
}

const choose = async (page, session, label) => (await menuOf(page, session)).getByRole("menuitem", { name: label }).click();
const labels = async (menu) => (await menu.getByRole("menuitem").locator("span").evaluateAll((all) => all.map((one) => [...one.childNodes].filter(({ nodeType }) => nodeType === Node.TEXT_NODE).map(({ textContent }) => textContent).join("").trim())));
const isUnread = (page, session, expected) => until(page, ([session, expected]) => document.querySelector(`#sessions button[data-session="${session}"]`)?.dataset.unread === String(expected), [session, expected]);
const isTitled = (page, session, title) => until(page, ([session, title]) => document.querySelector(`#sessions button[data-session="${session}"] .name`)?.textContent.trim() === title, [session, title]);
const isGone = (page, session) => until(page, (session) => document.querySelector(`#sessions button[data-session="${session}"]`) === null, session);
const toast = (page, words) => page.locator(".toast", { hasText: words });

/** Makes the page believe that its tab is hidden, or shown. */
const hide = (page, isHidden) => page.evaluate((isHidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => isHidden });
  document.dispatchEvent(new Event("visibilitychange"));
}, isHidden);

test("a double click renames a session in the rail, for every window", limit, async () => {
  await begin(open, "mouse", "By the agent");
  const page = await look(open, { session: "mouse" });
  const other = await look(open, { session: "mouse" });
  await isTitled(page, "mouse", "By the agent");
  await rowOf(page, "mouse").dblclick();
  const field = page.locator("#rail-title");
  assert.equal(await field.inputValue(), "By the agent");
  assert.equal(await text(page.locator("#rail-title-note")), "Title by the agent");
  await field.fill("Rome in May");
  await field.press("Enter");
  for (const one of [page, other]) {
    await isTitled(one, "mouse", "Rome in May");
    await until(one, () => document.getElementById("title").textContent === "Rome in May");
  }
  await until(page, () => document.activeElement?.dataset.session === "mouse");
  assert.equal((await entry(open, "mouse")).titleFrom, "user");
  assert.deepEqual([...page.problems, ...other.problems], []);
});

test("a title goes back to the agent's", limit, async () => {
  await begin(open, "back", "By the agent");
  await call(open, "PATCH", "/v1/sessions/back", { title: "By a person" });
  const page = await look(open, { session: "back" });
  await isTitled(page, "back", "By a person");
  await choose(page, "back", "Use the agent’s title");
  await isTitled(page, "back", "By the agent");
  await until(page, () => document.getElementById("title").textContent === "By the agent");
  assert.ok(!(await labels(await menuOf(page, "back"))).includes("Use the agent’s title"));
});

test("the keyboard alone renames: F2 in the rail and in the heading, Escape restores", limit, async () => {
  await begin(open, "keyboard", "Before");
  const page = await look(open, { session: "keyboard" });
  await isTitled(page, "keyboard", "Before");
  await rowOf(page, "keyboard").focus();
  await page.keyboard.press("F2");
  await page.keyboard.type("Never kept");
  await page.keyboard.press("Escape");
  await until(page, () => document.activeElement?.dataset.session === "keyboard");
  assert.equal(await nameOf(page, "keyboard"), "Before");
  await page.keyboard.press("F2");
  await page.keyboard.type("From the rail");
  await page.keyboard.press("Enter");
  await isTitled(page, "keyboard", "From the rail");
  // Elsewhere the key renames what is open.
  await page.locator("#title-menu").focus();
  await page.keyboard.press("F2");
  await page.locator("#heading-title").waitFor();
  await page.keyboard.type("From the heading");
  await page.keyboard.press("Enter");
  await isTitled(page, "keyboard", "From the heading");
  await until(page, () => document.activeElement?.id === "title-menu");
  // The menu is reached and left by keys.
  await page.keyboard.press("Enter");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("ArrowUp");
  await until(page, () => document.activeElement?.textContent.includes("Delete"));
  await page.keyboard.press("Escape");
  await until(page, () => document.activeElement?.id === "title-menu" && document.querySelector(".menu") === null);
  assert.deepEqual(page.problems, []);
});

test("a refused title stays in its field, which says why", limit, async () => {
  await begin(open, "refused", "Before");
  const page = await look(open, { session: "refused" });
  await isTitled(page, "refused", "Before");
  await page.locator("#title").dblclick();
  const field = page.locator("#heading-title");
  const note = page.locator("#heading-title-note");
  for (const [title, why] of [["x".repeat(161), /161 characters/], ["bell \u0007", /U\+0007/], ["  ", /empty/]]) {
    await field.fill(title);
    await field.press("Enter");
    await until(page, (why) => new RegExp(why).test(document.getElementById("heading-title-note").textContent), why.source);
    assert.equal(await field.inputValue(), title);
    assert.deepEqual([await field.getAttribute("aria-invalid"), await note.getAttribute("role")], ["true", "alert"]);
    assert.equal((await entry(open, "refused")).title, "Before");
  }
  await field.fill("Accepted");
  // Leaving the field saves, as its key does.
  await page.locator("ps-conversation").click();
  await until(page, () => document.getElementById("title").textContent === "Accepted");
  assert.equal((await entry(open, "refused")).title, "Accepted");
});

test("an unreachable server loses no title", limit, async () => {
  await begin(open, "offline", "Before");
  const page = await look(open, { session: "offline" });
  await isTitled(page, "offline", "Before");
  await page.route("**/v1/sessions/offline?*", (route) => (route.request().method() === "PATCH" ? route.abort() : route.continue()));
  await page.locator("#title").dblclick();
  await page.locator("#heading-title").fill("Typed once");
  await page.locator("#heading-title").press("Enter");
  await page.locator("#heading-title-note", { hasText: "The server is unreachable" }).waitFor();
  await page.unrouteAll();
  await page.locator("#heading-title").press("Enter");
  await until(page, () => document.getElementById("title").textContent === "Typed once");
});

test("an archived session leaves the list of every window, and comes back by undo and by the filter", limit, async () => {
  await begin(open, "kept", "Kept");
  await begin(open, "archived", "Archived");
  const page = await look(open, { session: "archived" });
  const other = await look(open, { session: "kept" });
  for (const one of [page, other]) await rowOf(one, "archived").waitFor();
  await rowOf(page, "archived").hover();
  await page.getByRole("button", { name: "Archive Archived" }).click();
  for (const one of [page, other]) await isGone(one, "archived");
  // It stays open, and the heading says so.
  await page.locator("#title-actions .tag", { hasText: "Archived" }).waitFor();
  assert.equal((await entry(open, "archived")).archived, true);
  await toast(page, "Archived “Archived”.").getByRole("button", { name: "Undo" }).click();
  for (const one of [page, other]) await rowOf(one, "archived").waitFor();
  assert.equal((await entry(open, "archived")).archived, undefined);
  assert.equal(await page.locator("#title-actions .tag").count(), 0);

  await choose(other, "archived", "Archive");
  await isGone(page, "archived");
  // News does not bring it back.
  await publish(open, "archived", [said("m2", "News")]);
  await other.getByRole("button", { name: "Archived", exact: true }).click();
  await rowOf(other, "archived").waitFor();
  assert.equal(await rowOf(other, "kept").count(), 0, "the filter lists archived ones alone");
  await choose(other, "archived", "Unarchive");
  await isGone(other, "archived");
  await rowOf(page, "archived").waitFor();
  await other.getByRole("button", { name: "Archived", exact: true }).click();
  await rowOf(other, "archived").waitFor();
  assert.deepEqual([...page.problems, ...other.problems], []);
});

test("a deleted session is gone from the list, and a page that shows it forgets it", limit, async () => {
  await begin(open, "doomed", "Doomed");
  const page = await look(open, { session: "doomed" });
  const other = await look(open, { session: "doomed" });
  for (const one of [page, other]) await one.locator(".speech", { hasText: "Hello from doomed" }).waitFor();
  await choose(page, "doomed", "Delete…");
  const dialog = page.locator("#erase-dialog");
  await dialog.locator("p", { hasText: "This erases the session and its run" }).waitFor();
  for (const what of ["cannot be undone", "exports and backups"]) assert.ok((await dialog.innerText()).includes(what), what);
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await until(page, () => document.getElementById("erase-dialog") === null);
  assert.ok(await entry(open, "doomed"), "cancelling deletes nothing");

  await choose(page, "doomed", "Delete…");
  await dialog.getByRole("button", { name: "Delete for good" }).click();
  await toast(page, "Deleted “Doomed”.").waitFor();
  for (const one of [page, other]) {
    await until(one, () => document.body.dataset.erased === "true" && document.getElementById("title").textContent === "Deleted session");
    await isGone(one, "doomed");
    await one.locator("ps-conversation", { hasText: "This session was deleted for good" }).waitFor();
    assert.ok(!(await one.locator("body").innerText()).includes("Hello from doomed"));
    assert.ok(await one.locator("ps-composer").isHidden());
    assert.equal(await one.locator("#title-menu").count(), 0);
  }
  assert.equal(await entry(open, "doomed"), undefined);
  // A later visit says the same.
  await other.reload();
  await other.locator("ps-conversation", { hasText: "This session was deleted for good" }).waitFor();
  // Another session opens as always.
  await begin(open, "next", "Next");
  await rowOf(page, "next").click();
  await page.locator(".speech", { hasText: "Hello from next" }).waitFor();
  assert.ok(await page.locator("ps-composer").isVisible());
  // The list may say that the session is gone before the deletion is answered. The page then asks why.
  assert.deepEqual(page.problems.filter((problem) => !problem.includes("410")), []);
});

test("deleting a parent asks what happens to its children, and does that", limit, async () => {
  for (const [parent, choice] of [["family", "Delete it, too"], ["household", "Keep it"]]) {
    await begin(open, parent, `The ${parent}`);
    await begin(open, `${parent}-child`, `Child of the ${parent}`, { parentSessionId: parent });
    const page = await look(open, { session: parent });
    await choose(page, parent, "Delete…");
    const dialog = page.locator("#erase-dialog");
    await dialog.locator("legend", { hasText: `It has 1 child session: Child of the ${parent}` }).waitFor();
    assert.ok(await dialog.getByRole("button", { name: "Delete for good" }).isDisabled(), "a person must choose");
    await dialog.getByLabel(choice).check();
    await dialog.getByRole("button", { name: "Delete for good" }).click();
    await isGone(page, parent);
    assert.equal(await entry(open, parent), undefined);
    assert.equal((await entry(open, `${parent}-child`)) === undefined, choice !== "Keep it");
  }
});

test("a child that appears while the dialog is open is named before anything is deleted", limit, async () => {
  await begin(open, "late", "Late");
  const page = await look(open, { session: "late" });
  await choose(page, "late", "Delete…");
  const dialog = page.locator("#erase-dialog");
  await dialog.locator("p", { hasText: "and its run" }).waitFor();
  await begin(open, "late-child", "Late child", { parentSessionId: "late" });
  await dialog.getByRole("button", { name: "Delete for good" }).click();
  await dialog.locator(".note", { hasText: "Nothing is deleted yet" }).waitFor();
  assert.ok(await entry(open, "late"));
  await dialog.getByLabel("Delete it, too").check();
  await dialog.getByRole("button", { name: "Delete for good" }).click();
  await until(page, () => document.body.dataset.erased === "true");
  assert.deepEqual([await entry(open, "late"), await entry(open, "late-child")], [undefined, undefined]);
});

test("a failed deletion says why, and the dialog stays", limit, async () => {
  await begin(open, "stays", "Stays");
  const page = await look(open, { session: "stays" });
  await page.route("**/v1/sessions/stays", (route) => (route.request().method() === "DELETE" ? route.abort() : route.continue()));
  await choose(page, "stays", "Delete…");
  await page.locator("#erase-dialog").getByRole("button", { name: "Delete for good" }).click();
  await page.locator('#erase-dialog .note[data-state="failed"]', { hasText: "The server is unreachable" }).waitFor();
  await page.unrouteAll();
  await page.locator("#erase-dialog").getByRole("button", { name: "Delete for good" }).click();
  await isGone(page, "stays");
});

test("a session with news is unread until a person opens it, and can be marked as unread", limit, async () => {
  await begin(open, "quiet", "Quiet");
  await begin(open, "news", "News");
  const page = await look(open, { session: "quiet" });
  for (const session of ["quiet", "news"]) await isUnread(page, session, false);
  await publish(open, "news", [said("m2", "Something new")]);
  await isUnread(page, "news", true);
  assert.equal(await rowOf(page, "news").locator(".unread-dot").count(), 1);
  assert.ok((await rowOf(page, "news").locator(".marks").textContent()).includes("Unread"));
  // It is unread after a reload, too.
  await page.reload();
  await isUnread(page, "news", true);
  await rowOf(page, "news").click();
  await isUnread(page, "news", false);
  // News that a person sees is read.
  await publish(open, "news", [said("m3", "Seen at once")]);
  await page.locator(".speech", { hasText: "Seen at once" }).waitFor();
  await rowOf(page, "quiet").click();
  await publish(open, "quiet", [said("m2", "A barrier")]);
  await page.locator(".speech", { hasText: "A barrier" }).waitFor();
  await isUnread(page, "news", false);

  await choose(page, "news", "Mark as unread");
  await isUnread(page, "news", true);
  await choose(page, "news", "Mark as read");
  await isUnread(page, "news", false);
  // What is open can be unread until it has news.
  await choose(page, "quiet", "Mark as unread");
  await isUnread(page, "quiet", true);
  await publish(open, "quiet", [said("m3", "More")]);
  await isUnread(page, "quiet", false);
  assert.deepEqual(page.problems, []);
});

for (const [kind, stage, bearer] of [["without tokens", () => open, () => undefined], ["with a token", () => guarded, () => token("hidden", "read")]]) {
  test(`a hidden tab reads nothing, ${kind}`, limit, async () => {
    await begin(stage(), "hidden", "Hidden");
    const page = await look(stage(), { session: "hidden" }, bearer());
    await page.locator(".speech", { hasText: "Hello from hidden" }).waitFor();
    await isUnread(page, "hidden", false);
    await hide(page, true);
    await publish(stage(), "hidden", [said("m2", "While away")]);
    await page.locator(".speech", { hasText: "While away" }).waitFor();
    await isUnread(page, "hidden", true);
    await hide(page, false);
    await isUnread(page, "hidden", false);
  });
}

test("the search finds texts of sessions, and leads to the message", limit, async () => {
  const words = (n) => `Line ${n} of a long talk. `.repeat(12);
  await begin(open, "found-title", "Lighthouse keeper");
  const talk = Array.from({ length: 120 }, (_, n) => said(`t${n}`, n === 4 ? "The <b>lighthouse</b> stands at Kap Arkona." : words(n)));
  await publish(open, "found-text", [fact("session.opened", { title: "A long talk" }), fact("run.started"), ...talk]);
  await publish(open, "found-hidden", [fact("run.started"), { ...said("m", "A lighthouse that only operators see"), audience: "internal" }]);
  await begin(open, "found-other", "Something else");
  const page = await look(open, { session: "found-other" });
  const field = page.locator("#sessions input[type=search]");
  await field.fill("lighthouse kap");
  await page.locator("#sessions .match").waitFor();
  assert.deepEqual(await page.locator("#sessions .match").evaluateAll((all) => all.map(({ dataset }) => dataset.match)), ["found-text"]);
  await field.fill("lighthouse");
  await until(page, () => [...document.querySelectorAll("#sessions button.session")].map(({ dataset }) => dataset.session).join() === "found-title");
  await until(page, () => document.querySelectorAll("#sessions .match").length === 1);
  const match = page.locator("#sessions .match");
  assert.equal(await text(match.locator(".excerpt")), "The <b>lighthouse</b> stands at Kap Arkona.");
  assert.equal(await text(match.locator("mark")), "lighthouse");
  assert.ok(await page.evaluate(() => {
    const [session, match] = ["button.session", "button.match"].map((one) => document.querySelector(`#sessions ${one}`));
    return Boolean(session.compareDocumentPosition(match) & Node.DOCUMENT_POSITION_FOLLOWING);
  }), "titles come first");
  await page.evaluate(await axe());
  const { violations } = await page.evaluate(() => window.axe.run());
  assert.deepEqual(violations.filter(({ impact }) => impact === "serious" || impact === "critical").map(({ id, nodes }) => `${id}: ${nodes[0].html}`), []);

  // By the keyboard: from the field to the match, which opens the session at the message.
  await field.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.locator("ps-part[data-found]", { hasText: "Kap Arkona" }).waitFor();
  assert.equal(await page.evaluate(() => new URLSearchParams(location.hash.slice(1)).get("session")), "found-text");
  const message = page.locator("ps-part", { hasText: "Kap Arkona" });
  assert.ok(await message.evaluate((row) => row === document.activeElement), "a screen reader reads it");
  assert.ok(await message.evaluate((row) => {
    const [inner, outer] = [row.getBoundingClientRect(), row.closest(".scroller").getBoundingClientRect()];
    return inner.top >= outer.top && inner.bottom <= outer.bottom;
  }));
  await until(page, () => document.querySelector("ps-part[data-found]") === null);
  await field.fill("");
  await until(page, () => document.querySelector("#sessions .match") === null);
});

test("pins and what was read without tokens are of the browser, for all its windows", limit, async () => {
  await begin(open, "mine", "Mine");
  const page = await look(open, { session: "mine" });
  const other = await look(open, { session: "mine" });
  await choose(page, "mine", "Pin");
  const isPinned = (page, expected) => until(page, (expected) => [...document.querySelectorAll("#sessions .rail-group")].some((group) => group.textContent.startsWith("Pinned")) === expected, expected);
  for (const one of [page, other]) await isPinned(one, true);
  assert.equal((await entry(open, "mine")).pinned, undefined);
  await page.reload();
  await isPinned(page, true);
  await choose(other, "mine", "Unpin");
  for (const one of [page, other]) await isPinned(one, false);
  await choose(page, "mine", "Mark as unread");
  for (const one of [page, other]) await isUnread(one, "mine", true);
});

test("two people have marks of their own, and each has the same in all windows", limit, async () => {
  await begin(guarded, "shared", "Shared");
  await begin(guarded, "elsewhere", "Elsewhere");
  const [ann, bob] = [token("ann", "read,control"), token("bob", "read")];
  const first = await look(guarded, { session: "elsewhere" }, ann);
  const second = await look(guarded, { session: "elsewhere" }, ann);
  const another = await look(guarded, { session: "elsewhere" }, bob);
  const all = [first, second, another];
  for (const page of all) await isUnread(page, "shared", false);
  await publish(guarded, "shared", [said("m2", "For both")]);
  for (const page of all) await isUnread(page, "shared", true);
  await rowOf(first, "shared").click();
  await choose(first, "shared", "Pin");
  for (const page of [first, second]) {
    await isUnread(page, "shared", false);
    await until(page, () => [...document.querySelectorAll("#sessions .rail-group")].some((group) => group.textContent.startsWith("Pinned")));
  }
  // The other person sees a rename, and no mark.
  await choose(first, "shared", "Rename");
  await first.locator("#rail-title").fill("Renamed by Ann");
  await first.locator("#rail-title").press("Enter");
  await isTitled(another, "shared", "Renamed by Ann");
  await isUnread(another, "shared", true);
  assert.ok(!(await another.locator("#sessions").innerText()).includes("Pinned"));
  // The browser keeps nothing of it, and a new window has it from the server.
  assert.deepEqual(await first.evaluate(() => [localStorage.getItem("proscenium.pinned"), localStorage.getItem("proscenium.read")]), [null, null]);
  const later = await look(guarded, { session: "elsewhere" }, ann);
  await isUnread(later, "shared", false);
  await later.locator("#sessions .rail-group", { hasText: "Pinned" }).waitFor();
  await choose(second, "shared", "Mark as unread");
  for (const page of [first, second, later]) await isUnread(page, "shared", true);
  assert.deepEqual(all.flatMap(({ problems }) => problems.filter((problem) => !problem.includes("401"))), []);
});

test("the page offers what the token permits, and a share link none of it", limit, async () => {
  await begin(guarded, "rights", "Rights");
  const offered = async (can) => {
    const page = await look(guarded, { session: "rights" }, token(`who-${can}`, can));
    await rowOf(page, "rights").waitFor();
    await until(page, () => document.getElementById("title").textContent === "Rights");
    const found = await labels(await menuOf(page, "rights"));
    await page.keyboard.press("Escape");
    await rowOf(page, "rights").dblclick();
    await page.locator("#title").dblclick();
    const fields = await page.locator(".title-field").count();
    await page.keyboard.press("Escape");
    return { found, fields };
  };
  assert.deepEqual(await offered("read"), { found: ["Pin", "Mark as unread"], fields: 0 });
  const some = await offered("read,control");
  assert.deepEqual(some, { found: ["Rename", "Pin", "Mark as unread", "Archive"], fields: 1 });
  assert.deepEqual((await offered("read,control,erase")).found, ["Rename", "Pin", "Mark as unread", "Archive", "Delete…"]);

  const end = new Date(Date.now() + 3_600_000).toISOString();
  const made = await fetch(`${guarded.url}/v1/links`, { method: "POST", headers: { "content-type": "application/json", authorization: `Bearer ${token("sharer", "read,control,share,erase")}` }, body: JSON.stringify({ sessionId: "rights", until: end }) });
  const page = await guarded.blank();
  pages.push(page);
  await page.goto(`${guarded.front.url}/${(await made.json()).url.replace(/^.*#/, "#")}`);
  await page.locator(".speech", { hasText: "Hello from rights" }).waitFor();
  assert.equal(await page.locator("#title-menu").count(), 0);
  await page.locator("#title").dblclick();
  await page.keyboard.press("F2");
  assert.equal(await page.locator(".title-field").count(), 0);
});

test("a past moment offers no changes", limit, async () => {
  await begin(open, "past", "Past");
  const page = await look(open, { session: "past" });
  await rowOf(page, "past").waitFor();
  await page.locator("#title-menu").waitFor();
  await page.locator("#dock").getByRole("button", { name: "Previous event" }).click();
  await until(page, () => document.getElementById("stage").dataset.past === "true");
  assert.equal(await page.locator("#title-menu").count(), 0);
  await page.keyboard.press("F2");
  assert.equal(await page.locator(".title-field").count(), 0);
  assert.deepEqual(await labels(await menuOf(page, "past")), ["Pin", "Mark as unread"]);
  await page.keyboard.press("Escape");
  await page.locator("#dock").getByRole("button", { name: "Go live" }).click();
  await page.locator("#title-menu").waitFor();
});

test("pins of an older page move to the server, and its archive is offered to all", limit, async () => {
  await begin(guarded, "old-pin", "Old pin");
  await begin(guarded, "old-archive", "Old archive");
  const page = await guarded.blank();
  pages.push(page);
  await page.addInitScript(() => {
    if (sessionStorage.getItem("seeded")) return;
    sessionStorage.setItem("seeded", "1");
    localStorage.setItem("proscenium.pinned", '["session old-pin"]');
    localStorage.setItem("proscenium.archived", '["session old-archive","run some-run"]');
  });
  const bearer = token("veteran", "read,control");
  await guarded.look({ session: "old-pin" }, page);
  await page.locator("#token input").fill(bearer);
  await page.locator("#token input").press("Enter");
  await page.locator("#sessions .rail-group", { hasText: "Pinned" }).waitFor();
  await until(page, () => localStorage.getItem("proscenium.pinned") === "[]");
  const { sessions } = await (await fetch(`${guarded.url}/v1/sessions`, { headers: { authorization: `Bearer ${bearer}` } })).json();
  assert.equal(sessions.find(({ sessionId }) => sessionId === "old-pin").pinned, true);
  // Nothing is archived for others before a person says so.
  await rowOf(page, "old-archive").waitFor();
  await toast(page, "1 session was archived in this browser only").getByRole("button", { name: "Archive for all" }).click();
  await isGone(page, "old-archive");
  assert.equal((await entry(guarded, "old-archive")).archived, true);
  await until(page, () => localStorage.getItem("proscenium.archived") === '["run some-run"]');
});

test("a run without a session is pinned, archived and marked in this browser, and deleted on the server", limit, async () => {
  const publishLoose = async (facts) => assert.equal((await call(open, "POST", "/v1/runs/loose/facts", facts)).status, 200);
  await publishLoose([fact("run.started"), said("m", "Hello from a run"), fact("run.finished")]);
  const page = await look(open, { run: "loose" });
  const row = page.locator('#sessions button[data-run="loose"]');
  await row.waitFor();
  const openLoose = async () => {
    await row.hover();
    await page.locator('#sessions li:has(> button[data-run="loose"]) > .session-actions [aria-haspopup="menu"]').click();
    return page.getByRole("menu");
  };
  const menu = await openLoose();
  assert.deepEqual(await labels(menu), ["Pin", "Mark as unread", "Archive", "Delete…"]);
  await menu.getByRole("menuitem", { name: "Archive" }).click();
  await until(page, () => document.querySelector('#sessions button[data-run="loose"]') === null);
  await page.getByRole("button", { name: "Archived", exact: true }).click();
  await row.waitFor();
  await (await openLoose()).getByRole("menuitem", { name: "Delete…" }).click();
  await page.locator("#erase-dialog").getByRole("button", { name: "Delete for good" }).click();
  await until(page, () => document.getElementById("title").textContent === "Deleted run");
  assert.equal((await call(open, "GET", "/v1/runs/loose")).status, 410);
});

test("a phone has the menu on each row, the field, and the dialog, within its width", limit, async () => {
  await begin(open, "phone", "A session with a title that is longer than the screen of a phone is wide");
  const page = await open.blank();
  pages.push(page);
  await page.setViewportSize({ width: 390, height: 844 });
  await open.look({ session: "phone" }, page);
  await knowsRights(page);
  const fits = () => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth);
  await page.locator("#title-menu").click();
  await page.getByRole("menuitem", { name: "Rename" }).click();
  await page.locator("#heading-title").fill("Short");
  assert.ok(await fits());
  await page.locator("#heading-title").press("Enter");
  await until(page, () => document.getElementById("title").textContent === "Short");
  await page.locator("#open-rail").click();
  await choose(page, "phone", "Rename");
  await page.locator("#rail-title").press("Escape");
  await choose(page, "phone", "Delete…");
  await page.locator("#erase-dialog").getByRole("button", { name: "Delete for good" }).waitFor();
  assert.ok(await fits());
  await page.keyboard.press("Escape");
  assert.deepEqual(page.problems, []);
});

test("menu, field and dialog have no serious accessibility finding", limit, async () => {
  await begin(open, "a11y", "Accessible");
  const page = await look(open, { session: "a11y" });
  await rowOf(page, "a11y").waitFor();
  await page.evaluate(await axe());
  const serious = async () => (await page.evaluate(() => window.axe.run())).violations.filter(({ impact }) => impact === "serious" || impact === "critical").map(({ id, nodes }) => `${id}: ${nodes[0].html}`);
  await menuOf(page, "a11y");
  assert.deepEqual(await serious(), []);
  await page.getByRole("menuitem", { name: "Rename" }).click();
  await page.locator("#rail-title").fill("x".repeat(161));
  await page.locator("#rail-title").press("Enter");
  await page.locator('#rail-title-note[role="alert"]').waitFor();
  assert.deepEqual(await serious(), []);
  await page.locator("#rail-title").press("Escape");
  await choose(page, "a11y", "Delete…");
  await page.locator("#erase-dialog").waitFor();
  assert.deepEqual(await serious(), []);
});
