/**
 * The style sheets of parts that load later, by their path.
 */

import conversation from "../surfaces/conversation.css";
import diff from "../ui/diff.css";
import media from "../surfaces/media.css";
import tools from "../tools/tools.css";
import trace from "../surfaces/trace.css";

/** @type {Record<string, string>} */
export const SHEETS = { "surfaces/conversation.css": conversation, "ui/diff.css": diff, "surfaces/media.css": media, "surfaces/trace.css": trace, "tools/tools.css": tools };
