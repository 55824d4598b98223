/**
 * The workbench: registers the surfaces of the first screen and starts the shell.
 *
 * Modules:
 *   client/            the client library: store, connection, REST; it does not depend on the page
 *   surfaces/base.js   the base classes of surfaces, and shared DOM and formatting helpers
 *   surfaces/          one custom element per surface
 *   tools/             the scrubber, the comparison of audiences
 *   ui/                icons and formats
 *   embed.js, embed/   the elements for other pages, which are not a part of this page
 *   shell.js           navigation, panels and time. live-model.js models what a card needs, view-model.js the open session
 *                      or run with its history, route.js its address,
 *                      heading.js the header, panels.js the tabs, dialogs.js the palette and other dialogs, recording.js
 *                      sends a local file, resize.js the splitters, connection-bar.js the connection, feeder.js passes
 *                      changes to the surfaces, lazy.js loads the elements that the first screen does not need.
 *                      session-list.js has what the rail lists, pushed-entries.js what the server pushes of it,
 *                      marks.js pins and read positions, session-actions.js renames, archives and deletes,
 *                      title-field.js is the field of a title, styles.js loads style sheets. keys.js has the keys of the
 *                      page, roving.js one stop of the Tab key for each group of buttons
 *
 * The binary has these modules in a few files, which bundle.rs makes of them.
 */

import { Feeder } from "./feeder.js";
import { Shell } from "./shell.js";
import { Surface, define } from "./surfaces/base.js";
import "./surfaces/action-keys.js";
import "./surfaces/composer.js";
import { Conversation } from "./surfaces/conversation.js";
import "./surfaces/runtime-status.js";
import "./surfaces/session-header.js";
import { iconButtons, themeSwitch } from "./theme.js";
import { Token } from "./token.js";

define("ps-conversation", Conversation);

function start(token = new Token()) {
  const feeder = new Feeder();
  new Shell(feeder, token);
  for (const surface of document.querySelectorAll("*")) if (surface instanceof Surface) feeder.add(surface);
}

iconButtons();
// A failure leaves each button a stop of its own.
void import("./roving.js").then(({ roveTabs }) => roveTabs(), () => {});
// A share link is exchanged before anything is shown.
if (location.hash.startsWith("#link=")) void import("./link.js").then(({ openLink }) => openLink()).then(start, () => start());
else start();
themeSwitch(/** @type {HTMLElement} */ (document.getElementById("theme")));
