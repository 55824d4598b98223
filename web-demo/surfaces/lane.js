/**
 * What the surfaces of the team share: a titled list of cards, one for each activity, and values said in words.
 */

import { Surface, badge, count, drawing, element, inspectButton, keyed, mark, say, spoken, standing, words } from "./base.js";
import { keyOf } from "../client/store.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").View} View */

/** Cards that are drawn before somebody asks for more. */
const CARDS_MAX = 50;
/** Characters of a value in a list of facts. The whole is in the inspector. */
const VALUE_CHARS_MAX = 400;
/** Items and members of a value that are said. */
const ITEMS_MAX = 20;

/**
 * One activity's card. What it shows is filled in with every change; its buttons are made once.
 * @typedef {object} Card
 * @property {HTMLElement} root
 * @property {HTMLElement} title
 * @property {HTMLElement} state Its badge.
 * @property {HTMLElement} body
 * @property {HTMLDListElement} facts
 * @property {HTMLElement} links
 * @property {HTMLElement} foot Controls; not there while the past is shown.
 * @property {HTMLElement} told What became of a control.
 * @property {Activity} activity As it is now.
 */

/** @type {WeakMap<Element, Card>} */
const cards = new WeakMap();

let headings = 0;

/** A titled list of cards. What has nothing to show hides itself. */
export class Lane extends Surface {
  /** Its heading. */
  static heading = "";
  /** What it is for, in a few words below the heading. */
  static hint = "";

  /** How many cards are drawn. */
  #drawn = CARDS_MAX;

  build() {
    const { heading, hint } = /** @type {typeof Lane} */ (this.constructor);
    this.#drawn = CARDS_MAX;
    this.head = headed(this, heading, hint);
    this.top = element("div", "stack");
    this.list = element("ul", "cards");
    this.more = element("button", "button");
    this.more.type = "button";
    this.more.dataset.kind = "quiet";
    this.more.addEventListener("click", () => {
      this.#drawn += CARDS_MAX;
      this.update(null);
    });
    this.append(this.top, this.list, this.more);
  }

  /** @param {Set<string> | null} _changed */
  update(_changed) {
    const all = this.arranged(this.activities());
    this.hidden = all.length === 0;
    if (this.hidden || !this.list || !this.more) return;
    say(/** @type {HTMLElement} */ (this.head?.querySelector(".count")), String(all.length));
    keyed(this.list, all.slice(0, this.#drawn), keyOf, (activity) => this.#make(activity), (root, activity) => this.#change(root, activity));
    const rest = all.length - this.#drawn;
    this.more.hidden = rest <= 0;
    say(this.more, `Show ${Math.min(rest, CARDS_MAX)} more of ${count(rest)}`);
    this.summed(all);
  }

  /**
   * In the order in which they are shown: the newest first, unless a surface knows better.
   * @param {Activity[]} activities
   * @returns {Activity[]}
   */
  arranged(activities) {
    return activities.toReversed();
  }

  /**
   * Makes what a card has once: its buttons.
   * @param {Card} _card
   */
  dress(_card) {}

  /**
   * Fills a card in.
   * @param {Card} _card
   * @param {Record<string, any>} _content
   */
  fill(_card, _content) {}

  /**
   * Draws what all of them come to, above the cards.
   * @param {Activity[]} _all
   */
  summed(_all) {}

  /** @param {Activity} activity */
  #make(activity) {
    const root = element("li", "card");
    const head = element("div", "card-head");
    const name = element("div", "row");
    const title = element("h3", "card-title");
    const side = element("div", "row");
    const state = element("span", "badge");
    /** @type {Card} */
    const card = {
      root, title, state, activity,
      body: element("p", "card-body"), facts: element("dl", "facts"), links: element("div", "row links"),
      foot: element("div", "card-foot"), told: element("p", "hint told"),
    };
    name.append(title);
    side.append(state, inspectButton(() => this.view, () => card.activity));
    head.append(name, side);
    card.told.setAttribute("role", "status");
    root.append(head, card.body, card.facts, card.links, card.foot, card.told);
    cards.set(root, card);
    this.dress(card);
    return root;
  }

  /**
   * @param {HTMLElement} root
   * @param {Activity} activity
   */
  #change(root, activity) {
    const card = /** @type {Card} */ (cards.get(root));
    card.activity = activity;
    root.dataset.key = keyOf(activity);
    mark(card.state, standing(activity.content));
    root.dataset.state = card.state.dataset.state;
    this.fill(card, activity.content);
    card.body.hidden = card.body.textContent === "";
    card.facts.hidden = card.facts.childElementCount === 0;
    card.links.hidden = card.links.childElementCount === 0;
    card.foot.hidden = !this.view.isLive || card.foot.childElementCount === 0;
  }
}

