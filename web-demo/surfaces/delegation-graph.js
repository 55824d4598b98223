/**
 * The delegation graph: the coordinator on the left, workers on its right, with edges for delegation, dependencies and
 * hand-offs. A list shows the same. Arrow keys move from node to node.
 */

import { Surface, define, svgElement, element, updateChildren, setText, humanize, displayedStatus, stateOf, toText } from "./base.js";
import { keyOf } from "../client/store.js";
import { formatValue } from "./facts.js";
import { groupBy, addHeading } from "./lane.js";
import { shownStatus } from "../ui/status.js";

/** @typedef {import("./base.js").Activity} Activity */

/** The maximum number of nodes; the rest is counted. */
const NODES_MAX = 150;
/** Sizes, in pixels. */
const NODE = { width: 108, height: 28 };
const GAP = { x: 36, y: 10 };
const MARGIN = 10;
/** How far an edge between nodes of one column bends out, by kind, in pixels. */
const BULGE = { delegates: 14, waits: 14, "hands over": 24 };
/** The maximum length of a node's name, in characters. */
const NAME_CHARS_MAX = 13;
/** The scales of the graph: the first fits it into the pane, at most as large as it is. */
const ZOOMS = [0, 1, 1.5, 2];
/** Statuses of a completed dependency. */
const DONE = ["done", "completed", "passed"];

/**
 * @typedef {object} Node
 * @property {string} id
 * @property {string} name
 * @property {string} role
 * @property {string} status
 * @property {Activity} [activity]
 * @property {string} [parent]
 * @property {string} task The title of its task.
 * @property {string[]} waits The titles of its open dependencies.
 * @property {number} x
 * @property {number} y
 *
 * @typedef {{ kind: "delegates" | "waits" | "hands over", from: string, to: string, words: string }} Edge
 * @typedef {{ nodes: Map<string, Node>, edges: Edge[], omitted: number, width: number, height: number }} Graph
 */

export class DelegationGraph extends Surface {
  /** @param {Activity} activity */
  static shows({ activityType }) {
    return ["agent", "team", "handoff", "task", "run"].includes(activityType);
  }

  /** The id of the node with the keyboard focus. */
  #focusedId = "";
  /** @type {Graph | undefined} */
  #graph;

