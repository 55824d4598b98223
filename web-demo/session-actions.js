/**
 * What a person does to a session from the rail or the heading: rename, archive, pin, mark as unread, delete.
 */

import { pathSegment, request } from "./client/http.js";
import { opened } from "./dialogs.js";
import { archivedHere, keepArchivedHere } from "./session-list.js";
import { store, stored } from "./marks.js";
import { TitleField } from "./title-field.js";
import { failureOf, showToast } from "./toasts.js";
import { drawn } from "./ui/glyphs.js";
import { icon } from "./ui/icons.js";
import { openMenu } from "./ui/menu.js";
import { svg } from "./vendor/lit.js";

/** @typedef {import("./session-entry.js").Entry} Entry */
/** @typedef {import("./ui/menu.js").MenuItem} MenuItem */

const ICONS = {
  pencil: drawn(svg`<path d="m3 13 .8-3.2L10.5 3.1a1 1 0 0 1 1.4 0l1 1a1 1 0 0 1 0 1.4L6.2 12.2z"/>`),
  unread: drawn(svg`<path d="M8.5 4.5h-6v8h11V8M2.5 5l5.5 4 2-1.4"/><circle cx="12.5" cy="4" r="2" fill="currentColor" stroke="none"/>`),
  trash: drawn(svg`<path d="M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.6 9h5.8l.6-9M6.8 7v4M9.2 7v4"/>`),
};

/** @param {Entry} entry */
const nameOf = ({ title, id }) => title || id;

export class SessionActions {
  /**
   * @param {import("./actions.js").ActionsHost} host
   * @param {import("./actions.js").Actions} may
   */
  constructor(host, may) {
    this.#host = host;
    this.#may = may;
  }

  #host;
  #may;

  get #canErase() {
    const token = this.#host.token();
    return token.canErase && !token.isOfLink && !this.#host.isPast();
  }

  /**
   * Makes a field that renames sessions.
   * @param {string} id Unique in the page.
   * @param {() => void} redraw
   * @param {(entry: Entry) => void} closed Called after the field has closed by a key: takes the focus.
   */
  field(id, redraw, closed) {
    return new TitleField(id, redraw, (entry, title) => this.rename(entry, title), closed);
  }

  /**
   * Opens the menu of an entry.
   * @param {Entry} entry
   * @param {() => void} rename Begins to rename it in place.
   * @param {HTMLElement} opener
   * @param {{ x: number, y: number }} [at]
   */
  openMenu(entry, rename, opener, at) {
    const { marks, list } = this.#host;
    /** @type {MenuItem[]} */
    const items = [];
    if (this.#may.canRename(entry)) {
      items.push({ label: "Rename", icon: ICONS.pencil, key: "F2", run: rename });
      if (entry.titleFrom === "user") items.push({ label: "Use the agent’s title", icon: icon("back"), hint: "A person gave this one.", run: () => void this.#attempt(() => this.rename(entry, null)) });
    }
    items.push({ label: entry.isPinned ? "Unpin" : "Pin", icon: icon("pin"), run: () => this.pin(entry) });
    items.push(entry.isUnread ? { label: "Mark as read", icon: ICONS.unread, run: () => void marks.read(entry, list.cursorOf(entry), entry.lastActivity) } : { label: "Mark as unread", icon: ICONS.unread, run: () => this.#markUnread(entry) });
    if (this.#may.canArchive(entry)) items.push({ label: entry.isArchived ? "Unarchive" : "Archive", icon: icon("archive"), run: () => void this.archive(entry) });
    if (this.#canErase) items.push({ label: "Delete…", icon: ICONS.trash, isDanger: true, run: () => void this.#erase(entry) });
    openMenu(`Actions for ${nameOf(entry)}`, items, opener, at);
  }

  /** @param {Entry} entry */
  pin(entry) {
    void this.#host.marks.pin(entry, !entry.isPinned);
  }

  /** @param {Entry} entry */
  #markUnread(entry) {
    this.#host.unread(entry);
    void this.#host.marks.markUnread(entry);
  }

  /**
   * Renames a session for all who see it.
   * @param {Entry} entry
   * @param {string | null} title `null`: the title of the source.
   * @throws {import("./client/http.js").Problem} The server refused the title.
   */
  async rename(entry, title) {
    await this.#patch(entry, { title });
  }

  /** Archives an entry, or brings it back, and offers to undo that. @param {Entry} entry */
  async archive(entry) {
    const isArchived = !entry.isArchived;
    const change = async (/** @type {boolean} */ archived) => {
      if (entry.kind === "session") return this.#patch(entry, { archived });
      const keys = archivedHere();
      if (archived) keys.add(entry.key);
      else keys.delete(entry.key);
      keepArchivedHere(keys);
      this.#host.list.refresh();
    };
    await this.#attempt(async () => {
      await change(isArchived);
      showToast({ text: `${isArchived ? "Archived" : "Unarchived"} “${nameOf(entry)}”.`, action: { label: "Undo", run: () => void this.#attempt(() => change(!isArchived)) } });
    });
  }

  /** @param {Entry} entry */
  #erase(entry) {
    return opened("The dialog", async () => (await import("./erase-dialog.js")).showErase(entry, this.#host));
  }

  /**
   * @param {{ id: string }} entry
   * @param {Record<string, unknown>} change
   */
  async #patch({ id }, change) {
    const { server, list, audience } = this.#host;
    const headers = { "content-type": "application/json", "x-proscenium-client": "page" };
    const answer = await request(server, `/v1/sessions/${pathSegment(id)}?audience=${audience()}`, { method: "PATCH", headers, body: JSON.stringify(change) });
    list.change(await answer.json());
  }

  /** @param {() => Promise<void>} work */
  async #attempt(work) {
    try {
      await work();
    } catch (error) {
      showToast({ text: failureOf(error), isFailure: true });
    }
  }

  /**
   * Takes over what an older page kept in this browser: moves pins to the server, and offers to archive for all.
   * @param {Entry[]} entries
   */
  takeOver(entries) {
    if (this.#host.marks.isKeptByServer) void this.#movePins(entries);
    const keys = archivedHere();
    const old = [...keys].filter((key) => key.startsWith("session "));
    if (this.#isOffered || old.length === 0 || !this.#may.canChange) return;
    this.#isOffered = true;
    const forget = () => {
      const left = archivedHere();
      for (const key of old) left.delete(key);
      keepArchivedHere(left);
    };
    const archive = async () => {
      for (const key of old) await this.#patch({ id: key.slice("session ".length) }, { archived: true });
      forget();
    };
    showToast({
      text: `${old.length} ${old.length === 1 ? "session was" : "sessions were"} archived in this browser only. The archive is now for all who see a session.`,
      action: { label: "Archive for all", run: () => void this.#attempt(archive) }, closed: forget,
    });
  }

  #isOffered = false;
  /** The keys of the pins that were tried. @type {Set<string>} */
  #tried = new Set();

  /** @param {Entry[]} entries */
  async #movePins(entries) {
    for (const key of stored("pinned", /** @type {string[]} */ ([]))) {
      const entry = entries.find((one) => one.kind === "session" && one.key === key);
      if (!entry || this.#tried.has(key)) continue;
      // If it fails, the next page tries again.
      this.#tried.add(key);
      if (entry.isPinned || (await this.#host.marks.pin(entry, true))) store("pinned", stored("pinned", /** @type {string[]} */ ([])).filter((one) => one !== key));
    }
  }
}
