/**
 * Diagnostics, metrics and shared state, for debugging. They are not part of the conversation.
 */

import { formatCost, formatShortCount } from "../ui/format.js";
import { jsonText } from "../ui/json.js";
import { html, nothing } from "../vendor/lit.js";
import { TemplateSurface, define, formatCount, formatDuration, humanize, keyOf, toText } from "./base.js";
import { formatValue } from "./facts.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {{ of: Activity, entry: any }} Entry An entry and its activity. */

/** The maximum number of entries drawn; the newest. A run's activity has at most 50. */
const ENTRIES_MAX = 100;
/** Visual states of severities. @type {Record<string, string>} */
const SEVERITIES = { error: "failed", fatal: "failed", critical: "failed", warning: "warning", warn: "warning", info: "idle", debug: "idle" };

export class Diagnostics extends TemplateSurface {
  /** @param {Activity} activity */
  static shows({ activityType, surface }) {
    return surface === "diagnostics" || ["diagnostics", "metrics", "state"].includes(activityType);
  }

  build() {
    this.setAttribute("role", "region");
    this.setAttribute("aria-label", "Diagnostics");
  }

  /** @param {Set<string> | null} changed */
  update(changed) {
    this.hidden = this.activities().length === 0;
    super.update(changed);
  }

  template() {
    const all = this.activities();
    /** @type {(type: string) => Entry[]} */
    const entries = (type) => all.filter((it) => it.activityType === type).flatMap((it) => (Array.isArray(it.content.entries) ? it.content.entries : []).map((/** @type {any} */ entry) => ({ of: it, entry }))).slice(-ENTRIES_MAX).toReversed();
    const hidden = all.reduce((sum, { content }) => sum + (typeof content.hiddenFailures === "number" ? content.hiddenFailures : 0), 0);
    const others = all.filter(({ activityType }) => activityType !== "diagnostics" && activityType !== "metrics");
    return html`
      ${hidden > 0 ? html`<p class="note hidden-failures" data-state="failed">${hidden === 1 ? "A hidden step failed." : `${formatCount(hidden)} hidden steps failed.`}</p>` : nothing}
      ${this.#table("Diagnostics", ["Event", "Severity", "Kind", "Message"], entries("diagnostics"), ({ entry }) => [
        entry.sequence, severity(entry.severity ?? "unknown"), humanize(entry.kind), [entry.code, entry.message, entry.status].map((it) => formatValue(it)).filter(Boolean).join(" · "),
      ])}
      ${this.#table("Cost and duration", ["Event", "Name", "Agent", "Duration", "Cost", "Value"], entries("metrics"), ({ entry }) => [
        entry.sequence, formatValue(entry.name ?? entry.model ?? entry.kind ?? entry.type) || "unknown", formatValue(entry.agentId),
        entry.durationMs === undefined ? "" : formatDuration(entry.durationMs), formatCost(entry.costUsd),
        [entry.value === undefined ? "" : `${formatValue(entry.value)} ${formatValue(entry.unit)}`.trim(), usageText(entry.usage), formatValue(entry.message)].filter(Boolean).join(" · "),
      ])}
      ${others.map((one) => html`<details class="card" data-key=${keyOf(one)}><summary>${one.activityType === "state" ? "Shared state" : humanize(one.activityType)}${one.activityId === one.activityType ? "" : ` ${one.activityId}`}</summary>
        <pre class="json" tabindex="0" role="group" aria-label="State as JSON">${jsonText(one.activityType === "state" ? one.content.state : one.content)}</pre></details>`)}`;
  }

  /**
   * @param {string} caption
   * @param {string[]} names
   * @param {Entry[]} entries
   * @param {(entry: Entry) => unknown[]} cells
   */
  #table(caption, names, entries, cells) {
    if (entries.length === 0) return nothing;
    return html`<div class="table-scroll" tabindex="0" role="group" aria-label=${caption}><table class="table"><caption class="label">${caption}</caption>
      <thead><tr>${names.map((name, at) => html`<th scope="col" class=${at === 0 ? "number" : ""}>${name}</th>`)}<td></td></tr></thead>
      <tbody>${entries.map((one) => html`<tr data-key=${keyOf(one.of)}>${cells(one).map((value, at) => html`<td class=${at === 0 ? "number" : ""}>${value}</td>`)}<td><button type="button" class="inspect" title="Show events" aria-label="Show events" @click=${() => this.view.inspect(one.of)}>i</button></td></tr>`)}</tbody></table></div>`;
  }
}

/**
 * Formats the tokens of a call: `6.2k in, 1.5k out`. Any other usage is formatted member by member.
 * @param {any} usage
 */
function usageText(usage) {
  const [input, output] = [formatShortCount(usage?.inputTokens), formatShortCount(usage?.outputTokens)];
  return input || output ? [input && `${input} in`, output && `${output} out`].filter(Boolean).join(", ") : formatValue(usage);
}

/** @param {unknown} name */
const severity = (name) => html`<span class="badge" data-state=${SEVERITIES[toText(name)] ?? "unknown"} data-status=${toText(name)}>${humanize(name)}</span>`;

define("ps-diagnostics", Diagnostics);
