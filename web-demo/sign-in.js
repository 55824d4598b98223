/**
 * Signing in at an identity provider: OpenID Connect, authorization code with PKCE (RFC 7636), as a public client.
 *
 * The page leaves for the provider and comes back with a code, which it exchanges for tokens. What must survive the way
 * there, and the tokens, are in `sessionStorage`: they end with the tab. The token is renewed before it ends, where the
 * provider gives a refresh token.
 */

/**
 * @typedef {object} Provider The answer of `GET /v1/sign-in`.
 * @property {string} issuer
 * @property {string} clientId
 * @property {string} scope
 * @property {"access" | "id"} token
 * @property {Record<string, string>} parameters
 * @property {string} [authorizationEndpoint]
 * @property {string} [tokenEndpoint]
 * @property {string} [endSessionEndpoint]
 * @typedef {{ provider: Provider, state: string, nonce: string, verifier: string, hash: string }} Attempt
 * @typedef {{ provider: Provider, refreshToken?: string, idToken?: string, expiresAt: number }} Session
 */

const ATTEMPT = "proscenium.sign-in";
const SESSION = "proscenium.signed-in";
/** The key of the token itself: token.js. */
const TOKEN = "proscenium.token";
/** The reason why the last sign-in failed, for the form. */
const FAILURE = "proscenium.sign-in-failure";
/** How long before its end a token is renewed, in milliseconds, and the longest wait of a timer. */
const RENEW_BEFORE_MS = 60_000;
const TIMER_MS_MAX = 2 ** 31 - 1;

/** @returns {string} 256 random bits. */
const random = () => base64url(crypto.getRandomValues(new Uint8Array(32)));

/** @param {Uint8Array} bytes */
const base64url = (bytes) => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

/**
 * The claims of a JWT. The page got it from the provider's own address, so it checks no signature (OpenID Connect Core,
 * section 3.1.3.7).
 * @param {string} token
 * @returns {Record<string, any>}
 */
function claimsOf(token) {
  const payload = token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/");
  return JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(payload), (digit) => digit.charCodeAt(0))));
}

/** The address to which the provider sends the person back. It is registered there. */
const redirectUri = () => `${location.origin}/`;

/** @template T @param {string} key @returns {T | undefined} */
function stored(key) {
  try {
    return JSON.parse(sessionStorage.getItem(key) ?? "null") ?? undefined;
  } catch {
    return undefined;
  }
}

/**
 * Leaves for the provider. The page opens the same view after that.
 * @param {Provider} provider
 */
export async function begin(provider) {
  if (!provider.authorizationEndpoint) throw new Error("The identity provider has no page to sign in.");
  // Browsers give it only to pages whose connection is protected.
  if (!crypto.subtle) throw new Error("Signing in needs https://, or an address of this machine.");
  const attempt = { provider, state: random(), nonce: random(), verifier: random(), hash: location.hash };
  sessionStorage.setItem(ATTEMPT, JSON.stringify(attempt));
  const challenge = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(attempt.verifier));
  const address = new URL(provider.authorizationEndpoint);
  const parameters = {
    ...provider.parameters, response_type: "code", client_id: provider.clientId, redirect_uri: redirectUri(), scope: provider.scope, state: attempt.state, nonce: attempt.nonce,
    code_challenge: base64url(new Uint8Array(challenge)), code_challenge_method: "S256",
  };
  for (const [name, value] of Object.entries(parameters)) address.searchParams.set(name, value);
  location.assign(address);
}

/**
 * Finishes a sign-in whose answer is in the address, if there is one, and removes it from there. The form shows why it failed.
 * @returns {Promise<boolean>} Whether the page has a token now.
 */
export async function finish() {
  const answer = new URLSearchParams(location.search);
  if (!answer.has("state")) return false;
  const attempt = /** @type {Attempt | undefined} */ (stored(ATTEMPT));
  sessionStorage.removeItem(ATTEMPT);
  history.replaceState(null, "", `${location.pathname}${attempt?.hash ?? ""}`);
  try {
    if (!attempt || answer.get("state") !== attempt.state) throw new Error("The answer of the identity provider does not belong to a sign-in of this tab. Sign in again.");
    const { provider } = attempt;
    const issuer = answer.get("iss");
    if (issuer !== null && issuer !== provider.issuer) throw new Error("The answer is from another identity provider. Sign in again.");
    const code = answer.get("code");
    if (!code) throw new Error(answer.get("error_description") ?? answer.get("error") ?? "The identity provider sent no code.");
    await exchange(provider, { grant_type: "authorization_code", code, redirect_uri: redirectUri(), code_verifier: attempt.verifier }, attempt.nonce);
    return true;
  } catch (error) {
    sessionStorage.setItem(FAILURE, error instanceof Error ? error.message : String(error));
    return false;
  }
}

