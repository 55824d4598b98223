/** Components for the elements. The script of the elements loads with the first of them, so a server may render them. */

import type { Token } from "@proscenium/client";
import type { EmbedEvents } from "@proscenium/elements";
import { createElement, useEffect, useRef, type HTMLAttributes, type ReactNode } from "react";
import { useProscenium } from "./provider.js";

/** The handlers of the elements' events. */
export interface ElementProps extends HTMLAttributes<HTMLElement> {
  onAnswered?: (event: EmbedEvents["ps-answered"]) => void;
  onResolved?: (event: EmbedEvents["ps-resolved"]) => void;
  onOpen?: (event: EmbedEvents["ps-open"]) => void;
  onCount?: (event: EmbedEvents["ps-count"]) => void;
  onFailure?: (event: EmbedEvents["ps-error"]) => void;
  /** Slots: `<p slot="header">…</p>`. */
  children?: ReactNode;
}

export interface DecisionProps extends ElementProps {
  /** The run of the action, or its session for an action of the session's own log. */
  run?: string;
  session?: string;
  action: string;
}

export type InboxProps = ElementProps;

export interface TraceProps extends ElementProps {
  session?: string;
  run?: string;
}

export interface ConversationProps extends TraceProps {
  /** Without a composer. */
  readOnly?: boolean;
}

const HANDLERS = { onAnswered: "ps-answered", onResolved: "ps-resolved", onOpen: "ps-open", onCount: "ps-count", onFailure: "ps-error" } as const;

interface Embedded extends HTMLElement {
  token: string | Token | undefined;
}

function Element({ tag, attributes, className, onAnswered, onResolved, onOpen, onCount, onFailure, ...rest }: ElementProps & { tag: string; attributes?: Record<string, string | undefined> }) {
  const { server: { server, token, audience, transport } } = useProscenium();
  const element = useRef<Embedded>(null);
  const handlers = useRef<Record<string, ((event: never) => void) | undefined>>({});
  handlers.current = { onAnswered, onResolved, onOpen, onCount, onFailure };
  useEffect(() => {
    void import("@proscenium/elements");
  }, []);
  useEffect(() => {
    if (element.current) element.current.token = token;
  }, [token]);
  useEffect(() => {
    const current = element.current;
    const listening = new AbortController();
    for (const [name, type] of Object.entries(HANDLERS)) current?.addEventListener(type, (event) => handlers.current[name]?.(event as never), { signal: listening.signal });
    return () => listening.abort();
  }, []);
  return createElement(tag, { ...rest, ...attributes, ref: element, server, audience, transport, class: className });
}

/** One decision, with the controls that answer it. */
export function Decision({ run, session, action, ...rest }: DecisionProps) {
  return <Element tag="ps-decision" attributes={{ run, session, action }} {...rest} />;
}

/** The pending decisions of all sessions. */
export function Inbox(props: InboxProps) {
  return <Element tag="ps-inbox" {...props} />;
}

/** The steps of a run or a session on a time axis. */
export function Trace({ session, run, ...rest }: TraceProps) {
  return <Element tag="ps-trace" attributes={{ session, run }} {...rest} />;
}

/** The messages, work and decisions of a session or a run. */
export function Conversation({ session, run, readOnly, ...rest }: ConversationProps) {
  return <Element tag="ps-conversation" attributes={{ session, run, readonly: readOnly ? "" : undefined }} {...rest} />;
}
