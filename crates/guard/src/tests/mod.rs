//! The guard's guarantees: no planted secret passes, however it is nested, cut or interrupted.
//!
//! A text reads the same streamed and whole; and text without secrets is unchanged.

mod cost;
mod offload;
mod restores;
mod streams;
mod text;

use super::secrets::REDACTED;
use super::*;
use proptest::prelude::*;
use proscenium_model::halves::{self, Halves};
use proscenium_model::{Audience, EventType, MessageId, PartId, ToolCallId};
use serde_json::{Value, json};

/// A guard with its policy, its id generator and its output.
struct Harness {
    guard: Guard,
    policy: Policy,
    ids: u32,
    out: Vec<Guarded<'static>>,
}

/// The guard's memory as stored; null for none.
fn saved(guard: &Guard) -> Value {
    serde_json::to_value(guard.save()).unwrap()
}

/// A guard with this memory.
fn restored(memory: &Value) -> Result<Guard, String> {
    let memory = Option::<Memory>::deserialize(memory).map_err(|error| error.to_string())?;
    memory.map_or_else(|| Ok(Guard::default()), Guard::restore)
}

impl Harness {
    fn new() -> Self {
        Self { guard: Guard::new(), policy: Policy::default(), ids: 0, out: Vec::new() }
    }

    fn with_inline_bytes_max(inline_bytes_max: usize) -> Self {
        Self { policy: Policy { inline_bytes_max }, ..Self::new() }
    }

    fn pass(&mut self, draft: Draft) -> &mut Self {
        self.pass_with(Halves::Absent, draft)
    }

    fn pass_with(&mut self, halves: Halves, mut draft: Draft) -> &mut Self {
        let (ids, out) = (&mut self.ids, &mut self.out);
        self.guard.pass(&self.policy, &mut || next_id(ids), &mut draft, halves, &mut |sent| out.push(sent.into_owned()));
        self
    }

    fn flush(&mut self) -> &mut Self {
        let ids = &mut self.ids;
        self.guard.flush(&self.policy, &mut || next_id(ids), &mut |sent| self.out.push(sent.into_owned()));
        self
    }

    fn crash(&mut self) -> &mut Self {
        self.guard = restored(&saved(&self.guard)).unwrap();
        self
    }

    /// The streamed texts that have passed, joined.
    fn text(&self) -> String {
        let chunks = self.out.iter().filter_map(|g| g.draft().text("text").or_else(|| g.draft().text("inputText")));
        chunks.collect()
    }

    fn only(&mut self) -> Guarded<'static> {
        assert_eq!(self.out.len(), 1, "{:?}", self.out);
        self.out.pop().unwrap()
    }
}

impl Guard {
    /// Whether no tail is held, and no stream ended inside a name or a secret.
    fn is_idle(&self) -> bool {
        !self.has_forgotten && !self.streams.values().any(has_scan_context)
    }
}

fn next_id(ids: &mut u32) -> BlobId {
    *ids += 1;
    BlobId::new(&format!("b{ids}")).unwrap()
}

fn chunk(text: &str) -> Draft {
    message_chunk("m", text)
}

fn message_chunk(message: &str, text: &str) -> Draft {
    Draft::new(EventType::TextDelta).with("text", text).with_message(MessageId::new(message).unwrap())
}

fn of_call(class: EventType) -> Draft {
    Draft::new(class).with_call(ToolCallId::new("t").unwrap())
}

fn args_chunk(text: &str) -> Draft {
    of_call(EventType::ToolArgs).with("inputText", text)
}

/// One secret of each kind, as a tool might print it. None is real.
const SECRETS: &[&str] = &[
    "sk-live-abcdef0123456789abcdef",
    "sk-proj-AbCdEf0123456789_abcdef-XYZ",
    "sk-ant-api03-abcdefghijklmnopqrstuvwxyz",
    "sk_live_abcdef0123456789",
    "rk_live_abcdef0123456789",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "gho_abcdefghijklmnopqrstuvwxyz0123456789",
    "github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz",
    "xoxb-123456789012-abcdefghijkl",
    "xapp-1-A012345-678901-abcdef",
    "AKIAIOSFODNN7EXAMPLE",
    "ASIAIOSFODNN7EXAMPLE",
    "AIzaSyA0123456789abcdefghijklmnopqrstuv",
    "glpat-abcdefghij0123456789",
    "npm_abcdefghijklmnopqrstuvwxyz0123456789",
    "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH",
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
];

/// Texts whose secret is recognised by its surroundings, and that secret.
const FRAMED: &[(&str, &str)] = &[
    ("Bearer q7w8e9r0t1y2", "q7w8e9r0t1y2"),
    ("authorization: bEaReR lowercaseletters", "lowercaseletters"),
    ("BEARER abc.def.ghij", "abc.def.ghij"),
    ("postgres://app:hunter2hunter2@db.internal:5432/x", "hunter2hunter2"),
    ("redis://:p@ssw0rd!@cache", "ssw0rd!"),
    (r"https:\/\/bob:hunter2hunter2@host\/", "hunter2hunter2"),
    (r#"{"password":"correct horse battery"}"#, "horse"),
    (r#"{"a": {"apiKey" : "correct\"horse"}}"#, "horse"),
    (r#"{\"client_secret\":\"correct\\\"horse\"}"#, "horse"),
    (r#"{\\\"token\\\":\\\"correct horse\\\"}"#, "horse"),
    ("{'x-api-key': 'correct horse'}", "horse"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\nhorse+horse=\n-----END RSA PRIVATE KEY-----", "horse"),
    (r"-----BEGIN PRIVATE KEY-----\nMIIEhorse\n-----END PRIVATE KEY-----\n", "horse"),
    ("---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nhorse\n---- END SSH2 ENCRYPTED PRIVATE KEY ----", "horse"),
    ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaorhorse and never an end", "horse"),
];

#[track_caller]
fn redacts(text: &str, expected: &str) {
    assert_eq!(redact_text(text), expected);
    assert!(matches!(redact_text(expected), Cow::Borrowed(same) if same == expected), "a second redaction changes nothing");
}

#[track_caller]
fn passes(text: &str) {
    redacts(text, text);
}

/// Cuts `text` into chunks; `cuts` states cyclically after which characters.
fn cut(text: &str, cuts: &[bool]) -> Vec<String> {
    let mut chunks = vec![String::new()];
    for (i, c) in text.chars().enumerate() {
        chunks.last_mut().unwrap().push(c);
        if !cuts.is_empty() && cuts[i % cuts.len()] {
            chunks.push(String::new());
        }
    }
    chunks.retain(|chunk| !chunk.is_empty());
    chunks
}

fn many() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1000);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}
