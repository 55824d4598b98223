/**
 * The details of a step of the trace: its times, error, input and output, facts and links.
 */

import { humanize, toText } from "./base.js";
import { describe } from "./describe.js";
import { formatValue, splitWords } from "./facts.js";
import { artifactLinks, evidenceLinks, linksTemplate, refLinks } from "./links.js";
import { kindOf } from "./row-model.js";
import { textOfStep } from "./spans.js";
import { waitReason } from "./tool.js";
import { html, nothing } from "../vendor/lit.js";
import { statusLabel } from "../ui/glyphs.js";
import { icon } from "../ui/icons.js";
import { formatCost, formatExact, formatShortCount, formatSpan } from "../ui/format.js";
import { formatElapsed, pageAxis } from "../ui/time-axis.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").View} View */
/** @typedef {import("./spans.js").Lane} Lane */
/** @typedef {import("./spans.js").Span} Span */

/** Lines of an output, and characters of a text, in the details. The event shows the whole. */
const OUTPUT_LINES = 12;
const TEXT_CHARS_MAX = 4000;
/** Members that the details show elsewhere, or not at all. */
const HIDDEN_MEMBERS = ["refs", "evidenceRefs", "artifactRefs", "text", "parts", "status", "state", "output_text", "output_channels", "input_text", "input", "output", "error", "schema", "versions", "agentId", "node_id", "call_id", "tool_name", "duration_ms", "usage", "costUsd", "cost_usd"];


/**
 * @typedef {object} Detail
 * @property {View} view
 * @property {Span} span
 * @property {Lane} lane
 * @property {boolean} isElsewhere Whether another surface shows the details of the activity.
 * @property {boolean} isOwn Whether the conversation has it, and not a teammate's transcript.
 * @property {() => void} onClose
 * @property {() => void} onReveal
 */

