/**
 * The time axis of the trace and the scrubber. It needs no browser.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { TimeAxis, formatElapsed } from "../../web-demo/ui/time-axis.js";

const MINUTE = 60_000;

test("an axis without pauses is linear, and the way back is exact", () => {
  const axis = new TimeAxis();
  axis.setTimes([{ start: 1000, end: 6000 }, { start: 4000, end: 11_000 }]);
  assert.deepEqual([axis.start, axis.end], [1000, 11_000]);
  assert.deepEqual([1000, 6000, 11_000].map((time) => axis.place(time)), [0, 0.5, 1]);
  for (const place of [0, 0.1, 0.77, 1]) assert.ok(Math.abs(axis.place(axis.time(place)) - place) < 1e-9);
  assert.deepEqual(axis.ticks(800).map(({ label }) => label), ["0:00", "0:01", "0:02", "0:03", "0:04", "0:05", "0:06", "0:07", "0:08", "0:09", "0:10"]);
});

test("a long pause and a long wait are shortened, and times stay in order", () => {
  const axis = new TimeAxis();
  const day = 24 * 60 * MINUTE;
  axis.setTimes([{ start: 0, end: 10 * MINUTE }, { start: day, end: day + 10 * MINUTE }, { start: day + 10 * MINUTE, end: 2 * day, isQuiet: true }]);
  const places = [0, 10 * MINUTE, day, day + 10 * MINUTE, 2 * day].map((time) => axis.place(time));
  assert.deepEqual(places, places.toSorted((a, b) => a - b));
  assert.equal(places.at(-1), 1);
  assert.ok(places[2] - places[1] < 0.05, "the pause is short");
  assert.ok(places[4] - places[3] < 0.4 && places[4] - places[3] > 0.2, "the wait takes less than the work");
  assert.equal(axis.ticks(1000).at(-1)?.label, "2d 0:00:00");
});

test("the window zooms around a place, pans within the whole, and fits again", () => {
  const axis = new TimeAxis();
  let changes = 0;
  axis.addEventListener("change", () => (changes += 1));
  axis.setTimes([{ start: 0, end: 1000 }]);
  axis.zoom(2, 1);
  assert.deepEqual([axis.place(500), axis.place(1000), axis.isZoomed], [0, 1, true]);
  axis.pan(-10);
  assert.equal(axis.place(0), 0);
  axis.fit();
  assert.deepEqual([axis.place(500), axis.isZoomed, changes], [0.5, false, 3]);
});

test("elapsed times are clocks", () => {
  assert.deepEqual([7000, 372_000, 3_723_000, 90_061_000].map((ms) => formatElapsed(ms)), ["0:07", "6:12", "1:02:03", "1d 1:01:01"]);
  assert.equal(formatElapsed(59_960, true), "0:59.9");
});
