/**
 * A row of the events: its columns, and what they show of an envelope.
 */

import { formatBytes, formatExact } from "../ui/format.js";
import { element, keyOf, setText } from "./base.js";
import { describe } from "./describe.js";
import { dayText, timeText } from "./event-detail.js";

/** @typedef {import("./base.js").View} View */
/** @typedef {import("./event-log.js").Row} Row */

/**
 * A line of the list: an envelope, or consecutive ones of one type and subject in the compact form.
 * @typedef {{ first: Row, last: Row, count: number, size: number, text: string }} Line `text`: the summary; of streamed text its beginning.
 */

/** How long a row keeps what it shows while its line does not change, in milliseconds. */
const FILLED_MS = 1000;

/** The families of event types, by their beginning; each has a colour. @type {[RegExp, string][]} */
const FAMILIES = [
  [/(^|\.)(failed|error)$|^diagnostic\./, "fail"],
  [/^action\.required$/, "wait"],
  [/^tool\./, "tool"],
  [/^(reasoning|plan)\./, "think"],
  [/^(text|messages?|artifact|evidence|review)\./, "message"],
];

/** @param {string} type */
const familyOf = (type) => FAMILIES.find(([pattern]) => pattern.test(type))?.[1] ?? "turn";

/** The columns: their classes and headings. @type {[string, string][]} */
export const COLUMNS = [["event-sequence", "Seq"], ["event-time", "Time"], ["event-type", "Type"], ["event-owner", "Owner"], ["event-agent", "Agent"], ["event-audience", "Audience"], ["event-summary", "Summary"], ["event-size", "Size"]];

/** What each row shows: a write of the same text and attributes costs, too. @type {WeakMap<HTMLElement, string>} */
const fills = new WeakMap();

export function makeRow() {
  const row = element("div", "event-row");
  for (const [name] of COLUMNS) row.append(element("span", name));
  row.querySelector(".event-type")?.append(element("i", "event-square"), element("span", "truncate"));
  row.querySelector(".event-audience")?.append(element("span", "tag"));
  return row;
}

/**
 * @param {View} view
 * @param {HTMLElement} row
 * @param {Line} line
 * @param {Row | undefined} selected
 */
export function fillRow(view, row, { first, last, count, size, text }, selected) {
  const [sequence, time, type, owner, agent, audience, summary, bytes] = /** @type {HTMLElement[]} */ ([...row.children]);
  const isSelected = selected !== undefined && (selected === first || selected === last || (selected.subject === first.subject && first.sequence <= selected.sequence && selected.sequence <= last.sequence));
  // Titles and names of the store may arrive later.
  const fill = `${first.key} ${count} ${isSelected} ${Math.floor(performance.now() / FILLED_MS)}`;
  if (fills.get(row) === fill) return;
  fills.set(row, fill);
  row.dataset.key = first.key;
  row.id = `event-${first.key}`;
  row.setAttribute("aria-selected", String(isSelected));
  row.dataset.sequence = String(first.sequence);
  row.dataset.family = familyOf(first.type);
  row.title = first.run ? `Run ${first.run}` : "The session's own log";
  setText(sequence, count > 1 ? `${first.sequence}–${last.sequence}` : String(first.sequence));
  const day = dayText(first.time);
  time.title = formatExact(first.time);
  time.dataset.day = day;
  // Of an earlier day, the day says more than the milliseconds.
  setText(time, day ? timeText(first.time).replace(/\.\d+$/, "") : timeText(first.time));
  setText(/** @type {Element} */ (type.lastElementChild), count > 1 ? `${first.type} ×${count}` : first.type);
  setText(owner, first.owner);
  setText(agent, first.agent === "" ? "" : agentName(view, first.agent, first.run));
  setText(/** @type {Element} */ (audience.firstElementChild), first.audience);
  audience.dataset.audience = first.audience;
  setText(summary, [last.hasTitle ? "" : itemTitle(view, last), text, first.isWithheld ? "rest withheld" : ""].filter(Boolean).join(" · "));
  setText(bytes, formatBytes(size));
}

/**
 * Returns the title of the item that an envelope is about, where the store has it.
 * @param {View} view
 * @param {Row} row
 */
function itemTitle(view, { run, item }) {
  const activity = item ? view.store.get(keyOf({ runId: run, ...item })) : undefined;
  return activity ? describe(activity).title : "";
}

/**
 * Returns the name of an agent, where the store has it.
 * @param {View} view
 * @param {string} id
 * @param {string} [runId]
 */
export function agentName(view, id, runId = view.runId ?? "") {
  const name = view.store.get(keyOf({ runId, activityType: "agent", activityId: id }))?.content.agentName;
  return typeof name === "string" && name !== "" ? name : id;
}
