/** The AI SDK's chat, which useChat wraps for React: versions 5, 6 and 7. */

import * as ai5 from "ai-5";
import * as ai6 from "ai-6";
import * as ai7 from "ai-7";
import { Streams, activities, ask, post, spoken, until } from "./harness.mjs";

/** What `useChat` is without React: the library's chat, with its state in plain members. */
const chatOf = ({ AbstractChat }) =>
  class Chat extends AbstractChat {
    constructor({ messages = [], ...init }) {
      const state = {
        status: "ready", error: undefined, messages,
        pushMessage: (message) => (state.messages = [...state.messages, message]),
        popMessage: () => (state.messages = state.messages.slice(0, -1)),
        replaceMessage: (at, message) => (state.messages = state.messages.with(at, message)),
        snapshot: structuredClone,
      };
      super({ ...init, state });
    }
  };

/**
 * A message as it is to be shown: a text that was unsaid is still there for versions that cannot take back any, and a part of its
 * own says so; and what has no text yet shows nothing.
 */
function corrected({ parts, ...message }) {
  const unsaid = parts.filter(({ type }) => type === "data-correction").flatMap(({ data }) => data.parts);
  const isShown = ({ type, text }, at) => type !== "data-correction" && text !== "" && !unsaid.includes(at);
  return { ...message, parts: parts.filter(isShown) };
}

/** No chunk of version 6 says how somebody else decided: a page that watched does not know before it is loaded anew. */
const undecided = ({ parts, ...message }) => ({ ...message, parts: parts.map(({ approval, ...part }) => ({ ...part, ...(approval && { approval: { id: approval.id } }) })) });

/** Whether there is anything in a message: of a run that failed at once there is nothing but its error. */
const isSomething = ({ parts }) => parts.some(({ type }) => type !== "step-start");

/** All that the assistant says in a chat, in order. */
const textsOf = (messages) => messages.filter(({ role }) => role === "assistant").map(corrected).flatMap(({ parts }) => parts.filter(({ type }) => type === "text" || type === "reasoning").map(({ text }) => text)).filter(Boolean);

const aiSdk = (name, version, library) => {
  const Chat = chatOf(library);
  const open = ({ url, agent, run, thread, user }) => {
    const streams = new Streams({ isTerminal: ({ type }) => ["finish", "abort", "error"].includes(type), farewell: "data: [DONE]\n\n" });
    const transport = new library.DefaultChatTransport({ api: `${url}/ai-sdk/${agent}?version=${version}`, fetch: streams.fetch });
    let chat;
    const parts = () => chat.messages.flatMap((message) => message.parts);
    // Once all approvals of a message are answered, it goes on by itself.
    const sendAutomaticallyWhen = library.lastAssistantMessageIsCompleteWithApprovalResponses;
    const make = (messages) => (chat = new Chat({ id: thread, messages, transport, sendAutomaticallyWhen, onError() {} }));
    const history = async () => make((await ask(`${url}/ai-sdk/${agent}/${thread}?version=${version}`)).messages);
    /** What goes on is told again from its start. What is over, perhaps since the history was read, is history. */
    const resume = () => streams.through(async () => {
      const before = streams.list.length;
      await chat.resumeStream();
      if (streams.list.length === before) await history();
    });
    const reload = async () => {
      await history();
      await resume();
    };
    const actions = () => parts().filter(({ type, data }) => type === "data-action" && data.status === "pending").map(({ id }) => id);
    const ordered = async (yes, actionId) => {
      const { runId } = chat.messages.at(-1).metadata;
      await post(`${url}/v1/runs/${runId}/controls`, { control: yes ? "approve" : "reject", actionId });
      const isPending = ({ activityType, activityId, content }) => activityType === "action" && activityId === actionId && content.status === "pending";
      await until("the runtime to have decided", async () => !(await activities(url, runId)).some(isPending));
      await reload();
    };
    make([]);
    return {
      begin: () => streams.through(() => chat.sendMessage({ id: user, role: "user", parts: [{ type: "text", text: "Go on." }] })),
      join: reload,
      // What version 5 has it keeps, and appends the replay to it: it can only be reloaded.
      back: version === 5 ? reload : resume,
      again: reload,
      // Users' messages that came from elsewhere are history, and on no stream.
      picture: () => ({ messages: chat.messages.filter(({ id, role }) => role === "assistant" || id === user).map(corrected).map(version === 6 ? undecided : (message) => message).filter(isSomething) }),
      pending: () => (version === 5 ? actions() : parts().filter(({ state }) => state === "approval-requested").map(({ approval }) => approval.id)),
      // Version 5 knows no approvals: the page has a button of its own, and looks again when the runtime has said what came of it.
      decide: (yes, id) => version === 5 ? ordered(yes, id) : streams.through(async () => {
        await chat.addToolApprovalResponse({ id, approved: yes });
        await until("the chat to go on", () => chat.status !== "ready");
        await until("the chat to be ready", () => chat.status === "ready" || chat.status === "error");
      }),
      said: () => textsOf(chat.messages),
      texts: () => textsOf(chat.messages),
      chat: () => chat,
      streams,
    };
  };
  return { name, asks: true, namesRuns: true, open, nativeTexts: (shown) => spoken(shown, ["assistant"]) };
};

export const ai = [aiSdk("AI SDK 5.0.277", 5, ai5), aiSdk("AI SDK 6.0.322", 6, ai6), aiSdk("AI SDK 7.0.173", 7, ai7)];
