//! Large values: which leave the envelope, and what stays in their place.

use super::*;
use crate::offload::{PAYLOAD_FACTOR, POINTER_BYTES_MAX, json_bytes};
use proscenium_model::TEXT_BYTES_MAX;

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
    assert_eq!(draft.payload.to_value(), json!({"title": "a", "bodyRef": "/v1/blobs/b1"}));
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
        let guarded = Harness::new().pass(Draft::new(EventType::ToolResult).with("output", " ".repeat(bytes))).only();
        assert_eq!(guarded.bodies().len(), usize::from(moves), "{bytes}");
        assert_eq!(guarded.draft().refs.is_some(), moves);
    }
}

#[test]
fn the_words_of_a_conversation_and_the_question_of_a_decision_stay() {
    let text = " ".repeat(300_000);
    for (event_type, member, value) in [
        (EventType::TextDelta, "text", json!(text)),
        (EventType::TextFinal, "text", json!(text)),
        (EventType::ReasoningSummary, "text", json!(text)),
        (EventType::PlanFinal, "plan", json!([{ "step": text }])),
        (EventType::ToolArgs, "inputText", json!(text)),
        (EventType::ToolOutputDelta, "text", json!(text)),
        (EventType::MessagesSnapshot, "messages", json!([{ "parts": [{ "text": text }, { "text": text }] }])),
        (EventType::ActionRequired, "input", json!({ "content": text })),
        (EventType::ActionResolved, "value", json!(text)),
    ] {
        let mut harness = Harness::new();
        harness.pass(Draft::new(event_type.clone()).with("first", 1).with(member, value.clone()).with("last", 2)).flush();
        let guarded = harness.only();
        assert!(guarded.bodies().is_empty(), "{event_type}");
        let payload = guarded.draft().payload.to_value();
        assert!(payload == json!({ "first": 1, member: value, "last": 2 }), "{event_type}");
    }
    // Beside a text, other values move.
    let draft = Draft::new(EventType::TextFinal).with("text", "See").with("attachments", json!([{ "url": "x".repeat(40_000) }]));
    let guarded = Harness::new().pass(draft).only();
    assert_eq!(guarded.draft().refs.as_ref().unwrap()[0]["member"], "/payload/attachments/0/url");
}

#[test]
fn a_text_longer_than_a_message_is_cut_like_a_streamed_one_and_its_whole_moves() {
    let whole = Draft::new(EventType::TextFinal).with("text", " ".repeat(TEXT_BYTES_MAX));
    assert!(Harness::new().pass(whole).only().bodies().is_empty());
    let text = format!("{}é", " ".repeat(TEXT_BYTES_MAX - 1));
    let guarded = Harness::new().pass(Draft::new(EventType::TextFinal).with("text", text.as_str())).only();
    assert_eq!(guarded.draft().text("text").map(str::len), Some(TEXT_BYTES_MAX - 1));
    let link = &guarded.draft().refs.as_ref().unwrap()[0];
    assert_eq!((&link["member"], &link["bytes"]), (&json!("/payload/text"), &json!(TEXT_BYTES_MAX + 1)));
    assert!(guarded.bodies()[0].bytes == text.as_bytes());
}

#[test]
fn the_structure_of_a_state_stays_for_later_patches_and_its_large_texts_move() {
    let rows: Vec<_> = (0..60_000).map(|i| json!({ "i": i })).collect();
    let draft = Draft::new(EventType::StateSnapshot).with("state", json!({ "rows": rows, "doc": "x".repeat(40_000) }));
    let guarded = Harness::new().pass(draft).only();
    assert_eq!(guarded.draft().payload.to_value()["state"]["rows"].as_array().map(Vec::len), Some(60_000));
    assert_eq!(guarded.draft().refs.as_ref().unwrap()[0]["member"], "/payload/state/doc");
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
fn a_list_of_many_small_texts_moves_whole_only_if_necessary() {
    let messages = |n: usize| -> Vec<Value> {
        (0..n)
            .map(|i| json!({"messageId": i.to_string(), "parts": [{"kind": "assistant_text", "text": "x".repeat(1500)}]}))
            .collect()
    };
    let is_consistent = Harness::new().pass(Draft::new(EventType::TaskChanged).with("messages", messages(100))).only();
    assert!(is_consistent.bodies().is_empty());
    let whole = Harness::new().pass(Draft::new(EventType::TaskChanged).with("messages", messages(1000))).only();
    assert_eq!((whole.bodies().len(), whole.draft().payload.to_value()["messages"].is_string()), (1, true));
    // Moving three long texts is enough.
    let mut list = messages(100);
    for i in [3, 50, 77] {
        list[i]["parts"][0]["text"] = "y".repeat(30_000 + i).into();
    }
    let mut draft = Draft::new(EventType::TaskChanged).with("messages", list.clone());
    draft.payload.insert("more", messages(30).into());
    let guarded = Harness::new().pass(draft).only();
    assert_eq!(guarded.bodies().len(), 1);
    assert_eq!(guarded.draft().refs.as_ref().unwrap()[0]["member"], "/payload/messages/77/parts/0/text");
    assert!(guarded.draft().payload.to_value()["messages"].is_array());
}

#[test]
fn too_many_members_for_single_bodies_move_together() {
    let mut draft = Draft::new(EventType::TaskChanged);
    for i in 0..60_000 {
        draft.payload.insert(format!("member-{i}"), i.into());
    }
    draft.payload.insert("k".repeat(500_000), 1.into());
    let guarded = Harness::new().pass(draft).only();
    assert_eq!(guarded.bodies().len(), 1);
    assert!(json_bytes(&guarded.draft().payload) <= PAYLOAD_FACTOR * Policy::default().inline_bytes_max);
    assert!(guarded.draft().payload.to_value()["…"].is_string());
    assert_eq!(guarded.draft().refs.as_ref().unwrap()[0]["member"], "/payload");
}

#[test]
fn a_body_has_no_secret_and_a_preview_cuts_no_mark() {
    let text = format!("{}sk-live-abcdef0123456789abcdef {}", "x ".repeat(510), "y".repeat(40_000));
    let guarded = Harness::new().pass(Draft::new(EventType::ToolResult).with("output", text)).only();
    assert!(!String::from_utf8_lossy(&guarded.bodies()[0].bytes).contains("sk-live"));
    assert_eq!(guarded.draft().text("output"), Some(format!("{}…", "x ".repeat(510)).as_str()));
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
    let kept = guarded.draft().payload.to_value();
    assert_eq!(kept.as_object().unwrap().keys().collect::<Vec<_>>(), ["state", "other", "…"]);
    assert_eq!(kept["state"]["b"], 1);
    assert!(json_bytes(&refs) < 4096);
    let bodies: Vec<Value> = guarded.bodies().iter().filter_map(|body| serde_json::from_slice(&body.bytes).ok()).collect();
    assert_eq!(bodies, [json!({&long: text}), json!({&long: text})]);
}
