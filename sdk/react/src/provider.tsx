/** Where the hooks and components below it read. */

import type { Audience, Token } from "@proscenium/client";
import { createContext, useContext, useMemo, useRef, type ReactNode } from "react";
import { Sources } from "./sources.js";

export interface ServerProps {
  /** The server's address, without `/v1`. Default: the page's origin. */
  server?: string;
  /** The token, or a function that returns one; it may return a promise. It is called before each connection and request. */
  token?: string | Token;
  /** Default: `user`. */
  audience?: Audience;
  /** Default: `sse`. Over HTTP/1.1 a browser has six connections for all streams of a server; a WebSocket is not one of them. */
  transport?: "sse" | "websocket";
}

interface Context {
  server: ServerProps;
  sources: Sources;
}

const ProsceniumContext = createContext<Context | undefined>(undefined);

/** Names the server. A new `token` function does not open the connections again: the current one is called. */
export function ProsceniumProvider({ server, token, audience = "user", transport = "sse", children }: ServerProps & { children?: ReactNode }) {
  const newest = useRef(token);
  newest.current = token;
  // A token in a string names other rights: what was read with the old one is dropped.
  const fixed = typeof token === "function" ? undefined : token;
  const context = useMemo<Context>(() => {
    const getToken: Token = () => (typeof newest.current === "function" ? newest.current() : newest.current);
    const base = server === undefined ? {} : { base: server };
    return { server: { ...(server !== undefined && { server }), token: getToken, audience, transport }, sources: new Sources({ ...base, token: getToken, audience, transport }) };
  }, [server, fixed, audience, transport]);
  return <ProsceniumContext.Provider value={context}>{children}</ProsceniumContext.Provider>;
}

export function useProscenium(): Context {
  const context = useContext(ProsceniumContext);
  if (!context) throw new Error("Put this component below a ProsceniumProvider.");
  return context;
}
