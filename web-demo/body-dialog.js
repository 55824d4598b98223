/**
 * A dialog that shows an offloaded body, one chunk at a time.
 */

import { request } from "./client/http.js";
import { formatCount, setText } from "./surfaces/base.js";
import { BLOB_PATH } from "./surfaces/facts.js";

/** Bytes of one request. */
const CHUNK_BYTES = 256 * 1024;
/** Bytes that the dialog shows at most. A larger body is for a download. */
const SHOWN_BYTES_MAX = 4 * 1024 * 1024;

export class BodyDialog {
  /**
   * @param {HTMLDialogElement} dialog
   * @param {import("./client/http.js").Server} server
   */
  constructor(dialog, server) {
    this.#dialog = dialog;
    this.#server = server;
    this.#status = this.#query("detail-told");
    this.#text = this.#query("detail-text");
    this.#more = this.#query("detail-more");
    this.#query("detail-close").addEventListener("click", () => dialog.close());
    this.#more.addEventListener("click", () => this.#loadMore());
    // A late response for a closed body must not appear in the next one.
    dialog.addEventListener("close", () => this.#reset());
  }

  #dialog;
  #server;
  #status;
  #text;
  #more;
  #href = "";
  #offset = 0;
  #decoder = new TextDecoder();
  #generation = 0;

  /** @param {string} id */
  #query(id) {
    return /** @type {HTMLElement} */ (this.#dialog.querySelector(`#${id}`));
  }

  /**
   * @param {string} href
   * @param {string} audience
   */
  open(href, audience) {
    this.#reset();
    if (!BLOB_PATH.test(href)) {
      setText(this.#status, "This path is not a stored body of this server.");
    } else {
      this.#href = `${href}?audience=${audience}`;
      this.#loadMore();
    }
    if (!this.#dialog.open) this.#dialog.showModal();
  }

  #reset() {
    this.#generation += 1;
    this.#offset = 0;
    this.#href = "";
    this.#decoder = new TextDecoder();
    this.#text.textContent = "";
    this.#more.hidden = true;
    setText(this.#status, "");
  }

  async #loadMore() {
    const generation = this.#generation;
    this.#more.hidden = true;
    setText(this.#status, "Loading…");
    try {
      const response = await request(this.#server, this.#href, { headers: { range: `bytes=${this.#offset}-${this.#offset + CHUNK_BYTES - 1}` } });
      const bytes = new Uint8Array(await response.arrayBuffer());
      if (generation !== this.#generation) return;
      const size = Number(response.headers.get("content-range")?.split("/")[1] ?? this.#offset + bytes.length);
      this.#offset += bytes.length;
      this.#text.append(this.#decoder.decode(bytes, { stream: true }));
      setText(this.#status, `${formatCount(this.#offset)} of ${formatCount(size)} bytes`);
      this.#more.hidden = this.#offset >= size || this.#offset >= SHOWN_BYTES_MAX;
    } catch (error) {
      if (generation === this.#generation) setText(this.#status, `Unavailable: ${error instanceof Error ? error.message : error}`);
    }
  }
}