/**
 * A surface's heading, which is its name for who does not see it, too.
 * @param {HTMLElement} on
 * @param {string} heading
 * @param {string} [hint]
 */
export function headed(on, heading, hint = "") {
  const head = element("header", "lane-head");
  const row = element("div", "spread");
  const title = element("h2", "", heading);
  title.id = `heading-${++headings}`;
  row.append(title, element("span", "count hint"));
  head.append(row);
  if (hint) head.append(element("p", "hint", hint));
  on.setAttribute("role", "region");
  on.setAttribute("aria-labelledby", title.id);
  on.append(head);
  return head;
}

/**
 * Items by what they have in common, each group in the items' order.
 * @template Item
 * @param {Iterable<Item>} items
 * @param {(item: Item) => string} groupOf
 * @returns {Map<string, Item[]>}
 */
export function grouped(items, groupOf) {
  /** @type {Map<string, Item[]>} */
  const groups = new Map();
  for (const item of items) {
    const group = groups.get(groupOf(item));
    if (group) group.push(item);
    else groups.set(groupOf(item), [item]);
  }
  return groups;
}

/* ── values in words ── */

/**
 * `inputTokens` → `input tokens`.
 * @param {string} name
 */
export const named = (name) => name.replace(/([a-z0-9])([A-Z])/g, "$1 $2").replaceAll("_", " ").toLowerCase();

/**
 * Any value in words, bounded: `{ mode: "plan", maxCostUsd: 2 }` → `mode plan, max cost usd 2`. Nothing is nothing.
 * @param {unknown} value
 * @param {number} [depth] How deep it still goes before JSON stands for the rest.
 * @returns {string}
 */
export function phrase(value, depth = 3) {
  if (value === undefined || value === null) return "";
  if (typeof value === "number") return count(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "object") return cut(words(value));
  if (depth === 0) return cut(words(value));
  const all = Array.isArray(value)
    ? value.map((item) => phrase(item, depth - 1))
    : Object.entries(value).map(([name, member]) => `${named(name)} ${phrase(member, depth - 1)}`);
  const rest = all.length > ITEMS_MAX ? [`and ${all.length - ITEMS_MAX} more`] : [];
  return cut([...all.slice(0, ITEMS_MAX), ...rest].join(", "));
}

/** @param {string} text */
const cut = (text) => (text.length > VALUE_CHARS_MAX ? `${text.slice(0, VALUE_CHARS_MAX)}…` : text);

/** Statuses with which an agent is over. */
export const OVER = ["completed", "failed", "killed", "closed", "cancelled"];

/** Said of what has to be there and is not. */
export const UNKNOWN = "unknown";

/**
 * Fills a list of facts. A value that nobody told is left out; where the seed asks for one, the caller says `unknown`.
 * @param {HTMLDListElement} on
 * @param {[label: string, value: unknown][]} pairs
 */
export function tell(on, pairs) {
  const told = pairs.map(([label, value]) => /** @type {[string, string]} */ ([label, phrase(value)])).filter(([, text]) => text !== "");
  /** @type {{ key: string, tag: "dt" | "dd", text: string }[]} */
  const rows = told.flatMap(([label, text]) => [{ key: `dt ${label}`, tag: "dt", text: label }, { key: `dd ${label}`, tag: "dd", text }]);
  keyed(on, rows, (row) => row.key, (row) => element(row.tag), (child, row) => {
    say(child, row.text);
    child.toggleAttribute("data-unknown", row.text === UNKNOWN);
  });
}

/**
 * Where something is: an address that can be opened here becomes a button, any other is only said.
 * @typedef {{ label: string, words: string, go?: () => void, missing?: string }} Link
 */

/**
 * @param {HTMLElement} on
 * @param {Link[]} links
 */
export function link(on, links) {
  keyed(on, links, (it) => `${it.go ? "go" : "said"} ${it.label} ${it.words}`, (it) => {
    const made = element(it.go ? "button" : "span", it.go ? "chip go" : "chip");
    if (made instanceof HTMLButtonElement) made.type = "button";
    made.append(element("span", "chip-label", it.label), element("span", "mono truncate", it.words));
    if (it.missing) made.append(badge("unavailable", it.missing));
    return made;
  }, (child, it) => {
    if (child instanceof HTMLButtonElement) child.onclick = it.go ?? null;
  });
}

/** Offloaded bodies, which this server has: the only addresses of a payload that are ever asked. */
export const BLOB = /^\/v1\/blobs\/[0-9a-f]+$/;

/**
 * Links of references, as the protocol or a source writes them: `{ rel, href, bytes? }`, or text.
 * @param {View} view
 * @param {unknown} refs
 * @param {string} [label]
 * @returns {Link[]}
 */
