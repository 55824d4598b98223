/** Proscenium's client. Its reading half is the client that the server serves to pages. */

export * from "./client/index.js";
export { currentCall, ToolCall, type PatchOperation, type ProgressStatus } from "./calls.js";
export { ProsceniumChatTransport, type ChatHistory, type ChatTransportOptions } from "./chat-transport.js";
export {
  attention, decisions, links, makeLink, revokeLink,
  type AttentionItem, type DecidedBy, type Decision, type Link, type LinkWanted, type OpenLink, type Quorum, type Subject, type Target, type WaitStep,
} from "./decisions.js";
export { Forward } from "./forward.js";
export * as langgraph from "./langgraph.js";
export { observe, type ObserveOptions } from "./observe.js";
export * as openai from "./openai.js";
export { Producer, Recording, Reporter, type ProducerOptions } from "./producer.js";
export { QueueFull, Rejected, Unreachable, type Counters, type RejectedFact } from "./publisher.js";
export { currentRun, Message, Run, type ActionKind, type ActionOption, type ActionOutcome } from "./run.js";
export type { Server } from "./transport.js";
export type { Audience } from "./client/types.js";
export type * from "./vocabulary.js";
export { Control, worker, type ControlDocument, type WorkerOptions } from "./worker.js";
