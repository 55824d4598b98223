/**
 * What a person may do to sessions. The code that does it loads after the first lists, or at the first press.
 */

import { loadStyle } from "./styles.js";

/** @typedef {import("./session-entry.js").Entry} Entry */

/**
 * What the actions need of the shell.
 * @typedef {object} ActionsHost
 * @property {import("./client/http.js").Server} server
 * @property {import("./session-list.js").SessionList} list
 * @property {import("./marks.js").Marks} marks
 * @property {() => import("./token.js").Token} token
 * @property {() => boolean} isPast Whether the page shows a past moment, which changes nothing.
 * @property {() => import("./route.js").Audience} audience
 * @property {(entry: Entry) => void} unread A person is about to mark it as unread.
 * @property {(entry: Entry) => void} erased
 */

export class Actions {
  /** @param {ActionsHost} host */
  constructor(host) {
    this.#host = host;
  }

  #host;
  /** @type {Promise<import("./session-actions.js").SessionActions> | undefined} */
  #loaded;

  /** @returns {Promise<import("./session-actions.js").SessionActions>} */
  load() {
    return (this.#loaded ??= Promise.all([import("./session-actions.js"), loadStyle("session-actions.css"), loadStyle("ui/menu.css")]).then(
      ([{ SessionActions }]) => new SessionActions(this.#host, this),
      (error) => {
        this.#loaded = undefined;
        throw error;
      },
    ));
  }

  /** Whether the token permits to change what all see. */
  get canChange() {
    const token = this.#host.token();
    return token.canControl && !token.isOfLink && !this.#host.isPast();
  }

  /** @param {Entry} entry */
  canRename({ kind }) {
    return kind === "session" && this.canChange;
  }

  /** @param {Entry} entry */
  canArchive({ kind }) {
    return kind === "run" || this.canChange;
  }
}
