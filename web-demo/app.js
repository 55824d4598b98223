/**
 * The workbench: brings the surfaces and the shell together.
 *
 * A surface that cannot be loaded leaves its place empty and breaks nothing else.
 */

import { Feeder } from "./feeder.js";
import { Shell } from "./shell.js";
import { Surface } from "./surfaces/base.js";
import "./surfaces/composer.js";
import "./surfaces/context.js";
import "./surfaces/task-capsule.js";
import { themeSwitch } from "./theme.js";

const BESIDE = [
  "surfaces/team-roster", "surfaces/work-board", "surfaces/delegation-graph", "surfaces/handoff-lane", "surfaces/worker-notifications", "surfaces/review-lane", "surfaces/teammate-transcript",
  "surfaces/background-teammates", "surfaces/remote-teammates", "surfaces/team-policy", "surfaces/artifacts", "surfaces/timeline", "surfaces/diagnostics", "tools/scrubber", "tools/inspector", "tools/audiences",
];

const feeder = new Feeder();
const shell = new Shell(feeder);
feedAll();
themeSwitch(/** @type {HTMLElement} */ (document.getElementById("theme")));

await Promise.all(BESIDE.map(async (name) => {
  try {
    await import(`./${name}.js`);
  } catch (why) {
    console.warn(`${name} is not here:`, why);
  }
}));
feedAll();
shell.refollow();

/** Gives every surface on the page that is known by now what it shows. */
function feedAll() {
  for (const one of document.querySelectorAll("*")) if (one instanceof Surface && !one.isConnectedToView) feeder.add(one);
}
