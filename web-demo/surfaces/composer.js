/**
 * The composer: sends a message, queues a turn, or steers the running turn. The button repeats the mode, and a sentence
 * says when the agent reads the message.
 *
 * A sent message stays in the outbox until facts show it: the page never adds it to the conversation itself.
 */

import { Surface, formatCount, define, element, inspectButton, joinText, keyOf, setText, toText } from "./base.js";
import { controlsOf } from "../client/controls.js";
import { POLL_MS, POLL_MAX_MS, ACCEPTED_SHOWN_MS, readControls, hasFailed } from "./submitted-controls.js";
import { isLiveRun } from "./live-run.js";
import { Problem } from "../client/http.js";
import { formatBytes } from "../ui/format.js";
import { glyph, statusLabel } from "../ui/glyphs.js";
import { icon } from "../ui/icons.js";
import { t } from "../ui/texts.js";
import { SEND_KEYS } from "../ui/keys.js";
import { html, nothing, render } from "../vendor/lit.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {"send" | "queue" | "steer"} Mode */
/** @typedef {{ controlId: string, control: Mode, text: string, status: string, list: string, agent: string, since: number, shown: number }} SentMessage `shown`: how many messages with this text the store had before. */

/** The maximum length of a message, in characters. The request of a control may have 256 KiB. */
const TEXT_MAX = 60_000;
/** The maximum size of one file, and of the files that an agent gets at once, in bytes. */
const FILE_BYTES_MAX = 10 * 1024 * 1024;
const FILES_BYTES_MAX = 64 * 1024 * 1024;

/** The agent that takes the messages that name none. */
const DEFAULT_AGENT = "default";

/** The modes of a message: the label, and when the agent reads it. */
const MODES = /** @type {const} */ ({
  send: { label: "Send", hint: "Starts a new turn." },
  queue: { label: "Queue", hint: "The agent reads it after this turn." },
  steer: { label: "Steer", hint: "The agent reads it before its next step." },
});
/** When the agent reads a message while it waits for a decision. @type {Partial<Record<Mode, import("../ui/texts.js").Text>>} */
const WAITING_HINTS = {
  send: "Replaces the pending decision: the agent no longer waits for it.",
  queue: "The agent reads it after your decision.",
};
const MODE_NAMES = /** @type {Mode[]} */ (Object.keys(MODES));

/** Texts of control statuses. @type {Record<string, string>} */
const STATUS_TEXTS = {
  submitting: "sending", queued: "waiting for the runtime", claimed: "received by the runtime", acked: "accepted by the runtime", nacked: "rejected by the runtime", expired: "expired: the runtime did not claim it",
};

/** What a person prepared, by session or run: it outlives the elements. @type {Map<string, { text: string, files: File[], mode: Mode | undefined }>} */
const drafts = new Map();

export class Composer extends Surface {
  /** @param {Activity} activity */
  static shows(activity) {
    return activity.activityType === "action" || activity.activityType === "queue" || activity.activityType === "run" || (activity.activityType === "message" && activity.content.role === "user");
  }

  #above = element("div", "above");
  #box = element("form", "box");
  #text = element("textarea");
  #pick = element("input", "visually-hidden");
  #feedback = element("p", "told");
  #inspect = inspectButton(() => this.view, () => this.#queueActivity());
  /** The files of the next message. They are sent with it. @type {File[]} */
  #files = [];
  /** @type {Mode} */
  #mode = "send";
  /** The mode that the viewer chose; `undefined` for the default. @type {Mode | undefined} */
  #chosenMode;
  /** The agents that a new session can address. The server's list is read once for each session. @type {string[]} */
  #agents = [];
  /** @type {string | undefined} */
  #chosenAgent;
  /** Whether the server refused a message because of a question that this page does not show. */
  #isAskedUnseen = false;
  /** @type {SentMessage[]} */
  #sentMessages = [];
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #pollTimer;
  #pollDelayMs = POLL_MS;
  /** The agents that are connected; `undefined` while unknown. @type {Set<string> | undefined} */
  #present;

