//! The guard's guarantees: no planted secret passes, however it is nested, cut or interrupted.
//!
//! A text reads the same streamed and whole; and text without secrets is unchanged.

use super::offload::{BODIES_MAX, PAYLOAD_FACTOR, POINTER_BYTES_MAX, json_bytes};
use super::rules::HELD_BYTES_MAX;
use super::secrets::REDACTED;
use super::stream::PARTS_MAX;
use super::*;
use crate::model::Visibility;
use crate::model::{Audience, EventType, MessageId, PartId, ToolCallId};
use crate::source::ledger::Ledger;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

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

    fn pass(&mut self, mut draft: Draft) -> &mut Self {
        let ids = &mut self.ids;
        self.guard.pass(&self.policy, &mut || next_id(ids), &mut draft, &mut |sent| self.out.push(sent.into_owned()));
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
    let mut draft = Draft::new(EventType::TextDelta).with("text", text);
    draft.ids.message = Some(MessageId::new(message).unwrap());
    draft
}

fn args_chunk(text: &str) -> Draft {
    let mut draft = Draft::new(EventType::ToolArgs).with("inputText", text);
    draft.ids.tool_call = Some(ToolCallId::new("t").unwrap());
    draft
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

#[test]
fn every_kind_of_secret_is_redacted_at_any_place_in_a_text() {
    for secret in SECRETS {
        redacts(secret, "[redacted]");
        for (before, after) in
            [("key ", " then"), ("(", ")"), ("KEY=", "\n"), ("\\n", "\\n"), ("%3D", "&x"), ("my_", ", x"), ("é", "。")]
        {
            redacts(&format!("{before}{secret}{after}"), &format!("{before}[redacted]{after}"));
        }
    }
    for (text, secret) in FRAMED {
        let redacted = redact_text(text);
        assert!(!redacted.contains(secret) && redacted.contains("[redacted]"), "{redacted}");
        assert_eq!(redact_text(&redacted), redacted);
    }
}

#[test]
fn the_surroundings_of_a_secret_stay() {
    redacts("Authorization: Bearer q7w8e9r0t1y2\n", "Authorization: Bearer [redacted]\n");
    redacts("postgres://app:hunter2@db:5432/x", "postgres://[redacted]@db:5432/x");
    redacts(r#"{"user":"me","password" : "a\"b","n":1}"#, r#"{"user":"me","password" : "[redacted]","n":1}"#);
    redacts(r#"{\"password\":\"a\\\"b\",\"n\":1}"#, r#"{\"password\":\"[redacted]\",\"n\":1}"#);
    redacts(r#"{"password":"ends in \\\\","n":1}"#, r#"{"password":"[redacted]","n":1}"#);
    redacts(r#"{\"password\":\"ends in \\\\\",\"n\":1}"#, r#"{\"password\":\"[redacted]\",\"n\":1}"#);
    redacts(r#"{"password":"","token":null}"#, r#"{"password":"","token":null}"#);
    redacts("a -----BEGIN EC PRIVATE KEY-----\nx\n-----END EC PRIVATE KEY----- b", "a [redacted] b");
}

#[test]
fn plain_text_code_addresses_hashes_and_images_are_unchanged() {
    for text in PLAIN {
        passes(text);
    }
    let map = format!("//# sourceMappingURL=data:application/json;base64,eyJ2ZXJzaW9uIjoz{}", "QUJDREVG".repeat(200));
    passes(&map);
    passes(&format!("{}_eyJ{}", "AbCd".repeat(9), "b".repeat(300)));
}

/// Texts that an overeager guard would damage.
const PLAIN: &[&str] = &[
    "The bearer of bad news has an authentication token and 42 tokens.",
    "Bearer authentication, bearer tokens, a bearer token-based scheme, Bearer.",
    "pip install sk-learn sk-learn-contrib-something-longer and risk-averse task-0123456789abcdef",
    "see https://example.com:8080/a@b?c=d:e@f#g and ssh://git@github.com/x.git and http://[::1]:3000/",
    "http://localhost:3000，然后打开 http://localhost:8080/路径@x",
    "mail me@example.com, scp host:file user@host:dir",
    "550e8400-e29b-41d4-a716-446655440000 78ebf830c6df0fcc192faaa78ebf830c6df0fcc1",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    "npm_config_registry=x npm_lifecycle_event hf_hub_download(repo_id) sk_buff rk_ghp_ xox",
    r#"{"inputTokens":"12","sessionKey":"main","tokenizer":"bpe","key":"value","primaryKey": "id"}"#,
    r#"don't 'quote' "me": he said "token" and left; token: "x"? no name in quotes there"#,
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
    "| a | b |\n|-----|-----|\n---- BEGIN and so on\n----------",
    "fn eyJ() { eyJ.len() } eyJhbGciOi eyJab.x",
    "走 Grüße 🙂 ::// a:b@c //x:y@z",
];

#[test]
fn undecided_text_beyond_256_bytes_is_redacted() {
    redacts(&format!("http://a:{}@h", "b".repeat(300)), "http://[redacted]");
    redacts(&format!("x eyJ{} y", "b".repeat(300)), "x [redacted] y");
    passes(&format!("http://{}", "b".repeat(300)));
}

/// Pieces of secrets and their surroundings, whose random concatenations are full of near misses.
const PIECES: &[&str] = &[
    "sk-",
    "sk_live_",
    "s",
    "live-",
    "abcdef0123456789",
    "abcdefgh",
    "0",
    "Z",
    "ghp_",
    "github_pat_",
    "xoxb-",
    "xapp-",
    "AKIA",
    "IOSFODNN7EXAMPLE",
    "AIza",
    "glpat-",
    "npm_",
    "hf_",
    "eyJ",
    "hbGciOiJIUzI1NiJ9",
    ".",
    "Bearer",
    "bEARer",
    " ",
    "  ",
    "Authorization",
    ":",
    "=",
    "://",
    ":\\/\\/",
    "http",
    "user",
    "@",
    "/",
    "\"",
    "\\\"",
    "\\\\\\\"",
    "\\",
    "\\\\",
    "'",
    "password",
    "api_key",
    "\"token\":\"",
    "\\\"secret\\\": \\\"",
    "'passwd':'",
    "-",
    "-----",
    "----",
    "BEGIN ",
    "RSA ",
    "PRIVATE KEY",
    "END ",
    "-----BEGIN PRIVATE KEY-----",
    "-----END PRIVATE KEY-----",
    "\n",
    "\\n",
    "\\u003d",
    "%3D",
    "%",
    "é",
    "走",
    "。",
    ";base64,",
    ",",
    "{",
    "}",
    "word",
    "_",
    "don't",
    "[redacted]",
];

fn pieces() -> impl Strategy<Value = String> {
    vec(prop_oneof![8 => select(PIECES).prop_map(String::from), 1 => "[a-zA-Z0-9 \"':/@.\\\\-]{1,12}", 1 => select(SECRETS).prop_map(String::from), 2 => framed_half()], 0..14)
        .prop_map(|pieces| pieces.concat())
}

/// A part of a text with a secret, which another text may interrupt or continue.
fn framed_half() -> impl Strategy<Value = String> {
    (select(FRAMED), 0..100usize, 0..100usize).prop_map(|((text, _), from, to)| {
        let at = |percent: usize| (0..=text.len() * percent / 100).rev().find(|i| text.is_char_boundary(*i)).unwrap();
        text[at(from.min(to))..at(from.max(to))].into()
    })
}

/// Whether a streamed text equals the whole, apart from a letter before a mark.
///
/// At a chunk's end, the first letter of a secret may precede its mark.
fn reads_as(streamed: &str, whole: &str) -> bool {
    let [streamed, whole] = [streamed, whole].map(|text| text.split(REDACTED).collect::<Vec<_>>());
    let first_letters = ['s', 'r', 'g', 'x', 'A', 'n', 'h', 'e', '-'];
    let before_marks = || streamed.iter().zip(&whole).take(whole.len() - 1);
    streamed.len() == whole.len()
        && streamed.last() == whole.last()
        && before_marks().all(|(s, w)| s == w || s.strip_suffix(first_letters) == Some(w))
}

#[test]
fn texts_read_the_same_with_any_two_cuts_and_letter_by_letter() {
    let texts = PLAIN.iter().copied().chain(SECRETS.iter().copied()).chain(FRAMED.iter().map(|(text, _)| *text));
    for text in
        texts.flat_map(|text| [text.to_owned(), format!("(a {text}. Then"), format!("word{text}\\nx"), format!("x\\n{text}")])
    {
        let whole = redact_text(&text);
        let streamed = |chunks: &[&str]| {
            let mut harness = Harness::new();
            for piece in chunks {
                harness.pass(chunk(piece));
            }
            harness.flush().text()
        };
        let places: Vec<usize> = text.char_indices().map(|(i, _)| i).collect();
        for (n, &i) in places.iter().enumerate() {
            // Every pair of nearby cuts, so that one pattern may span three chunks.
            for &j in places[n..].iter().take(6) {
                let streamed = streamed(&[&text[..i], &text[i..j], &text[j..]]);
                assert!(reads_as(&streamed, &whole), "cut at {i} and {j}: {streamed:?} differs from {whole:?}");
            }
        }
        let letters: Vec<&str> = text.split_inclusive(|_| true).collect();
        let streamed = streamed(&letters);
        assert!(reads_as(&streamed, &whole), "{streamed:?} differs from {whole:?}");
    }
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

/// A text with planted secrets, and the secret that must not be visible.
fn planted() -> impl Strategy<Value = (String, &'static str)> {
    let secret = prop_oneof![select(SECRETS).prop_map(|s| (s, s)), select(FRAMED)];
    let prose = "[a-z ]{0,20}[ (=\n]";
    (prose, secret, "([ ,)\n][a-z ,.]{0,20})?")
        .prop_map(|(before, (text, secret), after)| (format!("{before}{text}{after}"), secret))
}

/// Whether `seen` reveals `secret`, or enough of it to identify it.
fn reveals(seen: &str, secret: &str) -> bool {
    let telling = &secret[secret.len() - secret.len().min(10)..];
    seen.contains(secret) || (secret.len() > 10 && seen.contains(telling))
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn a_text_reads_the_same_streamed_and_whole(text in pieces(), cuts in vec(any::<bool>(), 0..9)) {
        let mut harness = Harness::new();
        for piece in cut(&text, &cuts) {
            harness.pass(chunk(&piece));
            prop_assert!(harness.guard.streams.values().all(|s| s.scan.held_bytes() <= HELD_BYTES_MAX));
        }
        harness.flush();
        let (streamed, whole) = (harness.text(), redact_text(&text));
        prop_assert!(reads_as(&streamed, &whole), "{streamed:?} differs from {whole:?}");
        prop_assert!(harness.guard.is_idle() && harness.guard.holding == 0);
    }

    #[test]
    fn a_second_redaction_changes_nothing(text in pieces()) {
        let once = redact_text(&text);
        prop_assert_eq!(redact_text(&once), &*once);
    }

    #[test]
    fn no_planted_secret_passes_in_a_stream_with_any_cuts_and_interruptions(
        (text, secret) in planted(),
        cuts in vec(any::<bool>(), 0..9),
        crashes in vec(prop::bool::weighted(0.2), 1..9),
    ) {
        for stream in [chunk, args_chunk] {
            let mut harness = Harness::new();
            for (i, piece) in cut(&text, &cuts).iter().enumerate() {
                harness.pass(stream(piece));
                if crashes[i % crashes.len()] {
                    let disk = saved(&harness.guard).to_string();
                    prop_assert!(!reveals(&disk, secret), "saved: {disk}");
                    harness.crash();
                }
            }
            harness.flush();
            prop_assert!(!reveals(&harness.text(), secret), "{}", harness.text());
        }
    }

    #[test]
    fn no_planted_secret_passes_in_json(
        (value, secret) in (value(), planted()).prop_flat_map(|(value, secret)| {
            let places = places(&value);
            (Just(value), Just(secret), 0..places)
        }).prop_map(|(mut value, (text, secret), mut place)| {
            plant(&mut value, &text, &mut place);
            (value, secret)
        }),
        member in select(&["payload", "extra", "refs", "raw"][..]),
    ) {
        let mut draft = Draft::new(EventType::ToolProgress);
        match member {
            "payload" => drop(draft.payload.insert("content".into(), value)),
            "extra" => drop(draft.extra.insert("x".into(), value)),
            "refs" => draft.refs = Some(value),
            _ => draft.raw_event_ref = Some(value),
        }
        let mut harness = Harness::with_inline_bytes_max(200);
        let guarded = harness.pass(draft).only();
        let seen = format!("{guarded:?}");
        prop_assert!(!reveals(&seen, secret), "{seen}");
        for body in guarded.bodies() {
            prop_assert!(!reveals(std::str::from_utf8(&body.bytes).unwrap(), secret));
        }
    }

    #[test]
    fn json_without_secrets_is_unchanged(value in value()) {
        let mut redacted = value.clone();
        prop_assert!(!redact_value(&mut redacted));
        prop_assert_eq!(redacted, value);
    }

    #[test]
    fn a_payload_is_bounded_for_any_content(value in value(), widths in vec(1..400usize, 1..60), inline in 50..400usize) {
        let mut draft = Draft::new(EventType::StateSnapshot).with("state", value);
        for (i, width) in widths.iter().enumerate() {
            draft.payload.insert(format!("{}{i}", "n".repeat(width % 90)), "\n".repeat(*width).into());
        }
        let mut harness = Harness::with_inline_bytes_max(inline);
        let guarded = harness.pass(draft).only();
        prop_assert!(json_bytes(&guarded.draft().payload) <= PAYLOAD_FACTOR * inline);
        prop_assert!(guarded.bodies().len() <= BODIES_MAX);
    }
}

/// JSON without secrets.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        "[a-z .,]{0,30}".prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            vec(("[a-z]{1,4}", inner), 0..5).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// The number of places for a planted secret: texts and names; at least one.
fn places(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(places).sum::<usize>().max(1),
        Value::Object(map) => map.values().map(|v| 1 + places(v)).sum::<usize>().max(1),
        _ => 1,
    }
}

fn plant(value: &mut Value, text: &str, place: &mut usize) -> bool {
    match value {
        Value::Array(items) if !items.is_empty() => items.iter_mut().any(|item| plant(item, text, place)),
        Value::Object(map) if !map.is_empty() => {
            for (i, value) in map.values_mut().enumerate() {
                if *place == 0 {
                    let value = value.take();
                    let name = map.keys().nth(i).unwrap().clone();
                    map.shift_remove(&name);
                    map.insert(text.into(), value);
                    return true;
                }
                *place -= 1;
                if plant(value, text, place) {
                    return true;
                }
            }
            false
        }
        leaf if *place == 0 => {
            *leaf = text.into();
            true
        }
        _ => {
            *place -= 1;
            false
        }
    }
}

#[test]
fn natural_chunks_pass_at_once() {
    let mut harness = Harness::new();
    for text in ["What it ", "is ne", "eds a", " table", ", the", "n \"qu", "oting\" ", "x: y ", "don'", "t b", "ear it."] {
        harness.pass(chunk(text));
        assert_eq!(harness.out.pop().unwrap().draft().text("text"), Some(text));
        assert!(harness.out.is_empty());
    }
}

#[test]
fn an_empty_chunk_passes_unchanged_and_a_held_one_yields_none() {
    let mut harness = Harness::new();
    harness.pass(chunk("")).pass(chunk("sk")).pass(chunk("")).pass(chunk("-")).pass(chunk("y"));
    let texts: Vec<_> = harness.out.iter().map(|g| g.draft().text("text").unwrap()).collect();
    assert_eq!(texts, ["", ""]);
    harness.pass(chunk(" "));
    assert_eq!(harness.text(), "sk-y ");
}

#[test]
fn a_one_letter_chunk_passes_at_once_and_a_key_that_it_begins_is_recognised() {
    let mut harness = Harness::new();
    for letter in ["x", " ", "s"] {
        harness.pass(chunk(letter));
        assert_eq!(harness.out.last().unwrap().draft().text("text"), Some(letter));
    }
    harness.pass(chunk("k-live-abcdef0123456789abcdef")).pass(chunk(" and on"));
    assert_eq!(harness.text(), "x s[redacted] and on");
}

#[test]
fn a_held_chunk_with_further_members_is_sent_without_its_text() {
    let mut harness = Harness::new();
    harness.pass(chunk("sk-").with("usage", json!({"inputTokens": 1}))).pass(chunk("learn."));
    assert_eq!(harness.out[0].draft().payload["usage"]["inputTokens"], 1);
    assert_eq!(harness.text(), "sk-learn.");
}

#[test]
fn the_end_of_a_stream_sends_its_tail_before_the_end() {
    let of_call = |class: EventType| {
        let mut draft = Draft::new(class);
        draft.ids.tool_call = Some(ToolCallId::new("t").unwrap());
        draft
    };
    let of_message = |class: EventType, part: Option<&str>| {
        let mut draft = Draft::new(class);
        draft.ids.message = Some(MessageId::new("m").unwrap());
        draft.ids.part = part.map(|part| PartId::new(part).unwrap());
        draft
    };
    let mut output = of_call(EventType::ToolOutputDelta).with("text", "sk-").with("channel", "stderr");
    output.audience = Audience::Dashboard;
    let part = of_message(EventType::TextDelta, Some("p")).with("text", "sk-");
    for (chunk, end, ends) in [
        (part.clone(), of_message(EventType::TextFinal, None), true),
        (part.clone(), of_message(EventType::TextFinal, Some("p")), true),
        (part.clone(), of_message(EventType::TextFinal, Some("q")), false),
        (part.clone(), of_message(EventType::ReasoningSummary, None), false),
        (of_message(EventType::ReasoningDelta, None).with("text", "sk-"), of_message(EventType::ReasoningSummary, None), true),
        (of_message(EventType::PlanDelta, None).with("text", "sk-"), of_message(EventType::PlanFinal, None), true),
        (args_chunk("sk-"), of_call(EventType::ToolArgs).with("input", json!({})), true),
        (args_chunk("sk-"), of_call(EventType::ToolArgs).with("state", "input-available"), true),
        (args_chunk("sk-"), of_call(EventType::ToolResult), true),
        (output.clone(), of_call(EventType::ToolFailed), true),
        (output, of_call(EventType::ToolProgress), false),
        (part.clone(), Draft::new(EventType::RunFinished), true),
        (part.clone(), Draft::new(EventType::RunFailed), true),
        (part.clone(), Draft::new(EventType::RunStarted), true),
        (part.clone(), Draft::new(EventType::MessagesSnapshot).with("mode", "repair"), true),
        (part, Draft::new(EventType::MessagesSnapshot).with("mode", "window"), false),
    ] {
        let mut harness = Harness::new();
        harness.pass(chunk.clone()).pass(end.clone());
        let sent: Vec<_> = harness.out.iter().map(|guarded| guarded.draft().clone()).collect();
        assert_eq!(sent, if ends { vec![chunk, end] } else { vec![end] });
        assert_eq!(harness.guard.is_idle(), ends);
    }
}

#[test]
fn a_tail_keeps_its_audience() {
    let mut harness = Harness::new();
    let mut hidden = chunk("hidden sk");
    hidden.audience = Audience::Internal;
    harness.pass(hidden).pass(chunk("-ill shown"));
    let sent: Vec<_> = harness.out.iter().map(|g| (g.draft().audience, g.draft().text("text").unwrap())).collect();
    assert_eq!(sent, [(Audience::Internal, "hidden "), (Audience::Internal, "sk"), (Audience::User, "-ill shown")]);
}

#[test]
fn streams_do_not_mix() {
    let mut harness = Harness::new();
    harness.pass(message_chunk("a", "sk-")).pass(message_chunk("b", "live-abcdef0123456789 ")).pass(message_chunk("a", "y "));
    assert_eq!(harness.text(), "live-abcdef0123456789 sk-y ");
}

#[test]
fn after_a_crash_a_risky_tail_reads_redacted_and_its_rest_is_dropped() {
    for (before, after, expected) in [
        ("key sk-live-abcdef", "0123456789 then", "key [redacted] then"),
        ("at pg://user:passwo", "rd@host/db", "at pg://[redacted]/db"),
        ("-----BEGIN PRIVATE KEY-----\nMII", "E\n-----END PRIVATE KEY-----.", "[redacted]."),
        (r#"{"password":"hun"#, r#"ter2"}"#, r#"{"password":"[redacted]"}"#),
        ("sk-", "learn", "sk-learn"),
        (r#"{"pass"#, r#"word":"x"}"#, r#"{"password":"[redacted]"}"#),
        ("Authorization: Bea", "rer abc ", "Authorization: Bearer [redacted] "),
    ] {
        let mut harness = Harness::new();
        harness.pass(chunk(before)).crash().pass(chunk(after)).flush();
        assert_eq!(harness.text(), expected);
        assert_eq!(saved(&harness.guard), Value::Null);
    }
    let mut harness = Harness::new();
    harness.pass(chunk("key sk-live-abcdef")).crash().crash().pass(Draft::new(EventType::RunFinished));
    assert_eq!(harness.text(), "key [redacted]");
}

#[test]
fn a_long_line_of_dashes_in_a_key_is_one_redaction() {
    let text = format!("-----BEGIN PRIVATE KEY-----{}", "-".repeat(200_000));
    redacts(&text, "[redacted]");
}

#[test]
fn an_unreadable_saved_guard_is_an_error() {
    for saved in [json!(7), json!({}), json!({"streams": [{"kind": "no such"}, 1], "hasForgotten": false})] {
        assert!(restored(&saved).is_err(), "{saved}");
    }
    assert!(restored(&Value::Null).unwrap().is_idle(), "null is the state without streams");
    let mut harness = Harness::new();
    harness.pass(chunk("see sk-"));
    let mut saved = saved(&harness.guard);
    assert!(!restored(&saved).unwrap().is_idle());
    saved["streams"][0]["scan"]["shown"] = json!(99);
    assert!(restored(&saved).is_err());
}

#[test]
fn beyond_64_held_tails_the_oldest_is_decided_and_no_more_of_its_secret_passes() {
    let secret = "sk-live-abcdef0123456789abcdef";
    for cut in [3, 14] {
        let mut harness = Harness::new();
        for i in 0..=HOLDING_STREAMS_MAX {
            harness.pass(message_chunk(&i.to_string(), &secret[..cut]));
        }
        assert_eq!(harness.guard.holding, HOLDING_STREAMS_MAX);
        assert_eq!(harness.text(), if cut == 3 { "sk-" } else { "[redacted]" });
        harness.crash().pass(message_chunk("0", &secret[cut..])).pass(message_chunk("0", " then")).flush();
        assert!(!harness.text().contains("abcdef0123456789"), "{}", harness.text());
    }
}

#[test]
fn beyond_1024_open_secrets_unknown_streams_are_redacted_until_the_run_restarts() {
    let mut harness = Harness::new();
    for i in 0..=STREAMS_MAX {
        harness.pass(message_chunk(&i.to_string(), r#"{"password":"hun"#));
    }
    assert_eq!(harness.guard.streams.len(), STREAMS_MAX);
    harness.out.clear();
    harness.pass(message_chunk("0", "ter2\"} ")).pass(message_chunk("new", "hello"));
    assert_eq!(harness.text(), "[redacted][redacted]");
    harness.pass(Draft::new(EventType::RunStarted)).pass(message_chunk("newer", "hello"));
    assert!(harness.text().ends_with("hello") && harness.guard.is_idle());
}

#[test]
fn streams_that_end_inside_a_word_are_forgotten_first() {
    let mut harness = Harness::new();
    harness.pass(message_chunk("open", r#"{"password":"hun"#));
    for i in 0..2 * STREAMS_MAX {
        harness.pass(message_chunk(&i.to_string(), "wor"));
    }
    assert!(harness.guard.streams.len() <= STREAMS_MAX && !harness.guard.has_forgotten);
    harness.out.clear();
    harness.pass(message_chunk("open", "ter2\"}"));
    assert_eq!(harness.text(), "\"}");
}

#[test]
fn an_id_that_looks_like_a_secret_always_becomes_the_same_hash() {
    let mut harness = Harness::new();
    harness
        .pass(message_chunk("sk-live-abcdef0123456789abcdef", "a "))
        .pass(message_chunk("sk-live-abcdef0123456789abcdef", "b "));
    let ids: Vec<_> = harness.out.iter().map(|g| g.draft().ids.message.clone().unwrap()).collect();
    assert_eq!(ids[0], ids[1]);
    assert!(ids[0].as_str().starts_with("redacted-") && ids[0].as_str().len() == 25, "{}", ids[0]);
}

#[test]
fn unknown_words_and_times_are_redacted_like_text() {
    let secret = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    let mut draft = Draft::new(EventType::from(secret));
    draft.owner = secret.into();
    draft.topology = Some(secret.into());
    draft.timestamp = Some(secret.into());
    let guarded = Harness::new().pass(draft).only();
    assert!(!format!("{guarded:?}").contains("ghp_"), "{guarded:?}");
}

#[test]
fn a_large_output_becomes_a_body_a_preview_and_a_reference() {
    let output = "é".repeat(40_000);
    let mut harness = Harness::new();
    let guarded = harness.pass(Draft::new(EventType::ToolResult).with("output", output.as_str()).with("durationMs", 7)).only();
    let [body] = guarded.bodies() else { panic!("{} bodies", guarded.bodies().len()) };
    assert_eq!((body.id.as_str(), body.media_type, &body.bytes[..]), ("b1", "text/plain; charset=utf-8", output.as_bytes()));
    let draft = guarded.draft();
    assert_eq!(draft.text("output"), Some(format!("{}…", "é".repeat(512)).as_str()));
    assert_eq!(draft.text("outputRef"), Some("/v1/blobs/b1"));
    let link = &draft.refs.as_ref().unwrap()[0];
    let members: Vec<_> = link.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(members, ["rel", "href", "bytes", "sha256", "member"]);
    assert_eq!((&link["rel"], &link["bytes"], &link["member"]), (&json!("output"), &json!(80_000), &json!("/payload/output")));
    assert_eq!(link["sha256"].as_str().map(str::len), Some(64));
}

#[test]
fn the_bytes_of_an_artifact_leave_the_envelope_whatever_their_size() {
    let url = "data:image/png;base64,AA==";
    let guarded = Harness::new().pass(Draft::new(EventType::ArtifactCreated).with("body", url).with("title", "a")).only();
    let [body] = guarded.bodies() else { panic!("{} bodies", guarded.bodies().len()) };
    assert_eq!(&body.bytes[..], url.as_bytes());
    let draft = guarded.draft();
    assert_eq!(Value::Object(draft.payload.clone()), json!({"title": "a", "bodyRef": "/v1/blobs/b1"}));
    assert_eq!(draft.refs.as_ref().unwrap()[0]["member"], "/payload/body");
    for other in
        [Draft::new(EventType::ArtifactCreated).with("body", "text"), Draft::new(EventType::EvidenceChanged).with("body", url)]
    {
        let expected = other.payload.clone();
        let guarded = Harness::new().pass(other).only();
        assert_eq!((&guarded.draft().payload, guarded.bodies().len()), (&expected, 0), "only bytes of an artifact move");
    }
}

#[test]
fn a_value_at_the_limit_stays() {
    let limit = Policy::default().inline_bytes_max;
    for (bytes, moves) in [(limit - 2, false), (limit - 1, true)] {
        let guarded = Harness::new().pass(chunk(&" ".repeat(bytes))).only();
        assert_eq!(guarded.bodies().len(), usize::from(moves), "{bytes}");
        assert_eq!(guarded.draft().refs.is_some(), moves);
    }
}

#[test]
fn a_large_structured_value_moves_whole_and_other_large_texts_one_by_one() {
    let rows: Vec<_> = (0..10_000).map(|i| json!({ "i": i })).collect();
    let long = "x".repeat(40_000);
    let draft = Draft::new(EventType::ToolResult)
        .with("structured", rows.clone())
        .with("a/b", json!([long, {"c": long}]))
        .with("small", "stays");
    let guarded = Harness::new().pass(draft).only();
    let members: Vec<_> =
        guarded.draft().refs.as_ref().unwrap().as_array().unwrap().iter().map(|link| link["member"].clone()).collect();
    assert_eq!(members, ["/payload/structured", "/payload/a~1b/0", "/payload/a~1b/1/c"]);
    assert_eq!(guarded.bodies()[0].media_type, "application/json");
    assert_eq!(serde_json::from_slice::<Value>(&guarded.bodies()[0].bytes).unwrap(), json!(rows));
    assert_eq!(guarded.draft().text("small"), Some("stays"));
    assert!(json_bytes(&guarded.draft().payload) < 8 * 1024);
}

#[test]
fn a_snapshot_of_many_small_texts_moves_whole_only_if_necessary() {
    let messages = |n: usize| -> Vec<Value> {
        (0..n)
            .map(|i| json!({"messageId": i.to_string(), "parts": [{"kind": "assistant_text", "text": "x".repeat(1500)}]}))
            .collect()
    };
    let is_consistent = Harness::new().pass(Draft::new(EventType::MessagesSnapshot).with("messages", messages(100))).only();
    assert!(is_consistent.bodies().is_empty());
    let whole = Harness::new().pass(Draft::new(EventType::MessagesSnapshot).with("messages", messages(1000))).only();
    assert_eq!((whole.bodies().len(), whole.draft().payload["messages"].is_string()), (1, true));
    // Moving three long texts is enough.
    let mut list = messages(100);
    for i in [3, 50, 77] {
        list[i]["parts"][0]["text"] = "y".repeat(30_000 + i).into();
    }
    let mut draft = Draft::new(EventType::MessagesSnapshot).with("messages", list.clone());
    draft.payload.insert("more".into(), messages(30).into());
    let guarded = Harness::new().pass(draft).only();
    assert_eq!(guarded.bodies().len(), 1);
    assert_eq!(guarded.draft().refs.as_ref().unwrap()[0]["member"], "/payload/messages/77/parts/0/text");
    assert!(guarded.draft().payload["messages"].is_array());
}

#[test]
fn too_many_members_for_single_bodies_move_together() {
    let mut draft = Draft::new(EventType::StateSnapshot);
    for i in 0..60_000 {
        draft.payload.insert(format!("member-{i}"), i.into());
    }
    draft.payload.insert("k".repeat(500_000), 1.into());
    let guarded = Harness::new().pass(draft).only();
    assert_eq!(guarded.bodies().len(), 1);
    assert!(json_bytes(&guarded.draft().payload) <= PAYLOAD_FACTOR * Policy::default().inline_bytes_max);
    assert!(guarded.draft().payload["…"].is_string());
    assert_eq!(guarded.draft().refs.as_ref().unwrap()[0]["member"], "/payload");
}

#[test]
fn a_body_has_no_secret_and_a_preview_cuts_no_mark() {
    let text = format!("{}sk-live-abcdef0123456789abcdef {}", "x ".repeat(510), "y".repeat(40_000));
    let guarded = Harness::new().pass(Draft::new(EventType::ToolResult).with("output", text)).only();
    assert!(!String::from_utf8_lossy(&guarded.bodies()[0].bytes).contains("sk-live"));
    assert_eq!(guarded.draft().text("output"), Some(format!("{}…", "x ".repeat(510)).as_str()));
}

/// A measurement, not an assertion.
///
/// Run it with `CARGO_PROFILE_DEV_OPT_LEVEL=3 cargo test --lib guard -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn the_cost_of_a_chunk() {
    use std::hint::black_box;
    use std::time::Instant;
    const ROUNDS: u32 = 300_000;
    let prose = "The quick brown fox jumps over the lazy dog, and then it goes on to say that nothing here is of any \
                 interest to a guard: words, commas, a number 42, and 3 more sentences. Then it ends in a plain word, at last.";
    let code =
        r#"{"path":"src/main.rs","range":[1,20],"edits":[{"from":3,"to":4,"text":"let x = y;"},{"from":7,"to":9}],"dry":true}"#;
    let policy = Policy::default();
    let mut ids = 0;
    let mut time = |name: &str, draft: Draft| {
        let mut guard = Guard::new();
        let mut drafts: Vec<Draft> = Vec::new();
        let (mut best, mut rounds) = (f64::MAX, 0);
        while rounds < ROUNDS {
            drafts.extend((0..1000).map(|_| draft.clone()));
            let start = Instant::now();
            for draft in &mut drafts {
                guard.pass(&policy, &mut || next_id(&mut ids), black_box(draft), &mut |sent| drop(black_box(sent)));
            }
            best = best.min(start.elapsed().as_nanos() as f64 / 1000.0);
            drafts.clear();
            rounds += 1000;
        }
        println!("{name}: {best:.0} ns a pass");
    };
    let ids_of = |mut draft: Draft| {
        draft.ids.run = Some(crate::model::RunId::new("run_01J8Z3K9QX5W7E2R4T6Y8U0I1O").unwrap());
        draft.ids.session = Some(crate::model::SessionId::new("550e8400-e29b-41d4-a716-446655440000").unwrap());
        draft.ids.message = Some(MessageId::new("msg_01J8Z3K9QX5W7E2R4T6Y8U0I1O").unwrap());
        draft.ids.part = Some(PartId::new("0").unwrap());
        draft
    };
    time("text.delta, 206 bytes", ids_of(chunk(prose)));
    time("text.delta, 5 bytes", ids_of(chunk("quick")));
    time("text.delta, 206 bytes, ends in a held letter", ids_of(chunk(&format!("{} s", &prose[..prose.len() - 2]))));
    time("tool.args, 117 bytes of JSON", args_chunk(code));
    time(
        "tool.result, 4 members",
        ids_of(
            Draft::new(EventType::ToolResult)
                .with("output", prose)
                .with("structured", json!({"a": 1, "name": "x", "list": [1, 2, 3]}))
                .with("durationMs", 5),
        ),
    );
    for (name, text) in [("prose", prose.repeat(1000)), ("JSON", code.repeat(2000))] {
        let start = Instant::now();
        for _ in 0..50 {
            black_box(redact_text(black_box(&text)));
        }
        let seconds = start.elapsed().as_secs_f64() / 50.0;
        println!("redact_text, {name}: {:.2} GB/s", text.len() as f64 / seconds / 1e9);
    }
}

/// One step of a run whose call and message change their audience.
#[derive(Debug, Clone)]
enum Step {
    /// The call starts or restarts.
    Start(Audience),
    Result,
    /// A chunk of the call's output.
    Output(&'static str, Audience),
    /// A chunk of a message's text, in one of two parts.
    Text(&'static str, Audience, bool),
    Final,
}

impl Step {
    fn draft(&self) -> Draft {
        let of_call = |class: EventType, audience: Option<Audience>| {
            let mut draft = Draft::new(class);
            draft.ids.tool_call = Some(ToolCallId::new("c").unwrap());
            draft.audience = audience.unwrap_or(draft.audience);
            draft
        };
        match self {
            Self::Start(audience) => of_call(EventType::ToolStarted, Some(*audience)),
            Self::Result => of_call(EventType::ToolResult, None),
            Self::Output(text, audience) => of_call(EventType::ToolOutputDelta, Some(*audience)).with("text", *text),
            Self::Text(text, audience, second) => {
                let mut draft = chunk(text);
                draft.audience = *audience;
                draft.ids.part = Some(PartId::new(if *second { "p2" } else { "p1" }).unwrap());
                draft
            }
            Self::Final => {
                let mut draft = Draft::new(EventType::TextFinal);
                draft.ids.message = Some(MessageId::new("m").unwrap());
                draft
            }
        }
    }
}

/// The streamed texts that each audience sees, by stream.
type VisibleTexts = [std::collections::BTreeMap<String, String>; 3];

fn see(visibilities: &mut VisibleTexts, draft: &Draft) {
    let (EventType::ToolOutputDelta | EventType::TextDelta) = draft.event_type else { return };
    let envelope = crate::model::Envelope {
        sequence: crate::model::Sequence(1),
        event_id: uuid::Uuid::nil(),
        received_at: "",
        draft: Cow::Borrowed(draft),
    };
    let stream = draft.ids.part.as_ref().map_or("output", PartId::as_str);
    for reader in Audience::ALL {
        if reader.visibility(&envelope) == Visibility::Body {
            visibilities[reader.index()].entry(stream.into()).or_default().push_str(draft.text("text").unwrap());
        }
    }
}

/// The texts that each audience would see unguarded and sees guarded, and if a restore lost one.
fn play(steps: &[Step], restores: &[bool]) -> (VisibleTexts, VisibleTexts, bool) {
    let (mut before, mut after) = (VisibleTexts::default(), VisibleTexts::default());
    let (mut ledger, mut harness, mut gave_up) = (Ledger::default(), Harness::new(), false);
    for (i, step) in steps.iter().enumerate() {
        let mut draft = step.draft();
        ledger.record(&mut draft, 0);
        see(&mut before, &draft);
        harness.pass(draft);
        if !restores.is_empty() && restores[i % restores.len()] {
            gave_up |= saved(&harness.guard).to_string().contains("\"owesMark\":true");
            harness.crash();
        }
    }
    harness.pass(Draft::new(EventType::RunFinished));
    assert!(harness.guard.is_idle() && harness.guard.holding == 0);
    harness.out.iter().for_each(|guarded| see(&mut after, guarded.draft()));
    for visibilities in [&mut before, &mut after] {
        for streams in visibilities.iter_mut() {
            streams.retain(|_, text| !text.is_empty());
        }
    }
    (before, after, gave_up)
}

/// Whether each audience sees, beside marks, only letters that were meant for it, in their order.
fn has_only_meant_text(meant: &VisibleTexts, seen: &VisibleTexts) -> bool {
    meant.iter().zip(seen).all(|(meant, seen)| {
        seen.iter().all(|(stream, text)| {
            let mut letters = meant.get(stream).map_or("", String::as_str).chars();
            text.replace(REDACTED, "").chars().all(|c| letters.any(|meant| meant == c))
        })
    })
}

/// Steps of one run.
///
/// Each for itself, and a call that starts again for other audiences while a tail of its output is held.
fn steps(pieces: &'static [&'static str], count: usize) -> impl Strategy<Value = Vec<Step>> {
    let audience = || select(&Audience::ALL[..]);
    let step = prop_oneof![
        3 => audience().prop_map(Step::Start),
        2 => Just(Step::Result),
        6 => (select(pieces), audience()).prop_map(|(text, audience)| Step::Output(text, audience)),
        4 => (select(pieces), audience(), any::<bool>()).prop_map(|(text, audience, second)| Step::Text(text, audience, second)),
        1 => Just(Step::Final),
    ];
    let starts_again = (audience(), select(pieces), audience(), select(pieces)).prop_map(|(second, held, third, next)| {
        let before = [Step::Start(Audience::User), Step::Result, Step::Start(second), Step::Output(held, Audience::User)];
        before.into_iter().chain([Step::Start(third), Step::Output(next, Audience::User)]).collect()
    });
    vec(prop_oneof![12 => step.prop_map(|step| vec![step]), 1 => starts_again], 1..count).prop_map(|parts| parts.concat())
}

/// Beginnings of secrets that never become one, and their ends.
const BENIGN: &[&str] = &[
    "http://loc",
    "alhost:",
    ":",
    "/",
    ":30",
    "sk-",
    "s",
    "learn,",
    " ",
    " Bea",
    "rer ",
    "xo",
    "\n---",
    "ta",
    "\"pass",
    "word",
    "é",
];

/// Beginnings of secrets, with their continuations.
const MIXED: &[&str] = &[
    "http://us",
    "er:",
    "hunter2",
    "@h/",
    "sk-",
    "live-",
    "abcdef0123456789",
    "k",
    "ta",
    " ",
    "Bearer ",
    "\"password\":\"",
    "\"",
    "-----BEGIN PRIVATE KEY-----",
    "-----END PRIVATE KEY-----",
    "3000/",
    "learn",
];

proptest! {
    #![proptest_config(many())]

    #[test]
    fn each_audience_sees_exactly_its_text_with_restores_at_any_time(
        steps in steps(BENIGN, 14),
        restores in vec(prop::bool::weighted(0.5), 0..9),
    ) {
        let (before, after, gave_up) = play(&steps, &restores);
        if gave_up {
            // A risky tail reads as the mark after a restore, and the rest of its token is dropped.
            prop_assert!(has_only_meant_text(&before, &after), "{after:?} is not part of {before:?}");
        } else {
            prop_assert_eq!(before, after);
        }
    }

    #[test]
    fn each_audience_sees_the_same_with_and_without_restores(
        steps in steps(MIXED, 30),
        restores in vec(prop::bool::weighted(0.5), 1..9),
    ) {
        let (meant, with, gave_up) = play(&steps, &restores);
        let (_, without, _) = play(&steps, &[]);
        for seen in [&with, &without] {
            prop_assert!(has_only_meant_text(&meant, seen), "{seen:?} is not of {meant:?}");
        }
        if !gave_up {
            prop_assert_eq!(with, without);
        }
    }
}

#[test]
fn a_member_whose_pointer_is_too_long_moves_with_its_parent() {
    let long = "k".repeat(POINTER_BYTES_MAX);
    let text = "x".repeat(40_000);
    let draft = Draft::new(EventType::StateSnapshot)
        .with("state", json!({"a": {&long: text}, "b": 1}))
        .with("other", json!([text]))
        .with(&long, text.as_str());
    let guarded = Harness::new().pass(draft).only();
    let refs = guarded.draft().refs.clone().unwrap();
    let members: Vec<_> = refs.as_array().unwrap().iter().map(|link| link["member"].as_str().unwrap()).collect();
    assert_eq!(members, ["/payload/state/a", "/payload/other/0", "/payload"]);
    let kept: Vec<_> = guarded.draft().payload.keys().map(String::as_str).collect();
    assert_eq!(kept, ["state", "other", "…"]);
    assert_eq!(guarded.draft().payload["state"]["b"], 1);
    assert!(json_bytes(&refs) < 4096);
    let bodies: Vec<Value> = guarded.bodies().iter().filter_map(|body| serde_json::from_slice(&body.bytes).ok()).collect();
    assert_eq!(bodies, [json!({&long: text}), json!({&long: text})]);
}

fn output(text: &str) -> Draft {
    Step::Output("", Audience::User).draft().with("text", text)
}

/// A call that users saw restarts hidden from them; then a held tail of output claims to be for users.
fn hidden_tail() -> (Ledger, Harness) {
    let (mut ledger, mut harness) = (Ledger::default(), Harness::new());
    let before = [Step::Start(Audience::User), Step::Result, Step::Start(Audience::Internal)];
    for mut draft in before.iter().map(Step::draft).chain([output("https://internal-host")]) {
        ledger.record(&mut draft, 0);
        harness.pass(draft);
    }
    (ledger, harness)
}

#[test]
fn a_tail_hidden_from_users_stays_hidden_after_a_restore() {
    let finished = Draft::new(EventType::RunFinished);
    let again = Step::Start(Audience::User).draft();
    for (restores, ends) in [
        (true, vec![Step::Result.draft()]),
        (true, vec![finished.clone()]),
        (false, vec![again.clone(), output(" and on"), finished.clone()]),
        (true, vec![again.clone(), output(" and on"), finished.clone()]),
        (false, vec![again.clone(), output("-more"), output(" and on"), finished.clone()]),
        (true, vec![again, output("-more"), output(" and on"), finished]),
    ] {
        let (mut ledger, mut harness) = hidden_tail();
        if restores {
            harness.crash();
        }
        for mut draft in ends {
            ledger.record(&mut draft, 0);
            harness.pass(draft);
        }
        let mut seen = VisibleTexts::default();
        harness.out.iter().for_each(|guarded| see(&mut seen, guarded.draft()));
        let text = |audience: Audience| seen[audience.index()].get("output").cloned().unwrap_or_default();
        assert!(!text(Audience::User).contains("internal"), "{}", text(Audience::User));
        assert!(text(Audience::Internal).starts_with("https://internal-host"), "{}", text(Audience::Internal));
        assert!(text(Audience::Internal).matches("host").count() == 1);
    }
}

#[test]
fn a_tail_of_alternating_audiences_is_decided_beyond_8_parts_each_for_its_own_audience() {
    let play = |count: usize, restores: &[bool]| {
        let audiences = [Audience::User, Audience::Internal];
        let of =
            |i: usize| if i == 0 { Step::Text("http://", audiences[1], false) } else { Step::Text("x", audiences[i % 2], false) };
        play(&(0..count).map(of).collect::<Vec<_>>(), restores)
    };
    for count in [PARTS_MAX - 1, PARTS_MAX, PARTS_MAX + 1, 3 * PARTS_MAX] {
        for restores in [&[][..], &[true]] {
            let (before, after, gave_up) = play(count, restores);
            assert!(!gave_up);
            assert_eq!(before, after);
        }
    }
    let mut harness = Harness::new();
    for i in 0..=PARTS_MAX {
        let mut piece = chunk(if i == 0 { "http://x" } else { "y" });
        piece.audience = Audience::ALL[i % 2];
        harness.pass(piece);
        assert_eq!(harness.guard.streams.values().next().unwrap().held_parts(), if i == PARTS_MAX { 0 } else { i + 1 });
    }
}

#[test]
fn a_tail_saved_by_an_older_version_is_read_and_a_calls_tail_is_internal() {
    let (_, mut harness) = hidden_tail();
    harness.pass(chunk("see sk-"));
    let mut saved = saved(&harness.guard);
    for stream in saved["streams"].as_array_mut().unwrap() {
        let mut tail = stream["held"][0]["draft"].take();
        for member in ["callAudience", "missedBy", "mayBeAbort"] {
            tail.as_object_mut().unwrap().shift_remove(member);
        }
        stream["tail"] = tail;
        stream.as_object_mut().unwrap().shift_remove("held");
    }
    harness.guard = restored(&saved).unwrap();
    harness.out.clear();
    harness.flush();
    assert_eq!(harness.text(), "internal-hostsk-");
    let missed: Vec<_> = harness.out.iter().map(|guarded| guarded.draft().missed_by).collect();
    assert_eq!(missed, [Some(Audience::Dashboard), None]);
}

#[test]
fn a_port_after_a_restart_is_not_a_password() {
    for (before, after) in [
        ("see http://localhost:", "3000/ now"),
        ("see http://localhost:30", "00/ now"),
        ("see http://[::1]:", "3000/ now"),
        ("see http://[fe80::", "1]:3000/ now"),
        ("see http://git@host:22", "/x now"),
    ] {
        let mut harness = Harness::new();
        harness.pass(chunk(before)).crash().crash().pass(chunk(after)).flush();
        assert_eq!(harness.text(), format!("{before}{after}"));
    }
    for (before, after) in [("http://me:1234", "5678@h/"), ("http://me:", "hunter2@h/"), ("http://[", "x:hunter2@h/")] {
        let mut harness = Harness::new();
        harness.pass(chunk(before)).crash().pass(chunk(after)).flush();
        assert_eq!(harness.text(), "http://[redacted]@h/");
    }
}

#[test]
fn a_word_that_a_restart_cuts_stays_one_word() {
    let mut harness = Harness::new();
    harness.pass(chunk("ta")).crash().pass(chunk("sk-0123456789abcdef is a task ")).flush();
    assert_eq!(harness.text(), "task-0123456789abcdef is a task ");
}

/// The CPU time of this thread, which other programs do not affect; else the wall-clock time.
fn clock() -> std::time::Duration {
    static BEGAN: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = stat.split(' ').next().and_then(|nanos| nanos.parse().ok()).filter(|nanos| *nanos > 0);
    nanos.map_or_else(|| BEGAN.elapsed(), std::time::Duration::from_nanos)
}

/// The time of some work: the best of three.
fn time(work: impl Fn()) -> std::time::Duration {
    let once = || {
        let start = clock();
        work();
        clock().saturating_sub(start)
    };
    (0..3).map(|_| once()).min().unwrap()
}

/// Asserts that four times the input takes less than eight times as long.
///
/// Quadratic work takes sixteen times. Below about 10 ms, caches and the clock dominate.
#[track_caller]
fn is_linear<T>(name: &str, n: usize, make: impl Fn(usize) -> T, work: impl Fn(&T)) {
    let (small, large) = (make(n), make(4 * n));
    let mut measured = Vec::new();
    let is_linear = |(short, long)| long < 8 * short + std::time::Duration::from_millis(20);
    while measured.len() < 3 && !measured.last().is_some_and(|times| is_linear(*times)) {
        measured.push((time(|| work(&small)), time(|| work(&large))));
    }
    assert!(is_linear(*measured.last().unwrap()), "{name}: the times for {n} and for four times as much are {measured:?}");
}

#[test]
fn the_time_for_a_fact_is_linear_in_its_size() {
    let pass = |value: &Value| {
        Harness::new().pass(Draft::new(EventType::StateSnapshot).with("state", value.clone()));
    };
    let text = |n: usize| "x".repeat(n);
    let nested = |depth: usize, name: &dyn Fn(usize) -> String, leaf: Value| {
        (0..depth).fold(leaf, |inner, i| Value::Object(Map::from_iter([(name(i), inner)])))
    };
    let secret_keys = |n: usize| Value::Object((0..n).map(|i| (format!("sk-live-{i:016}"), json!(i))).collect());
    is_linear("keys that are secrets", 2_000, secret_keys, pass);
    is_linear("a long key over many items", 2_000, |n| json!({ (text(20 * n)): vec![1; 5 * n] }), pass);
    is_linear("a long key over many texts", 4_000, |n| json!({ (text(20 * n)): vec![text(3_000); n / 100] }), pass);
    is_linear("nested long keys", 2_000, |n| nested(50, &|i| format!("{i}{}", text(n)), json!(vec![1; 5 * n])), pass);
    is_linear("items under nested keys", 20_000, |n| nested(60, &|i| format!("k{i}"), json!(vec![1; n])), pass);
    is_linear("texts under nested keys", 20_000, |n| nested(60, &|i| format!("k{i}"), json!(vec!["text"; n])), pass);
    is_linear("large texts under nested keys", 10, |n| nested(60, &|i| format!("k{i}"), json!(vec![text(40_000); n])), pass);
    is_linear(
        "members of a payload",
        10_000,
        |n| json!((0..n).map(|i| (format!("m{i}"), json!(text(100)))).collect::<Map<_, _>>()),
        |value| {
            let payload = value.as_object().unwrap().clone();
            Harness::new().pass(Draft { payload, ..Draft::new(EventType::StateSnapshot) });
        },
    );
    is_linear("paths of secret names", 20_000, |n| json!({"path": "/x/password".repeat(n), "value": vec![1; n]}), pass);
}

#[test]
fn the_time_for_a_text_is_linear_in_its_size_whole_or_letter_by_letter() {
    for (name, begin, repeated) in [
        ("addresses without an end", "", "http://a:"),
        ("quotes and backslashes", "\"password\":\"", r#"\\\""#),
        ("backslashes", "\"password\":\"", r"\"),
        ("names without values", "", r#""password":"#),
        ("bearers", "", "Authorization: Bearer "),
        ("keys without an end", "", "eyJ"),
        ("secrets", "", "sk-live-abcdef0123456789 "),
        ("private keys without an end", "-----BEGIN PRIVATE KEY-----", "-----END "),
        ("dashes", "-----BEGIN PRIVATE KEY-----", "-"),
    ] {
        let make = |n: usize| format!("{begin}{}", repeated.repeat(n / repeated.len()));
        is_linear(name, 100_000, make, |text| drop(redact_text(text).into_owned()));
        is_linear(name, 2_000, make, |text| {
            let mut harness = Harness::new();
            for letter in text.chars() {
                harness.pass(chunk(&letter.to_string()));
            }
        });
    }
}
