/**
 * The palette: finds sessions, runs, decisions, events and commands. Also the dialog that shows the keys.
 */

import { icon } from "./ui/icons.js";
import { html, nothing, render } from "./vendor/lit.js";
import { toText } from "./surfaces/base.js";

/** @typedef {import("./ui/icons.js").IconName} IconName */

/**
 * @typedef {object} Command
 * @property {string} group
 * @property {string} label
 * @property {string} [hint]
 * @property {string} [words] More words to find it by.
 * @property {IconName} icon
 * @property {() => void} run
 */

/**
 * @typedef {object} PaletteHost
 * @property {() => import("./session-list.js").Lists | undefined} lists
 * @property {import("./session-list.js").SessionList} list
 * @property {() => import("./pending.js").PendingItem[]} items
 * @property {() => import("./panels.js").Panels} panels
 * @property {() => string | undefined} runId The focused run.
 * @property {() => AsyncGenerator<import("./client/types.js").Envelope[]> | undefined} events The events of all runs of what is open, newest first.
 * @property {(to: Partial<import("./route.js").Route>) => void} navigate
 * @property {(target: import("./surfaces/base.js").Target) => void} open
 * @property {(view: import("./route.js").MainView) => void} showView
 * @property {(name: string) => void} showPanel
 * @property {() => void} create
 * @property {() => boolean} canRename
 * @property {() => void} rename Renames what is open.
 * @property {() => void} toggleRail
 * @property {() => void} showKeys
 * @property {() => void} openRecording
 */

/** The keys and what they do, for the help. @type {[string, [string, string][]][]} */
const KEY_MAP = [
  ["Go", [["⌘K, Ctrl K", "Find sessions, runs, events and actions"], ["g i", "Needs you"], ["g r", "Runs"], ["g t", "Trace"], ["g e", "Events"], ["j k", "Next, previous"], ["Enter", "Open"], ["Esc", "Close or back"], ["/", "Filter"], ["x", "Select a run"]]],
  ["Decide", [["y", "Focus Approve or the field; Enter confirms"], ["n", "Focus Reject; Enter confirms"], ["j k", "Next, previous decision of the conversation"], ["d", "Show the diff"]]],
  ["Write", [["c", "Message field; Esc leaves it"], ["⌘↵, Ctrl ↵", "Send in the chosen mode"], ["F2", "Rename the session"]]],
  ["Time", [[", .", "Step one event"], ["Space", "Play"], ["l", "Live"]]],
  ["Page", [["[ ]", "Hide the sessions, the panels"], ["← →", "Next button of a group, which has one stop of Tab"], ["?", "Show the keys"]]],
];

/** Entries of one group on display. */
const GROUP_MAX = 8;
/** The newest events that are searched. */
const EVENTS_MAX = 5000;
/** The delay between a key and the server's search, in milliseconds. */
const FIND_MS = 150;

/**
 * Creates a dialog that closes on Escape and on a click beside it, and leaves the page afterwards.
 * @param {string} className
 * @param {string} label
 */
