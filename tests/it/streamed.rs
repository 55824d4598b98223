//! Violations in a streamed body: their indexes count the sender's facts.

use super::cli::{DEADLINE, Running};
use serde_json::Value;

#[tokio::test]
async fn a_late_chunk_is_named_by_its_index_in_the_whole_streamed_body() {
    let server = Running::serve();
    let facts = [
        r#"{"type":"text.delta","messageId":"m","partId":"p","payload":{"text":"a"}}"#,
        "",
        r#"{"type":"text.final","messageId":"m","partId":"p"}"#,
        r#"{"type":"text.delta","messageId":"m","partId":"p","payload":{"text":"late"}}"#,
    ];
    // Each line is sent after the one before it is in the log, so that each line is an append of its own.
    let url = server.url.clone();
    let lines = futures_util::stream::unfold(0, move |n| {
        let url = url.clone();
        async move {
            let written = facts[..n.min(facts.len())].iter().filter(|fact| !fact.is_empty()).count() as u64;
            loop {
                let run: Value = reqwest::get(format!("{url}/v1/runs/r")).await.unwrap().json().await.unwrap();
                if run["lastSequence"].as_u64().unwrap_or(0) == written {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            Some((Ok::<_, std::convert::Infallible>(format!("{}\n", facts.get(n)?)), n + 1))
        }
    });
    let answer = server.post("r", "agentui", "application/x-ndjson", reqwest::Body::wrap_stream(lines));
    let answer = tokio::time::timeout(DEADLINE, answer).await.unwrap();
    assert_eq!((&answer["accepted"], &answer["violations"][0]["index"]), (&3.into(), &2.into()), "{answer}");
}
