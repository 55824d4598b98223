/**
 * The workbench on a node of a cluster: the page goes on when its node, which leads, is killed. The front takes the part
 * of a load balancer.
 */

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { Cluster } from "../cluster.mjs";
import { BINARY, Stage, limit, until } from "./stage.js";

let cluster, stage, page;

before(async () => {
  cluster = await Cluster.start(BINARY, 3);
  stage = await Stage.on((await cluster.leader()).url);
}, limit);
after(async () => {
  await stage?.close();
  await cluster?.stop();
});
afterEach(() => page?.close());

const delta = (words) => ({ type: "text.delta", messageId: "m", partId: "p", payload: { text: words } });
const hasSpeech = (expected) => [...document.querySelectorAll("ps-conversation .speech:not([hidden]) .body")].some((one) => one.textContent.trim() === expected);
const speech = () => [...document.querySelectorAll("ps-conversation .speech:not([hidden]) .body")].map((one) => one.textContent).join("|");

test("The page goes on at another node, without a reload, when the leader that served it is killed.", limit, async () => {
  await stage.publish("r", [{ type: "run.started", agentId: "helper" }, delta("One ")], { sessionId: "s" });
  page = await stage.look({ session: "s" });
  await until(page, hasSpeech, "One");
  await page.evaluate(() => (window.isSamePage = true));
  const [leader, follower] = [await cluster.leader(), await cluster.follower()];
  await leader.kill();
  stage.url = follower.url;
  await cluster.ready();
  await stage.publish("r", [delta("two ")]);
  await until(page, hasSpeech, "One two");
  // The page writes, too: its message reaches the agent through the new leader.
  await page.locator("ps-composer textarea").fill("Go on");
  await page.locator("ps-composer .submit").click();
  const control = await stage.claim("helper");
  assert.equal(control.value.text, "Go on");
  await stage.publish("r", [delta("three"), { type: "run.finished" }]);
  await until(page, hasSpeech, "One two three");
  assert.equal(await page.evaluate(speech), "One two three");
  assert.ok(await page.evaluate(() => window.isSamePage));
});
