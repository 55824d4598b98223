/** The run and the call that surround an observed function, where the platform can tell: in Node, Deno and Bun. */

import type { ToolCall } from "./calls.js";
import type { Run } from "./run.js";

export interface Context {
  run?: Run | undefined;
  call?: ToolCall | undefined;
}

interface Storage {
  run<R>(context: Context, work: () => R): R;
  getStore(): Context | undefined;
}

/** Browsers have no asynchronous context. There a function names its run. */
const none: Storage = { run: (_context, work) => work(), getStore: () => undefined };

type Hooks = { AsyncLocalStorage: new () => Storage };
const { process } = globalThis as { process?: { getBuiltinModule?(name: string): Hooks | undefined } };
const hooks = process?.getBuiltinModule?.("node:async_hooks");
const storage = hooks ? new hooks.AsyncLocalStorage() : none;

export const surroundings = (): Context => storage.getStore() ?? {};

/** Does the work with a context that adds to the surrounding one. */
export const within = <R>(context: Context, work: () => R): R => storage.run({ ...surroundings(), ...context }, work);
