//! The state of an AI SDK client: one assistant message, built of chunks.

use serde_json::{Map, Value, json};

/// The state of an AI SDK client.
#[derive(Debug, Default)]
pub struct AiSdkState {
    has_started: bool,
    is_over: bool,
    message: Value,
    /// The parts in order, by kind and id.
    parts: Vec<((String, String), Map<String, Value>)>,
    end: Vec<Value>,
}

fn text<'v>(chunk: &'v Value, member: &str) -> Result<&'v str, String> {
    chunk.get(member).and_then(Value::as_str).ok_or_else(|| format!("{} has no {member}", chunk["type"]))
}

impl AiSdkState {
    /// Reads a chunk.
    ///
    /// # Errors
    /// What the client refuses.
    pub fn apply(&mut self, chunk: &Value) -> Result<(), String> {
        let kind = text(chunk, "type")?;
        if kind == "start" {
            // The client builds the message anew.
            *self = Self { has_started: true, message: chunk.get("messageId").cloned().unwrap_or_default(), ..Self::default() };
            return Ok(());
        }
        if !self.has_started {
            return Err(format!("{kind} comes before start"));
        }
        if self.is_over {
            // A client that has all chunks is answered with one more `finish`.
            return if kind == "finish" { Ok(()) } else { Err(format!("{kind} comes after the end")) };
        }
        match kind {
            "finish" | "abort" | "error" => {
                self.is_over = true;
                self.end.push(chunk.clone());
            }
            "text-start" | "reasoning-start" => self.begin(kind.trim_end_matches("-start"), text(chunk, "id")?)?,
            "text-delta" | "reasoning-delta" => {
                let (of, delta) = (kind.trim_end_matches("-delta"), text(chunk, "delta")?);
                append(self.open(of, text(chunk, "id")?, kind)?, "text", delta);
            }
            "text-end" | "reasoning-end" => {
                let part = self.open(kind.trim_end_matches("-end"), text(chunk, "id")?, kind)?;
                part.insert("done".into(), true.into());
            }
            "tool-input-delta" => {
                let (id, delta) = (text(chunk, "toolCallId")?, text(chunk, "inputTextDelta")?);
                append(self.open("tool", id, kind)?, "inputText", delta);
            }
            _ if kind.starts_with("tool-") => self.apply_call(kind, chunk)?,
            _ if chunk["transient"] == true => {}
            _ if kind.starts_with("data-") && chunk.get("id").is_some() => {
                let part = self.part(kind, text(chunk, "id")?);
                part.insert("data".into(), chunk["data"].clone());
            }
            _ => {
                let n = self.parts.len().to_string();
                self.part(kind, &n).insert("chunk".into(), chunk.clone());
            }
        }
        Ok(())
    }

    fn apply_call(&mut self, kind: &str, chunk: &Value) -> Result<(), String> {
        let id = text(chunk, "toolCallId")?;
        let begins = matches!(kind, "tool-input-start" | "tool-input-available" | "tool-input-error");
        if !begins && self.find("tool", id).is_none() {
            return Err(format!("{kind} is for call {id}, which is unknown"));
        }
        if kind == "tool-input-start" && self.find("tool", id).is_some() {
            return Err(format!("{kind} comes twice for call {id}"));
        }
        let part = self.part("tool", id);
        part.insert("state".into(), kind.into());
        for (member, value) in chunk.as_object().into_iter().flatten() {
            if !matches!(member.as_str(), "type" | "toolCallId") {
                part.insert(member.clone(), value.clone());
            }
        }
        Ok(())
    }

    fn find(&mut self, kind: &str, id: &str) -> Option<&mut Map<String, Value>> {
        // A text may come again under its id after its end, so the last one counts.
        self.parts.iter_mut().rev().find(|((of, name), _)| of == kind && name == id).map(|(_, part)| part)
    }

    fn part(&mut self, kind: &str, id: &str) -> &mut Map<String, Value> {
        if self.find(kind, id).is_none() {
            self.parts.push(((kind.to_owned(), id.to_owned()), Map::new()));
        }
        self.find(kind, id).expect("it was just made")
    }

    fn begin(&mut self, kind: &str, id: &str) -> Result<(), String> {
        if self.find(kind, id).is_some_and(|part| !part.contains_key("done")) {
            return Err(format!("{kind} {id} starts while it is open"));
        }
        self.parts.push(((kind.to_owned(), id.to_owned()), Map::new()));
        Ok(())
    }

    fn open(&mut self, of: &str, id: &str, kind: &str) -> Result<&mut Map<String, Value>, String> {
        let open = self.find(of, id).filter(|part| !part.contains_key("done"));
        open.ok_or_else(|| format!("{kind} is for {of} {id}, which is not open"))
    }

    /// Whether the last chunk ended the message.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// What the client shows.
    #[must_use]
    pub fn document(&self) -> Value {
        let part = |((kind, id), part): &((String, String), Map<String, Value>)| json!({ "kind": kind, "id": id, "part": part });
        json!({ "message": self.message, "parts": self.parts.iter().map(part).collect::<Vec<_>>(), "end": self.end })
    }
}

fn append(to: &mut Map<String, Value>, member: &str, delta: &str) {
    let before = to.get(member).and_then(Value::as_str).unwrap_or_default();
    let text = format!("{before}{delta}");
    to.insert(member.into(), text.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_gives_what_the_whole_gave_and_a_doubled_delta_does_not() {
        let chunks = [
            json!({ "type": "start", "messageId": "r" }),
            json!({ "type": "text-start", "id": "a" }),
            json!({ "type": "text-delta", "id": "a", "delta": "Hi" }),
            json!({ "type": "text-end", "id": "a" }),
            json!({ "type": "finish" }),
        ];
        let after = |chunks: &[&Value]| {
            let mut state = AiSdkState::default();
            chunks.iter().try_for_each(|chunk| state.apply(chunk)).map(|()| state.document())
        };
        let all: Vec<_> = chunks.iter().collect();
        let whole = after(&all).unwrap();
        assert_eq!(after(&[&all[..3], &all[..]].concat()).unwrap(), whole);
        assert_ne!(after(&[&all[..3], &all[2..]].concat()).unwrap(), whole);
        assert_eq!(after(&[&all[..2], &all[3..]].concat()).unwrap()["parts"][0]["part"], json!({ "done": true }));
        assert_eq!(after(&[&all[..1], &all[2..]].concat()).unwrap_err(), "text-delta is for text a, which is not open");
        assert_eq!(after(&[&all[..], &all[2..3]].concat()).unwrap_err(), "text-delta comes after the end");
    }
}