  build() {
    const draft = drafts.get(this.#draftKey);
    this.#sentMessages = [];
    this.#files = draft?.files ?? [];
    this.#chosenMode = draft?.mode;
    this.#text.value = draft?.text ?? "";
    this.#agents = [];
    this.#chosenAgent = undefined;
    this.#present = undefined;
    this.#isAskedUnseen = false;
    clearTimeout(this.#pollTimer);
    void this.#readAgents();
    void this.#readWaiting();
    this.setAttribute("role", "region");
    this.setAttribute("aria-label", "Composer");
    this.#buildForm();
    this.append(this.#above, this.#box);
  }

  disconnectedCallback() {
    clearTimeout(this.#pollTimer);
  }

  get #draftKey() {
    const { sessionId, runId } = this.view;
    return sessionId === undefined ? `run ${runId}` : `session ${sessionId}`;
  }

  #keepDraft() {
    drafts.set(this.#draftKey, { text: this.#text.value, files: this.#files, mode: this.#chosenMode });
  }

  #buildForm() {
    this.#text.id = "composer-text";
    this.#text.rows = 1;
    this.#text.maxLength = TEXT_MAX;
    this.#text.dir = "auto";
    this.#text.oninput = () => this.#keepDraft();
    this.#text.onkeydown = (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#sendMessage();
    };
    this.#pick.type = "file";
    this.#pick.multiple = true;
    this.#pick.setAttribute("aria-label", "Attach files");
    this.#pick.onchange = () => {
      this.#attachFiles([...(this.#pick.files ?? [])]);
      this.#pick.value = "";
    };
    this.#text.onpaste = (event) => this.#takeFiles(event, event.clipboardData);
    this.#box.ondragover = (event) => this.#canAttach && event.dataTransfer?.types.includes("Files") && event.preventDefault();
    this.#box.ondrop = (event) => this.#takeFiles(event, event.dataTransfer);
    this.#feedback.setAttribute("role", "status");
    setText(this.#feedback, "");
    this.#box.onsubmit = (event) => {
      event.preventDefault();
      this.#sendMessage();
    };
  }

