/**
 * A body that was too large for the picture, in pieces, when somebody asks for it.
 */

import { request } from "./client/http.js";
import { count, say } from "./surfaces/base.js";
import { BLOB } from "./surfaces/lane.js";

/** Bytes that are fetched at once. */
const PIECE = 256 * 1024;
/** Bytes that are shown at all; the rest is for a file. */
const SHOWN_MAX = 4 * 1024 * 1024;

export class Detail {
  /**
   * @param {HTMLDialogElement} dialog
   * @param {import("./client/http.js").Server} server
   */
  constructor(dialog, server) {
    this.#dialog = dialog;
    this.#server = server;
    this.#told = this.#part("detail-told");
    this.#text = this.#part("detail-text");
    this.#more = this.#part("detail-more");
    this.#part("detail-close").addEventListener("click", () => dialog.close());
    this.#more.addEventListener("click", () => this.#next());
    // Whatever is on its way for what was closed must not come into what is opened next.
    dialog.addEventListener("close", () => this.#forget());
  }

  #dialog;
  #server;
  #told;
  #text;
  #more;
  #href = "";
  #at = 0;
  #decoder = new TextDecoder();
  #opened = 0;

  /** @param {string} id */
  #part(id) {
    return /** @type {HTMLElement} */ (this.#dialog.querySelector(`#${id}`));
  }

  /**
   * @param {string} href
   * @param {string} audience
   */
  open(href, audience) {
    this.#forget();
    if (!BLOB.test(href)) {
      say(this.#told, "This is no address of a stored body, so it is not opened.");
    } else {
      this.#href = `${href}?audience=${audience}`;
      this.#next();
    }
    if (!this.#dialog.open) this.#dialog.showModal();
  }

  #forget() {
    this.#opened += 1;
    this.#at = 0;
    this.#href = "";
    this.#decoder = new TextDecoder();
    this.#text.textContent = "";
    this.#more.hidden = true;
    say(this.#told, "");
  }

  async #next() {
    const opened = this.#opened;
    this.#more.hidden = true;
    say(this.#told, "Loading …");
    try {
      const answer = await request(this.#server, this.#href, { headers: { range: `bytes=${this.#at}-${this.#at + PIECE - 1}` } });
      const bytes = new Uint8Array(await answer.arrayBuffer());
      if (opened !== this.#opened) return;
      const size = Number(answer.headers.get("content-range")?.split("/")[1] ?? this.#at + bytes.length);
      this.#at += bytes.length;
      this.#text.append(this.#decoder.decode(bytes, { stream: true }));
      say(this.#told, `${count(this.#at)} of ${count(size)} bytes`);
      this.#more.hidden = this.#at >= size || this.#at >= SHOWN_MAX;
    } catch (why) {
      if (opened === this.#opened) say(this.#told, `Unavailable: ${why instanceof Error ? why.message : why}`);
    }
  }
}