/** @param {Detail} detail */
export function stepDetail({ view, span, lane, isElsewhere, isOwn, onClose, onReveal }) {
  const { activity } = span;
  const { content } = activity;
  const description = describe(activity);
  const now = view.now();
  const waiting = activity.activityType === "tool-call-progress" ? waitReason(view, activity) : undefined;
  const status = waiting || span.kind === "waiting" && Number.isNaN(span.end) ? "waiting" : span.kind === "failed" ? "failed" : Number.isNaN(span.end) ? "running" : description.state === "ok" ? "completed" : description.state === "failed" ? "failed" : "idle";
  const word = (waiting ? `waiting for ${waiting}` : humanize(description.status)).replace(/^./, (first) => first.toUpperCase());
  const links = [
    ...evidenceLinks(view, activity, content.evidenceRefs),
    ...artifactLinks(view, activity, content.artifactRefs ?? (activity.activityType === "artifact" ? activity.activityId : content.artifactId)),
    ...refLinks(view, content.output_ref, "output"),
    ...refLinks(view, content.refs),
  ];
  return html`
    <header class="detail-head">
      <h3 class="card-title">${span.activity.activityType === "tool-call-progress" ? span.name : `${description.label}: ${description.title}`}</h3>
      <button type="button" class="button icon-button" data-kind="quiet" aria-label="Close the details" title="Close (Esc)" @click=${onClose}>${icon("close")}</button>
      <p>${description.status || waiting ? statusLabel(status, word) : nothing} <span class="hint">${lane.name}${lane.role ? ` (${lane.role})` : ""}</span></p>
    </header>
    <dl class="facts">
      <dt>Started</dt><dd title=${formatExact(span.start)}>${new Date(span.start).toLocaleTimeString()} <span class="hint">at ${formatElapsed(span.start - pageAxis.start)}</span></dd>
      ${Number.isNaN(span.end) || span.end === span.start ? nothing : html`<dt>Ended</dt><dd title=${formatExact(span.end)}>${new Date(span.end).toLocaleTimeString()} <span class="hint">at ${formatElapsed(span.end - pageAxis.start)}</span></dd>`}
      ${span.end === span.start ? nothing : html`<dt>Duration</dt><dd>${formatSpan((Number.isNaN(span.end) ? now : span.end) - span.start)}${typeof content.duration_ms === "number" ? html` <span class="hint">${formatSpan(content.duration_ms)} reported</span>` : nothing}</dd>`}
      ${span.tokens === undefined ? nothing : html`<dt>Tokens</dt><dd>${formatShortCount(span.tokens)}</dd>`}
      ${span.cost === undefined ? nothing : html`<dt>Cost</dt><dd>${formatCost(span.cost)}</dd>`}
      <dt>Id</dt><dd class="mono">${activity.activityId}</dd>
      <dt>Events</dt><dd><button type="button" class="link" @click=${() => view.inspect(activity)}>${activity.opened === activity.sequence ? activity.opened : `${activity.opened} – ${activity.sequence}`}</button></dd>
    </dl>
    <div class="row elsewhere" ?hidden=${!isElsewhere}><span class="hint">Expanded in the conversation.</span></div>
    ${isElsewhere ? nothing : html`
      ${content.error ? html`<h4>Error</h4><p class="detail-error">${toText(content.error.message ?? content.error)}</p>` : nothing}
      ${codeBlock("Input", content.input ?? (content.input_text ? textOf(content.input_text) : undefined))}
      ${codeBlock("Output", content.output_text ? textOf(content.output_text) : content.output)}
      ${Object.entries(content.output_channels ?? {}).map(([channel, text]) => codeBlock(humanize(channel), textOf(text)))}
      ${textOfStep(activity) ? html`<h4>Text</h4><p class="detail-text">${textOfStep(activity).slice(0, TEXT_CHARS_MAX)}</p>` : activity.activityType === "message" ? html`<h4>Text</h4><p class="detail-text">${description.text}</p>` : nothing}
      ${factsTemplate(activity)}
      ${links.length === 0 ? nothing : html`<h4>Links</h4>${linksTemplate(links)}`}`}
    <footer class="detail-foot">
      ${kindOf(activity) === undefined ? nothing : html`<button type="button" class="button small" @click=${onReveal}>${isOwn ? "Show in conversation" : "Show in transcript"}</button>`}
      <button type="button" class="button small" data-kind="quiet" @click=${() => view.inspect(activity)}>Show events</button>
      <span class="detail-export"></span>
      <p class="hint told" role="status"></p>
    </footer>`;
}

/** @param {Activity} activity */
function factsTemplate({ runId, agentId, content }) {
  const facts = /** @type {[string, unknown][]} */ ([["Run", runId], ["Agent", agentId ?? content.agentId], ...Object.entries(content).filter(([name]) => !HIDDEN_MEMBERS.includes(name)).map(([name, value]) => [splitWords(name).replace(/^./, (first) => first.toUpperCase()), value])])
    .map(([name, value]) => [name, formatValue(value)]).filter(([, value]) => value !== "");
  return html`<h4>Facts</h4><dl class="facts members">${facts.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;
}

/** @param {unknown} chunks */
const textOf = (chunks) => (Array.isArray(chunks) ? chunks.join("") : toText(chunks));

/**
 * A value as code: the last lines of a text, or indented JSON.
 * @param {string} title
 * @param {unknown} value
 */
function codeBlock(title, value) {
  if (value === undefined || value === null || value === "") return nothing;
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  const lines = text.trimEnd().split("\n");
  const isCut = lines.length > OUTPUT_LINES || text.length > TEXT_CHARS_MAX;
  return html`<h4>${title}${isCut ? html`<span class="hint">, last lines</span>` : nothing}</h4><pre dir="auto" class="preview" tabindex="0">${lines.slice(-OUTPUT_LINES).join("\n").slice(-TEXT_CHARS_MAX)}</pre>`;
}
