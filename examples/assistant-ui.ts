/**
 * The threads of assistant-ui, kept by Proscenium. Copy this file into your page.
 *
 * A thread is a session of the server. `proscenium` returns what `useRemoteThreadListRuntime` and `useChatRuntime` need:
 * the list of threads with the history of each, and the transport of its messages. The guide
 * `docs/src/guides/assistant-ui.md` has a whole page.
 *
 * The token needs `read` and `control` on the sessions, the agent, and for `delete` the verb `erase`.
 */

import { ExportedMessageRepository, useAui } from "@assistant-ui/react";
import type { ChatModelRunResult, FeedbackAdapter, RemoteThreadListAdapter, ThreadHistoryAdapter, ThreadMessageLike } from "@assistant-ui/react";
import { AssistantChatTransport, type AssistantChatResumableOptions } from "@assistant-ui/react-ai-sdk";
import { DefaultChatTransport, readUIMessageStream, type UIMessage } from "ai";
import { createAssistantStream } from "assistant-stream";
import { useMemo } from "react";

/** Where the agent is. `headers` are those of every request, such as `authorization`. */
export interface Backend {
  url: string;
  agent: string;
  headers?: Record<string, string>;
}

/** The server refused a request; `status` and `code` are those of its answer. */
export class Refused extends Error {
  constructor(readonly status: number, readonly code: string | undefined, detail: string | undefined) {
    super(detail ?? `The server answered ${status}.`);
  }
}

/** A session in a list of the server, as far as a thread needs it. */
interface Session {
  sessionId: string;
  title?: string;
  archived?: boolean;
  lastActivity?: string;
  unread?: number;
  pinned?: boolean;
}

const segment = encodeURIComponent;
const chatsOf = ({ url, agent }: Backend) => `${url}/ai-sdk/${segment(agent)}`;
/** The address of a chat, or of a part of it. */
const chatOf = (backend: Backend, thread: string, part = "") => `${chatsOf(backend)}/${segment(thread)}${part}?version=7`;

async function request(backend: Backend, method: string, address: string, body?: object) {
  const headers = { ...backend.headers, ...(body && { "content-type": "application/json" }) };
  const response = await fetch(address, { method, headers, ...(body && { body: JSON.stringify(body) }) });
  const text = await response.text();
  if (response.ok) return text ? JSON.parse(text) : undefined;
  const problem = text.startsWith("{") ? JSON.parse(text) : {};
  throw new Refused(response.status, problem.code, problem.detail);
}

const threadOf = ({ sessionId, title, archived, lastActivity, unread, pinned }: Session) => ({
  remoteId: sessionId,
  status: archived ? ("archived" as const) : ("regular" as const),
  title,
  lastMessageAt: lastActivity ? new Date(lastActivity) : undefined,
  custom: { unread: unread ?? 0, pinned: pinned ?? false },
});

/** The list of an agent's threads, with the newest activity first. */
export function threadList(backend: Backend): RemoteThreadListAdapter {
  const address = (thread: string) => `${backend.url}/v1/sessions/${segment(thread)}`;
  const change = async (thread: string, to: object) => void (await request(backend, "PATCH", address(thread), to));
  const session = (thread: string): Promise<Session> => request(backend, "GET", address(thread));
  /** A thread is no session before its first message is written. */
  const unlessUnknown = (error: unknown) => {
    if (!(error instanceof Refused && error.status === 404)) throw error;
    return undefined;
  };
  return {
    async list({ after } = {}) {
      const query = new URLSearchParams({ agentId: backend.agent, sort: "updated", archived: "all", limit: "50", ...(after && { cursor: after }) });
      const page: { sessions: Session[]; nextCursor: string | null } = await request(backend, "GET", `${backend.url}/v1/sessions?${query}`);
      return { threads: page.sessions.map(threadOf), nextCursor: page.nextCursor ?? undefined };
    },
    fetch: async (thread) => threadOf(await session(thread)),
    initialize: async () => ({ remoteId: crypto.randomUUID() }),
    rename: (thread, title) => change(thread, { title }),
    archive: (thread) => change(thread, { archived: true }),
    unarchive: (thread) => change(thread, { archived: false }),
    delete: (thread) => request(backend, "DELETE", `${address(thread)}?children=true`).catch(unlessUnknown),
    /** The server has made one of the first message, or has the runtime's. */
    async generateTitle(thread) {
      const title = (await session(thread).catch(unlessUnknown))?.title;
      return createAssistantStream((stream) => (title ? stream.appendText(title) : undefined));
    },
  };
}

