/** Web Push against the published test double of a push service, which checks the signature and decrypts. */

import assert from "node:assert/strict";
import { createServer } from "node:net";
import { test } from "node:test";
import PushApi from "web-push-testing/src/PushApiModel.js";
import PushServer from "web-push-testing/src/server.js";
import { limit } from "../deadline.mjs";
import { requestJson, startServer, waitFor } from "./harness.mjs";

const freePort = () => new Promise((resolve) => {
  const server = createServer().listen(0, "127.0.0.1", () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  });
});

const send = (method, url, body) => fetch(url, { method, headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

test("a published push service takes the server's messages, and an ended subscription is forgotten", limit, async () => {
  const port = await freePort();
  const service = new PushServer(new PushApi.PushApiModel(), port);
  service.startServer();
  const at = `http://localhost:${port}`;
  const server = await startServer("--push-host", `localhost:${port}`);
  try {
    const key = (await requestJson(`${server.url}/v1/push`)).publicKey;
    const { data } = await (await send("POST", `${at}/subscribe`, { userVisibleOnly: "true", applicationServerKey: key })).json();
    const { clientHash, ...subscription } = data;
    assert.equal((await send("PUT", `${server.url}/v1/push`, subscription)).status, 201);
    const ask = (run, title) => send("POST", `${server.url}/v1/runs/${run}/facts`, [{ type: "run.started" }, { type: "action.required", actionId: "a", payload: { title } }]);
    await ask("r", "Go on?");
    const received = async () => (await (await send("POST", `${at}/get-notifications`, { clientHash })).json()).data.messages;
    await waitFor("the message", async () => (await received()).length === 1);
    const { notification, web_push: declarative } = JSON.parse((await received())[0]);
    assert.deepEqual([declarative, notification.title, notification.navigate], [8030, "Go on?", "/#run=r&action=a&audience=internal"]);
    await send("POST", `${at}/expire-subscription/${clientHash}`, {});
    await ask("q", "And now?");
    await waitFor("the end of the subscription", async () => (await requestJson(`${server.url}/v1/push`)).subscriptions.length === 0);
  } finally {
    await server.stop();
    service._server.close();
  }
});