/** Why the last sign-in failed; once. */
export function takeFailure() {
  const failure = sessionStorage.getItem(FAILURE) ?? "";
  sessionStorage.removeItem(FAILURE);
  return failure;
}

/**
 * Gets tokens, and stores them.
 * @param {Provider} provider
 * @param {Record<string, string>} grant
 * @param {string} [nonce] What an ID token must contain.
 * @param {Session} [before]
 * @returns {Promise<string>} The token for the server.
 */
async function exchange(provider, grant, nonce, before) {
  if (!provider.tokenEndpoint) throw new Error("The identity provider has no address for tokens.");
  const body = new URLSearchParams({ ...grant, client_id: provider.clientId });
  // Entra and others ask for the resource here, too.
  if (provider.parameters.resource) body.set("resource", provider.parameters.resource);
  const response = await fetch(provider.tokenEndpoint, { method: "POST", body, credentials: "omit", cache: "no-store" });
  const tokens = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(tokens.error_description ?? tokens.error ?? `The identity provider answered ${response.status}.`);
  if (nonce !== undefined && (!tokens.id_token || claimsOf(tokens.id_token).nonce !== nonce)) throw new Error("The identity provider's ID token is missing, or of another sign-in. Sign in again.");
  const token = provider.token === "id" ? tokens.id_token : tokens.access_token;
  if (!token) throw new Error(`The identity provider sent no ${provider.token} token.`);
  const lifetime = Number(tokens.expires_in);
  const expiresAt = provider.token === "id" || !Number.isFinite(lifetime) ? endOf(token) : Date.now() + lifetime * 1000;
  /** @type {Session} */
  const session = { provider, refreshToken: tokens.refresh_token ?? before?.refreshToken, idToken: tokens.id_token ?? before?.idToken, expiresAt };
  sessionStorage.setItem(SESSION, JSON.stringify(session));
  sessionStorage.setItem(TOKEN, token);
  return token;
}

/** @param {string} token @returns {number} When it ends, in milliseconds since 1970; for text without an end, never. */
function endOf(token) {
  try {
    return claimsOf(token).exp * 1000 || Infinity;
  } catch {
    return Infinity;
  }
}

/** Whether the token is from a sign-in. */
export const isSignedIn = () => stored(SESSION) !== undefined;

let timer = /** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined);

/**
 * Renews the token before it ends, again and again.
 * @param {(token: string) => void} renewed
 */
export function keepRenewing(renewed) {
  clearTimeout(timer);
  const session = /** @type {Session | undefined} */ (stored(SESSION));
  if (!session?.refreshToken || !Number.isFinite(session.expiresAt)) return;
  const left = session.expiresAt - Date.now();
  timer = setTimeout(() => void renew(session, renewed), Math.min(Math.max(left - RENEW_BEFORE_MS, left / 2, 0), TIMER_MS_MAX));
}

/**
 * @param {Session} session
 * @param {(token: string) => void} renewed
 */
async function renew(session, renewed) {
  try {
    renewed(await exchange(session.provider, { grant_type: "refresh_token", refresh_token: session.refreshToken ?? "" }, undefined, session));
    keepRenewing(renewed);
  } catch (error) {
    // The token lasts until its end; then the page asks again.
    console.warn("The token was not renewed:", error);
    if (error instanceof TypeError && session.expiresAt > Date.now()) keepRenewing(renewed);
  }
}

/** Forgets the tokens. @returns {string} The address at which the person signs out of the provider; empty without one. */
export function forget() {
  clearTimeout(timer);
  const session = /** @type {Session | undefined} */ (stored(SESSION));
  for (const key of [SESSION, TOKEN, ATTEMPT, FAILURE]) sessionStorage.removeItem(key);
  if (!session?.provider.endSessionEndpoint) return "";
  const address = new URL(session.provider.endSessionEndpoint);
  address.searchParams.set("client_id", session.provider.clientId);
  address.searchParams.set("post_logout_redirect_uri", redirectUri());
  if (session.idToken) address.searchParams.set("id_token_hint", session.idToken);
  return String(address);
}
