/**
 * The same by Proscenium: the route of the agent alone, which `proscenium serve --connect 'support=ai-sdk:URL'` calls.
 *
 * History, resuming and stopping are addresses of the server, below /ai-sdk/support.
 */

import { createUIMessageStream, createUIMessageStreamResponse } from "ai";
import { answer } from "./agent.mjs";

export async function post(id, request) {
  const { messages } = await request.json();
  const stream = createUIMessageStream({
    originalMessages: messages,
    execute: ({ writer }) => answer(messages, writer, request.signal),
  });
  return createUIMessageStreamResponse({ stream });
}