function openDialog(className, label) {
  const dialog = document.createElement("dialog");
  dialog.className = className;
  dialog.setAttribute("aria-label", label);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Shows the keys. */
export function showKeys() {
  if (document.querySelector("dialog.keys")) return;
  const dialog = openDialog("keys", "Keyboard shortcuts");
  render(html`
    <div class="keys-head"><h2>Keyboard shortcuts</h2><button type="button" class="button icon-button" data-kind="quiet" aria-label="Close" @click=${() => dialog.close()}>${icon("close")}</button></div>
    <div class="keys-groups">${KEY_MAP.map(([name, keys]) => html`
      <section><h3 class="label">${name}</h3><dl>${keys.map(([key, meaning]) => html`<div><dt>${key.split(", ").length > 1 && key !== ", ." ? key.split(", ").map((one) => html`<kbd>${one}</kbd> `) : key.split(" ").map((one) => html`<kbd>${one}</kbd> `)}</dt><dd>${meaning}</dd></div>`)}</dl></section>`)}
    </div>
    <p class="hint"><a href="/docs/" target="_blank">Documentation</a></p>`, dialog);
  dialog.querySelector("button")?.focus();
}

/**
 * @param {PaletteHost} host
 * @param {import("./session-entry.js").Entry} entry
 * @returns {Command}
 */
const entryCommand = (host, entry) => ({
  group: entry.kind === "session" ? "Sessions" : "Runs", label: entry.title || entry.id, hint: entry.preview.slice(0, 80), words: entry.id, icon: entry.kind === "session" ? "document" : "play",
  run: () => host.navigate({ [entry.kind]: entry.id, full: undefined }),
});

/**
 * The decisions, sessions, runs and actions that the page knows.
 * @param {PaletteHost} host
 * @returns {Command[]}
 */
function knownCommands(host) {
  const { all = [], runs = [] } = host.lists() ?? {};
  const panels = host.panels();
  /** @type {(label: string, icon: IconName, run: () => void, hint?: string) => Command} */
  const action = (label, icon, run, hint) => ({ group: "Actions", label, icon, run, hint });
  const click = (/** @type {string} */ selector) => () => /** @type {HTMLElement | null} */ (document.querySelector(selector))?.click();
  return [
    ...host.items().map(({ entry, title }) => ({ group: "Needs you", label: title, hint: entry.title || entry.id, icon: /** @type {IconName} */ ("inbox"), run: () => host.navigate({ [entry.kind]: entry.id }) })),
    ...all.map((entry) => entryCommand(host, entry)),
    ...runs.filter(({ sessionId }) => sessionId).map((run) => ({ group: "Runs", label: run.title || run.runId, hint: run.status, words: run.runId, icon: /** @type {IconName} */ ("play"), run: () => host.navigate({ run: run.runId }) })),
    action("Needs you", "inbox", () => host.showView("inbox"), "g i"),
    action("Runs", "play", () => host.showView("runs"), "g r"),
    action("New session", "plus", host.create),
    ...(host.canRename() ? [action("Rename the session", "document", host.rename, "F2")] : []),
    ...(document.querySelector("#share:not([hidden])") ? [action("Share…", "link", click("#share"))] : []),
    ...[...document.querySelectorAll("[data-setting]")].map((button) => action(toText(button.textContent), "help", () => /** @type {HTMLElement} */ (button).click())),
    action("Open a recording…", "document", host.openRecording),
    ...panels.names.map(([name, label]) => action(label, "panel", () => host.showPanel(name), { trace: "g t", events: "g e" }[name])),
    action("Panel in full width", "expand", () => panels.setFull(!panels.isFull)),
    action("Compare audiences", "compare", click("#compare")),
    ...["user", "dashboard", "internal"].map((name) => action(`Audience: ${name}`, "filter", click(`#audience input[value="${name}"]`))),
    action("Theme", "theme", click("#theme")),
    action("Hide or show the sessions", "menu", host.toggleRail, "["),
    action("Hide or show the panels", "panel", () => panels.toggle(), "]"),
    action("Keyboard shortcuts", "help", host.showKeys, "?"),
    action("Documentation", "document", () => window.open("/docs/", "_blank", "noopener"), "/docs/"),
  ];
}

/** @param {PaletteHost} host */
export function showPalette(host) {
  const open = document.querySelector("dialog.palette");
  if (open instanceof HTMLDialogElement) return open.close();
  const dialog = openDialog("palette", "Find");
  const known = knownCommands(host);
  let words = "";
  let selected = 0;
  /** @type {Command[]} */
  let found = [];
  /** The events that are read, with the text that a search compares. @type {{ envelope: import("./client/types.js").Envelope, text: string }[]} */
  const events = [];
  /** @type {Command[]} */
  let shown = [];
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;

  const matches = (/** @type {Command} */ { label, hint = "", words: more = "" }) => {
    const text = `${label} ${hint} ${more}`.toLowerCase();
    return words.toLowerCase().split(/\s+/).every((word) => text.includes(word));
  };
  const nameOfRun = (/** @type {string} */ id) => host.lists()?.runs.find(({ runId }) => runId === id)?.title || id;
  /** @returns {Command[]} */
  const eventCommands = () => {
    /** @type {Command[]} */
    const commands = /^#?\d+$/.test(words) ? [{ group: "Events", label: `Event ${words.replace("#", "")}`, icon: "filter", run: () => host.open({ kind: "event", id: words.replace("#", "") }) }] : [];
    if (words.length < 2) return commands;
    const text = words.toLowerCase();
    const hits = events.filter((event) => event.text.includes(text)).slice(0, GROUP_MAX);
    return [...commands, ...hits.map(({ envelope }) => ({ group: "Events", label: toText(envelope.type), hint: `event ${envelope.sequence} of ${envelope.runId ? nameOfRun(envelope.runId) : "the session"}`, icon: /** @type {IconName} */ ("filter"), run: () => host.open({ kind: "event", id: `${envelope.runId ?? ""}:${envelope.sequence}` }) }))];
  };
  const choose = (/** @type {Command | undefined} */ command) => {
    if (!command) return;
    dialog.close();
    command.run();
  };
  const draw = () => {
    const labels = new Set(known.filter(({ group }) => group === "Sessions").map(({ words: id }) => id));
    const all = [...known.filter(matches), ...found.filter(({ words: id }) => !labels.has(id)), ...eventCommands()];
    const groups = [...new Set(all.map(({ group }) => group))].map((name) => /** @type {const} */ ([name, all.filter(({ group }) => group === name).slice(0, words ? GROUP_MAX : 5)]));
    shown = groups.flatMap(([, commands]) => commands);
    selected = Math.min(selected, Math.max(0, shown.length - 1));
    render(html`
      <label class="palette-field">${icon("search")}<input role="combobox" aria-expanded="true" aria-controls="palette-list" aria-activedescendant=${shown.length > 0 ? `palette-${selected}` : nothing} aria-label="Find sessions, runs, events, actions" placeholder="Find sessions, runs, events, actions" autocomplete="off" spellcheck="false" @input=${handleInput} @keydown=${handleKey}><kbd>Esc</kbd></label>
      <div class="palette-list" id="palette-list" role="listbox" aria-label="Results">
        ${groups.map(([name, commands]) => html`<div role="group" aria-label=${name}><p class="label" aria-hidden="true">${name}</p>${commands.map((command) => {
          const at = shown.indexOf(command);
          return html`<div class="palette-row" role="option" id=${`palette-${at}`} aria-selected=${at === selected} @click=${() => choose(command)} @pointermove=${() => {
            if (selected === at) return;
            selected = at;
            draw();
          }}>${icon(command.icon)}<span class="truncate">${command.label}</span><span class="hint truncate">${command.hint ?? ""}</span></div>`;
        })}</div>`)}
        ${shown.length === 0 ? html`<p class="hint palette-empty">Nothing matches “${words}”.</p>` : nothing}
      </div>`, dialog);
    dialog.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  };
  const handleInput = (/** @type {Event} */ { target }) => {
    words = /** @type {HTMLInputElement} */ (target).value.trim();
    selected = 0;
    found = [];
    draw();
    clearTimeout(timer);
    const wanted = words;
    if (wanted) timer = setTimeout(async () => {
      // Without an answer of the server, the palette has what the page knows.
      const answer = await host.list.find(wanted).then((entries) => entries.map((entry) => entryCommand(host, entry)), () => []);
      if (wanted !== words || !dialog.open) return;
      found = answer;
      draw();
    }, FIND_MS);
  };
  const handleKey = (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      selected = (selected + step + shown.length) % Math.max(1, shown.length);
      draw();
    } else if (event.key === "Enter") choose(shown[selected]);
    else return;
    event.preventDefault();
  };
  draw();
  dialog.querySelector("input")?.focus();
  const readEvents = async () => {
    for await (const page of host.events() ?? []) {
      if (!dialog.open) return;
      events.push(...page.map((envelope) => ({ envelope, text: JSON.stringify(envelope).toLowerCase() })));
      draw();
      if (events.length >= EVENTS_MAX) return;
    }
  };
  // Without an answer of the server, the palette finds everything else.
  readEvents().catch(() => {});
}
