/**
 * What every call to the server shares: its address, who asks, and how it says no.
 */

/**
 * @typedef {import("./types.js").ProblemDocument} ProblemDocument
 * @typedef {{ base?: string, token?: import("./types.js").Token, fetch?: typeof globalThis.fetch }} Server
 */

/** A refusal by the server: a problem document (RFC 9457) as an error. */
export class Problem extends Error {
  /** @param {ProblemDocument} document */
  constructor(document) {
    super(document.detail);
    this.name = "Problem";
    /** Stable: this is what to compare. */
    this.code = document.code;
    /** The HTTP status. */
    this.status = document.status;
    /** A sentence: what happened, the value, the limit, the remedy. */
    this.detail = document.detail;
    /** All that the server said. */
    this.document = document;
  }
}

/**
 * Asks the server. The token goes out in a header, and in nothing else.
 * @param {Server} server
 * @param {string} path
 * @param {RequestInit} [init]
 * @returns {Promise<Response>} An answer of 2xx.
 * @throws {Problem} For any other. What `fetch` throws when nobody answers, it throws here, too.
 */
export async function ask(server, path, init = {}) {
  const headers = new Headers(init.headers);
  const token = await server.token?.();
  if (token) headers.set("authorization", `Bearer ${token}`);
  const answer = await (server.fetch ?? globalThis.fetch)(`${baseOf(server)}${path}`, { cache: "no-store", ...init, headers });
  if (!answer.ok) throw new Problem(await problemOf(answer));
  return answer;
}

/**
 * The server's address, without a slash at its end. Empty means the page's own.
 * @param {Server} server
 */
export function baseOf({ base = "" }) {
  return base.replace(/\/+$/, "");
}

/**
 * An id as a part of an address.
 * @param {string} id
 * @throws {Problem} For those that would lead elsewhere, however they are written.
 */
export function part(id) {
  if (id === "" || id === "." || id === "..") throw new Problem({ status: 400, code: "bad_id", detail: `${JSON.stringify(id)} cannot stand in an address` });
  return encodeURIComponent(id);
}

/**
 * What an answer says against a request. What is no problem document, such as a proxy's page, is made one.
 * @param {Response} answer
 * @returns {Promise<ProblemDocument>}
 */
export async function problemOf(answer) {
  const known = { status: answer.status, code: "unknown", detail: `the server answers ${answer.status} ${answer.statusText}`.trim() };
  try {
    const told = await answer.json();
    if (typeof told !== "object" || told === null) return known;
    return { ...known, ...(typeof told.code === "string" && typeof told.detail === "string" ? told : {}), status: answer.status };
  } catch {
    return known;
  }
}

/**
 * Whether what was refused may be granted later, without anybody changing anything.
 * @param {number} status
 */
export function isPassing(status) {
  return status === 408 || status === 425 || status === 429 || (status >= 500 && status !== 501 && status !== 505);
}

/**
 * How long the server wants to be left alone, in milliseconds; 0 if it says nothing.
 * @param {Response} answer
 */
export function retryAfterOf(answer) {
  const seconds = Number(answer.headers.get("retry-after"));
  return Number.isFinite(seconds) && seconds > 0 ? seconds * 1000 : 0;
}
