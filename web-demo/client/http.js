/**
 * Shared by every request to the server: address, token and errors.
 */

/**
 * @typedef {import("./types.js").ProblemDocument} ProblemDocument
 * @typedef {{ base?: string, token?: import("./types.js").Token, fetch?: typeof globalThis.fetch, client?: "page" | "cli" }} Server
 * `client`: what a person decides with, for `decidedBy.via`.
 */

/** A problem document of the server (RFC 9457) as an error. */
export class Problem extends Error {
  /** @param {ProblemDocument} document */
  constructor(document) {
    super(document.detail);
    this.name = "Problem";
    /** Stable. Programs compare this member. */
    this.code = document.code;
    /** The HTTP status. */
    this.status = document.status;
    /** A sentence that names the error, the value, the limit and the remedy. */
    this.detail = document.detail;
    /** The whole problem document. */
    this.document = document;
  }
}

/**
 * Sends a request. The token goes out in a header and nowhere else.
 * @param {Server} server
 * @param {string} path
 * @param {RequestInit} [init]
 * @returns {Promise<Response>} A response with a 2xx status.
 * @throws {Problem} For any other status. Throws the error of `fetch` where the server does not answer.
 */
export async function request(server, path, init = {}) {
  const headers = new Headers(init.headers);
  const token = await server.token?.();
  if (token) headers.set("authorization", `Bearer ${token}`);
  const response = await (server.fetch ?? globalThis.fetch)(`${baseOf(server)}${path}`, { cache: "no-store", ...init, headers });
  if (!response.ok) throw new Problem(await problemOf(response));
  return response;
}

/**
 * Returns the server's address without a trailing slash. Empty means the page's origin.
 * @param {Server} server
 */
export function baseOf({ base = "" }) {
  return base.replace(/\/+$/, "");
}

/**
 * Encodes an id as a segment of a path.
 * @param {string} id
 * @throws {Problem} For ids that a URL parser resolves to another path, encoded or not.
 */
export function pathSegment(id) {
  if (id === "" || id === "." || id === "..") throw new Problem({ status: 400, code: "bad_id", detail: `${JSON.stringify(id)} cannot be part of a URL path. Use another id.` });
  return encodeURIComponent(id);
}

/**
 * Reads the problem document of a response. Makes one where the response has none, such as a proxy's page.
 * @param {Response} response
 * @returns {Promise<ProblemDocument>}
 */
export async function problemOf(response) {
  const fallback = { status: response.status, code: "unknown", detail: `The server answered ${response.status} ${response.statusText}`.trim() };
  try {
    const body = await response.json();
    if (typeof body !== "object" || body === null) return fallback;
    return { ...fallback, ...(typeof body.code === "string" && typeof body.detail === "string" ? body : {}), status: response.status };
  } catch {
    return fallback;
  }
}

/**
 * Whether the same request may succeed later.
 * @param {number} status
 */
export function isTransient(status) {
  return status === 408 || status === 425 || status === 429 || (status >= 500 && status !== 501 && status !== 505);
}

/**
 * Reads `Retry-After`, in milliseconds; 0 if the response has none.
 * @param {Response} response
 */
export function retryAfterOf(response) {
  const seconds = Number(response.headers.get("retry-after"));
  return Number.isFinite(seconds) && seconds > 0 ? seconds * 1000 : 0;
}
