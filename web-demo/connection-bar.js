/**
 * The connection bar: the state of the connection, its counts, and a button that disconnects.
 */

import { define, formatDuration, element, setText } from "./surfaces/base.js";

/** @typedef {import("./client/connection.js").Connection} Connection */
/** @typedef {import("./client/types.js").State} State */

/** @type {Record<State["kind"], [string, import("./surfaces/base.js").State]>} */
const KINDS = { connecting: ["Connecting", "running"], live: ["Live", "ok"], away: ["Disconnected", "warning"], ended: ["Ended", "idle"], refused: ["Refused", "failed"] };

export class ConnectionBar extends HTMLElement {
  #state = element("span", "badge");
  #details = element("dl", "link");
  /** @type {Map<string, HTMLElement>} */
  #values = new Map();
  #disconnectButton = element("button", "button", "Disconnect");
  #transport = element("select", "input");
  /** @type {Connection | undefined} */
  #connection;
  #isDisconnected = false;
  #unsubscribe = () => {};

  connectedCallback() {
    if (this.firstChild) return;
    this.#state.id = "connection";
    this.#state.setAttribute("role", "status");
    for (const [name, label] of [["gaps", "Gaps"], ["resumes", "Resumes"], ["frames", "Frames"], ["lag", "Last data"], ["cursor", "Cursor"]]) {
      const value = element("dd", name === "cursor" ? "mono truncate" : "");
      value.id = name;
      const row = element("div");
      row.append(element("dt", "", label), value);
      this.#values.set(name, value);
      this.#details.append(row);
    }
    this.#transport.setAttribute("aria-label", "Transport");
    this.#transport.id = "transport";
    this.#transport.append(new Option("SSE", "sse"), new Option("WebSocket", "websocket"));
    this.#transport.addEventListener("change", () => this.dispatchEvent(new CustomEvent("transport", { detail: this.#transport.value })));
    this.#disconnectButton.type = "button";
    this.#disconnectButton.id = "cut";
    this.#disconnectButton.setAttribute("aria-pressed", "false");
    this.#disconnectButton.disabled = true;
    this.#disconnectButton.addEventListener("click", () => this.#toggleConnection());
    this.append(this.#state, this.#transport, this.#details, this.#disconnectButton);
    this.#draw(undefined);
  }

  /** @param {Connection | undefined} connection */
  set connection(connection) {
    this.#unsubscribe();
    this.#connection = connection;
    this.#isDisconnected = false;
    this.#disconnectButton.disabled = !connection;
    this.#drawDisconnectButton();
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

  #note = "";

  /** Disconnects until the next click, which reconnects. The server then sends what changed meanwhile, once. */
  #toggleConnection() {
    if (!this.#connection) return;
    this.#isDisconnected = !this.#isDisconnected;
    if (this.#isDisconnected) this.#connection.cut();
    else this.#connection.mend();
    this.#drawDisconnectButton();
  }

  #drawDisconnectButton() {
    this.#disconnectButton.setAttribute("aria-pressed", String(this.#isDisconnected));
    setText(this.#disconnectButton, this.#isDisconnected ? "Reconnect" : "Disconnect");
  }

  /** @param {State | undefined} state */
  #draw(state) {
    const isIdle = state?.kind === "live" && this.#note !== "";
    const [word, tone] = isIdle ? ["Listening", "unknown"] : state ? KINDS[state.kind] : ["Not connected", "unknown"];
    this.#state.dataset.kind = state?.kind ?? "none";
    this.#state.dataset.state = tone;
    const why = isIdle ? this.#note : state?.kind === "ended" ? state.status : state?.why;
    setText(this.#state, why ? `${word}: ${why}` : word);
    if (state) this.#transport.value = state.transport;
    const lag = state?.lagMs ?? null;
    this.#setValue("gaps", state ? (state.gaps === 0 ? "none" : String(state.gaps)) : "–");
    this.#setValue("resumes", state ? String(state.resumes) : "–");
    this.#setValue("frames", state ? String(state.frames) : "–");
    this.#setValue("lag", lag === null ? "–" : state?.transport === "websocket" ? `ping ${formatDuration(lag)}` : `${formatDuration(lag)} ago`);
    this.#setValue("cursor", state?.cursor || "–");
    const gaps = /** @type {HTMLElement} */ (this.#values.get("gaps"));
    gaps.dataset.count = String(state?.gaps ?? 0);
  }

  /**
   * @param {string} name
   * @param {string} text
   */
  #setValue(name, text) {
    const value = /** @type {HTMLElement} */ (this.#values.get(name));
    setText(value, text);
    if (name === "cursor") value.title = text;
  }
}

define("ps-connection", ConnectionBar);
