/** Serves the routes of an example: node serve.mjs ./with-redis.mjs; prints its address. */

import { createServer } from "node:http";
import { Readable } from "node:stream";

const routes = await import(new URL(process.argv[2], `file://${process.cwd()}/`));
const server = createServer(async (incoming, outgoing) => {
  const gone = new AbortController();
  outgoing.on("close", () => gone.abort());
  const [, name, id] = /^\/(\w+)\/?([\w-]*)/.exec(incoming.url) ?? [];
  const body = incoming.method === "POST" ? Readable.toWeb(incoming) : undefined;
  const request = new Request(`http://localhost${incoming.url}`, { method: incoming.method, body, duplex: "half", signal: gone.signal });
  const answer = routes[name] ? await routes[name](id, request) : new Response(null, { status: 404 });
  outgoing.writeHead(answer.status, Object.fromEntries(answer.headers));
  if (answer.body) Readable.fromWeb(answer.body).pipe(outgoing);
  else outgoing.end();
});
server.listen(Number(process.env.PORT ?? 0), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
