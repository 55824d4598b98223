/**
 * Tells a Slack channel when a run waits for a person: a receiver of Proscenium's webhooks that posts to an incoming
 * webhook of Slack. The message has a button that opens the page, where the person decides.
 *
 *   npm install standardwebhooks
 *   SLACK_URL=https://hooks.slack.com/services/… ONCALL_SECRET=whsec_… PORT=8099 node slack.mjs
 *
 * ONCALL_SECRET is that of the webhook (docs/src/guides/told-when-it-waits.md). PAGE_URL is the address of the page, for a
 * server without `public-url`.
 */

import { createServer } from "node:http";
import { Webhook } from "standardwebhooks";

const { SLACK_URL, ONCALL_SECRET, PAGE_URL = "http://127.0.0.1:8787/", PORT = "8099" } = process.env;
/** A message has at most 20 kB. */
const BODY_BYTES_MAX = 64 * 1024;
/** Slack refuses longer texts. In characters. */
const TITLE_CHARS_MAX = 2000;
/** Proscenium waits for 20 seconds, then sends the message again. */
const SLACK_TIME_MAX_MS = 10_000;
/** Messages come at least once. So many ids are remembered, to post each message once. */
const IDS_MAX = 1000;

const webhook = new Webhook(ONCALL_SECRET);
/** The ids of posted messages, the oldest first. */
const posted = new Set();

/** Slack reads these three characters as markup. */
const escape = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

/** The message for Slack: a text for notifications, and blocks for the channel. */
function slackMessage({ title, agentId, sessionId, runId, step, url }) {
  const asked = escape(title.slice(0, TITLE_CHARS_MAX));
  const where = [agentId && `Agent ${agentId}`, sessionId ? `session ${sessionId}` : `run ${runId}`].filter(Boolean).join(", ");
  return {
    text: `${step === undefined ? "Waiting" : "Still waiting"}: ${asked}`,
    blocks: [
      { type: "section", text: { type: "mrkdwn", text: `*${step === undefined ? "A run waits for you" : "A run still waits for you"}*\n${asked}` } },
      { type: "context", elements: [{ type: "mrkdwn", text: escape(where) }] },
      { type: "actions", elements: [{ type: "button", text: { type: "plain_text", text: "Decide" }, style: "primary", url: new URL(url, PAGE_URL).href }] },
    ],
  };
}

async function bodyOf(request) {
  let body = "";
  for await (const part of request.setEncoding("utf8")) if ((body += part).length > BODY_BYTES_MAX) throw new Error("the body is too large");
  return body;
}

/** Returns the status for Proscenium: anything but 2xx is sent again later. */
async function receive(request) {
  let message;
  try {
    message = webhook.verify(await bodyOf(request), request.headers);
  } catch {
    return 400;
  }
  const id = request.headers["webhook-id"];
  if (message.type !== "run.waiting" || posted.has(id)) return 204;
  const body = JSON.stringify(slackMessage(message.data));
  const answer = await fetch(SLACK_URL, { method: "POST", headers: { "content-type": "application/json" }, body, signal: AbortSignal.timeout(SLACK_TIME_MAX_MS) }).catch((error) => error);
  if (!answer.ok) {
    console.error(`Slack did not take the message ${id}: ${answer.status ?? answer.message}`);
    return 502;
  }
  posted.add(id);
  if (posted.size > IDS_MAX) posted.delete(posted.values().next().value);
  return 204;
}

createServer(async (request, response) => response.writeHead(await receive(request)).end()).listen(Number(PORT), "127.0.0.1");
