/** A stream of a framework, published while its caller reads it. */

import { currentRun, type Run } from "./run.js";

/** A stream, published as it is read. `done()` reads all of it; `for await` passes every item on. */
export class Forward<T> implements AsyncIterable<T> {
  #stream: AsyncIterable<T> | Iterable<T>;
  #run: Run;
  #publish: (run: Run, item: T) => void;

  constructor(stream: AsyncIterable<T> | Iterable<T>, run: Run | undefined, publish: (run: Run, item: T) => void) {
    run ??= currentRun();
    if (!run) throw new TypeError("A stream is forwarded to a run: call it inside `run.during(…)`, or pass the run.");
    [this.#stream, this.#run, this.#publish] = [stream, run, publish];
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, void> {
    // The source starts the run, and the framework's tools may report before its first fact.
    this.#run.continuing();
    for await (const item of this.#stream) {
      // The queue is bounded: a slow server slows the stream.
      await this.#run.drain();
      this.#publish(this.#run, item);
      yield item;
    }
  }

  /** Reads the stream to its end. */
  async done(): Promise<void> {
    for await (const _ of this);
  }
}
