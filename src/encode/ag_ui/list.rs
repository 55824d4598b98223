//! Messages as a list: the log's, with what a client has beside them, within a window.

use super::call;
use super::events::Attribution;
use super::items::{Body, Entry, Key};
use super::{MESSAGES_MAX, SNAPSHOT_BYTES_MAX};
use serde_json::Value;

/// A message of a list: whether more is to come of it, and what it is of, if it is of the log.
pub(super) struct Listed {
    pub message: Value,
    is_open: bool,
    /// Whether it is a call to which the client has to give the result.
    awaits: bool,
    pub key: Option<Key>,
}

/// The messages of entries that are `wanted`.
pub(super) fn listed(entries: &[Entry], attribution: Attribution, wanted: impl Fn(&Entry) -> bool) -> Vec<Listed> {
    let all = entries.iter().flat_map(|entry| std::iter::once(entry).chain(entry.result.as_deref()));
    let list = all.filter(|entry| wanted(entry)).map(|entry| Listed {
        message: entry.message(attribution),
        is_open: entry.is_open(),
        awaits: matches!(&entry.item.body, Body::Call { kept, .. } if call::awaits(kept.members())),
        key: Some(entry.item.key.clone()),
    });
    list.collect()
}

/// Puts what a client has beside the log's messages where they are: each after the one that it follows.
pub(super) fn merge(list: &mut Vec<Listed>, theirs: &[Value]) {
    let mut at = 0;
    for message in theirs {
        let text = |member: &str| message.get(member).and_then(Value::as_str);
        let (Some(id), Some(role)) = (text("id"), text("role")) else { continue };
        if let Some(known) = list.iter().position(|known| known.message["id"] == id) {
            at = known + 1;
            if role == "user" && message.get("content").is_some_and(Value::is_array) {
                // The log has what of it is text.
                list[known].message = message.clone();
            }
            continue;
        }
        let has_call = |call: &Value| list.iter().any(|known| known.key.as_ref().is_some_and(|key| is_call(key, call)));
        let calls = message.get("toolCalls").and_then(Value::as_array);
        let is_told = match role {
            "activity" => true,
            // The result of a call that is known, and waits for none.
            "tool" => {
                let of = |known: &Listed| {
                    message.get("toolCallId").is_some_and(|call| known.key.as_ref().is_some_and(|key| is_call(key, call)))
                };
                let has = |known: &Listed| message.get("toolCallId").is_some_and(|call| known.message["toolCallId"] == *call);
                list.iter().any(|known| has(known) || of(known) && !known.awaits)
            }
            _ => calls.is_some_and(|calls| calls.iter().filter_map(|call| call.get("id")).all(has_call)),
        };
        if !is_told {
            list.insert(at, Listed { message: message.clone(), is_open: false, awaits: false, key: None });
            at += 1;
        }
    }
}

fn is_call(key: &Key, call: &Value) -> bool {
    matches!(key, Key::Call(id) if call.as_str() == Some(id))
}

/// The newest messages of a list, and those of which more is to come; and what the others are of.
pub(super) fn window(list: Vec<Listed>) -> (Vec<Value>, Vec<Option<Key>>) {
    let (mut kept, mut omitted) = (Vec::new(), Vec::new());
    let (mut count, mut bytes, mut is_full) = (0, 0, false);
    for listed in list.into_iter().rev() {
        let size = listed.message.to_string().len();
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
