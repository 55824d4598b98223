/**
 * What reaches a user whose eyes are elsewhere: the count in the page's title and icon, and desktop notifications.
 */

/** Notifications need the user's permission. The page asks only on a click. */
export const notifications = {
  /** Whether the service worker shows them: see push.js. */
  arePushed: false,
  /** @returns {"granted" | "denied" | "default" | "unsupported"} */
  get permission() {
    return typeof Notification === "undefined" ? "unsupported" : Notification.permission;
  },
  ask: () => Notification.requestPermission(),
};

/** Uses what shows the signals, once it has loaded. @param {(signals: typeof import("./signals.js")) => void} use */
const signal = (use) => void import("./signals.js").then(use, () => {});

export class Attention {
  /** @param {(item: import("./pending.js").PendingItem) => void} open Opens a decision. */
  constructor(open) {
    this.#open = open;
    signal(({ drawIcon }) => drawIcon(0));
  }

  #open;
  #title = "";
  /** @type {Set<string> | undefined} The keys of known decisions; `undefined` before the first reading. */
  #known;
  #count = 0;

  /** @param {string} title The page's title without the count. */
  set title(title) {
    this.#title = title;
    this.#drawTitle();
  }

  /**
   * @param {import("./pending.js").PendingItem[]} items
   * @param {boolean} isRead Whether the decisions have been read. The first reading has no news.
   */
  show(items, isRead) {
    if (items.length !== this.#count) signal(({ drawIcon }) => drawIcon(items.length));
    this.#count = items.length;
    this.#drawTitle();
    const fresh = items.filter(({ key }) => this.#known !== undefined && !this.#known.has(key));
    this.#known = isRead ? new Set(items.map(({ key }) => key)) : undefined;
    if (document.hasFocus() || notifications.arePushed || notifications.permission !== "granted") return;
    signal(({ notify }) => notify(fresh, this.#open));
  }

  #drawTitle() {
    document.title = `${this.#count > 0 ? `(${this.#count}) ` : ""}${this.#title}`;
  }
}