  build() {
    this.head = addHeading(this, "Delegation");
    this.canvas = element("div", "graph");
    this.svg = svgElement("svg", { role: "group", "aria-label": "Delegation graph. Arrow keys move between nodes, Enter opens a transcript." });
    this.edges = svgElement("g", { class: "edges", "aria-hidden": "true" });
    this.nodes = svgElement("g", { class: "nodes" });
    this.svg.append(this.edges, this.nodes);
    this.svg.addEventListener("keydown", (event) => this.#key(/** @type {KeyboardEvent} */ (event)));
    this.canvas.append(this.svg);
    const tools = element("div", "row graph-tools");
    const tool = (/** @type {string} */ text, /** @type {string} */ label, /** @type {() => void} */ onClick) => {
      const button = element("button", "button small", text);
      button.type = "button";
      button.dataset.kind = "quiet";
      if (label) button.setAttribute("aria-label", label);
      button.addEventListener("click", onClick);
      tools.append(button);
      return button;
    };
    tool("−", "Zoom out", () => this.#setZoom(this.#zoom - 1));
    tool("+", "Zoom in", () => this.#setZoom(this.#zoom + 1));
    tool("Fit", "", () => this.#setZoom(0));
    const toggle = tool("List", "", () => {
      const isShown = this.list?.classList.toggle("visually-hidden") === false;
      if (this.canvas) this.canvas.hidden = isShown;
      toggle.setAttribute("aria-pressed", String(isShown));
    });
    toggle.title = "Show as list";
    toggle.setAttribute("aria-pressed", "false");
    this.head.querySelector(".spread")?.append(tools);
    const legend = element("p", "row legend hint");
    for (const [kind, text] of [["delegates", "delegated"], ["waits", "waits for"], ["hands-over", "handed off"]]) {
      const item = element("span", "row");
      const sample = svgElement("svg", { class: "sample", viewBox: "0 0 28 8", width: 28, height: 8, "aria-hidden": "true" });
      sample.append(svgElement("path", { d: "M0 4 H28", class: `edge ${kind}` }));
      item.append(sample, text);
      legend.append(item);
    }
    // Screen readers always get the list.
    this.list = element("ul", "graph-list visually-hidden");
    this.list.setAttribute("aria-label", "Delegation as a list");
    this.omitted = element("p", "note");
    this.append(this.canvas, legend, this.omitted, this.list);
  }

  /** The index in `ZOOMS`. */
  #zoom = 0;

  /** @param {number} zoom */
  #setZoom(zoom) {
    this.#zoom = Math.min(ZOOMS.length - 1, Math.max(0, zoom));
    this.update(null);
  }

  /** @param {Set<string> | null} _changed */
  update(_changed) {
    const graph = layOut(graphOf(this.activities()));
    this.#graph = graph;
    this.hidden = graph.edges.length === 0;
    if (this.hidden || !this.svg || !this.edges || !this.nodes || !this.list || !this.omitted) return;
    setText(/** @type {HTMLElement} */ (this.head?.querySelector(".count")), String(graph.nodes.size));
    for (const [name, value] of [["viewBox", `0 0 ${graph.width} ${graph.height}`], ["width", graph.width * (ZOOMS[this.#zoom] || 1)], ["height", graph.height * (ZOOMS[this.#zoom] || 1)]]) this.svg.setAttribute(String(name), String(value));
    this.canvas?.toggleAttribute("data-fit", this.#zoom === 0);
    if (!graph.nodes.has(this.#focusedId)) this.#focusedId = graph.nodes.keys().next().value ?? "";
    updateChildren(this.edges, graph.edges, (edge) => `${edge.kind} ${edge.from} ${edge.to}`, makeEdge, (path, edge) => changeEdge(path, edge, graph));
    updateChildren(this.nodes, graph.nodes.values(), (node) => node.id, (node) => this.#createNode(node), (group, node) => this.#updateNode(group, node));
    updateChildren(this.list, graph.nodes.values(), (node) => node.id, () => element("li"), (item, node) => setText(item, describeNode(node, graph)));
    this.omitted.hidden = graph.omitted === 0;
    setText(this.omitted, `${graph.omitted} more not shown.`);
  }

  /** @param {Node} made */
  #createNode({ id }) {
    const group = svgElement("g", { class: "node", role: "button" });
    group.append(
      svgElement("rect", { width: NODE.width, height: NODE.height, rx: 6 }),
      svgElement("circle", { cx: 13, cy: 14, r: 4 }),
      svgElement("text", { x: 24, y: 18, class: "name" }),
      svgElement("title"),
    );
    group.addEventListener("click", () => this.#open(id));
    group.addEventListener("focus", () => this.#focus(id));
    return group;
  }

  /**
   * @param {SVGElement} group
   * @param {Node} node
   */
  #updateNode(group, node) {
    const [, , name, title] = group.children;
    if (node.activity) group.dataset.key = keyOf(node.activity);
    group.dataset.node = node.id;
    group.dataset.state = stateOf(node.status);
    group.dataset.status = node.status;
    group.setAttribute("transform", `translate(${node.x} ${node.y})`);
    group.setAttribute("tabindex", node.id === this.#focusedId ? "0" : "-1");
    group.dataset.shown = shownStatus(node.status);
    const label = [node.name, humanize(node.status), node.task || node.role].filter(Boolean).join(" · ");
    group.setAttribute("aria-label", label);
    setText(name, truncate(node.name, NAME_CHARS_MAX));
    setText(title, label);
  }

  /** @param {string} id */
  #open(id) {
    const node = this.#graph?.nodes.get(id);
    this.#focus(id);
    if (node?.activity?.activityType === "agent") this.view.open({ kind: "teammate", id, runId: node.activity.runId });
  }

  /** @param {string} id */
  #focus(id) {
    this.#focusedId = id;
    for (const node of this.nodes?.children ?? []) node.setAttribute("tabindex", /** @type {SVGElement} */ (node).dataset.node === id ? "0" : "-1");
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const nodes = [...(this.#graph?.nodes.values() ?? [])];
    const at = nodes.find((node) => node.id === this.#focusedId);
    if (!at) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      return this.#open(at.id);
    }
    const column = nodes.filter((node) => node.x === at.x).toSorted((a, b) => a.y - b.y);
    const beside = (/** @type {number} */ step) => column[column.indexOf(at) + step];
    const children = nodes.filter((node) => node.parent === at.id).toSorted((a, b) => a.y - b.y);
    /** @type {Record<string, Node | undefined>} */
    const next = { ArrowUp: beside(-1), ArrowDown: beside(1), ArrowLeft: nodes.find((node) => node.id === at.parent), ArrowRight: children[0], Home: nodes[0], End: nodes.at(-1) };
    if (!(event.key in next)) return;
    event.preventDefault();
    const to = next[event.key];
    if (!to) return;
    this.#focus(to.id);
    for (const node of this.nodes?.children ?? []) if (/** @type {SVGElement} */ (node).dataset.node === to.id) /** @type {SVGElement} */ (node).focus();
  }
}

/* ── the graph ── */

/**
 * @param {Activity[]} activities Sorted by `opened`.
 * @returns {Graph}
 */
export function graphOf(activities) {
  const of = (/** @type {string} */ type) => activities.filter((it) => it.activityType === type);
  /** @type {Map<string, Node>} */
  const nodes = new Map();
  /** @type {Edge[]} */
  const edges = [];
  let omitted = 0;
  const add = (/** @type {string} */ id, /** @type {Partial<Node>} */ more) => {
    const known = nodes.get(id);
    if (known) return Object.assign(known, more), known;
    if (nodes.size >= NODES_MAX) return void (omitted += 1);
    /** @type {Node} */
    const node = { id, name: id, role: "", status: "unknown", task: "", waits: [], x: 0, y: 0, ...more };
    nodes.set(id, node);
    return node;
  };

  const tasks = new Map(of("task").map((it) => [it.activityId, it]));
  const agents = of("agent");
  const team = of("team").find((it) => it.content.coordinator);
  const runs = of("run");
  // The run's own agent is the coordinator unless the team names one.
  const rootOf = (/** @type {Activity} */ agent) => {
    const parent = agent.content.parentSessionId;
    const run = runs.find((it) => parent !== undefined && it.content.sessionId === parent) ?? runs.find((it) => it.runId === agent.runId);
    const id = toText(run?.content.agentId ?? team?.content.coordinator) || "coordinator";
    if (!nodes.has(id)) add(id, { role: "coordinator", status: toText(run?.content.status) || "unknown", activity: run });
    return id;
  };
  const bySession = new Map(agents.filter((it) => it.content.sessionId).map((it) => [it.content.sessionId, it.activityId]));
  for (const agent of agents) {
    const { content, activityId: id } = agent;
    const above = bySession.get(content.parentSessionId);
    const coordinator = toText(runs.find((it) => it.runId === agent.runId)?.content.agentId ?? team?.content.coordinator);
    const parent = id === coordinator ? undefined : above !== undefined && above !== id ? above : rootOf(agent);
    const task = tasks.get(toText(content.taskId));
    const node = add(id, {
      name: toText(content.agentName) || id, role: formatValue(content.role), status: toText(displayedStatus(content)) || "unknown", activity: agent,
      parent: parent === id ? undefined : parent, task: formatValue(task?.content.title ?? content.spawnReason),
    });
    if (node?.parent) edges.push({ kind: "delegates", from: node.parent, to: id, words: node.task });
  }

  const ownerOf = (/** @type {Activity | undefined} */ task) =>
    task && [task.content.agentId, task.content.assignee, agents.find((it) => it.content.taskId === task.activityId)?.activityId].find((id) => typeof id === "string" && nodes.has(id));
  for (const task of tasks.values()) {
    const { dependencies, status, title } = task.content;
    const from = ownerOf(task);
    if (from === undefined || !Array.isArray(dependencies) || DONE.includes(toText(status))) continue;
    for (const dependency of dependencies) {
      const on = tasks.get(toText(dependency));
      if (on && DONE.includes(toText(on.content.status))) continue;
      nodes.get(from)?.waits.push(on ? `${formatValue(on.content.title) || on.activityId} (${humanize(on.content.status)})` : `${formatValue(dependency)} (unknown)`);
      const to = ownerOf(on);
      if (to !== undefined && to !== from) edges.push({ kind: "waits", from, to, words: formatValue(title) });
    }
  }

  for (const { content } of of("handoff")) {
    const [from, to] = [content.from, content.to].map((who) => toText(who));
    if (!from || !to || from === to) continue;
    for (const id of [from, to]) if (!nodes.has(id)) add(id, { role: "unknown agent" });
    edges.push({ kind: "hands over", from, to, words: formatValue(content.reason) });
  }
  return { nodes, edges: edges.filter((edge) => nodes.has(edge.from) && nodes.has(edge.to)), omitted, width: 0, height: 0 };
}

/**
 * Lays out the nodes: a column per distance from the root, a row per leaf, parents in the middle of their children.
 * @param {Graph} graph
 */
export function layOut(graph) {
  const nodes = [...graph.nodes.values()];
  const children = groupBy(nodes, (node) => (node.parent !== undefined && graph.nodes.has(node.parent) ? node.parent : ""));
  let row = 0;
  let deepest = 0;
  /** @type {Set<Node>} */
  const placed = new Set();
  const place = (/** @type {Node} */ node, /** @type {number} */ depth) => {
    placed.add(node);
    deepest = Math.max(deepest, depth);
    node.x = MARGIN + depth * (NODE.width + GAP.x);
    const below = (children.get(node.id) ?? []).filter((child) => !placed.has(child));
    below.forEach((child) => place(child, depth + 1));
    const at = below.length > 0 ? (below[0].y + below[below.length - 1].y) / 2 : MARGIN + row++ * (NODE.height + GAP.y);
    node.y = at;
  };
  (children.get("") ?? []).forEach((root) => place(root, 0));
  // A cycle of parents has no root; its nodes are placed nevertheless.
  nodes.forEach((node) => placed.has(node) || place(node, 0));
  graph.width = 2 * MARGIN + (deepest + 1) * NODE.width + deepest * GAP.x + BULGE["hands over"];
  graph.height = 2 * MARGIN + Math.max(1, row) * (NODE.height + GAP.y) - GAP.y;
  return graph;
}

/* ── drawing ── */

/** @param {Edge} edge */
function makeEdge(edge) {
  const group = svgElement("g", { class: `edge-group ${edge.kind.replaceAll(" ", "-")}` });
  group.append(svgElement("path", { class: `edge ${edge.kind.replaceAll(" ", "-")}` }), svgElement("path", { class: `tip ${edge.kind.replaceAll(" ", "-")}` }), svgElement("title"));
  return group;
}

/**
 * @param {SVGElement} group
 * @param {Edge} edge
 * @param {Graph} graph
 */
function changeEdge(group, edge, graph) {
  const [from, to] = [graph.nodes.get(edge.from), graph.nodes.get(edge.to)];
  if (!from || !to) return;
  group.dataset.edge = edge.kind;
  group.dataset.from = edge.from;
  group.dataset.to = edge.to;
  // Parallel edges between the same two nodes must not overlap.
  const aside = { delegates: 0, waits: 6, "hands over": -6 }[edge.kind];
  const y = { from: from.y + NODE.height / 2 + aside, to: to.y + NODE.height / 2 + aside };
  const isForward = to.x > from.x;
  const isBack = to.x < from.x;
  const start = isBack ? from.x : from.x + NODE.width;
  const end = isForward ? to.x : to.x + NODE.width;
  const reach = isForward ? (end - start) / 2 : isBack ? -(start - end) / 2 : BULGE[edge.kind];
  const bend = isForward || isBack ? end - reach : end + BULGE[edge.kind];
  const [line, tip, title] = group.children;
  line.setAttribute("d", `M${start} ${y.from} C${start + reach} ${y.from} ${bend} ${y.to} ${end} ${y.to}`);
  const back = isForward ? -5 : 5;
  tip.setAttribute("d", `M${end} ${y.to} l${back} -3 v6 z`);
  setText(title, `${from.name} ${edge.kind} ${to.name}${edge.words ? `: ${edge.words}` : ""}`);
}

/**
 * @param {Node} node
 * @param {Graph} graph
 */
function describeNode(node, graph) {
  const name = (/** @type {string} */ id) => graph.nodes.get(id)?.name ?? id;
  const parts = [`${node.name}${node.role ? `, ${node.role}` : ""}: ${humanize(node.status)}`];
  if (node.parent !== undefined) parts.push(`delegated by ${name(node.parent)}${node.task ? `: ${node.task}` : ""}`);
  if (node.waits.length > 0) parts.push(`waits for ${node.waits.join(", ")}`);
  for (const edge of graph.edges.filter((it) => it.kind === "hands over" && it.from === node.id)) parts.push(`handed off to ${name(edge.to)}${edge.words ? `: ${edge.words}` : ""}`);
  return `${parts.join("; ")}.`;
}

/**
 * @param {string} text
 * @param {number} most
 */
const truncate = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

define("ps-delegation-graph", DelegationGraph);
