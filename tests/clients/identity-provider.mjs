/**
 * A real identity provider (npm `oidc-provider`) on this machine, whose keys a test rotates.
 */

import { generateKeyPairSync } from "node:crypto";
import { createServer } from "node:http";
import Provider from "oidc-provider";

/** The `aud` of its access tokens for the server, and the resource by which clients ask for them. */
export const RESOURCE = "urn:proscenium:tests";
/** The lifetime of its access tokens, in seconds. */
const TOKEN_SECS = 3600;

/** Makes a private P-256 key of this name. */
export function makeKey(kid) {
  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  return { ...privateKey.export({ format: "jwk" }), kid, alg: "ES256", use: "sig" };
}

/** Starts a provider. Everyone may sign in, by any name and without a password, and is in the group `ops`. */
export async function startProvider(key) {
  let handle;
  let isDown = false;
  const requests = [];
  const server = createServer((request, response) => {
    requests.push(`${request.method} ${new URL(request.url, "http://provider").pathname}`);
    if (isDown) return void response.writeHead(503).end();
    handle(request, response);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const issuer = `http://127.0.0.1:${server.address().port}`;
  /** Signs with the first of these keys, and publishes all. */
  const rotate = (...keys) => {
    const provider = new Provider(issuer, {
      jwks: { keys },
      clients: [
        // A native application may have any port of this machine in its redirect URI.
        {
          client_id: "page", application_type: "native", token_endpoint_auth_method: "none", response_types: ["code"], grant_types: ["authorization_code", "refresh_token"],
          redirect_uris: ["http://127.0.0.1/"], post_logout_redirect_uris: ["http://127.0.0.1/"], id_token_signed_response_alg: "ES256",
        },
        { client_id: "worker", client_secret: "secret", grant_types: ["client_credentials"], redirect_uris: [], response_types: [], id_token_signed_response_alg: "ES256" },
      ],
      clientBasedCORS: () => true,
      cookies: { keys: ["a key of the cookies"] },
      claims: { openid: ["sub"], profile: ["name"] },
      scopes: ["openid", "profile", "offline_access"],
      findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub, name: `Name of ${sub}` }) }),
      extraTokenClaims: (_, token) => ({ groups: ["ops"], org: "acme", ...(token.accountId ? { name: `Name of ${token.accountId}` } : { sub: "worker" }) }),
      issueRefreshToken: () => true,
      features: {
        devInteractions: { enabled: true },
        clientCredentials: { enabled: true },
        rpInitiatedLogout: { enabled: true },
        resourceIndicators: {
          enabled: true,
          defaultResource: () => RESOURCE,
          useGrantedResource: () => true,
          getResourceServerInfo: () => ({ scope: "", audience: RESOURCE, accessTokenTTL: TOKEN_SECS, accessTokenFormat: "jwt", jwt: { sign: { alg: "ES256" } } }),
        },
      },
    });
    handle = provider.callback();
  };
  rotate(key);
  /** Gets an access token for a program. */
  const programToken = async () => {
    const body = new URLSearchParams({ grant_type: "client_credentials", resource: RESOURCE });
    const answer = await fetch(`${issuer}/token`, { method: "POST", body, headers: { authorization: `Basic ${btoa("worker:secret")}` } });
    const tokens = await answer.json();
    if (!answer.ok) throw new Error(JSON.stringify(tokens));
    return tokens.access_token;
  };
  return {
    issuer, rotate, programToken, requests,
    /** Makes it answer nothing but 503, or answer again. */
    setDown: (is) => (isDown = is),
    stop: () => new Promise((resolve) => (server.closeAllConnections(), server.close(resolve))),
  };
}
