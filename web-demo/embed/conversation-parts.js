/**
 * The surfaces of `<ps-conversation>`.
 */

import { Composer } from "../surfaces/composer.js";
import { Conversation } from "../surfaces/conversation.js";
import { define } from "../surfaces/base.js";
import { Parts } from "./parts.js";

define("ps-conversation-view", Conversation);

/**
 * @param {import("../surfaces/base.js").View} view
 * @param {boolean} isReadOnly
 */
export function conversationParts(view, isReadOnly) {
  const conversation = new Conversation();
  return new Parts(view, isReadOnly ? [conversation] : [conversation, new Composer()], () => conversation.drawEarlier());
}
