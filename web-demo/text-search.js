/**
 * Search in the texts of sessions: the matches that the rail lists below the titles, and the way to a message.
 *
 * It loads with the first search. The server finds the texts (`in=text`), the page marks the words that stand as they
 * were typed.
 */

import { keyOf } from "./client/store.js";
import { loadStyle } from "./styles.js";
import { age } from "./ui/format.js";
import { html, nothing, repeat } from "./vendor/lit.js";

/** Matches that the rail lists. */
const MATCHES_MAX = 30;
/** Older pages of a conversation that the page reads until it has the message. */
const PAGES_MAX = 50;
/** How many frames the message may take until it is drawn. */
const FRAMES_MAX = 120;
/** How long the message is marked, in milliseconds. */
const MARKED_MS = 2500;

/** Where a match is. @typedef {{ runId?: string, sequence: number, id?: string }} Place */
/** A session with a text that has the words. @typedef {{ session: string, title: string, text: string, lastActivity: string, place: Place }} Match */

const styles = loadStyle("text-search.css");

/**
 * @param {import("./client/hydration.js").Hydration} hydration
 * @param {string} words
 * @param {{ status?: string, needsAction?: boolean, archived?: boolean, sort: "updated" }} filter
 * @returns {Promise<Match[]>}
 */
async function findTexts(hydration, words, filter) {
  const { sessions } = await hydration.sessions({ ...filter, q: words, in: "text", limit: MATCHES_MAX });
  await styles;
  return sessions.flatMap(({ sessionId, title, lastActivity, highlight }) => {
    if (highlight?.kind !== "match" || highlight.sequence === undefined) return [];
    // Of a match in a branch, the branch opens.
    const { text, runId, sequence, messageId: id, sessionId: session = sessionId } = highlight;
    return [{ session, title: title || sessionId, text, lastActivity: lastActivity ?? "", place: { runId, sequence, id } }];
  });
}

/**
 * The parts of a text between and at the words of a search, in turns.
 * @param {string} text
 * @param {string} words
 */
function split(text, words) {
  const all = words.match(/[\p{L}\p{N}]+/gu) ?? [];
  return all.length === 0 ? [text] : text.split(new RegExp(`(${all.sort((a, b) => b.length - a.length).join("|")})`, "giu"));
}

/**
 * The rows of the rail for matches.
 * @param {Match[]} matches
 * @param {string} words
 * @param {(session: string, message: Place) => void} open
 * @returns {unknown}
 */
export function matchRows(matches, words, open) {
  const now = Date.now();
  return html`<h3 class="rail-group"><span>In messages</span><span>${matches.length}${matches.length === MATCHES_MAX ? "+" : ""}</span></h3>
    <ul class="matches">${repeat(matches, ({ session }) => session, ({ session, title, text, lastActivity, place }) => html`<li>
      <button type="button" class="match" data-match=${session} title=${session} @click=${() => open(session, place)}>
        <span class="name truncate" dir="auto">${title}</span><span class="session-time">${lastActivity ? age(lastActivity, now) : nothing}</span>
        <span class="excerpt" dir="auto">${split(text, words).map((part, at) => (at % 2 === 1 ? html`<mark>${part}</mark>` : part))}</span>
      </button></li>`)}</ul>`;
}

/**
 * Scrolls to a message, or to what another match is in, and marks it for a moment. Reads older messages until it is there.
 * @param {Place} wanted
 * @param {import("./client/store.js").Store} store
 * @param {import("./surfaces/conversation.js").Conversation} conversation
 */
export async function goToMessage({ runId, sequence, id }, store, conversation) {
  const isWanted = (/** @type {import("./surfaces/base.js").Activity} */ one) => (!runId || !one.runId || one.runId === runId)
    && (id === undefined ? one.opened === sequence : one.activityId === id || one.activityId.endsWith(`/${id}`) || one.content.messageId === id);
  const { view } = conversation;
  let [found] = store.sorted(isWanted);
  for (let pages = 0; !found && pages < PAGES_MAX && view.earlier?.hasMore === true; pages += 1) {
    await view.earlier.load();
    if (conversation.view !== view) return;
    [found] = store.sorted(isWanted);
  }
  if (!found) return;
  const key = keyOf(found);
  await styles;
  for (let frames = 0; frames < FRAMES_MAX && conversation.view === view; frames += 1) {
    conversation.reveal(key);
    const row = /** @type {HTMLElement | null} */ (conversation.querySelector(`[data-key="${CSS.escape(key)}"]`));
    if (row) return mark(row);
    await new Promise(requestAnimationFrame);
  }
}

/** @param {HTMLElement} row */
function mark(row) {
  row.scrollIntoView({ block: "center" });
  row.dataset.found = "";
  // A screen reader reads what has the focus.
  row.tabIndex = -1;
  row.focus({ preventScroll: true });
  setTimeout(() => delete row.dataset.found, MARKED_MS);
}

/** The matches of a search, and what draws them. @typedef {{ words: string, matches: Match[], rows: typeof matchRows }} Texts */

/**
 * Asks the server for texts with the words.
 * @param {import("./client/hydration.js").Hydration} hydration
 * @param {string} words
 * @param {{ status?: string, needsAction?: boolean, archived?: boolean, sort: "updated" }} filter
 * @param {() => boolean} isWanted Whether the person still searches for this: a person types on meanwhile.
 * @returns {Promise<Texts | undefined>}
 */
export async function searchTexts(hydration, words, filter, isWanted) {
  if (!isWanted()) return undefined;
  const matches = await findTexts(hydration, words, filter);
  return isWanted() ? { words, matches, rows: matchRows } : undefined;
}