  get #canAttach() {
    return this.#isPossible && this.view.attach !== undefined;
  }

  /**
   * Attaches what was pasted or dropped, if these are files.
   * @param {Event} event
   * @param {DataTransfer | null} data
   */
  #takeFiles(event, data) {
    const files = [...(data?.files ?? [])];
    if (files.length === 0 || !this.#canAttach) return;
    event.preventDefault();
    this.#attachFiles(files);
  }

  /** @param {File[]} files */
  #attachFiles(files) {
    const large = files.find(({ size }) => size === 0 || size > FILE_BYTES_MAX);
    const size = [...this.#files, ...files].reduce((sum, file) => sum + file.size, 0);
    if (large) return this.#showError(large.size === 0 ? `${large.name} is empty. Nothing was attached.` : `${large.name} has ${formatCount(large.size)} bytes. A file can have ${formatCount(FILE_BYTES_MAX)}. Nothing was attached.`);
    if (size > FILES_BYTES_MAX) return this.#showError(`The files have ${formatCount(size)} bytes. A message can have ${formatCount(FILES_BYTES_MAX)}. Nothing was attached.`);
    this.#files = [...this.#files, ...files];
    this.#keepDraft();
    setText(this.#feedback, "");
    this.#drawBox();
  }

  /** @param {string} text */
  #showError(text) {
    this.#feedback.dataset.state = "failed";
    setText(this.#feedback, text);
  }

  get #isRunning() {
    const own = new Set(this.view.runs);
    return this.view.store.sorted(({ activityType, runId }) => activityType === "run" && own.has(runId)).some(isLiveRun);
  }

  /** Whether the agent waits for a decision that is still open. */
  get #isAsking() {
    if (this.#isAskedUnseen) return true;
    const own = new Set(this.view.runs);
    return this.view.store.sorted(({ activityType, runId, content }) => activityType === "action" && own.has(runId) && content.status === "pending" && content.control === undefined).length > 0;
  }

  #queueActivity() {
    return this.view.store.sorted(({ activityType }) => activityType === "queue").at(-1);
  }

  update() {
    this.#pruneOutbox();
    this.#drawAbove();
    this.#drawBox();
  }

  /** Reads the agents that wait for messages, for a session without a run: nothing else says who answers there. */
  async #readAgents() {
    const { view } = this;
    if (view.sessionId === undefined || this.#agentOfRuns) return;
    try {
      const { agents } = /** @type {{ agents: Record<string, { present: boolean }> }} */ (await view.read("/copilotkit/info"));
      if (view !== this.view) return;
      this.#agents = Object.entries(agents).filter(([, { present }]) => present).map(([name]) => name);
      this.#drawBox();
      // An agent may start after the server.
      if (this.#agents.length === 0 && Object.keys(agents).length > 0) setTimeout(() => view === this.view && this.isConnected && this.#readAgents(), POLL_MS);
    } catch {
      // Without the list the message goes to the default agent.
    }
  }

  get #isPossible() {
    const { isLive, runId, sessionId } = this.view;
    return isLive && (runId !== undefined || sessionId !== undefined);
  }

  #drawBox() {
    const { isLive } = this.view;
    const isRunning = this.#isRunning;
    const isPossible = this.#isPossible;
    const isAsking = this.#isAsking;
    if (!isRunning && !isAsking && this.#chosenMode !== "send") this.#chosenMode = undefined;
    this.#mode = this.#chosenMode ?? (isRunning || isAsking ? "queue" : "send");
    const { label } = MODES[this.#mode];
    const hint = t((isAsking && WAITING_HINTS[this.#mode]) || MODES[this.#mode].hint);
    this.dataset.mode = this.#mode;
    this.#text.disabled = !isPossible;
    this.#pick.disabled = !this.#canAttach;
    const agent = this.#agent;
    const choices = this.#agentOfRuns ? [] : this.#agents;
    this.#text.placeholder = isLive ? t("Message {name}…", { name: choices.length > 0 ? agent : t("the agent") }) : t("You are viewing a past state. Go back to live to send a message.");
    render(html`<label class="visually-hidden" for="composer-text">${t("Message")}</label>${this.#text}
      ${this.#files.length === 0 ? nothing : html`<ul class="files" aria-label=${t("Attached files")}>${this.#files.map((file) => this.#fileTemplate(file))}</ul>`}
      <div class="foot">
        <label class="button small icon-button attach" data-kind="quiet" title=${this.#canAttach ? t("Attach files, at most {size} MiB each", { size: FILE_BYTES_MAX / 1024 ** 2 }) : t("Only a session has files")}>${this.#pick}${icon("attach")}</label>
        ${choices.length < 2 ? nothing : html`<select class="button small" aria-label="Agent" @change=${(/** @type {Event} */ event) => {
          this.#chosenAgent = /** @type {HTMLSelectElement} */ (event.target).value;
          this.#drawBox();
        }}>${choices.map((name) => html`<option value=${name} .selected=${name === agent}>${name}</option>`)}</select>`}
        <fieldset class="segments modes"><legend class="visually-hidden">${t("Mode")}</legend>${MODE_NAMES.map((mode) => this.#modeRadio(mode, isPossible && (mode !== "steer" || isRunning)))}</fieldset>
        <span class="mode-hint">${isPossible ? hint : ""}</span>
        <button type="submit" class="button submit" data-kind="primary" data-control=${this.#mode} ?disabled=${!isPossible}>${t(label)}<kbd aria-hidden="true">${SEND_KEYS}</kbd></button>
      </div>${this.#feedback}`, this.#box);
  }

  /**
   * @param {Mode} mode
   * @param {boolean} isPossible
   */
  #modeRadio(mode, isPossible) {
    const choose = () => {
      this.#chosenMode = mode;
      this.#keepDraft();
      this.#drawBox();
    };
    return html`<label data-mode=${mode} title=${t(MODES[mode].hint)}><input type="radio" name="mode" value=${mode} .checked=${mode === this.#mode} ?disabled=${!isPossible} @change=${choose}><span>${t(MODES[mode].label)}</span></label>`;
  }

  /** @param {File} file */
  #fileTemplate(file) {
    const remove = () => {
      this.#files = this.#files.filter((other) => other !== file);
      this.#keepDraft();
      this.#drawBox();
    };
    return html`<li>${icon("document")}<span>${file.name} · ${formatBytes(file.size)}</span>
      <button type="button" class="button small icon-button" data-kind="quiet" aria-label=${`Remove ${file.name}`} @click=${remove}>${icon("close")}</button></li>`;
  }

  /** Draws what waits above the field: queued turns, and sent messages that are not yet in the run. */
  #drawAbove() {
    const sent = this.#visibleMessages();
    render(html`${this.#queueTemplate()}${sent.length === 0 ? nothing : html`<ul class="outbox" aria-label="Sent messages, not yet in the run">${sent.map((message) => this.#sentTemplate(message))}</ul>`}`, this.#above);
  }

  #queueTemplate() {
    const queue = this.#queueActivity();
    const content = queue?.content ?? {};
    const waiting = content.queuedTurnCount;
    /** @type {any[]} */
    const items = Array.isArray(content.items) ? content.items : [];
    if (!queue || (waiting === 0 && items.length === 0)) return nothing;
    const why = [
      toText(content.queueReason),
      content.retryableOverload === true ? "the provider is overloaded; the runtime will retry" : "",
      content.providerParallelBudget === undefined ? "" : `at most ${toText(content.providerParallelBudget)} at once${content.providerConcurrencyGroup === undefined ? "" : ` in ${toText(content.providerConcurrencyGroup)}`}`,
    ].filter(Boolean).join(" · ");
    return html`<div class="queue" data-key=${keyOf(queue)}><p class="queue-head">${glyph("idle")}<span class="badge">${typeof waiting === "number" ? formatCount(waiting) : "unknown number"} queued</span><span class="hint">${why}</span>${this.#inspect}</p>
      ${items.length === 0 ? nothing : html`<ol aria-label=${t("Queued turns")}>${items.map((item) => html`<li class="queued" dir="auto">${itemText(item)}</li>`)}</ol>`}</div>`;
  }

  /** @param {SentMessage} message */
  #sentTemplate(message) {
    const edit = () => {
      this.#sentMessages.splice(this.#sentMessages.indexOf(message), 1);
      this.#text.value = message.text;
      this.#keepDraft();
      this.#drawAbove();
      this.#text.focus();
    };
    const failed = hasFailed(message.status);
    const isUnheard = message.status === "queued" && this.#present?.has(message.agent) === false;
    const cancel = async () => {
      try {
        await this.view.withdraw(message.controlId);
        this.#sentMessages.splice(this.#sentMessages.indexOf(message), 1);
      } catch (error) {
        this.#showError(`Not withdrawn: ${error instanceof Error ? error.message : error}`);
      }
      this.#drawAbove();
    };
    return html`<li class="sent" data-mode=${message.control} data-status=${message.status}>
      <span class="badge">${statusLabel(failed ? "failed" : message.status === "acked" ? "completed" : "running", `${t(MODES[message.control].label)}: ${STATUS_TEXTS[message.status] ?? toText(message.status)}`)}</span>
      <span class="text" dir="auto">${message.text}</span>
      ${message.status === "queued" && message.controlId ? html`<button type="button" class="button small" data-kind="quiet" @click=${() => void cancel()}>${t("Withdraw")}</button>` : nothing}
      ${isUnheard ? html`<p class="hint unheard">No agent is connected. The message waits for ${message.agent}. To connect one: <code>proscenium serve --connect '${message.agent}=ag-ui:http://127.0.0.1:8000/agent'</code></p>` : nothing}
      ${failed ? html`<button type="button" class="button" data-kind="quiet" @click=${edit}>${t("Edit")}</button>` : nothing}</li>`;
  }

  /* ── sending ── */

  async #sendMessage() {
    const text = this.#text.value.trim();
    const mode = this.#mode;
    if ((text === "" && this.#files.length === 0) || !this.#isPossible) return;
    const files = this.#files;
    const { runId, sessionId } = this.view;
    // A steering message targets the run. A turn targets the session if one is open.
    const isOfRun = mode === "steer" || sessionId === undefined;
    /** @type {SentMessage} */
    const message = { controlId: "", control: mode, text, status: "submitting", list: "", agent: this.#agent ?? DEFAULT_AGENT, since: this.view.now(), shown: this.#countShown(text) };
    this.#sentMessages.push(message);
    this.#text.value = "";
    this.#files = [];
    this.#drawBox();
    drafts.delete(this.#draftKey);
    setText(this.#feedback, "");
    this.#drawAbove();
    try {
      const attach = this.view.attach;
      const attachments = attach === undefined ? [] : await Promise.all(files.map((file) => attach(file)));
      const agentId = isOfRun ? undefined : this.#agent;
      // The hint of the mode said that it replaces the decision.
      const supersede = mode === "send" && this.#isAsking ? { supersede: true } : {};
      const { controlId, list } = await this.view.act({ control: mode, ...supersede, ...(isOfRun ? { run: runId } : { session: sessionId }), ...(agentId ? { agentId } : {}), value: { text, ...(attachments.length > 0 ? { attachments } : {}) } });
      this.#isAskedUnseen = false;
      Object.assign(message, { controlId, list, status: "queued" });
      this.#pollDelayMs = POLL_MS;
      this.#schedulePoll();
    } catch (error) {
      if (this.#sentMessages.includes(message)) this.#sentMessages.splice(this.#sentMessages.indexOf(message), 1);
      // An unsent message becomes the draft again unless a new one was begun.
      if (this.#text.value === "") this.#text.value = text;
      if (this.#files.length === 0) this.#files = files;
      this.#keepDraft();
      // From now on the modes say what a message does to the question.
      this.#isAskedUnseen ||= error instanceof Problem && error.code === "would_supersede";
      this.#drawBox();
      this.#showError(t("Not sent: {reason}", { reason: error instanceof Error ? error.message : error }));
    }
    this.#drawAbove();
  }

  /** The agent that gets the message; `undefined` for the server's default. */
  get #agent() {
    return this.#agentOfRuns ?? this.#chosenAgent ?? (this.#agents.includes(DEFAULT_AGENT) ? DEFAULT_AGENT : this.#agents[0]);
  }

  /** The agent of the newest run. */
  get #agentOfRuns() {
    const own = new Set(this.view.runs);
    const run = this.view.store.sorted(({ activityType, runId }) => activityType === "run" && own.has(runId)).findLast(({ content }) => content.agentId !== undefined);
    return run && toText(run.content.agentId);
  }

  #schedulePoll() {
    clearTimeout(this.#pollTimer);
    if (this.#sentMessages.some(isPending)) this.#pollTimer = setTimeout(() => this.#poll(), this.#pollDelayMs);
  }

  /** Reads the messages that wait at the server, such as those of before a reload. */
  async #readWaiting() {
    const { view } = this;
    const { sessionId, runId, isLive } = view;
    const target = sessionId === undefined ? { run: runId } : { session: sessionId };
    if (!isLive || (sessionId ?? runId) === undefined) return;
    const list = controlsOf(target);
    try {
      const controls = await readControls(view, list);
      if (view !== this.view) return;
      for (const { controlId, control, status, text: given, agentId } of controls) {
        if (!MODE_NAMES.includes(control) || (status !== "queued" && status !== "claimed") || this.#sentMessages.some((one) => one.controlId === controlId)) continue;
        const text = toText(given);
        this.#sentMessages.push({ controlId, control, text, status, list, agent: toText(agentId) || (this.#agentOfRuns ?? DEFAULT_AGENT), since: view.now(), shown: this.#countShown(text) });
      }
    } catch {
      // A session without facts has no list.
    }
    if (this.#sentMessages.length === 0) return;
    await this.#readPresent();
    this.#drawAbove();
    this.#schedulePoll();
  }

  /** Reads which agents are connected. */
  async #readPresent() {
    try {
      const { agents } = /** @type {{ agents: Record<string, { present: boolean }> }} */ (await this.view.read("/copilotkit/info"));
      this.#present = new Set(Object.entries(agents).filter(([, { present }]) => present).map(([name]) => name));
    } catch {
      this.#present = undefined;
    }
  }

  async #poll() {
    const messages = this.#sentMessages;
    this.#pollDelayMs = Math.min(this.#pollDelayMs * 1.5, POLL_MAX_MS);
    if (messages.some(({ status }) => status === "queued")) await this.#readPresent();
    for (const list of new Set(messages.filter(isPending).map((one) => one.list))) {
      try {
        const controls = await readControls(this.view, list);
        for (const message of messages) {
          const status = controls.find(({ controlId }) => controlId === message.controlId)?.status;
          if (status === undefined || status === message.status) continue;
          message.status = status;
          this.#pollDelayMs = POLL_MS;
          if (status === "acked") message.since = this.view.now();
        }
      } catch {
        // The server is unreachable; the connection bar shows that. The last known status stays.
      }
    }
    if (messages !== this.#sentMessages) return;
    this.#pruneOutbox();
    this.#drawAbove();
    this.#schedulePoll();
  }

  /** Removes messages that the store shows by now, and those accepted a while ago. */
  #pruneOutbox() {
    const now = this.view.now();
    const isShown = (/** @type {SentMessage} */ message) => message.status !== "submitting" && message.status !== "nacked" && this.#countShown(message.text) > message.shown;
    const remaining = this.#sentMessages.filter((message) => !isShown(message) && !(message.status === "acked" && now - message.since > ACCEPTED_SHOWN_MS));
    if (remaining.length !== this.#sentMessages.length) this.#sentMessages.splice(0, this.#sentMessages.length, ...remaining);
  }

  /**
   * Counts the user's messages with this text in the store.
   * @param {string} text
   */
  #countShown(text) {
    const isSame = (/** @type {any} */ part) => joinText(part.text).trim() === text;
    return this.view.store.sorted(({ activityType, content }) => activityType === "message" && content.role === "user" && content.parts.some(isSame)).length;
  }

  /** The sent messages without those that the queue lists: each message appears once. */
  #visibleMessages() {
    const listed = this.#queueTexts();
    return this.#sentMessages.filter(({ control, status, text }) => {
      const at = control === "steer" || hasFailed(status) ? -1 : listed.indexOf(text);
      if (at >= 0) listed.splice(at, 1);
      return at < 0;
    });
  }

  /** The texts of the queued turns. @returns {string[]} */
  #queueTexts() {
    const items = this.#queueActivity()?.content.items;
    return Array.isArray(items) ? items.map((item) => itemText(item).trim()) : [];
  }
}

define("ps-composer", Composer);

/** @param {any} item */
const itemText = (item) => toText(item?.text ?? item?.value?.text ?? item?.title ?? item);

/** @param {SentMessage} message */
const isPending = (message) => message.status === "queued" || message.status === "claimed" || message.status === "acked";
