/**
 * The state of the open session in the page's header: a status, and the time that its current run has taken.
 */

import { statusLabel } from "../ui/glyphs.js";
import { formatExact, formatSpan, timesOf } from "../ui/format.js";
import { html, nothing } from "../vendor/lit.js";
import { TemplateSurface, define, humanize, keyOf, toText } from "./base.js";
import { isLiveRun } from "./live-run.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("../ui/glyphs.js").Status} Status */

/** The statuses of runs and sessions: the glyph and the word. @type {Record<string, [Status, string]>} */
const STATUSES = {
  accepted: ["running", "Accepted"], running: ["running", "Running"], active: ["running", "Running"], waiting: ["waiting", "Waiting for you"], completed: ["completed", "Completed"], failed: ["failed", "Failed"],
  cancelled: ["idle", "Cancelled"], interrupted: ["idle", "Interrupted"], archived: ["idle", "Archived"], stale: ["idle", "No recent data"], unknown: ["idle", "Unknown"],
};

/**
 * Returns the glyph and the word of a session's or a run's status.
 * @param {string} status
 * @returns {[Status, string]}
 */
export const sessionStatus = (status) => (Object.hasOwn(STATUSES, status) ? STATUSES[status] : ["idle", humanize(status)]);

/** @param {Activity} action A pending one. */
const isApproval = ({ content }) => /approval|permission|plan/.test(toText(content.kind));

export class SessionHeader extends TemplateSurface {
  /** @param {Activity} activity */
  static shows({ activityType }) {
    return activityType === "run" || activityType === "action";
  }

  connectedCallback() {
    this.#timer = setInterval(() => this.isConnectedToView && this.update(null), 1000);
  }

  disconnectedCallback() {
    clearInterval(this.#timer);
  }

  /** @type {ReturnType<typeof setInterval> | undefined} */
  #timer;

  template() {
    const { runId, runs, store } = this.view;
    const run = runId === undefined ? undefined : store.get(keyOf({ runId, activityType: "run", activityId: runId }));
    if (!run) return nothing;
    const pending = store.sorted(({ activityType, content }) => activityType === "action" && content.status === "pending");
    const own = pending.filter((action) => runs.includes(action.runId));
    const isStale = run.content.stale === true;
    const [status, word] = isStale ? sessionStatus("stale")
      : pending.length > 0 ? /** @type {[Status, string]} */ (["waiting", (own.length > 0 ? own : pending).some(isApproval) ? "Needs approval" : "Waiting for input"])
        : sessionStatus(toText(run.content.status));
    return html`${statusLabel(status, word, { isPill: true })}${this.#elapsed(run)}`;
  }

  /** @param {Activity} run */
  #elapsed(run) {
    const [started, last] = timesOf(run);
    if (!Number.isFinite(started)) return nothing;
    const ended = isLiveRun(run) ? this.view.now() : last;
    const titles = [`Started ${formatExact(started)}`, isLiveRun(run) ? "" : `ended ${formatExact(ended)}`].filter(Boolean);
    return html`<span class="elapsed" title=${titles.join(", ")}>${formatSpan(ended - started).replace(/\.\ds$/, "s")}</span>`;
  }
}

define("ps-session-header", SessionHeader);