type Content = NonNullable<ChatModelRunResult["content"]>;

const contentOf = ({ parts }: UIMessage): Content =>
  parts.flatMap((part): Content => {
    if (part.type === "text" || part.type === "reasoning") return [{ type: part.type, text: part.text }];
    if (part.type !== "dynamic-tool") return [];
    const { toolCallId, toolName, state } = part;
    const args = (part.input ?? {}) as never;
    const result = state === "output-error" ? part.errorText : part.output;
    return [{ type: "tool-call", toolCallId, toolName, args, argsText: JSON.stringify(args), result, isError: state === "output-error" }];
  });

/** The threads of which a run is active, so that the transport of assistant-ui goes on with them once they are loaded. */
function activeRuns(backend: Backend) {
  const [runs, listeners] = [new Map<string, string>(), new Set<() => void>()];
  const threadOf = (run: string) => [...runs].find(([, active]) => active === run)?.[0] ?? run;
  const resumable: AssistantChatResumableOptions = {
    storage: {
      getStreamId: (thread) => (thread && runs.get(thread)) || null,
      // The server names the active run when the thread is loaded.
      setStreamId() {},
      clear: (thread) => void (thread && runs.delete(thread)),
      subscribe: (listener) => (listeners.add(listener), () => void listeners.delete(listener)),
    },
    resumeApi: (run) => chatOf(backend, threadOf(run), "/stream"),
  };
  const set = (thread: string, run: string | undefined) => {
    if (run) runs.set(thread, run);
    else runs.delete(thread);
    listeners.forEach((listener) => listener());
  };
  return { resumable, set };
}

/** The history of one thread. The server writes the log, so nothing is appended from here. */
export function threadHistory(backend: Backend, current: () => string | undefined, loaded = (_thread: string, _run: string | undefined) => {}): ThreadHistoryAdapter {
  const messages = async (): Promise<{ messages: UIMessage[]; isActive: boolean }> => {
    const thread = current();
    if (!thread) return { messages: [], isActive: false };
    const chat = await request(backend, "GET", chatOf(backend, thread));
    loaded(thread, chat.activeRun?.runId);
    return { messages: chat.messages, isActive: chat.activeRun !== null };
  };
  return {
    async load() {
      const chat = await messages();
      const like = chat.messages.map((message) => ({ id: message.id, role: message.role, content: contentOf(message) }) as ThreadMessageLike);
      return { ...ExportedMessageRepository.fromArray(like), unstable_resume: chat.isActive };
    },
    async append() {},
    async *resume() {
      const prepareReconnectToStreamRequest = ({ id }: { id: string }) => ({ api: chatOf(backend, id, "/stream") });
      const transport = new DefaultChatTransport({ headers: backend.headers, prepareReconnectToStreamRequest });
      const stream = await transport.reconnectToStream({ chatId: current() ?? "" });
      if (!stream) return;
      for await (const message of readUIMessageStream({ stream })) yield { content: contentOf(message) };
    },
    withFormat: <TMessage,>() => ({
      async load() {
        const { messages: all } = await messages();
        const items = all.map((message, at) => ({ message: message as TMessage, parentId: all[at - 1]?.id ?? null }));
        return { messages: items, headId: all.at(-1)?.id ?? null };
      },
      async append() {},
    }),
  };
}

/** What people say of answers: a message of the assistant is a run of the server, and has its id. */
export const feedback = (backend: Backend): FeedbackAdapter => ({
  submit({ message, type }) {
    const thumb = type === "positive" ? "up" : "down";
    void request(backend, "POST", `${backend.url}/v1/runs/${segment(message.id)}/feedback`, { thumb });
  },
});

/** The list of threads with the history of each, and the transport of a thread's messages. */
export function proscenium(backend: Backend) {
  const { resumable, set } = activeRuns(backend);
  const useAdapters = () => {
    const aui = useAui();
    return useMemo(() => ({ feedback: feedback(backend), history: threadHistory(backend, () => aui.threadListItem().getState().remoteId, set) }), [aui]);
  };
  const adapter: RemoteThreadListAdapter = { ...threadList(backend), unstable_useAdapters: useAdapters };
  const transport = () => new AssistantChatTransport({ api: `${chatsOf(backend)}?version=7`, headers: backend.headers, resumable });
  return { adapter, transport };
}
