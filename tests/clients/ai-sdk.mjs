/** The chat of the AI SDK versions 5, 6 and 7, which useChat wraps for React. */

import * as ai5 from "ai-5";
import * as ai6 from "ai-6";
import * as ai7 from "ai";
import { Streams, fetchActivities, requestJson, post, textsInOrder, waitFor } from "./harness.mjs";

/** `useChat` without React: the library's chat with plain state. */
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
 * Returns a message as a page should show it. Versions that cannot remove a retracted text keep it, and a
 * `data-correction` part lists it. A part without text is not shown.
 */
function corrected({ parts, ...message }) {
  const retracted = parts.filter(({ type }) => type === "data-correction").flatMap(({ data }) => data.parts);
  const isShown = ({ type, text }, at) => type !== "data-correction" && text !== "" && !retracted.includes(at);
  return { ...message, parts: parts.filter(isShown) };
}

/** Version 6 has no chunk for a decision of another client: a page learns it only by a reload. */
const withoutDecision = ({ parts, ...message }) => ({ ...message, parts: parts.map(({ approval, ...part }) => ({ ...part, ...(approval && { approval: { id: approval.id } }) })) });

/** Whether a message has content. A run that failed at once has only an error. */
const hasContent = ({ parts }) => parts.some(({ type }) => type !== "step-start");

/** Returns all texts of the assistant in a chat, in order. */
const textsOf = (messages) => messages.filter(({ role }) => role === "assistant").map(corrected).flatMap(({ parts }) => parts.filter(({ type }) => type === "text" || type === "reasoning").map(({ text }) => text)).filter(Boolean);

const aiSdk = (name, version, library) => {
  const Chat = chatOf(library);
  const open = ({ url, agent, run, thread, user }) => {
    const streams = new Streams({ isTerminal: ({ type }) => ["finish", "abort", "error"].includes(type), trailer: "data: [DONE]\n\n" });
    const transport = new library.DefaultChatTransport({ api: `${url}/ai-sdk/${agent}?version=${version}`, fetch: streams.fetch });
    let chat;
    const parts = () => chat.messages.flatMap((message) => message.parts);
    // The chat continues by itself once all approvals of a message are answered.
    const sendAutomaticallyWhen = library.lastAssistantMessageIsCompleteWithApprovalResponses;
    const createChat = (messages) => (chat = new Chat({ id: thread, messages, transport, sendAutomaticallyWhen, onError() {} }));
    const history = async () => createChat((await requestJson(`${url}/ai-sdk/${agent}/${thread}?version=${version}`)).messages);
    /** Follows a live run from its start. If it has ended, perhaps since the history was read, reads the history. */
    const resume = () => streams.track(async () => {
      const before = streams.list.length;
      await chat.resumeStream();
      if (streams.list.length === before) await history();
    });
    const reload = async () => {
      await history();
      await resume();
    };
    const actions = () => parts().filter(({ type, data }) => type === "data-action" && data.status === "pending").map(({ id }) => id);
    const decideByControl = async (isApproved, actionId) => {
      const { runId } = chat.messages.at(-1).metadata;
      await post(`${url}/v1/runs/${runId}/controls`, { control: isApproved ? "approve" : "reject", actionId });
      const isPending = ({ activityType, activityId, content }) => activityType === "action" && activityId === actionId && content.status === "pending";
      await waitFor("the runtime's decision", async () => !(await fetchActivities(url, runId)).some(isPending));
      await reload();
    };
    createChat([]);
    return {
      begin: () => streams.track(() => chat.sendMessage({ id: user, role: "user", parts: [{ type: "text", text: "Go on." }] })),
      join: reload,
      // Version 5 appends the replay to its parts, so it must be reloaded.
      resume: version === 5 ? reload : resume,
      revisit: reload,
      // Messages of users on other pages are in the history only, not in a stream.
      content: () => ({ messages: chat.messages.filter(({ id, role }) => role === "assistant" || id === user).map(corrected).map(version === 6 ? withoutDecision : (message) => message).filter(hasContent) }),
      pending: () => (version === 5 ? actions() : parts().filter(({ state }) => state === "approval-requested").map(({ approval }) => approval.id)),
      // Version 5 has no approvals: the page has its own button, and reloads after the runtime's decision.
      decide: (isApproved, id) => version === 5 ? decideByControl(isApproved, id) : streams.track(async () => {
        await chat.addToolApprovalResponse({ id, approved: isApproved });
        await waitFor("the chat to continue", () => chat.status !== "ready");
        await waitFor("the chat to be ready", () => chat.status === "ready" || chat.status === "error");
      }),
      visibleTexts: () => textsOf(chat.messages),
      texts: () => textsOf(chat.messages),
      chat: () => chat,
      streams,
    };
  };
  return { name, sendsRequest: true, namesRuns: true, open, nativeTexts: (activities) => textsInOrder(activities, ["assistant"]) };
};

const LIBRARIES = [["AI SDK 5.0.277", 5, ai5], ["AI SDK 6.0.322", 6, ai6], ["AI SDK 7.0.173", 7, ai7]];

export const ai = LIBRARIES.map((library) => aiSdk(...library));

/** The libraries themselves, each with a way to create a chat. */
export const chats = LIBRARIES.map(([name, version, library]) => {
  const Chat = chatOf(library);
  return { name, version, library, createChat: (init) => new Chat(init) };
});
