/**
 * Diagnostics, metrics and shared state, for debugging. They are not part of the conversation.
 */

import { Surface, formatCount, define, formatDuration, element, inspectButton, updateChildren, setBadge, setText, humanize, toText } from "./base.js";
import { keyOf } from "../client/store.js";
import { addHeading, formatValue } from "./lane.js";

/** @typedef {import("./base.js").Activity} Activity */

/** The maximum number of entries drawn; the newest. A run's activity has at most 50. */
const ENTRIES_MAX = 100;
/** The maximum length of a state, in characters. */
const STATE_CHARS_MAX = 4000;

/** Visual states of severities. @type {Record<string, string>} */
const SEVERITIES = { error: "failed", fatal: "failed", critical: "failed", warning: "warning", warn: "warning", info: "idle", debug: "idle" };

export class Diagnostics extends Surface {
  /** @param {Activity} activity */
  static shows({ activityType, surface }) {
    return surface === "diagnostics" || ["diagnostics", "metrics", "state"].includes(activityType);
  }

  build() {
    this.head = addHeading(this, "Diagnostics", "Not part of the conversation.");
    this.faults = table("Events", ["Event", "Severity", "Kind", "Message"]);
    this.costs = table("Cost and duration", ["Event", "Name", "Agent", "Duration", "Cost", "Value"]);
    this.others = element("div", "stack");
    this.hiddenFailures = element("p", "note hidden-failures");
    this.append(this.hiddenFailures, this.faults.root, this.costs.root, this.others);
  }

  /** @param {Set<string> | null} _changed */
  update(_changed) {
    const all = this.activities();
    this.hidden = all.length === 0;
    if (this.hidden || !this.faults || !this.costs || !this.others) return;
    const entries = (/** @type {string} */ type) => all.filter((it) => it.activityType === type)
      .flatMap((it) => (Array.isArray(it.content.entries) ? it.content.entries : []).map((/** @type {any} */ entry, /** @type {number} */ at) => ({ key: `${keyOf(it)} ${entry?.sequence} ${at}`, of: it, entry })))
      .slice(-ENTRIES_MAX).toReversed();
    const [faults, costs] = [entries("diagnostics"), entries("metrics")];
    const hidden = all.reduce((sum, { content }) => sum + (typeof content.hiddenFailures === "number" ? content.hiddenFailures : 0), 0);
    if (this.hiddenFailures) {
      this.hiddenFailures.hidden = hidden === 0;
      this.hiddenFailures.dataset.state = "failed";
      setText(this.hiddenFailures, hidden === 1 ? "A hidden step failed." : `${formatCount(hidden)} hidden steps failed.`);
    }
    setText(/** @type {HTMLElement} */ (this.head?.querySelector(".count")), `${formatCount(faults.length)} diagnostics, ${formatCount(costs.length)} metrics`);
    this.#rows(this.faults, faults, ({ entry }) => [entry.sequence, entry.severity ?? "unknown", humanize(entry.kind), [entry.code, entry.message, entry.status].map((it) => formatValue(it)).filter(Boolean).join(" · ")]);
    this.#rows(this.costs, costs, ({ entry }) => [
      entry.sequence,
      formatValue(entry.name ?? entry.model ?? entry.kind ?? entry.type) || "unknown",
      formatValue(entry.agentId),
      entry.durationMs === undefined ? "" : formatDuration(entry.durationMs),
      entry.costUsd === undefined ? "" : `$${formatValue(entry.costUsd)}`,
      [entry.value === undefined ? "" : `${formatValue(entry.value)} ${formatValue(entry.unit)}`.trim(), formatValue(entry.usage), formatValue(entry.message)].filter(Boolean).join(" · "),
    ]);
    const others = all.filter((it) => it.activityType !== "diagnostics" && it.activityType !== "metrics");
    updateChildren(this.others, others, keyOf, (it) => this.#other(it), (card, it) => {
      card.dataset.key = keyOf(it);
      const text = JSON.stringify(it.activityType === "state" ? it.content.state : it.content, null, 2) ?? "";
      setText(/** @type {HTMLElement} */ (card.querySelector("pre")), text.length > STATE_CHARS_MAX ? `${text.slice(0, STATE_CHARS_MAX)}…` : text);
    });
  }

  /**
   * @param {{ root: HTMLElement, body: HTMLElement }} on
   * @param {{ key: string, of: Activity, entry: any }[]} entries
   * @param {(it: { of: Activity, entry: any }) => unknown[]} cells
   */
  #rows(on, entries, cells) {
    on.root.hidden = entries.length === 0;
    updateChildren(on.body, entries, (it) => it.key, (node) => {
      const row = element("tr");
      row.append(...cells(node).map((_, at) => element("td", at === 0 ? "number" : "")));
      const last = element("td");
      last.append(inspectButton(() => this.view, () => this.view.store.get(keyOf(node.of))));
      row.append(last);
      return row;
    }, (row, it) => {
      row.dataset.key = keyOf(it.of);
      cells(it).forEach((value, at) => {
        if (on === this.faults && at === 1) return severity(row.children[at], toText(value));
        setText(row.children[at], toText(value));
      });
    });
  }

  /** @param {Activity} node */
  #other(node) {
    const card = element("details", "card");
    const head = element("summary", "", `${node.activityType === "state" ? "Shared state" : humanize(node.activityType)}${node.activityId === node.activityType ? "" : ` ${node.activityId}`}`);
    const text = element("pre", "preview");
    text.tabIndex = 0;
    text.setAttribute("role", "group");
    text.setAttribute("aria-label", "State as JSON");
    card.append(head, text);
    return card;
  }
}

/**
 * @param {Element} cell
 * @param {string} name
 */
function severity(cell, name) {
  const node = cell.firstElementChild instanceof HTMLElement ? cell.firstElementChild : cell.appendChild(element("span"));
  setBadge(node, name);
  node.dataset.state = Object.hasOwn(SEVERITIES, name) ? SEVERITIES[name] : "unknown";
}

/**
 * @param {string} caption
 * @param {string[]} names
 */
function table(caption, names) {
  const root = element("div", "table-scroll");
  const node = element("table", "table");
  const head = element("thead");
  const row = element("tr");
  for (const [at, name] of names.entries()) {
    const cell = element("th", at === 0 ? "number" : "", name);
    cell.scope = "col";
    row.append(cell);
  }
  row.append(element("td"));
  const body = element("tbody");
  node.append(element("caption", "label", caption), head, body);
  head.append(row);
  root.append(node);
  root.tabIndex = 0;
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", caption);
  return { root, body };
}

define("ps-diagnostics", Diagnostics);
