/** Code that the compiler accepts, and code that it refuses. Nothing here runs. */

import type { ChatTransport, UIMessage } from "ai";
import { connect, observe, ProsceniumChatTransport, Run, Store, type Activity, type Fact } from "proscenium-client";

export const transport: ChatTransport<UIMessage> = new ProsceniumChatTransport({ base: "", agent: "writer" });

export const known: Fact = { type: "text.delta", messageId: "m", payload: { text: "Hi" }, audience: "user" };
export const extended: Fact = { type: "vendor.event", owner: "vendor" };
// @ts-expect-error: an unknown audience would be internal, which no author means.
export const misspelt: Fact = { type: "text.delta", audience: "users" };
// @ts-expect-error: a fact has a type.
export const untyped: Fact = { messageId: "m" };

export async function work(run: Run): Promise<number> {
  const length = observe(async (text: string) => text.length, { name: "length", run });
  // @ts-expect-error: an observed function keeps its parameters.
  await length(5);
  const call = run.tool("search");
  // @ts-expect-error: a call has one of five statuses.
  call.reportProgress("finished");
  const total: number = await call.during(async () => length("text"));
  return run.during(() => total);
}

export function read(): Activity[] {
  const store = new Store();
  connect({ run: "run-1" }, store).close();
  return store.sorted();
}
