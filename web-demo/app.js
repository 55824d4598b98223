/**
 * The page: runs, one run's frames, and what they add up to.
 *
 * Whatever a run says reaches the page as text (`textContent`, a property, an attribute of ours) and never as markup. What
 * the page holds is bounded, however long a run is.
 */

import { Feed } from "./feed.js";
import { Token } from "./token.js";
import { Fold, caption } from "./fold.js";

/** Frames on the page. */
const FRAMES_MAX = 500;
/** Runs that are listed. */
const RUNS_MAX = 50;
/** How often runs are asked for, in milliseconds. */
const POLL_MS = 2000;
/** How close to its end a list must be scrolled to stay there, in pixels. */
const STICKY_PX = 40;

const LIVE = ["accepted", "running", "waiting"];

/**
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} kind
 * @returns {T}
 */
function part(id, kind) {
  const element = document.getElementById(id);
  if (!(element instanceof kind)) throw new Error(`the page has no ${id}`);
  return element;
}

const page = {
  runs: part("runs", HTMLUListElement),
  runsEmpty: part("runs-empty", HTMLParagraphElement),
  newest: part("newest", HTMLButtonElement),
  audience: part("audience", HTMLFieldSetElement),
  token: part("token", HTMLFormElement),
  connection: part("connection", HTMLElement),
  gaps: part("gaps", HTMLElement),
  cursor: part("cursor", HTMLElement),
  frames: part("frames", HTMLOListElement),
  frameCount: part("frame-count", HTMLElement),
  title: part("story-title", HTMLElement),
  status: part("run-status", HTMLElement),
  story: part("story", HTMLElement),
};

/**
 * @param {string} name
 * @param {string} className
 * @param {string} [text]
 */
