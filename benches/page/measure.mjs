/**
 * Frames and tasks of a page while something happens on it.
 */

/** The duration of a frame at 60 Hz, with the tolerance of a timer, in milliseconds. */
export const FRAME_MS = 17;
/** The longest task that a viewer does not notice, in milliseconds. */
export const TASK_MS = 100;

/** Starts to record frames and long tasks. @param {import("playwright-core").Page} page */
export const start = (page) => page.evaluate(() => {
  const seen = (window.seen = { longest: 0, frames: [], start: performance.now() });
  new PerformanceObserver((list) => list.getEntries().forEach(({ duration, startTime }) => startTime >= seen.start && (seen.longest = Math.max(seen.longest, duration)))).observe({ type: "longtask" });
  let last = performance.now();
  const tick = (now) => {
    seen.frames.push(now - last);
    last = now;
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
});

/**
 * Prints the record.
 * @param {import("playwright-core").Page} page
 * @param {string} name
 */
export async function report(page, name) {
  const { longest, frames, took } = await page.evaluate(() => ({ ...window.seen, took: performance.now() - window.seen.start }));
  const sorted = frames.slice(1).sort((a, b) => a - b);
  const within = sorted.filter((ms) => ms <= FRAME_MS).length / sorted.length;
  console.log(`${name}: ${sorted.length} frames in ${(took / 1000).toFixed(1)} s, ${(within * 100).toFixed(1)} % within ${FRAME_MS} ms, 95 % within ${sorted[Math.floor(sorted.length * 0.95)].toFixed(1)} ms, the longest task ${Math.round(longest)} ms`);
  return { within, longest };
}

/**
 * Scrolls an element down and up again by the same distance in each frame, as fast as a wheel does.
 * @param {import("playwright-core").Page} page
 * @param {string} selector
 * @param {{ pixels: number, seconds: number }} how
 */
export const scroll = (page, selector, how) => page.evaluate(({ selector, pixels, seconds }) => new Promise((resolve) => {
  const element = document.querySelector(selector);
  const end = performance.now() + seconds * 1000;
  let step = pixels;
  const tick = () => {
    const top = element.scrollTop;
    element.scrollTop += step;
    if (element.scrollTop === top) step = -step;
    if (performance.now() < end) requestAnimationFrame(tick);
    else resolve();
  };
  requestAnimationFrame(tick);
}), { selector, ...how });
