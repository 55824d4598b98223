/** Clients of the native frames: what a browser has, and what those take that must send headers. */

import { fetchEventSource } from "@microsoft/fetch-event-source";
import { EventSource } from "eventsource";
import patches from "fast-json-patch";
import { Streams, joined, post, spoken } from "./harness.mjs";
import { difference } from "./matrix.mjs";

// fetch-event-source looks at the page's visibility and takes its timers from the window.
globalThis.window ??= globalThis;
globalThis.document ??= { addEventListener() {}, removeEventListener() {}, hidden: false };

/** The five lines of docs/src/guides/page-client.md: a copy of each activity, kept as the frames say. */
export class Copy {
  shown = new Map();

  take(frame) {
    const key = `${frame.activityType} ${frame.activityId}`;
    if (frame.frame === "Reset") this.shown.clear();
    if (frame.frame === "ActivitySnapshot") this.shown.set(key, frame);
    if (frame.frame === "ActivityDelta") patches.applyPatch(this.shown.get(key).content, frame.patch, true);
    return frame.frame === "End";
  }

  picture() {
    return canonical([...this.shown.values()]);
  }
}

/** What waits for a decision, and how it is given: by a control, like anything else that somebody asks for. */
const decisions = ({ url, run, thread, agent, user }, copy) => ({
  /** Asks for the run, as a page's form would. */
  send: () => post(`${url}/v1/sessions/${thread}/controls`, { control: "send", agentId: agent, value: { runId: run, messages: [{ id: user, role: "user", content: "Go on." }] } }),
  pending: () => [...copy.shown.values()].filter(({ activityType, content }) => activityType === "action" && content.status === "pending").map(({ activityId }) => activityId),
  decide: (yes, actionId) => post(`${url}/v1/runs/${run}/controls`, { control: yes ? "approve" : "reject", actionId }),

  said: () => spoken([...copy.shown.values()]),
});

/** Activities by key, with texts in one piece, in the order in which they appeared. */
function canonical(shown) {
  const sorted = [...shown].sort((a, b) => a.opened - b.opened || (`${a.activityType} ${a.activityId}` < `${b.activityType} ${b.activityId}` ? -1 : 1));
  const told = sorted.map(({ activityType, activityId, agentId, surface, opened, content }) => ({ activityType, activityId, agentId, surface, opened, content }));
  return JSON.parse(JSON.stringify(told), (key, value) => (/(^|_)text$/.test(key) ? joined(value) : value));
}

/** The picture has to be the one at rest. */
const check = (seen) => difference(seen.whole, canonical(seen.native));

const native = (name, open) => ({
  name,
  comesBackByItself: true,
  endsOnlyWithTheRun: true,
  atOnce: 12,
  check,
  open(where) {
    const streams = new Streams({ isTerminal: ({ frame }) => frame === "End", mayStop: true });
    const copy = new Copy();
    return { ...open({ ...where, at: `${where.url}/v1/runs/${where.run}/stream`, fetch: streams.fetch, copy }), ...decisions(where, copy), picture: () => copy.picture(), streams };
  },
});

export const eventSource = native("EventSource (eventsource 4.1.0)", ({ at, fetch, copy }) => {
  let source, cursor;
  const watch = (after) => new Promise((resolve, reject) => {
    source?.close();
    source = new EventSource(after ? `${at}?after=${after}` : at, { fetch });
    source.onmessage = ({ data, lastEventId }) => {
      cursor = lastEventId;
      copy.take(JSON.parse(data));
    };
    // It comes back by itself, until there is nothing more to come: 204.
    source.onerror = ({ code }) => {
      if (source.readyState === source.CLOSED) (code === 204 ? resolve : reject)(code);
    };
  });
  return { begin: () => watch(), join: () => watch(), back: () => watch(cursor), close: () => source.close() };
});

export const fetchEvents = native("fetch-event-source 2.0.1", ({ at, fetch, copy }) => {
  let cursor, ending;
  const watch = () => {
    ending = new AbortController();
    return fetchEventSource(at, {
      headers: { authorization: "Bearer none", ...(cursor && { "last-event-id": cursor }) },
      openWhenHidden: true,
      signal: ending.signal,
      fetch,
      async onopen({ status }) {
        // Nothing more is to come.
        if (status === 204) ending.abort();
      },
      onmessage({ data, id }) {
        cursor = id || cursor;
        copy.take(JSON.parse(data));
      },
      // A response that ends is no end of the run: whoever comes back is told so with 204.
      onclose() {
        throw new Error("again");
      },
      onerror: () => 10,
    });
  };
  return { begin: watch, join: watch, back: watch, close: () => ending.abort() };
});