function element(name, className, text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

/* ── what is looked at ── */

const asked = new URLSearchParams(location.hash.slice(1));
let audience = ["user", "dashboard", "internal"].find((name) => name === asked.get("audience")) ?? "user";
let run = asked.get("run") ?? "";
/** @type {Feed | undefined} */
let feed;
let fold = new Fold();
const token = new Token();
let received = 0;
let gaps = 0;
/** @type {{ event: Record<string, any>, gap: import("./feed.js").Gap | null }[]} Frames that are not on the page yet. */
let waiting = [];

/**
 * Looks at a run, from its start.
 * @param {string} name
 */
function open(name) {
  feed?.close();
  run = name;
  history.replaceState(null, "", `#${new URLSearchParams({ run, audience })}`);
  page.title.textContent = run;
  forget();
  for (const button of page.runs.querySelectorAll("button")) mark(button);
  feed = new Feed(run, audience, token, {
    event: (event, gap) => {
      waiting.push({ event, gap });
      soon();
    },
    reset: forget,
    state: (state, why) => {
      page.connection.dataset.state = state;
      page.connection.textContent = why ? `${state}: ${why}` : state;
      soon();
    },
  });
}

function forget() {
  fold = new Fold();
  (received = 0), (gaps = 0), (waiting = []);
  page.frames.replaceChildren();
  page.story.replaceChildren();
  shown.clear();
  soon();
}

/* ── onto the page, once a frame of the screen ── */

let isDue = false;

function soon() {
  if (isDue) return;
  isDue = true;
  // A hidden page draws no frames, and must not pile them up meanwhile.
  if (document.hidden) setTimeout(draw, 250);
  else requestAnimationFrame(draw);
}

function draw() {
  isDue = false;
  const frames = waiting;
  waiting = [];
  following(page.frames, () => {
    received += frames.length;
    for (const { event, gap } of frames) {
      fold.take(event);
      if (gap) gaps += 1;
    }
    for (const { event, gap } of frames.slice(-FRAMES_MAX)) {
      if (gap) page.frames.append(gapRow(gap));
      page.frames.append(frameRow(event));
    }
    while (page.frames.childElementCount > FRAMES_MAX) page.frames.firstElementChild?.remove();
  });
  following(page.story, () => fold.takeChanged().forEach(drawItem));
  page.frameCount.textContent = String(received);
  page.gaps.textContent = gaps === 0 ? "none" : String(gaps);
  page.gaps.dataset.count = String(gaps);
  page.cursor.textContent = feed?.cursor || "–";
  page.status.textContent = fold.status;
  page.status.dataset.status = fold.status;
}

/**
 * Keeps a list at its end while things are added, if it was there.
 * @param {HTMLElement} list
 * @param {() => void} add
 */
function following(list, add) {
  const follows = list.scrollHeight - list.scrollTop - list.clientHeight < STICKY_PX;
  add();
  if (follows) list.scrollTop = list.scrollHeight;
}

/** @param {Record<string, any>} event */
function frameRow(event) {
  const row = element("li", "frame");
  const who = element("span", "who", String(event.audience));
  who.dataset.audience = String(event.audience);
  row.append(element("span", "sequence", String(event.sequence)), element("span", "type", String(event.type)), who, element("span", "words", caption(event)));
  return row;
}

/** @param {import("./feed.js").Gap} gap */
function gapRow(gap) {
  return element("li", "gap", `Something is missing: after ${gap.last} should have come ${gap.prev}.`);
}

/* ── items of the conversation ── */

/** @typedef {{ root: HTMLElement, update: (item: any) => void }} View */

/** @type {Record<import("./fold.js").Item["kind"], () => View>} */
const VIEWS = { speech: speechView, tool: toolView, action: actionView, note: noteView };

/** @type {Map<string, View>} */
const shown = new Map();

/** @param {string} key */
function drawItem(key) {
  const item = fold.items.get(key);
  const known = shown.get(key);
  if (!item) {
    known?.root.remove();
    shown.delete(key);
    return;
  }
  if (known) return known.update(item);
  const made = VIEWS[item.kind]();
  shown.set(key, made);
  page.story.append(made.root);
  made.update(item);
}

function speechView() {
  const root = element("article", "speech");
  const who = element("p", "who");
  const body = element("p", "body");
  const words = document.createTextNode("");
  body.append(words);
  root.append(who, body);
  let rewrites = 0;
  /** @param {import("./fold.js").Speech} speech */
  const update = (speech) => {
    root.dataset.channel = speech.channel;
    root.dataset.role = speech.role;
    root.dataset.status = speech.status;
    root.hidden = speech.text === "";
    who.textContent = [speech.agent || speech.role, speech.channel === "text" ? "" : speech.channel].filter(Boolean).join(" · ");
    // Appending to a text costs its chunk; setting it anew, all of it.
    if (rewrites === speech.rewrites && speech.text.length >= words.length) words.appendData(speech.text.slice(words.length));
    else words.data = speech.text;
    rewrites = speech.rewrites;
  };
  return { root, update };
}

function toolView() {
  const root = element("article", "tool");
  const head = element("div", "head");
  const name = element("span", "name");
  const status = element("span", "badge");
  const bar = document.createElement("progress");
  const message = element("p", "message");
  const details = document.createElement("details");
  const input = element("pre", "input");
  const output = element("pre", "output");
  head.append(name, status);
  bar.max = 1;
  details.append(element("summary", "", "Details"), input, output);
  root.append(head, bar, message, details);
  /** @param {import("./fold.js").Tool} tool */
  const update = (tool) => {
    const isWorking = ["started", "pending", "running"].includes(tool.status);
    root.dataset.status = tool.status;
    root.dataset.nested = String(tool.nested);
    name.textContent = tool.name;
    status.textContent = tool.status;
    status.dataset.status = tool.status;
    // Progress stays as last reported; a bar that stopped half-way would look as if it might still move.
    bar.hidden = !isWorking && tool.progress !== 1;
    if (tool.progress === null) bar.removeAttribute("value");
    else bar.value = tool.progress;
    bar.setAttribute("aria-label", `Progress of ${tool.name}`);
    message.textContent = tool.message;
    message.hidden = tool.message === "";
    input.textContent = tool.input;
    output.textContent = tool.output;
    input.hidden = tool.input === "";
    output.hidden = tool.output === "";
    details.hidden = input.hidden && output.hidden;
  };
  return { root, update };
}

function actionView() {
  const root = element("article", "action");
  const what = element("span", "name");
  const status = element("span", "badge");
  const message = element("p", "message");
  const head = element("div", "head");
  head.append(what, status);
  root.append(head, message);
  /** @param {import("./fold.js").Action} action */
  const update = (action) => {
    what.textContent = [action.what.replaceAll("_", " "), action.risk ? `${action.risk} risk` : ""].filter(Boolean).join(" · ");
    status.textContent = action.status;
    status.dataset.status = action.status;
    message.textContent = action.message;
  };
  return { root, update };
}

function noteView() {
  const root = element("p", "note");
  /** @param {import("./fold.js").Note} note */
  const update = (note) => void (root.textContent = note.text);
  return { root, update };
}

/* ── runs ── */

/** @type {Record<string, any>[]} */
let listed = [];

async function poll() {
  try {
    const answer = await token.fetch(`/v1/runs?${new URLSearchParams({ limit: String(RUNS_MAX), audience })}`);
    // Where nobody is asked, there is nothing to be said.
    page.token.hidden = answer.status !== 401 && !token.isGiven;
    if (answer.ok) drawRuns((await answer.json()).runs);
  } catch {
    // The server is away; the connection says so, and the next poll may find it.
  }
  setTimeout(poll, POLL_MS);
}

/** @param {Record<string, any>[]} runs */
function drawRuns(runs) {
  listed = runs;
  page.runsEmpty.hidden = runs.length > 0;
  const known = new Map([...page.runs.children].map((row) => [/** @type {HTMLElement} */ (row).dataset.run, row]));
  runs.forEach((described, at) => {
    const row = known.get(described.runId) ?? runRow(described.runId);
    known.delete(described.runId);
    const [status, events] = row.querySelectorAll("span.badge, span.count");
    status.textContent = described.status;
    /** @type {HTMLElement} */ (status).dataset.status = described.status;
    events.textContent = `${described.counts?.events ?? 0} events`;
    // Rows that stand right stay where they are: moving one would take the keyboard's focus away.
    if (page.runs.children[at] !== row) page.runs.insertBefore(row, page.runs.children[at] ?? null);
  });
  known.forEach((row) => row.remove());
  if (!run && runs.length > 0) open(newestLive());
}

/** @param {string} name */
function runRow(name) {
  const row = element("li", "");
  row.dataset.run = name;
  const button = /** @type {HTMLButtonElement} */ (element("button", "run"));
  button.type = "button";
  button.dataset.run = name;
  button.append(element("span", "name", name), element("span", "badge"), element("span", "count"));
  button.addEventListener("click", () => open(name));
  mark(button);
  row.append(button);
  return row;
}

/** @param {HTMLElement} button */
function mark(button) {
  if (button.dataset.run === run) button.setAttribute("aria-current", "true");
  else button.removeAttribute("aria-current");
}

function newestLive() {
  return (listed.find((described) => LIVE.includes(described.status)) ?? listed[0]).runId;
}

page.token.addEventListener("submit", (event) => {
  event.preventDefault();
  const given = new FormData(page.token).get("token");
  page.token.reset();
  token.give(typeof given === "string" ? given.trim() : "");
  if (run) open(run);
});

page.newest.addEventListener("click", () => listed.length > 0 && open(newestLive()));

for (const choice of page.audience.querySelectorAll("input")) {
  choice.checked = choice.value === audience;
  choice.addEventListener("change", () => {
    audience = choice.value;
    if (run) open(run);
  });
}

if (run) open(run);
poll();
