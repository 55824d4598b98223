/**
 * Lateness by chance, for tests that speak to the server through something of their own: with it they meet orders of events that a
 * quiet machine rarely has. PROSCENIUM_JITTER_MS is the longest that a request, an answer or a piece of a stream is late; 0 unless
 * somebody says otherwise.
 */

import { Transform } from "node:stream";
import { setTimeout as pause } from "node:timers/promises";

const JITTER_MS = Number(process.env.PROSCENIUM_JITTER_MS ?? 0);

/** Waits as long as chance has it; not at all, unless somebody asked for that. */
export const jitter = () => (JITTER_MS > 0 ? pause(Math.random() * JITTER_MS) : undefined);

/** What passes through it keeps its order, and each piece is late by chance. */
export function unsteady() {
  let line = Promise.resolve();
  return new Transform({
    transform(piece, _, then) {
      const late = jitter();
      line = line.then(() => late).then(() => void this.push(piece));
      then();
    },
    flush: (then) => void line.then(() => then()),
  });
}
