//! Streams: what the guard holds back, for how long, and in which order it sends.

use super::*;

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
    assert_eq!(harness.out[0].draft().payload.to_value()["usage"]["inputTokens"], 1);
    assert_eq!(harness.text(), "sk-learn.");
}

#[test]
fn the_end_of_a_stream_sends_its_tail_before_the_end() {
    let of_message = |class: EventType, part: Option<&str>| {
        let part = part.map(|part| PartId::new(part).unwrap());
        Draft::new(class).with_message(MessageId::new("m").unwrap()).with_part(part)
    };
    let output = of_call(EventType::ToolOutputDelta).with("text", "sk-").with("channel", "stderr");
    let output = output.with_audience(Audience::Dashboard);
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
    harness.pass(chunk("hidden sk").with_audience(Audience::Internal)).pass(chunk("-ill shown"));
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
    let mut draft = Draft::new(EventType::from(secret)).with_owner(secret).with_timestamp(Box::from(secret));
    draft.topology = Some(secret.into());
    let guarded = Harness::new().pass(draft).only();
    assert!(!format!("{guarded:?}").contains("ghp_"), "{guarded:?}");
}

#[test]
fn a_held_half_joins_the_next_chunk_of_its_stream_after_a_crash_and_is_replaced_at_its_end() {
    let marks = halves::parse_marked(br#"["", {"text": ["\ud83d", "\udc4b"]}]"#).unwrap().0;
    let (first, second) = (marks[1]["text"][0].as_str().unwrap(), marks[1]["text"][1].as_str().unwrap());
    let mut harness = Harness::new();
    harness.pass_with(Halves::Marked, message_chunk("a", &format!("Hi {first}")));
    harness.pass_with(Halves::Marked, message_chunk("b", first)).crash();
    harness.pass_with(Halves::Marked, message_chunk("a", &format!("{second}!{first}"))).crash();
    harness.pass(message_chunk("b", "x"));
    assert_eq!(harness.text(), "Hi 👋!\u{fffd}x");
    harness.pass_with(Halves::Marked, message_chunk("c", first).with_audience(Audience::Internal));
    harness.pass_with(Halves::Marked, message_chunk("c", second).with_audience(Audience::User));
    harness.flush();
    assert_eq!(harness.text(), "Hi 👋!\u{fffd}x\u{fffd}\u{fffd}\u{fffd}", "halves for different audiences stay apart");
    assert!(harness.guard.is_idle());
}

/// A chunk of each kind of stream.
const KINDS: [fn(&str) -> Draft; 5] = [
    chunk,
    |text| Draft::new(EventType::ReasoningDelta).with("text", text).with_message(MessageId::new("m").unwrap()),
    |text| Draft::new(EventType::PlanDelta).with("text", text).with_message(MessageId::new("m").unwrap()),
    args_chunk,
    |text| of_call(EventType::ToolOutputDelta).with("text", text),
];

#[test]
fn a_known_value_is_masked_in_every_kind_of_stream_however_it_is_cut() {
    let known = Arc::new(KnownSecrets::new(["words-of-ada", "words-of-ada-and-bo"]));
    let whole = "w: words-of-ada, wordwords-of-ada-and-bo words-of-";
    for kind in KINDS {
        for first in 0..=whole.len() {
            for second in first..=whole.len() {
                let mut harness = Harness::new();
                harness.guard.set_known_secrets(Some(known.clone()));
                for piece in [&whole[..first], &whole[first..second], &whole[second..]] {
                    harness.pass(kind(piece));
                }
                harness.flush();
                // The first letter of a value may have passed alone.
                let read = harness.text().replace("w[redacted]", "[redacted]");
                assert_eq!(read, "w: [redacted], word[redacted] words-of-", "{first} {second}");
            }
        }
    }
}

#[test]
fn streams_that_alternate_and_audiences_that_change_hide_a_known_value_too() {
    let mut harness = Harness::new();
    harness.guard.set_known_secrets(Some(Arc::new(KnownSecrets::new(["words-of-ada"]))));
    harness.pass(message_chunk("m", "a words-")).pass(message_chunk("n", "b words")).pass(message_chunk("m", "of-ada"));
    harness.pass(message_chunk("n", " alone")).pass(message_chunk("o", "c words-"));
    harness.pass(message_chunk("o", "of-ada!").with_audience(Audience::Internal)).flush();
    let texts: Vec<_> = harness.out.iter().map(|g| g.draft().text("text").unwrap()).collect();
    assert_eq!(texts, ["a ", "b ", "[redacted]", "words alone", "c ", "[redacted]", "!"]);
}

#[test]
fn a_known_value_is_known_to_its_own_deliverer_only_and_is_not_saved() {
    let mut harness = Harness::new();
    harness.guard.set_known_secrets(Some(Arc::new(KnownSecrets::new(["words-of-ada"]))));
    harness.pass(chunk("a words-of"));
    assert!(!saved(&harness.guard).to_string().contains("words"), "{}", saved(&harness.guard));
    harness.guard.set_known_secrets(None);
    harness.pass(chunk("-ada"));
    assert_eq!(harness.text(), "a words-of-ada");
}
