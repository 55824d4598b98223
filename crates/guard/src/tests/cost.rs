//! The time that the guard takes.

#![expect(clippy::disallowed_methods, reason = "it measures")]

use super::*;
use proscenium_model::{EventType, Payload};
use serde_json::Map;

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
                guard.pass(&policy, &mut || next_id(&mut ids), black_box(draft), Halves::Absent, &mut |sent| {
                    drop(black_box(sent));
                });
            }
            best = best.min(start.elapsed().as_nanos() as f64 / 1000.0);
            drafts.clear();
            rounds += 1000;
        }
        println!("{name}: {best:.0} ns a pass");
    };
    let ids_of = |mut draft: Draft| {
        draft.ids.run = Some(proscenium_model::RunId::new("run_01J8Z3K9QX5W7E2R4T6Y8U0I1O").unwrap());
        draft.ids.session = Some(proscenium_model::SessionId::new("550e8400-e29b-41d4-a716-446655440000").unwrap());
        draft.with_message(MessageId::new("msg_01J8Z3K9QX5W7E2R4T6Y8U0I1O").unwrap()).with_part(PartId::new("0").unwrap())
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
            let payload = Payload::read(&EventType::TaskChanged, value.as_object().unwrap().clone());
            Harness::new().pass(Draft { payload, ..Draft::new(EventType::TaskChanged) });
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
