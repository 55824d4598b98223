/**
 * The artifacts: bodies on demand, previews by type, versions, diffs and downloads. Tests of seed 003's validation
 * checklist have its sentences as titles.
 */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, afterEach, before, test } from "node:test";
import { Stage, limit, text, until } from "./stage.js";
import { BODY, TEAM } from "./fixtures/story.js";

let stage, page;
let runs = 0;

before(async () => (stage = await Stage.open()), limit);
after(() => stage?.close());
afterEach(async () => {
  if (!page) return;
  assert.deepEqual(page.problems, []);
  await page.close();
  page = undefined;
});

/** Publishes facts to a new run and opens it. */
async function openRun(facts = TEAM, { audience = "user", ...hash } = {}) {
  const run = `artifacts-${++runs}`;
  await stage.publish(run, facts);
  page = await stage.show("team.html", { run, audience, ...hash });
  return run;
}

/** Gives the panel the width of the full view. */
const widen = async () => {
  await page.setViewportSize({ width: 1500, height: 900 });
  await page.locator("main").evaluate((main) => (main.style.maxWidth = "none"));
  await page.locator(".panel.narrow").evaluate((panel) => (panel.style.width = "1400px"));
  await page.locator("ps-artifacts .artifact-side .version-row").first().waitFor();
};

const artifacts = () => page.locator("ps-artifacts");
const open = (title) => artifacts().locator(".artifact-row", { hasText: title }).click();
const bodyText = () => artifacts().locator(".artifact-body .body").evaluate((body) => body.textContent);
const untilBody = (body) => until(page, (body) => document.querySelector("ps-artifacts .artifact-body .body")?.textContent === body, body);
const textContentOf = (selector) => page.locator(selector).evaluate((element) => element.textContent);
/** Facts of an artifact with one body. */
const made = (artifactId, payload) => [{ type: "artifact.created", artifactId, payload: { title: artifactId, ...payload } }];

test("Artifact body lives in Artifact Workspace, not in the transcript by default.", limit, async () => {
  await openRun(TEAM, { without: "events" });
  const requests = [];
  // The page may still load parts of itself.
  page.on("request", (request) => request.url().includes("/v1/") && requests.push(request.url()));
  assert.ok(!(await textContentOf("body")).includes(BODY), "the page shows a body before a request");
  assert.match((await text(artifacts().locator(".artifact-row"))).replace(/\s+/g, " "), /^Report Markdown v2 diff ready/);
  assert.equal(requests.length, 0);

  await open("Report");
  await untilBody(BODY);
  assert.deepEqual(await artifacts().locator(".versions .name").allInnerTexts(), ["v2", "v1"]);
  assert.match(await text(artifacts().locator(".version-row").first()), /current/);
  assert.ok(!(await textContentOf("ps-conversation")).includes(BODY));
  await artifacts().getByRole("button", { name: "Show version 1" }).click();
  await untilBody("Revenue grew.");
  await artifacts().getByRole("button", { name: "Diff" }).click();
  await until(page, () => document.querySelectorAll("ps-artifacts .diff-line").length === 2);
  assert.deepEqual(await artifacts().locator(".diff-line").evaluateAll((lines) => lines.map((line) => line.dataset.kind)), ["delete", "add"]);
  assert.equal(await text(artifacts().locator(".artifact-stat")), "+1 −1 1 change");
});

test("an offloaded body is read from its blob, and only the part that is shown", limit, async () => {
  const long = "The same line again.\n".repeat(60_000);
  await openRun([...TEAM, { type: "artifact.version.created", artifactId: "report", payload: { version: 3, body: long } }]);
  const requests = [];
  page.on("request", (request) => request.url().includes("/v1/blobs/") && requests.push(request.headers().range));
  await open("Report");
  await artifacts().getByRole("button", { name: "Source" }).click();
  await until(page, () => document.querySelector("ps-artifacts .artifact-body .source")?.textContent.length === 200_000);
  assert.deepEqual(requests, ["bytes=0-799999"]);
  assert.equal(await text(artifacts().locator(".artifact-body .caption")), "version 3: the first 200,000 characters");
});

test("a late body does not replace one that was requested later", limit, async () => {
  await openRun([...TEAM, ...made("notes", { title: "Notes", body: "The notes." })]);
  const [first] = TEAM.flatMap((fact, at) => (fact.type === "artifact.version.created" ? [at + 1] : []));
  let release;
  const released = new Promise((resolve) => (release = resolve));
  const after = (request) => Number(new URL(request.url()).searchParams.get("after"));
  await page.route(/\/events\?.*after=/, async (route) => {
    if (after(route.request()) === first - 1) await released;
    await route.continue();
  });
  await open("Report");
  await artifacts().getByRole("button", { name: "Show version 1" }).click();
  await artifacts().locator(".caption", { hasText: "Loading version 1" }).waitFor();
  await artifacts().getByRole("button", { name: "Show version 2" }).click();
  await untilBody(BODY);
  const late = page.waitForResponse((answer) => after(answer.request()) === first - 1);
  release();
  await (await late).finished();
  // Another request and a pause, so that the late response has had its effect, if any.
  await page.evaluate(async (url) => {
    await (await fetch(url)).json();
    await new Promise((resolve) => setTimeout(resolve, 50));
  }, "/v1/runs");
  assert.equal(await bodyText(), BODY);
  await page.keyboard.press("Escape");
  await open("Notes");
  await untilBody("The notes.");
});

