/**
 * Random delays for tests with their own proxy. They produce orders of events that are rare on an idle machine.
 * PROSCENIUM_JITTER_MS is the maximum delay of a request, a response or a chunk of a stream; default 0.
 */

import { Transform } from "node:stream";
import { setTimeout as pause } from "node:timers/promises";

const JITTER_MS = Number(process.env.PROSCENIUM_JITTER_MS ?? 0);

/** Waits for a random time; not at all by default. */
export const jitter = () => (JITTER_MS > 0 ? pause(Math.random() * JITTER_MS) : undefined);

/** Creates a stream that passes chunks in order, each after a random delay. */
export function jitterStream() {
  let previous = Promise.resolve();
  return new Transform({
    transform(chunk, _, done) {
      const delay = jitter();
      previous = previous.then(() => delay).then(() => void this.push(chunk));
      done();
    },
    flush: (done) => void previous.then(() => done()),
  });
}
