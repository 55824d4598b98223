/**
 * How the connection stands, in words and numbers, and a way to cut it.
 */

import { define, duration, element, say } from "./surfaces/base.js";

/** @typedef {import("./client/connection.js").Connection} Connection */
/** @typedef {import("./client/types.js").State} State */

/** @type {Record<State["kind"], [string, import("./surfaces/base.js").State]>} */
const KINDS = { connecting: ["Connecting", "running"], live: ["Live", "ok"], away: ["Away", "warning"], ended: ["Ended", "idle"], refused: ["Refused", "failed"] };

export class ConnectionBar extends HTMLElement {
  #state = element("span", "badge");
  #facts = element("dl", "link");
  /** @type {Map<string, HTMLElement>} */
  #values = new Map();
  #cut = element("button", "button", "Cut the network");
  #transport = element("select", "input");
  /** @type {Connection | undefined} */
  #link;
  #isCut = false;
  #end = () => {};

  connectedCallback() {
    if (this.firstChild) return;
    this.#state.id = "connection";
    this.#state.setAttribute("role", "status");
    for (const [name, label] of [["gaps", "Gaps"], ["resumes", "Resumes"], ["frames", "Frames"], ["lag", "Heard"], ["cursor", "Cursor"]]) {
      const value = element("dd", name === "cursor" ? "mono truncate" : "");
      value.id = name;
      const row = element("div");
      row.append(element("dt", "", label), value);
      this.#values.set(name, value);
      this.#facts.append(row);
    }
    this.#transport.setAttribute("aria-label", "Transport");
    this.#transport.id = "transport";
    this.#transport.append(new Option("SSE", "sse"), new Option("WebSocket", "websocket"));
    this.#transport.addEventListener("change", () => this.dispatchEvent(new CustomEvent("transport", { detail: this.#transport.value })));
    this.#cut.type = "button";
    this.#cut.id = "cut";
    this.#cut.setAttribute("aria-pressed", "false");
    this.#cut.disabled = true;
    this.#cut.addEventListener("click", () => this.#toggle());
    this.append(this.#state, this.#transport, this.#facts, this.#cut);
    this.#draw(undefined);
  }

  /** @param {Connection | undefined} link */
  set link(link) {
    this.#end();
    this.#link = link;
    this.#isCut = false;
    this.#cut.disabled = !link;
    this.#drawCut();
    this.#draw(link?.state);
    this.#end = link?.subscribe((state) => this.#draw(state)) ?? (() => {});
  }

  /**
   * A word on a connection that stands and has nothing to bring, such as for a session that does not exist.
   * @param {string} text Empty for none.
   */
  set note(text) {
    if (text === this.#note) return;
    this.#note = text;
    this.#draw(this.#link?.state);
  }

  #note = "";

  /** Drops the connection and stays away, or comes back: what came meanwhile is told then, and nothing twice. */
  #toggle() {
    if (!this.#link) return;
    this.#isCut = !this.#isCut;
    if (this.#isCut) this.#link.cut();
    else this.#link.mend();
    this.#drawCut();
  }

  #drawCut() {
    this.#cut.setAttribute("aria-pressed", String(this.#isCut));
    say(this.#cut, this.#isCut ? "Mend the network" : "Cut the network");
  }

  /** @param {State | undefined} state */
  #draw(state) {
    const isIdle = state?.kind === "live" && this.#note !== "";
    const [word, look] = isIdle ? ["Listening", "unknown"] : state ? KINDS[state.kind] : ["No connection", "unknown"];
    this.#state.dataset.kind = state?.kind ?? "none";
    this.#state.dataset.state = look;
    const why = isIdle ? this.#note : state?.kind === "ended" ? state.status : state?.why;
    say(this.#state, why ? `${word}: ${why}` : word);
    if (state) this.#transport.value = state.transport;
    const lag = state?.lagMs ?? null;
    this.#tell("gaps", state ? (state.gaps === 0 ? "none" : String(state.gaps)) : "–");
    this.#tell("resumes", state ? String(state.resumes) : "–");
    this.#tell("frames", state ? String(state.frames) : "–");
    this.#tell("lag", lag === null ? "–" : state?.transport === "websocket" ? `in ${duration(lag)}` : `${duration(lag)} ago`);
    this.#tell("cursor", state?.cursor || "–");
    const gaps = /** @type {HTMLElement} */ (this.#values.get("gaps"));
    gaps.dataset.count = String(state?.gaps ?? 0);
  }

  /**
   * @param {string} name
   * @param {string} text
   */
  #tell(name, text) {
    const value = /** @type {HTMLElement} */ (this.#values.get(name));
    say(value, text);
    if (name === "cursor") value.title = text;
  }
}

define("ps-connection", ConnectionBar);
