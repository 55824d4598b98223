/**
 * An answer that outlives its connection, by `resumable-stream` and Redis: docs/src/why.md counts the lines.
 *
 * It keeps chats in Redis. A stop works only in the process that answers, and after a restart of that process the chat
 * names a stream that nothing writes any longer.
 */

import { randomUUID } from "node:crypto";
import { UI_MESSAGE_STREAM_HEADERS, createUIMessageStream, createUIMessageStreamResponse } from "ai";
import { createClient } from "redis";
import { createResumableStreamContext } from "resumable-stream";
import { answer } from "./agent.mjs";

const redis = createClient({ url: process.env.REDIS_URL });
await redis.connect();
const streams = createResumableStreamContext({ waitUntil: null });
const working = new Map();
const load = async (id) => JSON.parse((await redis.get(`chat:${id}`)) ?? '{"messages":[],"streamId":null}');
const save = (id, chat) => redis.set(`chat:${id}`, JSON.stringify(chat));

export async function post(id, request) {
  const { messages } = await request.json();
  const streamId = randomUUID();
  const stopper = new AbortController();
  working.set(id, stopper);
  await save(id, { messages, streamId });
  const stream = createUIMessageStream({
    originalMessages: messages,
    execute: ({ writer }) => answer(messages, writer, stopper.signal),
    onFinish: async ({ messages }) => {
      working.delete(id);
      await save(id, { messages, streamId: null });
    },
  });
  return createUIMessageStreamResponse({
    stream,
    consumeSseStream: ({ stream }) => streams.createNewResumableStream(streamId, () => stream),
  });
}

export async function resume(id) {
  const { streamId } = await load(id);
  const rest = streamId && (await streams.resumeExistingStream(streamId));
  return rest ? new Response(rest, { headers: UI_MESSAGE_STREAM_HEADERS }) : new Response(null, { status: 204 });
}

export async function history(id) {
  const { messages } = await load(id);
  return Response.json({ id, messages });
}

export async function stop(id) {
  working.get(id)?.abort();
  return new Response(null, { status: 204 });
}
