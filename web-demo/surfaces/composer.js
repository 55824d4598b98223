/**
 * Where a person writes to a run. A new turn, a queued turn, a word into the running turn, and a stop are four different
 * things, and look different.
 *
 * A sent message stands in the outbox until the facts show it: the page never writes it into the conversation itself.
 */

import { Surface, badge, count, define, element, inspectButton, joined, keyOf, keyed, mark, say, words } from "./base.js";
import { POLL_MS, TAKEN_MS, controlButton, fates, isLost } from "./handed.js";
import { isLiveRun } from "./runtime-status.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {"send" | "queue" | "steer"} Mode */
/** @typedef {{ controlId: string, control: Mode, text: string, status: string, list: string, since: number, shown: number }} Sent `shown`: how often the facts had these words before. */

/** The longest message, in characters. A control's request may have 256 KiB. */
const TEXT_MAX = 60_000;
/** Bytes of all attachments of a message: in base64 they and the longest text fit into one request. */
const ATTACHED_BYTES_MAX = 96 * 1024;

/** @typedef {{ name: string, mediaType: string, bytes: number, data: string }} Attachment `data` is base64. */

/** What the three ways of saying something are. */
const MODES = /** @type {const} */ ({
  send: { label: "Send", sign: "↑", hint: "Starts a new turn as soon as the runtime accepts it." },
  queue: { label: "Queue", sign: "+", hint: "Waits until the current turn ends, then starts a new turn." },
  steer: { label: "Steer", sign: "↪", hint: "Goes into the running turn and changes its course." },
});

/** What became of a control, in words. @type {Record<string, string>} */
const STATUSES = {
  submitting: "sending", queued: "waiting for the runtime", claimed: "received by the runtime", acked: "accepted by the runtime", nacked: "refused by the runtime", expired: "expired: the runtime did not claim it",
};

/** Drafts, by what they are for. They are this tab's alone. @type {Map<string, string>} */
const drafts = new Map();

export class Composer extends Surface {
  /** @param {Activity} activity */
  static shows(activity) {
    return activity.activityType === "queue" || activity.activityType === "run" || (activity.activityType === "message" && activity.content.role === "user");
  }

  #queue = element("div", "queue stack");
  #queueHead = element("p", "row");
  #queueCount = element("span", "badge");
  #queueWhy = element("span", "hint");
  #queueItems = element("ol", "stack");
  #outbox = element("ul", "outbox stack");
  #form = element("form", "box");
  #text = element("textarea");
  #modes = element("fieldset", "modes row");
  #hint = element("p", "hint mode-hint");
  #files = element("ul", "row files");
  #attach = element("label", "button attach");
  /** What goes along with the next message. @type {Attachment[]} */
  #attached = [];
  #submit = element("button", "button submit");
  #told = element("p", "hint told");
  /** @type {HTMLButtonElement | undefined} */
  #interrupt;
  /** @type {Mode} */
  #mode = "send";
  /** What the viewer chose; nothing, while what fits is chosen for them. @type {Mode | undefined} */
  #chosen;
  /** @type {Sent[]} */
  #sent = [];
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #polling;

