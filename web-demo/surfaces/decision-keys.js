/**
 * Which keys a decision takes.
 */

/**
 * Whether a key is for a decision, and not for a field or for the browser.
 * @param {KeyboardEvent} event
 * @param {string} keys
 */
export function isDecisionKey({ target, key, ctrlKey, metaKey, altKey, defaultPrevented }, keys = "ynd") {
  if (key.length > 1 || !keys.includes(key) || ctrlKey || metaKey || altKey || defaultPrevented) return false;
  return !(target instanceof HTMLElement && (target.isContentEditable || target.matches("input:not([type=radio], [type=checkbox], [type=button]), select, textarea")));
}
