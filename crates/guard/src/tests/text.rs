//! Whole texts and their streams: which texts read redacted, at any cuts.

use super::*;
use crate::offload::{BODIES_MAX, PAYLOAD_FACTOR, json_bytes};
use crate::rules::HELD_BYTES_MAX;
use proptest::collection::vec;
use proptest::sample::select;
use proscenium_model::fact::Family;

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
fn a_secret_in_any_member_of_a_fact_is_redacted() {
    let secret = SECRETS[0];
    // A type of each family.
    let mut types: Vec<_> = EventType::NAMES.iter().map(|name| EventType::from(*name)).collect();
    types.dedup_by_key(|event_type| Family::from(&*event_type));
    for event_type in types {
        for member in Family::from(&event_type).members().iter().copied().chain(["ofTomorrow"]) {
            for value in [json!(secret), json!({ "a": [secret] }), json!([{ "b": secret }])] {
                let draft = Draft::new(event_type.clone()).with(member, value.clone());
                assert_eq!(draft.payload.to_value()[member], value);
                let passed = Harness::new().pass(draft).only().draft().payload.to_value().to_string();
                assert!(!passed.contains(secret) && passed.contains(REDACTED), "{member}: {passed}");
            }
        }
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
    "npx http://localhost:3000@latest and http://127.0.0.1:80@next",
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
#[rustfmt::skip]
const PIECES: &[&str] = &[
    "sk-", "sk_live_", "s", "live-", "abcdef0123456789", "abcdefgh", "0", "Z", "ghp_", "github_pat_", "xoxb-", "xapp-",
    "AKIA", "IOSFODNN7EXAMPLE", "AIza", "glpat-", "npm_", "hf_", "eyJ", "hbGciOiJIUzI1NiJ9", ".", "Bearer", "bEARer",
    " ", "  ", "Authorization", ":", "=", "://", ":\\/\\/", "http", "user", "@", "/", "\"", "\\\"", "\\\\\\\"", "\\",
    "\\\\", "'", "password", "api_key", "\"token\":\"", "\\\"secret\\\": \\\"", "'passwd':'", "-", "-----", "----",
    "BEGIN ", "RSA ", "PRIVATE KEY", "END ", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "\n", "\\n",
    "\\u003d", "%3D", "%", "é", "走", "。", ";base64,", ",", "{", "}", "word", "_", "don't", "[redacted]",
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
            "payload" => draft.payload.insert("content", value),
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
        let mut draft = Draft::new(EventType::TaskChanged).with("state", value);
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