test("a body is shown by its type", limit, async () => {
  const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
  await openRun([
    { type: "run.started" },
    ...made("notes.md", { body: "# Heading\n\nA **word**." }),
    ...made("data.json", { mimeType: "application/json", body: JSON.stringify({ name: "Aurora", nested: { deep: { deeper: [1, 2] } } }) }),
    ...made("broken.json", { body: "{oops" }),
    ...made("times.csv", { body: 'version,"start, ms"\n4.1,1308\n"4.2 ""rc""",806\n' }),
    ...made("page.html", { mimeType: "text/html", body: "<h1>Report</h1><script>parent.document.title = 'changed'</script>" }),
    ...made("dot.png", { mimeType: "image/png", body: `data:image/png;base64,${pixel}` }),
    ...made("fake.png", { mimeType: "image/png", body: "data:text/html;base64,PGI+" }),
    ...made("drawing.svg", { body: '<svg xmlns="http://www.w3.org/2000/svg" width="4" height="4"><rect width="4" height="4"/></svg>' }),
    ...made("words", { kind: "other", body: "plain words" }),
  ]);
  const title = await page.title();
  const show = async (name, selector) => {
    await open(name);
    await artifacts().locator(`.artifact-body ${selector}`, { hasNotText: "Loading the latest body" }).first().waitFor();
    return artifacts().locator(`.artifact-body ${selector}`);
  };
  const back = () => artifacts().getByRole("button", { name: "Back to the list" }).click();

  assert.match(await text((await show("notes.md", ".prose")).first()), /Heading[^]*A .*word/);
  await back();
  assert.match(await text((await show("data.json", ".json-tree")).first()), /name: "Aurora"/);
  await artifacts().locator("summary", { hasText: "deep:" }).click();
  await artifacts().locator(".json-tree", { hasText: "deeper" }).waitFor();
  await back();
  assert.match(await text(await show("broken.json", ".hint")), /^Not valid JSON/);
  assert.equal(await bodyText(), "{oops");
  await back();
  await show("times.csv", "table");
  assert.deepEqual(await artifacts().locator(".artifact-table tr").evaluateAll((rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent))), [["version", "start, ms"], ["4.1", "1308"], ['4.2 "rc"', "806"]]);
  await back();
  // The frame has an origin of its own, and runs no script.
  const frame = await show("page.html", "iframe");
  assert.equal(await frame.getAttribute("sandbox"), "");
  assert.equal(await text(page.frameLocator("ps-artifacts iframe").locator("h1")), "Report");
  assert.equal(await page.title(), title);
  page.problems.length = 0;
  await back();
  await until(page, () => document.querySelector("ps-artifacts .artifact-body") === null);
  const isDrawn = () => until(page, () => document.querySelector("ps-artifacts .artifact-body img")?.naturalWidth > 0);
  await show("dot.png", "img");
  await isDrawn();
  await back();
  assert.match(await text(await show("fake.png", ".hint")), /not an image that the page can show/);
  await back();
  await show("drawing.svg", "img");
  await isDrawn();
  await back();
  await open("words");
  await untilBody("plain words");
});

test("a wide panel compares any two versions side by side, and goes from change to change", limit, async () => {
  const lines = (changes) => `${Array.from({ length: 120 }, (_, n) => changes[n] ?? `line ${n}`).join("\n")}\n`;
  const version = (version, body) => ({ type: "artifact.version.created", artifactId: "long", agentId: "writer", payload: { version, body, summary: `Draft ${version}` } });
  await openRun([
    { type: "run.started" },
    { type: "agent.spawned", agentId: "writer", payload: { agentName: "Wanda" } },
    ...made("long", { title: "Long", mimeType: "text/plain" }), version(1, lines({})), version(2, lines({ 10: "ten" })), version(3, lines({ 10: "ten", 60: "sixty", 110: "hundred and ten" })),
    { type: "review.completed", payload: { reviewId: "r", reviewer: "writer", target: { artifactId: "long", version: 2 }, verdict: "passed" } },
  ]);
  await widen();
  assert.match(await text(artifacts().locator(".version-row").first()), /v3\s+Draft 3[^]*Wanda · current/);
  await artifacts().getByRole("button", { name: "Diff" }).click();
  await until(page, () => document.querySelector("ps-artifacts .artifact-stat")?.textContent.replace(/\s+/g, " ").includes("+2 −2 2 changes"));
  assert.deepEqual(await artifacts().locator(".artifact-columns strong").allInnerTexts(), ["v2", "v3"]);
  assert.match(await text(artifacts().locator(".artifact-columns").first()), /passed by Wanda/);
  await artifacts().getByLabel("Compare").selectOption({ label: "v1" });
  await until(page, () => document.querySelector("ps-artifacts .artifact-stat")?.textContent.replace(/\s+/g, " ").includes("+3 −3 3 changes"));
  assert.equal(await artifacts().locator("ps-diff").getAttribute("data-mode"), "split");
  await artifacts().getByRole("button", { name: "Inline" }).click();
  await until(page, () => document.querySelector("ps-artifacts ps-diff").dataset.mode === "unified");
  const top = () => artifacts().locator(".artifact-body").evaluate((body) => body.scrollTop);
  await artifacts().locator(".diff-fold").first().click();
  await artifacts().locator(".artifact-body").evaluate((body) => (body.scrollTop = 0));
  await artifacts().getByRole("button", { name: "Next change" }).click();
  const first = await top();
  await page.keyboard.press("j");
  assert.ok((await top()) >= first);
  await artifacts().getByRole("button", { name: "Previous change" }).click();
  assert.ok((await top()) <= first + 1);
});

