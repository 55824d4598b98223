/**
 * The elements for other pages: `<ps-decision>`, `<ps-inbox>`, `<ps-conversation>` and `<ps-trace>`, of the workbench's
 * own surfaces. The server serves this script at `/embed.js`; as a package it is `@proscenium/elements`.
 *
 * The page around them gives them a server, a token, colors (`--ps-*`) and texts, and listens to their events. See
 * docs/src/guides/embed.md.
 */

import { define } from "./surfaces/base.js";
import { DecisionElement } from "./embed/decision.js";
import { redrawAll } from "./embed/element.js";
import { InboxElement } from "./embed/inbox.js";
import { ConversationElement, TraceElement } from "./embed/surfaces.js";
import { setTexts } from "./ui/texts.js";

export { ConversationElement, DecisionElement, InboxElement, TraceElement };

/**
 * Replaces texts of all elements on the page.
 * @param {import("./ui/texts.js").Texts} texts Another text for each English one. A word in braces, such as `{name}`, is replaced by its value.
 */
export function setStrings(texts) {
  setTexts(texts);
  redrawAll();
}

define("ps-conversation", ConversationElement);
define("ps-decision", DecisionElement);
define("ps-inbox", InboxElement);
define("ps-trace", TraceElement);
