/** Clients of the native frames: EventSource, and fetch-event-source for clients that must send headers. */

import { fetchEventSource } from "@microsoft/fetch-event-source";
import { EventSource } from "eventsource";
import patches from "fast-json-patch";
import { Streams, joinChunks, post, textsInOrder } from "./harness.mjs";
import { difference } from "./matrix.mjs";

// fetch-event-source reads the page's visibility, and uses the timers of `window`.
globalThis.window ??= globalThis;
globalThis.document ??= { addEventListener() {}, removeEventListener() {}, hidden: false };

/** The five lines from docs/src/guides/page-client.md: a copy of each activity, updated by frames. */
export class ActivityCopy {
  activities = new Map();

  apply(frame) {
    const key = `${frame.activityType} ${frame.activityId}`;
    if (frame.frame === "Reset") this.activities.clear();
    if (frame.frame === "ActivitySnapshot") this.activities.set(key, frame);
    if (frame.frame === "ActivityDelta") patches.applyPatch(this.activities.get(key).content, frame.patch, true);
    return frame.frame === "End";
  }

  content() {
    return canonical([...this.activities.values()]);
  }
}

/** Pending decisions, and the controls that answer them. */
const decisions = ({ url, run, thread, agent, user }, copy) => ({
  /** Requests the run, as the form of a page does. */
  send: () => post(`${url}/v1/sessions/${thread}/controls`, { control: "send", agentId: agent, value: { runId: run, messages: [{ id: user, role: "user", content: "Go on." }] } }),
  pending: () => [...copy.activities.values()].filter(({ activityType, content }) => activityType === "action" && content.status === "pending").map(({ activityId }) => activityId),
  decide: (isApproved, actionId) => post(`${url}/v1/runs/${run}/controls`, { control: isApproved ? "approve" : "reject", actionId }),

  visibleTexts: () => textsInOrder([...copy.activities.values()]),
});

/** Returns the activities by `opened`, with joined texts. */
function canonical(activities) {
  const sorted = [...activities].sort((a, b) => a.opened - b.opened || (`${a.activityType} ${a.activityId}` < `${b.activityType} ${b.activityId}` ? -1 : 1));
  const plain = sorted.map(({ activityType, activityId, agentId, surface, opened, content }) => ({ activityType, activityId, agentId, surface, opened, content }));
  return JSON.parse(JSON.stringify(plain), (key, value) => (/(^|_)text$/.test(key) ? joinChunks(value) : value));
}

/** The content must equal the server's activities. */
const check = (observed) => difference(observed.raw, canonical(observed.native));

const nativeClient = (name, open) => ({
  name,
  reconnects: true,
  endsWithRun: true,
  concurrency: 12,
  check,
  open(target) {
    const streams = new Streams({ isTerminal: ({ frame }) => frame === "End", mayEndSilently: true });
    const copy = new ActivityCopy();
    return { ...open({ ...target, at: `${target.url}/v1/runs/${target.run}/stream`, fetch: streams.fetch, copy }), ...decisions(target, copy), content: () => copy.content(), streams };
  },
});

export const eventSource = nativeClient("EventSource (eventsource 4.1.0)", ({ at, fetch, copy }) => {
  let source, cursor;
  const watch = (after) => new Promise((resolve, reject) => {
    source?.close();
    source = new EventSource(after ? `${at}?after=${after}` : at, { fetch });
    source.onmessage = ({ data, lastEventId }) => {
      cursor = lastEventId;
      copy.apply(JSON.parse(data));
    };
    // EventSource reconnects by itself until status 204.
    source.onerror = ({ code }) => {
      if (source.readyState === source.CLOSED) (code === 204 ? resolve : reject)(code);
    };
  });
  return { begin: () => watch(), join: () => watch(), resume: () => watch(cursor), close: () => source.close() };
});

export const fetchEvents = nativeClient("fetch-event-source 2.0.1", ({ at, fetch, copy }) => {
  let cursor, abort;
  const watch = () => {
    ending: abort = new AbortController();
    return fetchEventSource(at, {
      headers: { authorization: "Bearer none", ...(cursor && { "last-event-id": cursor }) },
      openWhenHidden: true,
      signal: abort.signal,
      fetch,
      async onopen({ status }) {
        // The run has ended.
        if (status === 204) abort.abort();
      },
      onmessage({ data, id }) {
        cursor = id || cursor;
        copy.apply(JSON.parse(data));
      },
      // The end of a response is not the end of the run: reconnecting gets status 204 then.
      onclose() {
        throw new Error("again");
      },
      onerror: () => 10,
    });
  };
  return { begin: watch, join: watch, resume: watch, close: () => abort.abort() };
});
