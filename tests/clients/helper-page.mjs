/** An AG-UI page of the connected agent `helper`. */

import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { HttpAgent } from "@ag-ui/client";
import { startServer } from "./harness.mjs";

/** Returns a page of this thread, a way to write in it, and its answers. */
export function pageOf(server, thread) {
  const page = new HttpAgent({ url: `${server.url}/ag-ui/helper`, threadId: thread });
  const say = async (text) => {
    page.addMessage({ id: randomUUID(), role: "user", content: text });
    return page.runAgent();
  };
  const texts = () => page.messages.filter(({ role, content }) => role === "assistant" && content).map(({ content }) => content);
  return { page, say, texts };
}

/** Says "Hello", restarts the server, and says "Again" on another page. Returns the answer to that. */
export async function turnAfterRestart(thread, ...connect) {
  const folder = mkdtempSync(join(tmpdir(), "proscenium-"));
  const start = () => startServer("--data-dir", join(folder, "data"), ...connect);
  let server = await start();
  try {
    await pageOf(server, thread).say("Hello");
    await server.stop();
    server = await start();
    const { say, texts } = pageOf(server, thread);
    await say("Again");
    return texts().at(-1);
  } finally {
    await server.stop();
    rmSync(folder, { recursive: true });
  }
}
