/**
 * Makes characters visible that have no shape, or that reorder their neighbours. A person decides on what a text says,
 * and U+202E makes a command read as another one.
 */

/** Controls, formats, separators of lines, fillers and variation selectors. A tab and a line feed have their meaning. */
const HIDDEN = /[^\P{Cc}\t\n]|[\p{Cf}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\u{e0100}-\u{e01ef}]/gu;
/** What joins or styles an emoji is a part of it. */
const EMOJI_PARTS = new Set(["\u200d", "\ufe0f"]);

/**
 * Escapes each hidden character of a JSON text, which means the same.
 * @param {string} json
 */
export const escapeHidden = (json) => json.replace(HIDDEN, (character) => character.split("").map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`).join(""));

/**
 * Writes each hidden character as `⟨U+202E⟩`.
 * @param {string} text
 */
export const reveal = (text) => text.replace(HIDDEN, (character, at) => (EMOJI_PARTS.has(character) && /\p{Extended_Pictographic}[\p{Emoji_Modifier}\ufe0f]?$/u.test(text.slice(Math.max(0, at - 4), at)) ? character : `⟨U+${/** @type {number} */ (character.codePointAt(0)).toString(16).toUpperCase().padStart(4, "0")}⟩`));
