//! The message list: the log's messages merged with the client's own, within a window.

use super::attribution::Attribution;
use super::call;
use super::events;
use super::items::{Body, Entry, MessageKey};
use super::{MESSAGES_MAX, SNAPSHOT_BYTES_MAX};
use crate::placeholders::hidden_bytes;
use serde_json::Value;

/// One message of the list. `key` is `None` for a message that only the client has.
pub(super) struct Listed {
    pub message: Value,
    is_open: bool,
    /// Whether it is a call whose result the client has to supply.
    awaits: bool,
    pub key: Option<MessageKey>,
}

/// Lists the messages of the entries that pass `wanted`.
pub(super) fn listed(entries: &[Entry], attribution: Attribution, wanted: impl Fn(&Entry) -> bool) -> Vec<Listed> {
    let all = entries.iter().flat_map(|entry| std::iter::once(entry).chain(entry.result.as_deref()));
    let list = all.filter(|entry| wanted(entry)).map(|entry| Listed {
        message: events::message(&entry.id, &entry.item, attribution),
        is_open: entry.is_open(),
        awaits: matches!(&entry.item.body, Body::Call { call_state, .. } if call::awaits_client_result(call_state.members())),
        key: Some(entry.item.key.clone()),
    });
    list.collect()
}

/// Inserts the client's own messages, each after the message that it follows in the client's list.
pub(super) fn merge(list: &mut Vec<Listed>, theirs: &[Value]) {
    let mut at = 0;
    for message in theirs {
        let text = |member: &str| message.get(member).and_then(Value::as_str);
        let (Some(id), Some(role)) = (text("id"), text("role")) else { continue };
        if let Some(known) = list.iter().position(|known| known.message["id"] == id) {
            at = known + 1;
            if role == "user" && message.get("content").is_some_and(Value::is_array) {
                // The log may have only the text of it.
                list[known].message = message.clone();
            }
            continue;
        }
        let has_call = |call: &Value| list.iter().any(|known| known.key.as_ref().is_some_and(|key| is_call(key, call)));
        let calls = message.get("toolCalls").and_then(Value::as_array);
        let is_in_log = match role {
            "activity" => true,
            // The result of a known call that does not wait for one.
            "tool" => {
                let of = |known: &Listed| {
                    message.get("toolCallId").is_some_and(|call| known.key.as_ref().is_some_and(|key| is_call(key, call)))
                };
                let has = |known: &Listed| message.get("toolCallId").is_some_and(|call| known.message["toolCallId"] == *call);
                list.iter().any(|known| has(known) || of(known) && !known.awaits)
            }
            _ => calls.is_some_and(|calls| calls.iter().filter_map(|call| call.get("id")).all(has_call)),
        };
        if !is_in_log {
            list.insert(at, Listed { message: message.clone(), is_open: false, awaits: false, key: None });
            at += 1;
        }
    }
}

fn is_call(key: &MessageKey, call: &Value) -> bool {
    matches!(key, MessageKey::Call(id) if call.as_str() == Some(id))
}

/// Splits the list: the newest messages and all unfinished ones, and the keys of the omitted ones.
pub(super) fn window(list: Vec<Listed>) -> (Vec<Value>, Vec<Option<MessageKey>>) {
    let (mut kept, mut omitted) = (Vec::new(), Vec::new());
    let (mut count, mut bytes, mut is_full) = (0, 0, false);
    for listed in list.into_iter().rev() {
        let text = listed.message.to_string();
        let size = text.len() + hidden_bytes(&text);
        is_full |= count == MESSAGES_MAX || count > 0 && bytes + size > SNAPSHOT_BYTES_MAX;
        if is_full && !listed.is_open {
            omitted.push(listed.key);
        } else {
            count += 1;
            bytes += size;
            kept.push(listed.message);
        }
    }
    kept.reverse();
    (kept, omitted)
}
