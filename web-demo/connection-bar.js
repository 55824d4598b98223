/**
 * The connection in the header: its state, and a popover with its figures, the transport and “Simulate disconnect”.
 */

import { formatSpan } from "./ui/format.js";
import { icon } from "./ui/icons.js";
import { html, nothing, render } from "./vendor/lit.js";
import { define } from "./surfaces/base.js";
import { showToast } from "./toasts.js";

/** @typedef {import("./client/connection.js").Connection} Connection */
/** @typedef {import("./client/types.js").State} State */

/** @type {Record<State["kind"], string>} */
const WORDS = { connecting: "Connecting", live: "Connected", away: "Disconnected", ended: "Ended", refused: "Refused" };

/** @param {string} text */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    showToast({ text: "The cursor is on the clipboard." });
  } catch {
    showToast({ text: "The browser allows no access to the clipboard. Select the text and copy it.", isFailure: true });
  }
}

const COUNT = new Intl.NumberFormat("en");

export class ConnectionBar extends HTMLElement {
  /** @type {Connection | undefined} */
  #connection;
  #isDisconnected = false;
  #note = "";
  #isReachable = false;
  #unsubscribe = () => {};

  connectedCallback() {
    this.#draw(this.#connection?.state);
  }

  /** @param {Connection | undefined} connection */
  set connection(connection) {
    this.#unsubscribe();
    this.#connection = connection;
    this.#isDisconnected = false;
    this.#draw(connection?.state);
    this.#unsubscribe = connection?.subscribe((state) => this.#draw(state)) ?? (() => {});
  }

  /**
   * Sets a note for an open connection without data, such as for a session that does not exist.
   * @param {string} text Empty for none.
   */
  set note(text) {
    if (text === this.#note) return;
    this.#note = text;
    this.#draw(this.#connection?.state);
  }

  /** @param {boolean} isReachable Whether the server answers, while nothing is open and the page has no connection. */
  set isReachable(isReachable) {
    if (isReachable === this.#isReachable) return;
    this.#isReachable = isReachable;
    this.#draw(this.#connection?.state);
  }

  /** Disconnects until the next click, which reconnects. The server then sends what changed meanwhile, once. */
  #toggleConnection() {
    if (!this.#connection) return;
    this.#isDisconnected = !this.#isDisconnected;
    if (this.#isDisconnected) this.#connection.cut();
    else this.#connection.mend();
    this.#draw(this.#connection.state);
  }

  /** @param {State | undefined} state */
  #draw(state) {
    const isIdle = state?.kind === "live" && this.#note !== "";
    const word = isIdle ? "Listening" : state ? WORDS[state.kind] : this.#isReachable ? "Connected" : "Not connected";
    const why = isIdle ? this.#note : state?.kind === "ended" ? state.status : state?.why;
    const kind = state?.kind ?? (this.#isReachable ? "live" : "none");
    const lag = state?.lagMs ?? null;
    const gaps = state?.gaps ?? 0;
    const heard = lag === null ? "" : state?.transport === "websocket" ? `ping ${formatSpan(lag)}` : `last data ${formatSpan(lag)} ago`;
    render(html`
      <button type="button" class="button connection" data-kind="quiet" popovertarget="connection-figures" aria-label=${`Connection: ${word}`}>
        <span class="dot" data-kind=${isIdle ? "connecting" : kind}></span><span class="connection-word">${word}</span>
      </button>
      <div class="popover" id="connection-figures" popover role="dialog" aria-label="Connection">
        <div class="connection-head"><span class="dot" data-kind=${isIdle ? "connecting" : kind}></span><b id="connection" role="status" data-kind=${kind}>${why ? `${word}: ${why}` : word}</b><span class="hint" id="lag">${heard}</span></div>
        <dl class="facts">
          <dt>Transport</dt>
          <dd><select class="input" id="transport" aria-label="Transport" .value=${state?.transport ?? "sse"} @change=${(/** @type {Event} */ { target }) => this.dispatchEvent(new CustomEvent("transport", { detail: /** @type {HTMLSelectElement} */ (target).value }))}>
            <option value="sse">SSE</option>
            <option value="websocket">WebSocket</option>
          </select></dd>
          <dt>Frames</dt><dd id="frames">${state ? COUNT.format(state.frames) : "–"}</dd>
          <dt>Gaps</dt><dd id="gaps" data-count=${gaps}>${state ? (gaps === 0 ? "none" : gaps) : "–"}</dd>
          <dt>Resumes</dt><dd id="resumes">${state ? state.resumes : "–"}</dd>
          <dt>Cursor</dt>
          <dd class="cursor"><span class="mono truncate" id="cursor" title=${state?.cursor ?? ""}>${state?.cursor || "–"}</span>
            ${state?.cursor ? html`<button type="button" class="button small icon-button" data-kind="quiet" aria-label="Copy the cursor" title="Copy the cursor" @click=${() => void copy(state.cursor)}>${icon("copy")}</button>` : nothing}</dd>
          <dt>Server</dt><dd class="mono">${location.host}</dd>
        </dl>
        <button type="button" class="button small" id="cut" aria-pressed=${this.#isDisconnected} ?disabled=${!this.#connection} @click=${() => this.#toggleConnection()}>${this.#isDisconnected ? "Reconnect" : "Simulate disconnect"}</button>
      </div>`, this);
  }
}

define("ps-connection", ConnectionBar);
