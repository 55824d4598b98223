/**
 * The composer: sends a message, queues a turn, steers the running turn, or interrupts it. Each of the four has its own
 * look.
 *
 * A sent message stays in the outbox until facts show it: the page never adds it to the conversation itself.
 */

import { Surface, createBadge, formatCount, define, element, inspectButton, joinText, keyOf, updateChildren, setBadge, setText, toText } from "./base.js";
import { POLL_MS, ACCEPTED_SHOWN_MS, controlButton, readControlStatuses, hasFailed } from "./submitted-controls.js";
import { isLiveRun } from "./runtime-status.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {"send" | "queue" | "steer"} Mode */
/** @typedef {{ controlId: string, control: Mode, text: string, status: string, list: string, since: number, shown: number }} SentMessage `shown`: how many messages with this text the store had before. */

/** The maximum length of a message, in characters. The request of a control may have 256 KiB. */
const TEXT_MAX = 60_000;
/** The maximum size of a message's attachments: in base64 they fit into one request together with the longest text. */
const ATTACHED_BYTES_MAX = 96 * 1024;

/** @typedef {{ name: string, mediaType: string, bytes: number, data: string }} Attachment `data` is base64. */

/** The modes of a message. */
const MODES = /** @type {const} */ ({
  send: { label: "Send", icon: "↑", hint: "Starts a new turn as soon as the runtime accepts it." },
  queue: { label: "Queue", icon: "+", hint: "Waits until the current turn ends, then starts a new turn." },
  steer: { label: "Steer", icon: "↪", hint: "Sends the message into the running turn." },
});

/** Texts of control statuses. @type {Record<string, string>} */
const STATUS_TEXTS = {
  submitting: "sending", queued: "waiting for the runtime", claimed: "received by the runtime", acked: "accepted by the runtime", nacked: "rejected by the runtime", expired: "expired: the runtime did not claim it",
};

