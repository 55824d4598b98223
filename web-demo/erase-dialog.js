/**
 * The dialog that deletes a session, or a run without a session, for good.
 */

import { Problem, pathSegment, request } from "./client/http.js";
import { loadStyle } from "./styles.js";
import { Sheet } from "./sheet.js";
import { showToast } from "./toasts.js";
import { html, nothing } from "./vendor/lit.js";

/** @typedef {import("./session-entry.js").Entry} Entry */

/** The child sessions that the dialog names. */
const NAMED_MAX = 5;

/**
 * @param {Entry} entry
 * @param {import("./actions.js").ActionsHost} host
 */
export async function showErase(entry, { server, list, erased }) {
  const { kind, id } = entry;
  const name = entry.title || id;
  /** The runs of a session; `undefined` while unknown. @type {number | undefined} */
  let runs;
  /** @type {string[]} */
  let children = [];
  let childCount = 0;
  /** @type {boolean | undefined} Whether the children go with it; `undefined` until a person has chosen. */
  let withChildren;

  /** @param {string} child */
  const titleOf = (child) => list.entry("session", child)?.title || child;

  const erase = () => void sheet.attempt(async () => {
    const path = kind === "run" ? `/v1/runs/${pathSegment(id)}` : `/v1/sessions/${pathSegment(id)}${withChildren === undefined ? "" : `?children=${withChildren}`}`;
    try {
      await request(server, path, { method: "DELETE", headers: { "x-proscenium-client": "page" } });
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (error.code === "has_children") {
        const { sessionIds, count } = /** @type {any} */ (error.document);
        [children, childCount] = [sessionIds, count];
        return "Nothing is deleted yet. Choose what happens to the child sessions.";
      }
      // Another person, or an answer that was lost, has deleted it.
      if (error.code !== "erased" && error.status !== 404) throw error;
    }
    sheet.close();
    showToast({ text: `Deleted “${name}”.` });
    erased(entry);
    if (withChildren) for (const child of children) erased({ ...entry, id: child, key: `session ${child}` });
    return "";
  });

  const choice = (/** @type {boolean} */ value, /** @type {string} */ label) => html`<label><input type="radio" name="children" .checked=${withChildren === value} @change=${() => {
    withChildren = value;
    sheet.draw();
  }}> ${label}</label>`;

  const content = () => html`
    <p>${kind === "run" ? "This erases the run" : runs === undefined ? "This erases the session and its runs" : `This erases the session and ${runs === 1 ? "its run" : `its ${runs} runs`}`}: messages, decisions, events, stored files, share links${kind === "run" ? "" : ", and the messages that wait"}. Work under way is stopped. It cannot be undone.</p>
    ${childCount > 0 ? html`<fieldset class="stack">
      <legend>It has ${childCount} child ${childCount === 1 ? "session" : "sessions"}: <span dir="auto">${children.slice(0, NAMED_MAX).map(titleOf).join(", ")}</span>${childCount > NAMED_MAX ? ` and ${childCount - Math.min(NAMED_MAX, children.length)} more` : ""}.</legend>
      ${choice(true, `Delete ${childCount === 1 ? "it" : "them"}, too`)}${choice(false, `Keep ${childCount === 1 ? "it" : "them"}`)}
    </fieldset>` : nothing}
    <p class="hint">What remains: the audit entry, without text; exports and backups; what webhooks delivered; what the agent itself keeps.</p>
    <p class="row erase-buttons">
      <button type="button" class="button" @click=${() => sheet.close()}>Cancel</button>
      <button type="button" class="button" data-kind="danger" ?disabled=${sheet.isBusy || (childCount > 0 && withChildren === undefined)} @click=${erase}>${sheet.isBusy ? "Deleting…" : "Delete for good"}</button>
    </p>`;

  const sheet = new Sheet("erase-dialog", `Delete “${name}”?`, content);
  await loadStyle("settings.css");
  sheet.open();
  if (kind === "run") return;
  try {
    const shell = await list.hydration.session(id);
    runs = shell.counts.runs;
    if (children.length === 0) [children, childCount] = [shell.children, shell.children.length];
    sheet.draw();
  } catch {
    // The dialog asks without these numbers, and the server names the children.
  }
}
