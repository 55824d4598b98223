/**
 * The columns of the runs, and what groups them: what there is to choose, and what fits.
 */

import { sessionStatus } from "./session-header.js";

/** What groups the runs: a facet that the server counts. @typedef {import("./run-filter.js").Facet} GroupName */

/**
 * @typedef {object} Column
 * @property {string} name Also its class, with `run-` before it.
 * @property {string} label
 * @property {string} [sort] The member by which the server sorts.
 * @property {string} track Its width, as a track of the grid.
 * @property {string} [narrow] Its width in a narrow table.
 * @property {number} min The width that it needs, in pixels.
 * @property {number} [rank] When it leaves a table that is too narrow: the lowest first. Without one, it stays.
 */

/** @type {Column[]} */
export const COLUMNS = [
  { name: "check", label: "", track: "26px", min: 26 },
  { name: "title", label: "Run", track: "minmax(150px, 5fr)", min: 180 },
  { name: "why", label: "Why it stands out", track: "minmax(150px, 6fr)", narrow: "minmax(120px, 5fr)", min: 180, rank: 9 },
  { name: "status", label: "Status", track: "96px", min: 96, rank: 3 },
  { name: "agent", label: "Agent", track: "minmax(60px, 120px)", narrow: "minmax(60px, 96px)", min: 96, rank: 4 },
  { name: "session", label: "Session", track: "minmax(80px, 140px)", min: 100, rank: 2 },
  { name: "started", label: "Started", sort: "started", track: "84px", narrow: "74px", min: 74, rank: 8 },
  { name: "ended", label: "Ended", sort: "ended", track: "84px", narrow: "74px", min: 74, rank: 1 },
  { name: "duration", label: "Duration", sort: "duration", track: "142px", narrow: "84px", min: 84, rank: 6 },
  { name: "tokens", label: "Tokens", sort: "tokens", track: "58px", narrow: "52px", min: 52, rank: 5 },
  { name: "cost", label: "Cost", sort: "cost", track: "62px", narrow: "58px", min: 58, rank: 7 },
];
/** The columns that are shown unless a person chooses others. */
export const USUAL_COLUMNS = "why,agent,started,duration,tokens,cost";
/** Below this width of the table, columns are narrow, and durations have no bars. As in the style sheet. */
const NARROW_PX = 1180;
/** Below this width the rows are cards, which have no place for other columns. As in the style sheet. */
const TABLE_PX = 560;
const CARD_COLUMNS = ["check", "title", "why", "started"];
/** The space between columns, and beside the table, in pixels. As in the style sheet. */
const [GAP_PX, EDGE_PX] = [12, 32];

/** The agent of runs that name none, as the server counts them. */
export const DEFAULT_AGENT = "default";

/** @type {[GroupName, string][]} */
export const GROUPS = [["status", "Status"], ["agent", "Agent"], ["source", "Source"], ["owner", "Owner"]];

/** @param {string | undefined} name @returns {GroupName | undefined} */
export const groupNamed = (name) => GROUPS.find(([one]) => one === name)?.[0];

/** @param {GroupName} name @param {string} value Empty: of the runs without any. */
export const nameOfGroup = (name, value) => (value === "" ? `No ${name}` : name !== "status" ? value : value === "waiting" ? "Needs you" : sessionStatus(value)[1]);

/** The columns that a person may choose. */
export const CHOICES = COLUMNS.filter(({ rank }) => rank !== undefined);

/** The names in a text with commas between, in the order of the table. @param {string} text */
export const parseColumns = (text) => CHOICES.map(({ name }) => name).filter((name) => text.split(",").includes(name));

/**
 * The columns that fit.
 * @param {string} chosen Their names, with commas between.
 * @param {number} width Of the table, in pixels.
 */
export function fittingColumns(chosen, width) {
  const names = parseColumns(chosen);
  const columns = COLUMNS.filter(({ name, rank }) => rank === undefined || names.includes(name));
  if (width < TABLE_PX) return columns.filter(({ name }) => CARD_COLUMNS.includes(name));
  const leaving = columns.filter(({ rank }) => rank !== undefined).sort((a, b) => (a.rank ?? 0) - (b.rank ?? 0));
  const needed = () => columns.reduce((sum, { min }) => sum + min + GAP_PX, EDGE_PX - GAP_PX);
  // What leaves last is what is left beside the title.
  while (needed() > width && leaving.length > 1) columns.splice(columns.indexOf(/** @type {Column} */ (leaving.shift())), 1);
  return columns;
}

/** The tracks of the grid. @param {Column[]} columns @param {number} width Of the table, in pixels. */
export const tracksOf = (columns, width) => columns.map(({ track, narrow }) => (width < NARROW_PX ? narrow ?? track : track)).join(" ");
