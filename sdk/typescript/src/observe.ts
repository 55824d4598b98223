/** `observe`: a function that is a tool reports its calls. */

import { currentRun, type Run } from "./run.js";
import type { Audience } from "./vocabulary.js";

export interface ObserveOptions {
  /** The name of the tool. Default: that of the function. */
  name?: string;
  /** The run. Default: that of the surrounding `during`, which browsers cannot tell. */
  run?: Run;
  /** Who sees the output. */
  audience?: Audience;
}

/**
 * Returns a function that reports each of its calls as a call of a tool. The arguments are the input (one argument as
 * it is, several as an array), the returned value is the output, an exception is the failure. Inside, `currentCall()`
 * reports progress, and a call of another observed function is a child. Without a run the function just runs.
 */
export function observe<A extends unknown[], R>(work: (...args: A) => R | Promise<R>, options: ObserveOptions = {}): (...args: A) => Promise<R> {
  const name = options.name ?? work.name;
  if (!name) throw new TypeError("observe() needs a name for a function without one: observe(work, { name })");
  return async (...args) => {
    const run = options.run ?? currentRun();
    if (!run) return work(...args);
    return run.tool(name, args.length > 1 ? args : args[0]).during(() => work(...args), options.audience);
  };
}
