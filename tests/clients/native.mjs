/** Clients of the native frames: what a browser has, and what those take that must send headers. */

import { fetchEventSource } from "@microsoft/fetch-event-source";
import { EventSource } from "eventsource";
import patches from "fast-json-patch";
import { joined } from "./harness.mjs";
import { difference } from "./matrix.mjs";

// fetch-event-source looks at the page's visibility and takes its timers from the window.
globalThis.window ??= globalThis;
globalThis.document ??= { addEventListener() {}, removeEventListener() {}, hidden: false };

/** README's five lines: a copy of each activity, kept as the frames say. */
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

/** Activities by key, with texts in one piece, in the order in which they appeared. */
function canonical(shown) {
  const sorted = [...shown].sort((a, b) => a.opened - b.opened || (`${a.activityType} ${a.activityId}` < `${b.activityType} ${b.activityId}` ? -1 : 1));
  const told = sorted.map(({ activityType, activityId, agentId, surface, opened, content }) => ({ activityType, activityId, agentId, surface, opened, content }));
  return JSON.parse(JSON.stringify(told), (key, value) => (/(^|_)text$/.test(key) ? joined(value) : value));
}

/** The picture has to be the one at rest. */
const check = ({ picture, native }) => difference(picture, canonical(native));

export const eventSource = {
  name: "EventSource (eventsource 4.1.0)",
  comesBackByItself: true,
  endsOnlyWithTheRun: true,
  atOnce: 12,
  check,
  open({ url, run }) {
    const copy = new Copy();
    let source, cursor, opened;
    const watch = (after) => new Promise((resolve, reject) => {
      source?.close();
      source = new EventSource(`${url}/v1/runs/${run}/stream${after ? `?after=${after}` : ""}`);
      opened = new Promise((open) => (source.onopen = open));
      source.onmessage = ({ data, lastEventId }) => {
        cursor = lastEventId;
        copy.take(JSON.parse(data));
      };
      // It comes back by itself, until there is nothing more to come: 204.
      source.onerror = ({ code }) => {
        if (source.readyState === source.CLOSED) (code === 204 ? resolve : reject)(code);
      };
    });
    return { begin: () => watch(), join: () => watch(), back: () => watch(cursor), opened: () => opened, picture: () => copy.picture(), close: () => source.close() };
  },
};

export const fetchEvents = {
  name: "fetch-event-source 2.0.1",
  comesBackByItself: true,
  endsOnlyWithTheRun: true,
  atOnce: 12,
  check,
  open({ url, run }) {
    const copy = new Copy();
    let cursor, ending, answered;
    let opened = new Promise((resolve) => (answered = resolve));
    const watch = () => {
      ending = new AbortController();
      opened = new Promise((resolve) => (answered = resolve));
      return fetchEventSource(`${url}/v1/runs/${run}/stream`, {
        headers: { authorization: "Bearer none", ...(cursor && { "last-event-id": cursor }) },
        openWhenHidden: true,
        signal: ending.signal,
        fetch: globalThis.fetch,
        async onopen({ status }) {
          answered();
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
    return { begin: watch, join: watch, back: watch, opened: () => opened, picture: () => copy.picture(), close: () => ending.abort() };
  },
};
