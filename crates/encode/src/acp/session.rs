//! The state of the session: plan, commands, title, options and mode. Each update replaces the last one of its kind.

use super::question;
use super::types::Key;
use crate::content_copy::joined;
use proscenium_projection::{run, tool_call};
use serde_json::{Map, Value, json};

/// The activity types, beside texts, that the client is shown.
pub(super) fn is_shown(kind: &str) -> bool {
    [tool_call::KIND, run::KIND, question::KIND, "plan", "permission", "session"].contains(&kind)
}

/// An update, and whether it says no more than that nothing is there.
pub(super) struct StateUpdate {
    pub update: Value,
    pub is_empty: bool,
}

/// The updates of an activity of this session.
pub(super) fn updates(session: &str, key: &Key, content: &Map<String, Value>) -> Vec<StateUpdate> {
    match &*key.kind {
        "plan" => vec![plan(content)],
        "permission" => content.get("mode").and_then(Value::as_str).map(mode).into_iter().collect(),
        // A run's log also has facts of its child sessions.
        "session" if *key.id == *session => {
            let named = [
                ("available_commands_update", "availableCommands", "commands"),
                ("config_option_update", "configOptions", "configOptions"),
            ];
            let lists = named.into_iter().filter_map(|(kind, member, of)| {
                let list = content.get(of).filter(|list| list.is_array())?;
                Some(StateUpdate { update: json!({ "sessionUpdate": kind, member: list }), is_empty: false })
            });
            lists.chain([info(content)]).collect()
        }
        _ => Vec::new(),
    }
}

fn info(content: &Map<String, Value>) -> StateUpdate {
    let title = content.get("title").filter(|title| title.is_string());
    let mut update = json!({ "sessionUpdate": "session_info_update", "title": title });
    if let Some(at) = content.get("updatedAt").filter(|at| at.is_string()) {
        update["updatedAt"] = at.clone();
    }
    StateUpdate { update, is_empty: title.is_none() }
}

fn mode(mode: &str) -> StateUpdate {
    StateUpdate { update: json!({ "sessionUpdate": "current_mode_update", "currentModeId": mode }), is_empty: false }
}

/// The entries of a plan: its own, its steps, or its text as one.
fn plan(content: &Map<String, Value>) -> StateUpdate {
    let list = ["entries", "steps"].iter().find_map(|member| content.get(*member)?.as_array());
    let text = joined(content.get("text"));
    let entries: Vec<Value> = match list {
        Some(list) => list.iter().filter_map(entry).collect(),
        None if text.is_empty() => Vec::new(),
        None => entry(&Value::from(&*text)).into_iter().collect(),
    };
    StateUpdate { is_empty: entries.is_empty(), update: json!({ "sessionUpdate": "plan", "entries": entries }) }
}

/// An entry with all that the protocol asks for.
fn entry(step: &Value) -> Option<Value> {
    let text = |members: &[&str]| members.iter().find_map(|member| step.get(*member)?.as_str());
    let content = step.as_str().or_else(|| text(&["content", "step", "title", "text", "description"]))?;
    let status = match text(&["status"]) {
        Some("completed" | "done") => "completed",
        Some("in_progress" | "running" | "active") => "in_progress",
        _ => "pending",
    };
    let priority = text(&["priority"]).filter(|priority| ["high", "medium", "low"].contains(priority)).unwrap_or("medium");
    Some(json!({ "content": content, "priority": priority, "status": status }))
}
