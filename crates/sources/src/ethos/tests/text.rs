//! Tests of text and reasoning.

use super::*;

#[test]
fn a_refused_call_starts_a_new_part_and_a_hidden_call_does_not() {
    let parts = |between: Vec<Value>| {
        let facts = [start(), text("a")].into_iter().chain(between).chain([text("b"), done("ab")]);
        said(&adapt(facts))[1].clone()
    };
    assert_eq!(parts(vec![failed("c", "x")]), "text.delta message-1/part-2 b");
    assert_eq!(parts(vec![seen_by("internal", call("c", "x")), ended("c", "x", "")]), "text.delta message-1/part-1 b");
    assert_eq!(
        parts(vec![seen_by("internal", call("c#1", "x")), seen_by("internal", failed("c#1", "x"))]),
        "text.delta message-1/part-1 b"
    );
}

#[test]
fn each_turn_has_a_message_of_its_own() {
    let drafts = adapt([start(), text("a"), done("a"), start(), text("b"), done("b")]);
    assert_eq!(said(&drafts)[2..], ["text.delta message-2/part-2 b", "text.final message-2/- b"]);
}

#[test]
fn text_returned_by_a_tool_is_a_part_beside_the_streamed_text() {
    let drafts =
        adapt([start(), text("One moment. "), usage(1, 1, 0.1), call("c", "card"), ended("c", "card", "Card"), done("Card")]);
    assert_eq!(
        said(&drafts),
        ["text.delta message-1/part-1 One moment. ", "text.final message-1/part-2 Card", "text.final message-1/- -"]
    );
    // The web server may flush text after a call that the text preceded.
    let drafts =
        adapt([start(), usage(1, 1, 0.1), call("c", "card"), ended("c", "card", "Card"), text("One moment. "), done("Card")]);
    assert_eq!(said(&drafts)[1..], ["text.final message-1/part-2 Card", "text.final message-1/- -"]);
    // Without a result event, the position of the text identifies it.
    let silent = event("tool_end", json!({"toolCallId": "c", "toolName": "card", "ok": true, "durationMs": 1}));
    let drafts = adapt([start(), text("One moment. "), call("c", "card"), silent, done("Card")]);
    assert_eq!(said(&drafts)[1..], ["text.final message-1/part-2 Card", "text.final message-1/- -"]);
    // Without streamed text, the tool's text is the whole message.
    let drafts = adapt([start(), call("c", "card"), ended("c", "card", "Card"), done("Card")]);
    assert_eq!(said(&drafts), ["text.final message-1/- Card"]);
}

#[test]
fn a_tool_result_before_further_model_text_is_not_the_final_text() {
    let batch = [call("c", "x"), ended("c", "x", "42")];
    let drafts = adapt([start()].into_iter().chain(batch).chain([text("It is 4"), usage(1, 1, 0.1), done("42")]));
    assert_eq!(said(&drafts)[1..], ["text.final message-1/- 42"]);
}

#[test]
fn text_with_a_gap_is_not_attributed_to_a_tool() {
    let other = [start_of("B"), text("two "), done_of("B", "b")];
    let rest = [text("three "), call("c", "x"), ended("c", "x", "1"), done_of("A", "one two three ")];
    let drafts = adapt([start_of("A"), text("one ")].into_iter().chain(other).chain(rest));
    assert_eq!(said(&drafts).last().unwrap(), "text.final message-1/- one two three ");
}

#[test]
fn streamed_text_that_equals_a_tool_result_appears_once() {
    let drafts = adapt([start(), call("c", "x"), ended("c", "x", "42"), text("42"), done("42")]);
    assert_eq!(said(&drafts), ["text.delta message-1/part-1 42", "text.final message-1/- 42"]);
}

#[test]
fn an_end_with_more_text_than_streamed_is_the_text() {
    let whole = |facts: Vec<Value>| said(&adapt(facts)).pop().unwrap();
    assert_eq!(whole(vec![start(), text("a"), call("c", "x"), ended("c", "x", "1"), done("ab")]), "text.final message-1/- ab");
    assert_eq!(whole(vec![text("b"), call("c", "x"), ended("c", "x", "1"), done("ab")]), "text.final message-1/- ab");
    assert_eq!(whole(vec![start(), text("a"), text("c"), done("abc")]), "text.final message-1/- abc");
    assert_eq!(whole(vec![start(), done("never streamed")]), "text.final message-1/- never streamed");
    assert_eq!(whole(vec![start(), text("a"), done("")]), "text.final message-1/- -", "the streamed chunks are the text");
}

#[test]
fn a_turn_without_text_has_no_message() {
    assert_eq!(said(&adapt([start(), done("")])), Vec::<String>::new());
}

#[test]
fn a_failed_turn_does_not_seal_its_text() {
    assert_eq!(said(&adapt([start(), text("a"), error("llm_error")])), ["text.delta message-1/part-1 a"]);
}

#[test]
fn reasoning_is_for_operators_and_ends_when_the_model_continues_with_something_else() {
    let drafts =
        adapt([start(), thought("h"), thought("m"), text("a"), thought("then"), call("c", "x"), thought("so"), done("a")]);
    assert_eq!(
        said(&drafts),
        [
            "reasoning.delta message-1/thought-1 h",
            "reasoning.delta message-1/thought-1 m",
            "reasoning.summary message-1/thought-1 -",
            "text.delta message-1/part-1 a",
            "reasoning.delta message-1/thought-2 then",
            "reasoning.summary message-1/thought-2 -",
            "reasoning.delta message-1/thought-3 so",
            "reasoning.summary message-1/thought-3 -",
            "text.final message-1/- a"
        ]
    );
    let thoughts = drafts.iter().filter(|d| d.event_type.as_str().starts_with("reasoning."));
    assert!(thoughts.into_iter().all(|d| d.audience == Audience::Dashboard));
}

proptest! {
    #[test]
    fn a_text_is_recognised_regardless_of_chunk_boundaries(chunks in prop::collection::vec(".{0,6}", 0..12), other in ".{0,6}") {
        let whole: String = chunks.concat();
        let deltas = chunks.iter().map(|chunk| text(chunk));
        let drafts = adapt([start()].into_iter().chain(deltas).chain([call("c", "x"), ended("c", "x", "1"), done(&whole)]));
        let finals = of_class(&drafts, EventType::TextFinal);
        prop_assert_eq!(finals.len(), usize::from(!whole.is_empty()));
        prop_assert!(finals.iter().all(|d| d.ids.part.is_none() && d.text("text") == Some(whole.as_str())));
        let (one, both) = (TextDigest::of(whole.as_bytes()), format!("{whole}{other}"));
        prop_assert!(one.is_prefix_of(&both));
        prop_assert_eq!(one == TextDigest::of(both.as_bytes()), other.is_empty());
    }
}