export function refsOf(view, refs, label = "ref") {
  const all = Array.isArray(refs) ? refs : refs === undefined || refs === null ? [] : typeof refs === "object" && !("href" in refs) ? Object.entries(refs).map(([rel, href]) => ({ rel, href })) : [refs];
  return all.slice(0, ITEMS_MAX).map((ref) => {
    const href = typeof ref === "object" && ref ? words(ref.href ?? ref.ref ?? ref.url ?? ref) : words(ref);
    const name = typeof ref === "object" && ref?.rel ? spoken(ref.rel) : label;
    return { label: name, words: cut(href), go: BLOB.test(href) ? () => view.open({ kind: "blob", href }) : undefined };
  });
}

/**
 * Links to evidence, of which only that is one which an evidence fact stands for.
 * @param {View} view
 * @param {Activity} from
 * @param {unknown} ids
 * @returns {Link[]}
 */
export function evidenceOf(view, from, ids) {
  return factsOf(view, from, ids, "evidence", "no evidence fact");
}

/**
 * @param {View} view
 * @param {Activity} from
 * @param {unknown} ids
 * @returns {Link[]}
 */
export function artifactsOf(view, from, ids) {
  return factsOf(view, from, ids, "artifact", "no artifact fact");
}

/**
 * @param {View} view
 * @param {Activity} from
 * @param {unknown} ids
 * @param {"evidence" | "artifact"} kind
 * @param {string} missing
 * @returns {Link[]}
 */
function factsOf(view, from, ids, kind, missing) {
  const all = Array.isArray(ids) ? ids : ids === undefined || ids === null ? [] : [ids];
  return all.slice(0, ITEMS_MAX).map((ref) => {
    const id = words(typeof ref === "object" && ref ? (ref.id ?? ref[`${kind}Id`] ?? ref) : ref);
    const fact = ofType(view, from, kind, id);
    if (!fact) return { label: kind, words: cut(id), missing };
    return { label: kind, words: words(fact.content.title) || id, go: () => view.open({ kind, id, runId: fact.runId }) };
  });
}

/**
 * An activity of this type and id: of the same run, else of any that is looked at.
 * @param {View} view
 * @param {Activity} from
 * @param {string} type
 * @param {string} id
 * @returns {Activity | undefined}
 */
export function ofType(view, from, type, id) {
  const inLog = (/** @type {{ runId: string, sessionId?: string }} */ { runId, sessionId }) => view.store.get(keyOf({ runId, sessionId, activityType: type, activityId: id }));
  const own = inLog(from);
  if (own) return own;
  for (const log of view.store.runs()) {
    const found = inLog(log);
    if (found) return found;
  }
  return undefined;
}

/**
 * How an agent is called; its id, where no fact tells more.
 * @param {View} view
 * @param {Activity} from
 * @param {unknown} id
 */
export function nameOf(view, from, id) {
  if (typeof id !== "string") return phrase(id) || UNKNOWN;
  return words(ofType(view, from, "agent", id)?.content.agentName) || id;
}

/**
 * The run whose log an activity is in, as an activity; nothing for a session's own log.
 * @param {View} view
 * @param {Activity} activity
 */
export function beganBy(view, { runId }) {
  return runId === "" ? undefined : view.store.get(keyOf({ runId, activityType: "run", activityId: runId }));
}

/**
 * How the work is organised, in words, where the source said so.
 * @param {Record<string, any>} content
 */
export const topologyOf = ({ topology }) => (topology === undefined || topology === "unknown" ? undefined : spoken(topology));

/**
 * The log whose control it is: its run's, or its session's where it is of no run.
 * @param {Activity} activity
 * @returns {{ run: string } | { session: string }}
 */
export function ownerOf(activity) {
  const { runId, sessionId } = /** @type {{ runId?: string, sessionId?: string }} */ (activity);
  return runId ? { run: runId } : { session: sessionId ?? "" };
}

/**
 * A round mark of two letters for who acts.
 * @param {string} name
 * @param {unknown} [color] As the source says, if it is a colour.
 */
export function face(name, color) {
  const made = drawing("svg", { class: "face", viewBox: "0 0 32 32", "aria-hidden": "true" });
  const disc = drawing("circle", { cx: 16, cy: 16, r: 15 });
  const letters = drawing("text", { x: 16, y: 20.5, "text-anchor": "middle" });
  letters.textContent = initials(name);
  if (typeof color === "string" && CSS.supports("color", color)) disc.style.stroke = color;
  made.append(disc, letters);
  return made;
}

/** @param {string} name */
export function initials(name) {
  const [first = "", second = ""] = name.split(/[\s_@/.-]+/).filter(Boolean);
  return ([...first][0] ?? "?").toUpperCase() + ([...(second || first.slice([...first][0]?.length ?? 0))][0] ?? "").toLowerCase();
}
