/**
 * The changes of the runs of a filter, as the server pushes them while the runs are on display.
 */

import { connect } from "../client/connection.js";

/** @typedef {import("./run-table.js").RunList} RunList */

/** Runs whose end the server tells, from the first on; of others, it tells a change. */
const FOLLOWED_RUNS = 200;

/**
 * Follows the runs of these pages. A search in texts has no stream.
 * @param {import("../client/http.js").Server} server
 * @param {import("../route.js").Audience} audience
 * @param {RunList} pages
 * @param {{ totals: (facets: RunList["facets"]) => void, live: (isLive: boolean) => void }} events
 * @returns {() => void} Ends it.
 */
export function followRuns(server, audience, pages, events) {
  const { filter, sort } = pages.query;
  const connection = connect({ ...server, audience, transport: "websocket", lists: { runs: filter, runsSort: sort, limit: FOLLOWED_RUNS } });
  let isHydrated = false;
  connection.listen((all) => {
    const frame = /** @type {import("../client/types.js").ListFrame | { frame: "Hydrated" | "Reset" }} */ (/** @type {unknown} */ (all));
    if (frame.frame !== "List") {
      isHydrated = frame.frame === "Hydrated";
      events.live(isHydrated);
      // What changed between the page and here.
      if (isHydrated && pages.isRead) void pages.refresh();
    } else if (frame.list === "runTotals") events.totals(frame.entry?.facets ?? {});
    // Before that, they are the runs that the first page has.
    else if (!isHydrated) return;
    else if (frame.op === "remove") pages.remove(frame.key);
    else if (frame.entry) pages.put(/** @type {import("../client/hydration.js").RunLine} */ (frame.entry));
  });
  return () => connection.close();
}
