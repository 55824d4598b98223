/** The types of `@proscenium/elements`: what the script exports, and what it adds to a page. */

import type { ConversationElement, DecisionElement, InboxElement, TraceElement } from "../embed.js";
import type { EmbedError } from "./element.js";

export * from "../embed.js";
export type { EmbedError };
export type { Text, Texts } from "../ui/texts.js";

/** The decision that an event is about. */
export interface DecisionReference {
  runId?: string;
  sessionId?: string;
  actionId: string;
}

/** The events of the elements. All of them bubble out of shadow roots. */
export interface EmbedEvents {
  /** A person has answered: the server has recorded it, and the runtime has not confirmed it yet. */
  "ps-answered": CustomEvent<DecisionReference & { control: string; controlId: string }>;
  /** The runtime has decided. */
  "ps-resolved": CustomEvent<DecisionReference & { status: string; outcome?: string }>;
  /** A person wants to see something that the page around the element may show. */
  "ps-open": CustomEvent<{ kind: "session" | "run" | "artifact" | "evidence" | "teammate" | "event" | "action" | "blob"; id?: string; runId?: string; href?: string }>;
  /** The number of pending decisions has changed. */
  "ps-count": CustomEvent<{ count: number }>;
  "ps-error": CustomEvent<EmbedError>;
}

declare global {
  interface HTMLElementTagNameMap {
    "ps-conversation": ConversationElement;
    "ps-decision": DecisionElement;
    "ps-inbox": InboxElement;
    "ps-trace": TraceElement;
  }
  interface HTMLElementEventMap extends EmbedEvents {}
}
