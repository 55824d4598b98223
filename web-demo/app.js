/**
 * The workbench: brings the surfaces and the shell together.
 *
 * Where to read on:
 *   client/            what a run says as a picture that stays true, and the calls to the server; no page is known there
 *   surfaces/base.js   what every surface is given, and the few ways in which things are drawn
 *   surfaces/          one custom element a surface. The conversation's: conversation (flow: its rows, windowed: those near the
 *                      viewport), inline-process, tool, action (form: what it asks), runtime-status, task-capsule, context,
 *                      composer, session-tabs. The team's are built from lane
 *   tools/             the scrubber, the inspector, the audiences side by side
 *   shell.js           what is open and what stands beside it; opened.js is one opening of it, route.js its address,
 *                      panels.js the tabs, connection-bar.js the connection, feeder.js brings changes to the surfaces
 */

import { Feeder } from "./feeder.js";
import { Shell } from "./shell.js";
import { Surface } from "./surfaces/base.js";
import "./surfaces/background-teammates.js";
import "./surfaces/composer.js";
import "./surfaces/context.js";
import "./surfaces/delegation-graph.js";
import "./surfaces/diagnostics.js";
import "./surfaces/handoff-lane.js";
import "./surfaces/remote-teammates.js";
import "./surfaces/review-lane.js";
import "./surfaces/task-capsule.js";
import "./surfaces/team-policy.js";
import "./surfaces/team-roster.js";
import "./surfaces/work-board.js";
import "./surfaces/worker-notifications.js";
import { themeSwitch } from "./theme.js";

const feeder = new Feeder();
new Shell(feeder);
for (const one of document.querySelectorAll("*")) if (one instanceof Surface) feeder.add(one);
themeSwitch(/** @type {HTMLElement} */ (document.getElementById("theme")));
