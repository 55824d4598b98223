//! Redaction takes time linear in its input, and a held-back text stays with its audience.

use crate::harness::{AUDIENCES, Client, Process, fact};
use crate::projection::{Pipeline, block_on};
use proscenium::ingest::HOLDING_LOGS_MAX;
use proscenium::model::Audience;
use serde_json::{Value, json};

/// Builds a piece of a call's output.
pub fn output(text: &str, audience: &str) -> Value {
    fact("tool.output.delta", json!({"toolCallId": "c", "audience": audience, "payload": {"text": text}}))
}

pub fn started(audience: &str) -> Value {
    fact("tool.started", json!({"toolCallId": "c", "audience": audience, "payload": {"toolName": "sh"}}))
}

pub fn ended() -> Value {
    fact("tool.result", json!({"toolCallId": "c", "audience": "user", "payload": {"output": ""}}))
}

/// Builds a call that ends visible to users, and starts again hidden from them, with output for users whose end the
/// guard holds back.
pub fn with_hidden_tail(tail: &str) -> Vec<Value> {
    vec![fact("run.started", json!({})), started("user"), ended(), started("internal"), output(tail, "user")]
}

/// Reads a run's streamed output as each audience.
pub async fn outputs(client: &Client, run: &str) -> [String; 3] {
    let mut outputs = [const { String::new() }; 3];
    for (audience, output) in AUDIENCES.iter().zip(&mut outputs) {
        for event in client.read_events(run, &format!("audience={audience}"), 100).await {
            if event["type"] == "tool.output.delta" {
                output.push_str(event["payload"]["text"].as_str().unwrap());
            }
        }
    }
    outputs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_never_see_the_held_back_text_of_a_hidden_call() {
    let ends: [(&str, Vec<Value>); 4] = [
        ("result", vec![ended()]),
        ("finished", vec![fact("run.finished", json!({}))]),
        ("again", vec![ended(), started("user"), output(" and on", "user"), ended()]),
        ("settled", Vec::new()),
    ];
    for signal in [None, Some("TERM"), Some("KILL")] {
        let dir = tempfile::tempdir().unwrap();
        let mut process = Process::start_in(dir.path());
        let mut client = Client::new(process.at);
        for (run, _) in &ends {
            client.append(run, &with_hidden_tail("https://internal-host")).await;
        }
        if let Some(signal) = signal {
            process.signal(signal);
            process.wait();
            process = Process::start_in(dir.path());
            client = client.for_server(process.at);
        }
        for (run, end) in &ends {
            match end.is_empty() {
                true => drop(client.post(&format!("/v1/runs/{run}/settle"), &[], "").await.ok()),
                false => drop(client.append(run, end).await),
            }
            let [user, dashboard, internal] = outputs(&client, run).await;
            let and_on = if *run == "again" { " and on" } else { "" };
            assert_eq!((user.as_str(), dashboard.as_str()), (and_on, and_on), "{run} after {signal:?}");
            assert_eq!(internal, format!("https://internal-host{and_on}"), "{run} after {signal:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_without_a_secret_is_unchanged_by_a_restart_between_any_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let pieces = ["see http://localhost:", "30", "00/ and ta", "sk-0123456789abcdef", " and http://[::1", "]:80", "80/ now"];
    for piece in pieces {
        let process = Process::start_in(dir.path());
        let chunk = fact("text.delta", json!({"messageId": "m", "payload": {"text": piece}}));
        Client::new(process.at).append("r", &[chunk]).await;
    }
    let process = Process::start_in(dir.path());
    let client = Client::new(process.at);
    client.append("r", &[fact("run.finished", json!({}))]).await;
    let texts = client.read_events("r", "audience=user", 100).await;
    let text: String = texts.iter().filter_map(|event| event["payload"]["text"].as_str()).collect();
    assert_eq!(text, pieces.concat());
}

/// Returns the texts that a run has stored.
fn stored(pipeline: &Pipeline, run: &str, facts: &[Value]) -> String {
    let (_, rows) = block_on(pipeline.append(run, facts));
    let texts = rows.iter().map(|row| serde_json::from_slice::<Value>(row.view(Audience::Internal).unwrap()).unwrap());
    texts.filter_map(|event| event["payload"]["text"].as_str().map(str::to_owned)).collect()
}

fn chunk(text: &str) -> Value {
    fact("text.delta", json!({"messageId": "m", "payload": {"text": text}}))
}

#[test]
fn a_held_back_text_waits_for_the_next_chunk_through_any_number_of_sweeps() {
    let pipeline = Pipeline::new();
    for (before, after) in [
        ("see http://localhost:", "3000/ "),
        ("see http://some.body", "@host/ "),
        ("see http://some:", "where/ "),
        ("see http://some:w", "here/ "),
        ("import sk-learn-contrib-pack", "ages. "),
        ("eyJhbGciOiJIUzI1NiJ9", " is no token. "),
        ("a ta", "sk-0123456789abcdef. "),
    ] {
        stored(&pipeline, before, &[chunk(before)]);
        (0..5).for_each(|_| pipeline.sweep());
        assert_eq!(stored(&pipeline, before, &[chunk(after)]), format!("{before}{after}"));
    }
}

#[test]
fn beyond_1024_silent_logs_a_held_back_text_is_redacted_and_its_writer_retired() {
    let pipeline = Pipeline::new();
    let run = |i: usize| format!("r{i}");
    for i in 0..=HOLDING_LOGS_MAX {
        stored(&pipeline, &run(i), &[chunk("http://some:w")]);
    }
    (0..3).for_each(|_| pipeline.sweep());
    let whole = (0..=HOLDING_LOGS_MAX).filter(|i| {
        let text = stored(&pipeline, &run(*i), &[chunk("here/")]);
        assert!(text == "http://some:where/" || text == "http://[redacted]/", "{text}");
        text == "http://some:where/"
    });
    assert_eq!(whole.count(), HOLDING_LOGS_MAX);
}
