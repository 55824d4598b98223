/** React hooks and components for a Proscenium server. */

export { Conversation, Decision, Inbox, Trace } from "./components.js";
export type { ConversationProps, DecisionProps, ElementProps, InboxProps, TraceProps } from "./components.js";
export { useActions, useRun, useSession, useSessions } from "./hooks.js";
export type { Actions, Answer, Followed, PendingAction, RunView, SessionView, Sessions } from "./hooks.js";
export { ProsceniumProvider } from "./provider.js";
export type { ServerProps } from "./provider.js";