test("without both bodies the source's own diff is shown, and what is missing is said", limit, async () => {
  await openRun([
    { type: "run.started" },
    ...made("far", { title: "Far" }),
    { type: "artifact.version.created", artifactId: "far", payload: { version: 1, ref: "elsewhere/1" } },
    { type: "artifact.version.created", artifactId: "far", payload: { version: 2, ref: "elsewhere/2", preview: "The beginning." } },
    { type: "artifact.diff.ready", artifactId: "far", payload: { version: 2, diff: "@@ -1 +1 @@\n-old\n+new" } },
  ]);
  await open("Far");
  await until(page, () => document.querySelector("ps-artifacts .artifact-body .caption")?.textContent === "Unavailable: the source sent no facts with version 2. It is stored at elsewhere/2.");
  assert.equal(await bodyText(), "The beginning.");
  await artifacts().getByRole("button", { name: "Diff" }).click();
  await until(page, () => document.querySelectorAll("ps-artifacts .diff-line").length === 2);
  assert.match(await text(artifacts().locator(".artifact-body .caption")), /^The source's diff of version 2\. Unavailable: the source sent no facts with version 1/);
});

test("a body is downloaded under its name, as its bytes", limit, async () => {
  await openRun([{ type: "run.started" }, ...made("a", { title: "Notes", path: "site/notes.md", body: "# Notes\n" }), ...made("b", { title: "dot.gif", mimeType: "image/gif", body: "data:image/gif;base64,R0lGODlhAQABAAAAACw=" })]);
  const download = async () => {
    const [file] = await Promise.all([page.waitForEvent("download"), artifacts().getByRole("button", { name: "Download" }).click()]);
    return [file.suggestedFilename(), await readFile(await file.path())];
  };
  await open("Notes");
  assert.deepEqual(await download(), ["notes.md", Buffer.from("# Notes\n")]);
  await page.keyboard.press("Escape");
  await open("dot.gif");
  const [name, bytes] = await download();
  assert.deepEqual([name, bytes.toString("latin1").slice(0, 6)], ["dot.gif", "GIF89a"]);
});

test("an earlier version is restored by a control, and only live", limit, async () => {
  const run = await openRun();
  await open("Report");
  assert.equal(await artifacts().getByRole("button", { name: "Roll back" }).count(), 0);
  await artifacts().getByRole("button", { name: "Show version 1" }).click();
  await artifacts().getByRole("button", { name: "Roll back to this version" }).click();
  await until(page, () => window.bench.controls.length === 1);
  assert.deepEqual(await page.evaluate(() => window.bench.controls[0]), { control: "rollback", run, artifactId: "report", value: { version: 1 } });
  await page.locator("ps-scrubber .slider").fill(String(TEAM.length - 3));
  await until(page, () => window.bench.at !== null);
  await until(page, () => document.querySelector("ps-artifacts .writes") === null && document.querySelector("ps-artifacts .edit") === null);
});

test("an open artifact has an address: a link opens it, and the browser goes back to the list and forward again", limit, async () => {
  await stage.publish("addressed/run", [
    { type: "run.started" },
    { type: "artifact.version.created", artifactId: "notes: one/two", payload: { title: "The notes", version: "1", content: "First." } },
    { type: "artifact.version.created", artifactId: "other", payload: { title: "The other", version: "1", content: "Second." } },
  ], { sessionId: "addressed" });
  page = await stage.look({ session: "addressed", panel: "artifacts" });
  await page.locator("ps-artifacts .artifact-row", { hasText: "The notes" }).click();
  await until(page, () => location.hash.includes("artifact="));
  const address = page.url();
  await page.goBack();
  await until(page, () => document.querySelector("ps-artifacts .artifact-sheet") === null && !location.hash.includes("artifact="));
  await page.goForward();
  await page.locator("ps-artifacts .artifact-title", { hasText: "The notes" }).waitFor();
  await page.close();
  page = await stage.blank();
  await page.goto(address);
  await page.locator("ps-artifacts .artifact-title", { hasText: "The notes" }).waitFor();
  await page.locator("ps-artifacts", { hasText: "First." }).waitFor();
  assert.deepEqual(page.problems, []);
});
