/** An AG-UI page of the connected agent `helper`. */

import { HttpAgent } from "@ag-ui/client";

/** Returns a page of this thread, a way to write in it, and its answers. */
export function pageOf(server, thread) {
  const page = new HttpAgent({ url: `${server.url}/ag-ui/helper`, threadId: thread });
  const say = async (text) => {
    page.addMessage({ id: `user-${page.messages.length}`, role: "user", content: text });
    return page.runAgent();
  };
  const texts = () => page.messages.filter(({ role, content }) => role === "assistant" && content).map(({ content }) => content);
  return { page, say, texts };
}
