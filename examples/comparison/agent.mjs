/** The agent of both examples: it says some words, and stops when it is asked to. */

import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";

export async function answer(messages, writer, signal) {
  const id = randomUUID();
  writer.write({ type: "text-start", id });
  for (const word of `You wrote ${messages.length} message(s), and I take my time to answer.`.split(/(?<= )/)) {
    if (signal.aborted) break;
    writer.write({ type: "text-delta", id, delta: word });
    await pause(Number(process.env.WORD_MS ?? 100));
  }
  writer.write({ type: "text-end", id });
}
