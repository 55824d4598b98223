//! Messages of a thread at rest.

use super::*;

#[test]
fn a_loaded_thread_has_the_users_messages_before_the_assistant_message() {
    let said = |role: &str, id: &str, text: &str| {
        ("text.final", json!({ "messageId": id, "partId": "p", "payload": { "text": text, "role": role } }))
    };
    let mate = json!({ "messageId": "m", "partId": "p", "agentId": "mate", "payload": { "text": "From me." } });
    let to_mate =
        json!({ "messageId": "task", "partId": "p", "agentId": "mate", "payload": { "text": "Do it.", "role": "user" } });
    let log = Log::of(&[
        ("run.started", json!({ "agentId": "own" })),
        said("system", "s", "Be kind."),
        said("user", "u", "Hello"),
        said("assistant", "m", "Hi."),
        ("text.final", to_mate),
        ("text.final", mate),
        said("user", "u2", "And?"),
        ends(),
    ]);
    let all = messages(&log.activities_at(log.last()), "r", 6);
    let text = |text: &str| json!({ "type": "text", "text": text });
    assert_eq!(all[0], json!({ "id": "s", "role": "system", "parts": [text("Be kind.")] }));
    assert_eq!(all[1], json!({ "id": "u", "role": "user", "parts": [text("Hello")] }));
    assert_eq!(all[2], json!({ "id": "u2", "role": "user", "parts": [text("And?")] }));
    let by_mate = json!({ "proscenium": { "agentId": "mate" } });
    assert_eq!(
        all[3]["parts"],
        json!([
            { "type": "step-start" },
            { "type": "text", "text": "Hi.", "state": "done" },
            { "type": "text", "text": "From me.", "providerMetadata": by_mate, "state": "done" },
        ])
    );
    assert_eq!((all.len(), &all[3]["id"], &all[3]["metadata"]["runId"]), (4, &json!("r"), &json!("r")));
    assert_eq!(
        brief_stream(&log, 6, Until::End).iter().filter(|said| said.starts_with("text-start")).count(),
        2,
        "the client already has the users' messages"
    );
    // A run without content has no message.
    assert_eq!(messages(&Log::of(&[("run.started", json!({}))]).activities_at(1), "r", 6), Vec::<Value>::new());
}

#[test]
fn parts_of_other_kinds_become_data_and_history_calls_become_calls() {
    let image = json!({ "partId": "i", "kind": "image", "url": "/i" });
    let call = json!({ "partId": "c", "kind": "tool_call", "toolCallId": "c" });
    let thought = json!({ "partId": "t", "kind": "reasoning_summary", "text": "Hm." });
    let message = json!({ "messageId": "m", "role": "assistant", "parts": [thought, image, call] });
    let log = Log::of(&[
        ("run.started", json!({})),
        ("messages.snapshot", json!({ "payload": { "mode": "window", "messages": [message] } })),
        ends(),
    ]);
    let said = brief_stream(&log, 5, Until::End);
    assert_eq!(said[..3], ["reasoning-start m/t", r#"reasoning-delta m/t "Hm.""#, "reasoning-end m/t"]);
    assert!(said[3].starts_with("data-image m/i ") && said[4] == "finish-step", "{said:?}");
    assert_eq!(Reader::read(5, &Stream::joined(&log, 5, Until::End, 0).rest()).message["parts"], loaded(&log, 5)["parts"]);
}