/** Drafts of this page, by target. @type {Map<string, string>} */
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
  #outboxList = element("ul", "outbox stack");
  #form = element("form", "box");
  #text = element("textarea");
  #modes = element("fieldset", "modes row");
  #hint = element("p", "hint mode-hint");
  #files = element("ul", "row files");
  #attachLabel = element("label", "button attach");
  /** The attachments of the next message. @type {Attachment[]} */
  #attachments = [];
  #submit = element("button", "button submit");
  #feedback = element("p", "hint told");
  /** @type {HTMLButtonElement | undefined} */
  #interrupt;
  /** @type {Mode} */
  #mode = "send";
  /** The mode that the viewer chose; `undefined` for the default. @type {Mode | undefined} */
  #chosenMode;
  /** @type {SentMessage[]} */
  #sentMessages = [];
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #pollTimer;

  build() {
    this.#sentMessages = [];
    clearTimeout(this.#pollTimer);
    this.setAttribute("role", "region");
    this.setAttribute("aria-label", "Composer");
    this.#buildQueue();
    this.#buildForm();
    this.replaceChildren(this.#queue, this.#outboxList, this.#form);
    this.#outboxList.setAttribute("aria-label", "Sent messages, not yet in the run");
  }

  disconnectedCallback() {
    clearTimeout(this.#pollTimer);
  }

  get #draftKey() {
    return `${this.view.sessionId ?? ""} ${this.view.runId ?? ""}`;
  }

  #buildQueue() {
    this.#queueHead.replaceChildren(this.#queueCount, this.#queueWhy, inspectButton(() => this.view, () => this.#queueActivity()));
    this.#queue.replaceChildren(this.#queueHead, this.#queueItems);
    this.#queueItems.setAttribute("aria-label", "Queued turns");
  }

  #buildForm() {
    const label = element("label", "visually-hidden", "Message");
    this.#text.id = "composer-text";
    label.htmlFor = this.#text.id;
    this.#text.rows = 2;
    this.#text.maxLength = TEXT_MAX;
    this.#text.value = drafts.get(this.#draftKey) ?? "";
    this.#text.oninput = () => drafts.set(this.#draftKey, this.#text.value);
    this.#text.onkeydown = (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#sendMessage();
    };
    this.#modes.replaceChildren(element("legend", "visually-hidden", "Mode"), ...Object.keys(MODES).map((mode) => this.#createModeRadio(/** @type {Mode} */ (mode))));
    this.#submit.type = "submit";
    this.#submit.dataset.kind = "primary";
    this.#interrupt = controlButton("Interrupt", () => this.view, () => ({ control: "interrupt", run: this.view.runId }), { kind: "danger", feedback: this.#feedback });
    this.#interrupt.classList.add("interrupt");
    this.#interrupt.title = "Asks the runtime to stop the current turn";
    this.#feedback.setAttribute("role", "status");
    this.#form.onsubmit = (event) => {
      event.preventDefault();
      this.#sendMessage();
    };
    const foot = element("div", "foot");
    const ends = element("div", "row");
    ends.append(this.#createAttachControl(), this.#interrupt, this.#submit);
    foot.append(this.#modes, ends);
    this.#form.replaceChildren(label, this.#text, this.#files, foot, this.#hint, this.#feedback);
  }

  #createAttachControl() {
    const pick = element("input", "visually-hidden");
    pick.type = "file";
    pick.multiple = true;
    pick.onchange = () => {
      void this.#attachFiles([...(pick.files ?? [])]);
      pick.value = "";
    };
    this.#attachLabel.title = `Attach files, at most ${ATTACHED_BYTES_MAX / 1024} KiB in total`;
    this.#attachLabel.dataset.kind = "quiet";
    this.#attachLabel.replaceChildren(pick, element("span", "", "File"));
    this.#files.setAttribute("aria-label", "Attached files");
    this.#attachments = [];
    this.#drawFiles();
    return this.#attachLabel;
  }

  /** @param {File[]} files */
  async #attachFiles(files) {
    const attachedBytes = this.#attachments.reduce((sum, { bytes }) => sum + bytes, 0);
    const size = files.reduce((sum, file) => sum + file.size, attachedBytes);
    if (size > ATTACHED_BYTES_MAX) return this.#showError(`The attachments have ${formatCount(size)} bytes. A message can have ${formatCount(ATTACHED_BYTES_MAX)}. Nothing was attached.`);
    try {
      const added = await Promise.all(files.map(attachmentOf));
      this.#attachments = [...this.#attachments, ...added];
      setText(this.#feedback, "");
    } catch (error) {
      this.#showError(`The file could not be read: ${error instanceof Error ? error.message : error}`);
    }
    this.#drawFiles();
  }

  /** @param {string} text */
  #showError(text) {
    this.#feedback.dataset.state = "failed";
    setText(this.#feedback, text);
  }

  #drawFiles() {
    this.#files.hidden = this.#attachments.length === 0;
    this.#files.replaceChildren(...this.#attachments.map((one) => {
      const row = element("li", "chip");
      const remove = element("button", "inspect", "×");
      remove.type = "button";
      remove.setAttribute("aria-label", `Remove ${one.name}`);
      remove.onclick = () => {
        this.#attachments = this.#attachments.filter((other) => other !== one);
        this.#drawFiles();
      };
      row.append(element("span", "", `${one.name} · ${formatCount(one.bytes)} bytes`), remove);
      return row;
    }));
  }

  /** @param {Mode} mode */
  #createModeRadio(mode) {
    const { label, icon, hint } = MODES[mode];
    const root = element("label", "mode");
    root.dataset.mode = mode;
    root.title = hint;
    const control = element("input", "visually-hidden");
    control.type = "radio";
    control.name = "mode";
    control.value = mode;
    control.onchange = () => {
      this.#chosenMode = mode;
      this.#drawMode();
    };
    const iconElement = element("span", "sign", icon);
    iconElement.setAttribute("aria-hidden", "true");
    root.append(control, iconElement, element("span", "", label));
    return root;
  }

  get #isRunning() {
    const own = new Set(this.view.runs);
    return this.view.store.sorted(({ activityType, runId }) => activityType === "run" && own.has(runId)).some(isLiveRun);
  }

  #queueActivity() {
    return this.view.store.sorted(({ activityType }) => activityType === "queue").at(-1);
  }

  update() {
    this.#drawQueue();
    this.#pruneOutbox();
    this.#drawOutbox();
    this.#drawMode();
  }

  #drawMode() {
    const { isLive, runId, sessionId } = this.view;
    const isRunning = this.#isRunning;
    if (!isRunning && this.#chosenMode !== "send") this.#chosenMode = undefined;
    this.#mode = this.#chosenMode ?? (isRunning ? "queue" : "send");
    for (const control of this.#modes.querySelectorAll("input")) {
      control.checked = control.value === this.#mode;
      control.disabled = !isLive || (control.value === "steer" && !isRunning);
    }
    const mode = MODES[this.#mode];
    const isPossible = isLive && (runId !== undefined || sessionId !== undefined);
    this.dataset.mode = this.#mode;
    this.#submit.dataset.control = this.#mode;
    this.#submit.disabled = !isPossible;
    setText(this.#submit, `${mode.icon} ${mode.label}`);
    this.#text.disabled = !isPossible;
    /** @type {HTMLInputElement} */ (this.#attachLabel.firstElementChild).disabled = !isPossible;
    this.#text.placeholder = isLive ? (isRunning ? (this.#mode === "steer" ? "Steer the running turn…" : "Message for the next turn…") : "Message the agent…") : "You are viewing a past state. Go back to live to send a message.";
    setText(this.#hint, isPossible ? mode.hint : "");
    const interrupt = /** @type {HTMLButtonElement} */ (this.#interrupt);
    interrupt.hidden = !isRunning || !isLive;
  }

  #drawQueue() {
    const queue = this.#queueActivity();
    const content = queue?.content ?? {};
    const waiting = content.queuedTurnCount;
    /** @type {any[]} */
    const items = Array.isArray(content.items) ? content.items : [];
    this.#queue.hidden = queue === undefined || (waiting === 0 && items.length === 0);
    if (this.#queue.hidden || !queue) return;
    this.#queue.dataset.key = keyOf(queue);
    setBadge(this.#queueCount, "queued", `${typeof waiting === "number" ? formatCount(waiting) : "unknown number"} queued`);
    setText(this.#queueWhy, [
      toText(content.queueReason),
      content.retryableOverload === true ? "the provider is overloaded; the runtime will retry" : "",
      content.providerParallelBudget === undefined ? "" : `at most ${toText(content.providerParallelBudget)} at once${content.providerConcurrencyGroup === undefined ? "" : ` in ${toText(content.providerConcurrencyGroup)}`}`,
    ].filter(Boolean).join(" · "));
    updateChildren(this.#queueItems, items.map((item, at) => ({ id: toText(item?.turnId) || String(at), text: itemText(item) })), ({ id }) => id, () => element("li", "queued"), (row, { text }) => setText(row, text));
  }

  /* ── sending ── */

  async #sendMessage() {
    const text = this.#text.value.trim();
    const mode = this.#mode;
    if ((text === "" && this.#attachments.length === 0) || this.#submit.disabled) return;
    const attachments = this.#attachments;
    const { runId, sessionId } = this.view;
    // A steering message targets the run. A turn targets the session if one is open.
    const isOfRun = mode === "steer" || sessionId === undefined;
    /** @type {SentMessage} */
    const message = { controlId: "", control: mode, text, status: "submitting", list: "", since: this.view.now(), shown: this.#countShown(text) };
    this.#sentMessages.push(message);
    this.#text.value = "";
    this.#attachments = [];
    this.#drawFiles();
    drafts.delete(this.#draftKey);
    setText(this.#feedback, "");
    this.#drawOutbox();
    try {
      const agentId = isOfRun ? undefined : this.#agent;
      const { controlId, list } = await this.view.act({ control: mode, ...(isOfRun ? { run: runId } : { session: sessionId }), ...(agentId ? { agentId } : {}), value: { text, ...(attachments.length > 0 ? { attachments } : {}) } });
      Object.assign(message, { controlId, list, status: "queued" });
      this.#schedulePoll();
    } catch (error) {
      if (this.#sentMessages.includes(message)) this.#sentMessages.splice(this.#sentMessages.indexOf(message), 1);
      // An unsent message becomes the draft again unless a new one was begun.
      if (this.#text.value === "") this.#text.value = text;
      if (this.#attachments.length === 0) this.#attachments = attachments;
      this.#drawFiles();
      this.#showError(`Not sent: ${error instanceof Error ? error.message : error}`);
    }
    this.#drawOutbox();
  }

  /** The agent that gets the message: that of the newest run. */
  get #agent() {
    const own = new Set(this.view.runs);
    const run = this.view.store.sorted(({ activityType, runId }) => activityType === "run" && own.has(runId)).findLast(({ content }) => content.agentId !== undefined);
    return run && toText(run.content.agentId);
  }

  #schedulePoll() {
    clearTimeout(this.#pollTimer);
    if (this.#sentMessages.some(isPending)) this.#pollTimer = setTimeout(() => this.#poll(), POLL_MS);
  }

  async #poll() {
    const messages = this.#sentMessages;
    for (const list of new Set(messages.filter(isPending).map((one) => one.list))) {
      try {
        const statuses = await readControlStatuses(this.view, list);
        for (const message of messages) {
          const status = statuses.get(message.controlId)?.status;
          if (status === undefined || status === message.status) continue;
          message.status = status;
          if (status === "acked") message.since = this.view.now();
        }
      } catch {
        // The server is unreachable; the connection bar shows that. The last known status stays.
      }
    }
    if (messages !== this.#sentMessages) return;
    this.#pruneOutbox();
    this.#drawOutbox();
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

  #drawOutbox() {
    const shown = this.#visibleMessages();
    this.#outboxList.hidden = shown.length === 0;
    updateChildren(this.#outboxList, shown, (message) => `${message.since} ${message.text}`, (message) => this.#createOutboxRow(message), (row, message) => {
      row.dataset.status = message.status;
      setBadge(/** @type {HTMLElement} */ (row.querySelector(".badge")), message.status === "submitting" ? "pending" : message.status === "acked" ? "accepted" : message.status === "nacked" ? "rejected" : message.status, STATUS_TEXTS[message.status] ?? toText(message.status));
      /** @type {HTMLElement} */ (row.querySelector("button")).hidden = !hasFailed(message.status);
    });
  }

  /** @param {SentMessage} message */
  #createOutboxRow(message) {
    const row = element("li", "sent");
    row.dataset.mode = message.control;
    const again = element("button", "button", "Edit");
    again.type = "button";
    again.dataset.kind = "quiet";
    again.onclick = () => {
      this.#sentMessages.splice(this.#sentMessages.indexOf(message), 1);
      this.#text.value = message.text;
      this.#drawOutbox();
      this.#text.focus();
    };
    const line = element("div", "row");
    line.append(element("span", "label", MODES[message.control].label), createBadge("pending"), again);
    row.append(line, element("p", "text", message.text));
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
const itemText = (item) => toText(item?.text ?? item?.value?.text ?? item?.title ?? item);

/** @param {SentMessage} message */
const isPending = (message) => message.status === "queued" || message.status === "claimed" || message.status === "acked";