  build() {
    this.#sent = [];
    clearTimeout(this.#polling);
    this.setAttribute("role", "region");
    this.setAttribute("aria-label", "Composer");
    this.#buildQueue();
    this.#buildForm();
    this.replaceChildren(this.#queue, this.#outbox, this.#form);
    this.#outbox.setAttribute("aria-label", "Sent, not yet part of the run");
  }

  disconnectedCallback() {
    clearTimeout(this.#polling);
  }

  get #place() {
    return `${this.view.sessionId ?? ""} ${this.view.runId ?? ""}`;
  }

  #buildQueue() {
    this.#queueHead.replaceChildren(this.#queueCount, this.#queueWhy, inspectButton(() => this.view, () => this.#queueOf()));
    this.#queue.replaceChildren(this.#queueHead, this.#queueItems);
    this.#queueItems.setAttribute("aria-label", "Queued turns");
  }

  #buildForm() {
    const label = element("label", "visually-hidden", "Message");
    this.#text.id = "composer-text";
    label.htmlFor = this.#text.id;
    this.#text.rows = 2;
    this.#text.maxLength = TEXT_MAX;
    this.#text.value = drafts.get(this.#place) ?? "";
    this.#text.oninput = () => drafts.set(this.#place, this.#text.value);
    this.#text.onkeydown = (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#say();
    };
    this.#modes.replaceChildren(element("legend", "visually-hidden", "Mode"), ...Object.keys(MODES).map((mode) => this.#radio(/** @type {Mode} */ (mode))));
    this.#submit.type = "submit";
    this.#submit.dataset.kind = "primary";
    this.#interrupt = controlButton("Interrupt", () => this.view, () => ({ control: "interrupt", run: this.view.runId }), { kind: "danger", told: this.#told });
    this.#interrupt.classList.add("interrupt");
    this.#interrupt.title = "Asks the runtime to stop what is running";
    this.#told.setAttribute("role", "status");
    this.#form.onsubmit = (event) => {
      event.preventDefault();
      this.#say();
    };
    const foot = element("div", "foot");
    const ends = element("div", "row");
    ends.append(this.#attachment(), this.#interrupt, this.#submit);
    foot.append(this.#modes, ends);
    this.#form.replaceChildren(label, this.#text, this.#files, foot, this.#hint, this.#told);
  }

  #attachment() {
    const pick = element("input", "visually-hidden");
    pick.type = "file";
    pick.multiple = true;
    pick.onchange = () => {
      void this.#add([...(pick.files ?? [])]);
      pick.value = "";
    };
    this.#attach.title = `Attach files, at most ${ATTACHED_BYTES_MAX / 1024} KiB together`;
    this.#attach.dataset.kind = "quiet";
    this.#attach.replaceChildren(pick, element("span", "", "File"));
    this.#files.setAttribute("aria-label", "Attached files");
    this.#attached = [];
    this.#drawFiles();
    return this.#attach;
  }

  /** @param {File[]} files */
  async #add(files) {
    const taken = this.#attached.reduce((sum, { bytes }) => sum + bytes, 0);
    const size = files.reduce((sum, file) => sum + file.size, taken);
    if (size > ATTACHED_BYTES_MAX) return this.#fail(`The attachments have ${count(size)} bytes; at most ${count(ATTACHED_BYTES_MAX)} fit into a message. Nothing was attached.`);
    try {
      const added = await Promise.all(files.map(attachmentOf));
      this.#attached = [...this.#attached, ...added];
      say(this.#told, "");
    } catch (why) {
      this.#fail(`A file could not be read: ${why instanceof Error ? why.message : why}`);
    }
    this.#drawFiles();
  }

  /** @param {string} text */
  #fail(text) {
    this.#told.dataset.state = "failed";
    say(this.#told, text);
  }

  #drawFiles() {
    this.#files.hidden = this.#attached.length === 0;
    this.#files.replaceChildren(...this.#attached.map((one) => {
      const row = element("li", "chip");
      const remove = element("button", "inspect", "×");
      remove.type = "button";
      remove.setAttribute("aria-label", `Remove ${one.name}`);
      remove.onclick = () => {
        this.#attached = this.#attached.filter((other) => other !== one);
        this.#drawFiles();
      };
      row.append(element("span", "", `${one.name} · ${count(one.bytes)} bytes`), remove);
      return row;
    }));
  }

  /** @param {Mode} mode */
  #radio(mode) {
    const { label, sign, hint } = MODES[mode];
    const root = element("label", "mode");
    root.dataset.mode = mode;
    root.title = hint;
    const control = element("input", "visually-hidden");
    control.type = "radio";
    control.name = "mode";
    control.value = mode;
    control.onchange = () => {
      this.#chosen = mode;
      this.#drawMode();
    };
    const drawn = element("span", "sign", sign);
    drawn.setAttribute("aria-hidden", "true");
    root.append(control, drawn, element("span", "", label));
    return root;
  }

  get #isRunning() {
    const own = new Set(this.view.runs);
    return this.view.store.sorted(({ activityType, runId }) => activityType === "run" && own.has(runId)).some(isLiveRun);
  }

  #queueOf() {
    return this.view.store.sorted(({ activityType }) => activityType === "queue").at(-1);
  }

  update() {
    this.#drawQueue();
    this.#settle();
    this.#drawOutbox();
    this.#drawMode();
  }

  #drawMode() {
    const { isLive, runId, sessionId } = this.view;
    const isRunning = this.#isRunning;
    if (!isRunning && this.#chosen !== "send") this.#chosen = undefined;
    this.#mode = this.#chosen ?? (isRunning ? "queue" : "send");
    for (const control of this.#modes.querySelectorAll("input")) {
      control.checked = control.value === this.#mode;
      control.disabled = !isLive || (control.value === "steer" && !isRunning);
    }
    const mode = MODES[this.#mode];
    const isPossible = isLive && (runId !== undefined || sessionId !== undefined);
    this.dataset.mode = this.#mode;
    this.#submit.dataset.control = this.#mode;
    this.#submit.disabled = !isPossible;
    say(this.#submit, `${mode.sign} ${mode.label}`);
    this.#text.disabled = !isPossible;
    /** @type {HTMLInputElement} */ (this.#attach.firstElementChild).disabled = !isPossible;
    this.#text.placeholder = isLive ? (isRunning ? (this.#mode === "steer" ? "Change the course of the running turn …" : "What comes next …") : "Message the agent …") : "A past state is shown. Return to now to send a message.";
    say(this.#hint, isPossible ? mode.hint : "");
    const interrupt = /** @type {HTMLButtonElement} */ (this.#interrupt);
    interrupt.hidden = !isRunning || !isLive;
  }

  #drawQueue() {
    const queue = this.#queueOf();
    const content = queue?.content ?? {};
    const waiting = content.queuedTurnCount;
    /** @type {any[]} */
    const items = Array.isArray(content.items) ? content.items : [];
    this.#queue.hidden = queue === undefined || (waiting === 0 && items.length === 0);
    if (this.#queue.hidden || !queue) return;
    this.#queue.dataset.key = keyOf(queue);
    mark(this.#queueCount, "queued", `${typeof waiting === "number" ? count(waiting) : "unknown number"} queued`);
    say(this.#queueWhy, [
      words(content.queueReason),
      content.retryableOverload === true ? "the provider is overloaded; the runtime tries again" : "",
      content.providerParallelBudget === undefined ? "" : `at most ${words(content.providerParallelBudget)} at once${content.providerConcurrencyGroup === undefined ? "" : ` in ${words(content.providerConcurrencyGroup)}`}`,
    ].filter(Boolean).join(" · "));
    keyed(this.#queueItems, items.map((item, at) => ({ id: words(item?.turnId) || String(at), text: itemText(item) })), ({ id }) => id, () => element("li", "queued"), (row, { text }) => say(row, text));
  }

  /* ── handing over ── */

  async #say() {
    const text = this.#text.value.trim();
    const mode = this.#mode;
    if ((text === "" && this.#attached.length === 0) || this.#submit.disabled) return;
    const attachments = this.#attached;
    const { runId, sessionId } = this.view;
    // A word into what runs is the run's; a turn is the session's, where there is one.
    const isOfRun = mode === "steer" || sessionId === undefined;
    /** @type {Sent} */
    const sent = { controlId: "", control: mode, text, status: "submitting", list: "", since: this.view.now(), shown: this.#shown(text) };
    this.#sent.push(sent);
    this.#text.value = "";
    this.#attached = [];
    this.#drawFiles();
    drafts.delete(this.#place);
    say(this.#told, "");
    this.#drawOutbox();
    try {
      const agentId = isOfRun ? undefined : this.#agent;
      const { controlId, list } = await this.view.act({ control: mode, ...(isOfRun ? { run: runId } : { session: sessionId }), ...(agentId ? { agentId } : {}), value: { text, ...(attachments.length > 0 ? { attachments } : {}) } });
      Object.assign(sent, { controlId, list, status: "queued" });
      this.#later();
    } catch (why) {
      if (this.#sent.includes(sent)) this.#sent.splice(this.#sent.indexOf(sent), 1);
      // What could not be handed over is the draft again, unless another was begun.
      if (this.#text.value === "") this.#text.value = text;
      if (this.#attached.length === 0) this.#attached = attachments;
      this.#drawFiles();
      this.#fail(`Not sent: ${why instanceof Error ? why.message : why}`);
    }
    this.#drawOutbox();
  }

  /** Who is spoken to: whoever the newest run is of. */
  get #agent() {
    const own = new Set(this.view.runs);
    const run = this.view.store.sorted(({ activityType, runId }) => activityType === "run" && own.has(runId)).findLast(({ content }) => content.agentId !== undefined);
    return run && words(run.content.agentId);
  }

  #later() {
    clearTimeout(this.#polling);
    if (this.#sent.some(isOpen)) this.#polling = setTimeout(() => this.#poll(), POLL_MS);
  }

  async #poll() {
    const mine = this.#sent;
    for (const list of new Set(mine.filter(isOpen).map((one) => one.list))) {
      try {
        const told = await fates(this.view, list);
        for (const sent of mine) {
          const status = told.get(sent.controlId)?.status;
          if (status === undefined || status === sent.status) continue;
          sent.status = status;
          if (status === "acked") sent.since = this.view.now();
        }
      } catch {
        // The server is away; the connection bar says so. What is not known stays as it was last told.
      }
    }
    if (mine !== this.#sent) return;
    this.#settle();
    this.#drawOutbox();
    this.#later();
  }

  /** Drops what the facts show by now, and what was taken a while ago. */
  #settle() {
    const now = this.view.now();
    const isShown = (/** @type {Sent} */ sent) => sent.status !== "submitting" && sent.status !== "nacked" && this.#shown(sent.text) > sent.shown;
    const left = this.#sent.filter((sent) => !isShown(sent) && !(sent.status === "acked" && now - sent.since > TAKEN_MS));
    if (left.length !== this.#sent.length) this.#sent.splice(0, this.#sent.length, ...left);
  }

  /**
   * How many of the user's messages say just this.
   * @param {string} text
   */
  #shown(text) {
    const isSame = (/** @type {any} */ part) => joined(part.text).trim() === text;
    return this.view.store.sorted(({ activityType, content }) => activityType === "message" && content.role === "user" && content.parts.some(isSame)).length;
  }

  /** What was sent, but for what the queue lists already: a message stands once. */
  #unqueued() {
    const listed = this.#queueTexts();
    return this.#sent.filter(({ control, status, text }) => {
      const at = control === "steer" || isLost(status) ? -1 : listed.indexOf(text);
      if (at >= 0) listed.splice(at, 1);
      return at < 0;
    });
  }

  /** The texts of the turns that the queue lists. @returns {string[]} */
  #queueTexts() {
    const items = this.#queueOf()?.content.items;
    return Array.isArray(items) ? items.map((item) => itemText(item).trim()) : [];
  }

  #drawOutbox() {
    const shown = this.#unqueued();
    this.#outbox.hidden = shown.length === 0;
    keyed(this.#outbox, shown, (sent) => `${sent.since} ${sent.text}`, (sent) => this.#outRow(sent), (row, sent) => {
      row.dataset.status = sent.status;
      mark(/** @type {HTMLElement} */ (row.querySelector(".badge")), sent.status === "submitting" ? "pending" : sent.status === "acked" ? "accepted" : sent.status === "nacked" ? "rejected" : sent.status, STATUSES[sent.status] ?? words(sent.status));
      /** @type {HTMLElement} */ (row.querySelector("button")).hidden = !isLost(sent.status);
    });
  }

  /** @param {Sent} sent */
  #outRow(sent) {
    const row = element("li", "sent");
    row.dataset.mode = sent.control;
    const again = element("button", "button", "Edit again");
    again.type = "button";
    again.dataset.kind = "quiet";
    again.onclick = () => {
      this.#sent.splice(this.#sent.indexOf(sent), 1);
      this.#text.value = sent.text;
      this.#drawOutbox();
      this.#text.focus();
    };
    const line = element("div", "row");
    line.append(element("span", "label", MODES[sent.control].label), badge("pending"), again);
    row.append(line, element("p", "text", sent.text));
    return row;
  }
}

define("ps-composer", Composer);

/**
 * @param {File} file
 * @returns {Promise<Attachment>}
 */
function attachmentOf(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve({ name: file.name, mediaType: file.type || "application/octet-stream", bytes: file.size, data: String(reader.result).split(",")[1] ?? "" });
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

/** @param {any} item */
const itemText = (item) => words(item?.text ?? item?.value?.text ?? item?.title ?? item);

/** @param {Sent} sent */
const isOpen = (sent) => sent.status === "queued" || sent.status === "claimed" || sent.status === "acked";
