/**
 * The workbench: registers the surfaces of the first screen and starts the shell.
 *
 * Modules:
 *   client/            the client library: store, connection, REST; it does not depend on the page
 *   surfaces/base.js   the base classes of surfaces, and shared DOM and formatting helpers
 *   surfaces/          one custom element per surface
 *   tools/             the scrubber, the comparison of audiences
 *   ui/                icons and formats
 *   shell.js           navigation, panels and time. view-model.js models the open session or run, route.js its address,
 *                      heading.js the header, panels.js the tabs, dialogs.js the palette and other dialogs, recording.js
 *                      sends a local file, resize.js the splitters, connection-bar.js the connection, feeder.js passes
 *                      changes to the surfaces, lazy.js loads the elements that the first screen does not need
 *
 * The binary has these modules in a few files, which bundle.rs makes of them.
 */

import { Feeder } from "./feeder.js";
import { Shell } from "./shell.js";
import { Surface } from "./surfaces/base.js";
import "./surfaces/composer.js";
import "./surfaces/session-header.js";
import "./surfaces/task-capsule.js";
import { iconButtons, themeSwitch } from "./theme.js";
import { Token } from "./token.js";

function start(token = new Token()) {
  const feeder = new Feeder();
  new Shell(feeder, token);
  for (const surface of document.querySelectorAll("*")) if (surface instanceof Surface) feeder.add(surface);
}

iconButtons();
// A share link is exchanged before anything is shown.
if (location.hash.startsWith("#link=")) void import("./link.js").then(({ openLink }) => openLink()).then(start, () => start());
else start();
themeSwitch(/** @type {HTMLElement} */ (document.getElementById("theme")));
