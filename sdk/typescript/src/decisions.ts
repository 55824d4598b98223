/** What waits for people, what they decided, and share links: for pages, bots and audits of your own. */

import { pathSegment, Problem, problemOf } from "./client/http.js";
import { send, type Server } from "./transport.js";
import type { Audience } from "./client/types.js";
import type { ControlName } from "./vocabulary.js";

const REQUEST_TIME_MAX_MS = 20_000;

/** Who decided, and by which face. Only the server writes it. */
export interface DecidedBy {
  via: string;
  /** RFC 3339 in UTC. */
  at: string;
  /** The last envelope of the question that the person saw. */
  seen?: number;
  sub?: string;
  name?: string;
  /** The person for whom the holder of the token decided. */
  onBehalfOf?: string;
  /** Another person, whom the token may not see. */
  other?: true;
}

/** The approvals of an action that needs several. */
export interface Quorum {
  have: number;
  need: number;
}

/** A step of a rule of the operator. */
export interface WaitStep {
  step: number;
  /** RFC 3339 in UTC. */
  at: string;
}

/** What is decided. `kind` says which further members it has. */
export interface Subject {
  kind: string;
  [member: string]: unknown;
}

/** A pending action. */
export interface AttentionItem {
  actionId: string;
  title: string;
  /** At most 2 KiB, without the bodies of diffs. */
  subject: Subject;
  agentId: string;
  askedAt: string;
  sessionId?: string;
  runId?: string;
  risk?: unknown;
  expiresAt?: string;
  /** A decision is under way. */
  control?: "submitted";
  quorum?: Quorum;
  reminded?: WaitStep;
  escalated?: WaitStep;
}

/** A question as it was shown, and its answer. */
export interface Decision {
  actionId: string;
  subject: Subject;
  callIds: string[];
  /** The envelopes of the decision. */
  sequences: { asked: number; decided: number; shown?: number; resolved?: number };
  runId?: string;
  controlId?: string;
  control?: ControlName;
  /** Absent until the action is resolved. */
  outcome?: string;
  title?: string;
  options?: Record<string, unknown>[];
  decidedBy?: DecidedBy;
  /** All who approved, of an action that needs several approvals. */
  approvals?: DecidedBy[];
  askedAt?: string;
  decidedAt?: string;
  waitedMs?: number;
}

/** A run or a session. */
export type Target = { run: string; session?: undefined } | { session: string; run?: undefined };

/** A link to make. */
export type LinkWanted = Target & {
  until: Date;
  /** The sequence of the run after which the link shows nothing. */
  at?: number;
  /** It may decide one action, once, whose risk is stated and not high. */
  canDecide?: boolean;
};

/** A link that was made. Its address has the secret, which the server does not keep. */
export interface Link {
  id: string;
  url: string;
  until: string;
}

/** A link that has not ended. */
export interface OpenLink {
  id: string;
  until: string;
  createdAt: string;
  can: ("read" | "control")[];
  uses: number;
  runId?: string;
  sessionId?: string;
  at?: number;
  usedAt?: string;
  sub?: string;
  decided?: { actionId: string; controlId: string };
}

/** Yields the pending actions that the token may see, the oldest first; with `agent` those of that agent alone. */
export function attention(server: Server, { agent, audience = "user" }: { agent?: string; audience?: Audience } = {}): AsyncGenerator<AttentionItem, void, void> {
  return items<AttentionItem>(server, "/v1/attention", "items", { audience, ...(agent === undefined ? {} : { agentId: agent }) });
}

/** Yields the decisions of a run in their order, or those of a session run by run. */
export function decisions(server: Server, { audience = "user", ...target }: Target & { audience?: Audience }): AsyncGenerator<Decision, void, void> {
  const path = target.run === undefined ? `/v1/sessions/${pathSegment(target.session)}` : `/v1/runs/${pathSegment(target.run)}`;
  return items<Decision>(server, `${path}/decisions`, "decisions", { audience });
}

/** Makes a share link to a run or to a session: anyone who has it reads as `user`, until it ends. */
export async function makeLink(server: Server, { run, session, until, at, canDecide = false }: LinkWanted): Promise<Link> {
  const body = JSON.stringify({ runId: run, sessionId: session, until: until.toISOString(), at, ...(canDecide && { can: ["control"] }) });
  const response = await call(server, "/v1/links", { method: "POST", headers: { "content-type": "application/json" }, body });
  return (await response.json()) as Link;
}

/** Yields the open links that the holder of the token made, the newest first; for an administrator, all. */
export function links(server: Server): AsyncGenerator<OpenLink, void, void> {
  return items<OpenLink>(server, "/v1/links", "links", {});
}

/** Revokes a link: its readers are cut off within a second. */
export async function revokeLink(server: Server, id: string): Promise<void> {
  await call(server, `/v1/links/${pathSegment(id)}`, { method: "DELETE" });
}

async function* items<Item>(server: Server, path: string, member: string, query: Record<string, string>): AsyncGenerator<Item, void, void> {
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const params = new URLSearchParams({ ...query, ...(cursor === undefined ? {} : { cursor }) });
    const page = (await (await call(server, `${path}?${params}`)).json()) as { nextCursor: string | null } & Record<string, unknown>;
    yield* page[member] as Item[];
    cursor = page.nextCursor;
  }
}

/** Sends a request. Throws a `Problem` if the server refuses it, and the error of `fetch` if it is away. */
async function call(server: Server, path: string, init: RequestInit = {}): Promise<Response> {
  const response = await send(server, path, { signal: AbortSignal.timeout(REQUEST_TIME_MAX_MS), ...init });
  if (!response.ok) throw new Problem(await problemOf(response));
  return response;
}
