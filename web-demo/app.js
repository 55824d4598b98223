/**
 * The workbench: registers the surfaces and starts the shell.
 *
 * Modules:
 *   client/            the client library: store, connection, REST; it does not depend on the page
 *   surfaces/base.js   the base class of surfaces, and shared DOM and formatting helpers
 *   surfaces/          one custom element per surface. Conversation: conversation (its row-model, and a
 *                      virtual-list), inline-process, tool, action (form: its fields), runtime-status, task-capsule, context,
 *                      composer, session-tabs. The team's surfaces extend lane
 *   tools/             the scrubber, the comparison of audiences
 *   shell.js           navigation, panels and time. view-model.js models the open session or run, route.js its address,
 *                      panels.js the tabs, connection-bar.js the connection, feeder.js passes changes to the surfaces
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
for (const surface of document.querySelectorAll("*")) if (surface instanceof Surface) feeder.add(surface);
themeSwitch(/** @type {HTMLElement} */ (document.getElementById("theme")));
