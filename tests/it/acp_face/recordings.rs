//! What an ACP source said goes out as it came in: recordings through the source and this face.
//!
//! The comparison is of what an editor shows in the end: texts in their order, calls with their last state, the plan, the
//! state of the session, and what was asked. Ids and the order of options may differ. The face has no terminals, notices,
//! compactions and levels of usage, and shows images and files of the agent only by the other faces.

use super::editor::Editor;
use crate::harness::{facts_in, list_recordings, start_local, to_ndjson};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What an editor shows.
#[derive(Debug, Default, PartialEq)]
struct Screen {
    /// Texts and calls, in their order: the kind, and the text or the id.
    items: Vec<(String, String)>,
    calls: BTreeMap<String, Map<String, Value>>,
    state: BTreeMap<String, Value>,
    /// The options of each permission, sorted by id.
    asked: Vec<Value>,
}

const CALL_MEMBERS: [&str; 7] = ["title", "kind", "status", "content", "locations", "rawInput", "rawOutput"];

impl Screen {
    fn text(&mut self, kind: &str, text: &str) {
        match self.items.last_mut().filter(|(last, _)| last == kind) {
            Some((_, all)) => all.push_str(text),
            // A source may begin a message by a blank chunk, of which readers would see nothing.
            None if text.trim().is_empty() => {}
            None => self.items.push((kind.to_owned(), text.to_owned())),
        }
    }

    fn call(&mut self, update: &Value) {
        let id = update["toolCallId"].as_str().unwrap().to_owned();
        if !self.calls.contains_key(&id) {
            self.items.push(("call".into(), id.clone()));
        }
        let call = self.calls.entry(id).or_default();
        for member in CALL_MEMBERS {
            if let Some(value) = update.get(member).filter(|value| !value.is_null()) {
                call.insert(member.to_owned(), value.clone());
            }
        }
    }

    fn update(&mut self, update: &Value) {
        let kind = update["sessionUpdate"].as_str().unwrap();
        match kind {
            "user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk" => {
                if let Some(text) = update["content"]["text"].as_str() {
                    self.text(kind, text);
                }
            }
            "tool_call" | "tool_call_update" => self.call(update),
            "plan" => drop(self.state.insert("plan".into(), update["entries"].clone())),
            "current_mode_update" => drop(self.state.insert("mode".into(), update["currentModeId"].clone())),
            "available_commands_update" => drop(self.state.insert("commands".into(), update["availableCommands"].clone())),
            "config_option_update" => drop(self.state.insert("options".into(), update["configOptions"].clone())),
            "session_info_update" => drop(self.state.insert("title".into(), update["title"].clone())),
            _ => {}
        }
    }

    fn ask(&mut self, params: &Value) {
        let mut options = params["options"].as_array().unwrap().clone();
        options.sort_by_key(|option| option["optionId"].to_string());
        let shown = |option: &Value| json!([option["optionId"], option["name"], option["kind"]]);
        self.asked.push(options.iter().map(shown).collect());
    }

    /// Leaves out what the protocol does not distinguish.
    fn finish(mut self) -> Self {
        for call in self.calls.values_mut() {
            if !["completed", "failed"].contains(&call.get("status").and_then(Value::as_str).unwrap_or_default()) {
                // No call is open after its turn.
                call.insert("status".into(), "failed".into());
            }
            if let Some(Value::Array(blocks)) = call.get_mut("content") {
                blocks.retain(|block| block["type"] != "terminal");
            }
            // The server's words for a failure without any.
            let unsaid =
                json!([{ "type": "content", "content": { "type": "text", "text": "the tool failed without saying why" } }]);
            if call.get("content") == Some(&unsaid) {
                call.remove("content");
            }
            // Clients of the protocol refuse a kind that it does not have.
            let is_no_kind = |value: &Value| *value == "other" || *value == "teleport";
            call.retain(|member, value| !(member == "kind" && is_no_kind(value) || *value == json!([]) || *value == json!({})));
        }
        self.state.retain(|_, value| !value.is_null() && *value != json!([]));
        self
    }
}

/// What the source said, of a recording of both directions.
fn said(facts: &[Value]) -> Screen {
    let mut screen = Screen::default();
    for fact in facts {
        let message = &fact["message"];
        match (fact["from"].as_str(), message["method"].as_str()) {
            (Some("client"), Some("session/prompt")) => {
                for block in message["params"]["prompt"].as_array().unwrap() {
                    screen.text("user_message_chunk", block["text"].as_str().unwrap_or_default());
                }
            }
            (Some("agent"), Some("session/update")) => screen.update(&message["params"]["update"]),
            (Some("agent"), Some("session/request_permission")) => {
                let mut call = message["params"]["toolCall"].clone();
                call.as_object_mut().unwrap().remove("status");
                screen.call(&call);
                screen.ask(&message["params"]);
            }
            _ => {}
        }
    }
    screen.finish()
}

/// What an editor got.
fn shown(messages: impl IntoIterator<Item = Value>) -> Screen {
    let mut screen = Screen::default();
    for message in messages {
        match message["method"].as_str() {
            Some("session/update") => screen.update(&message["params"]["update"]),
            Some("session/request_permission") => screen.ask(&message["params"]),
            _ => {}
        }
    }
    screen.finish()
}

/// Recordings that the source reads otherwise than by their order: replays, several sessions, another version.
const OTHERS: &[&str] = &["load", "v2draft", "stdout-only"];

#[tokio::test]
async fn what_an_acp_source_said_goes_out_as_it_came_in() {
    let client = start_local().await;
    let mut compared = 0;
    for name in list_recordings("acp") {
        if OTHERS.iter().any(|other| name.contains(other)) {
            continue;
        }
        let facts = facts_in(&format!("acp/{name}"));
        let mut live = Editor::open_with(&client, "?audience=internal", &[]).await;
        let new = json!({ "cwd": "/", "mcpServers": [], "_meta": { "proscenium": { "sessionId": name } } });
        live.ok("session/new", new).await;
        // One by one, so that the editor is asked before the answer comes.
        for fact in &facts {
            let path = format!("/v1/runs/{name}/facts?source=acp&sessionId={name}");
            client.post_lines(&path, to_ndjson(std::slice::from_ref(fact))).await.ok();
            if fact["message"]["method"] == "session/request_permission" {
                while live.received.iter().filter(|message| message["method"] == "session/request_permission").count()
                    < said(&facts[..=facts.iter().position(|other| other == fact).unwrap()]).asked.len()
                {
                    let message = live.message().await.unwrap();
                    live.received.push_back(message);
                }
            }
        }
        let expected = said(&facts);
        let mut loading = Editor::open_with(&client, "?audience=internal", &[]).await;
        loading.ok("session/load", json!({ "sessionId": name, "cwd": "/", "mcpServers": [] })).await;
        let loaded = shown(std::mem::take(&mut loading.received));
        assert_eq!((&loaded.items, &loaded.calls), (&expected.items, &expected.calls), "{name}, loaded");
        assert_eq!(loaded.state, expected.state, "{name}, loaded");
        // The last update of the live editor is the one that the load had last.
        live.ok("session/list", json!({})).await;
        let mut got = shown(live.received.clone());
        while got != expected {
            let Ok(message) = tokio::time::timeout(crate::harness::TIMEOUT, live.message()).await else {
                panic!("{name}, live: {got:#?}\nexpected {expected:#?}");
            };
            live.received.push_back(message.unwrap());
            got = shown(live.received.clone());
        }
        compared += 1;
    }
    assert!(compared >= 20, "{compared} recordings");
}
