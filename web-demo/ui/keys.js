/**
 * Names of keys, as the viewer's platform writes them.
 */

/** The keys that send a message or an answer. */
export const SEND_KEYS = /Mac|iP(hone|ad)/.test(navigator.platform) ? "⌘↵" : "Ctrl ↵";
