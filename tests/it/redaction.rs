//! Redaction costs time linear in its input, and a held text stays with its audience.

use crate::harness::{AUDIENCES, Client, Process, fact};
use crate::projection::{Line, wait};
use proscenium::ingest::HOLDING_LOGS_MAX;
use proscenium::model::Audience;
use serde_json::{Value, json};

/// A piece of a call's output.
pub fn output(text: &str, audience: &str) -> Value {
    fact("tool.output.delta", json!({"toolCallId": "c", "audience": audience, "payload": {"text": text}}))
}

pub fn started(audience: &str) -> Value {
    fact("tool.started", json!({"toolCallId": "c", "audience": audience, "payload": {"toolName": "sh"}}))
}

pub fn ended() -> Value {
    fact("tool.result", json!({"toolCallId": "c", "audience": "user", "payload": {"output": ""}}))
}

/// A call that users saw ends, and starts again hidden from them; then output for users, of which the guard holds back the end.
pub fn with_hidden_tail(tail: &str) -> Vec<Value> {
    vec![fact("run.started", json!({})), started("user"), ended(), started("internal"), output(tail, "user")]
}

/// What a reader of each audience gets of a run's streamed output.
pub async fn outputs(client: &Client, run: &str) -> [String; 3] {
    let mut outputs = [const { String::new() }; 3];
    for (audience, output) in AUDIENCES.iter().zip(&mut outputs) {
        for event in client.events(run, &format!("audience={audience}"), 100).await {
            if event["type"] == "tool.output.delta" {
                output.push_str(event["payload"]["text"].as_str().unwrap());
            }
        }
    }
    outputs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_never_see_the_held_tail_of_a_hidden_call_however_the_server_and_the_call_end() {
    let ends: [(&str, Vec<Value>); 4] = [
        ("result", vec![ended()]),
        ("finished", vec![fact("run.finished", json!({}))]),
        ("again", vec![started("user"), output(" and on", "user"), ended()]),
        ("settled", Vec::new()),
    ];
    for signal in [None, Some("TERM"), Some("KILL")] {
        let dir = tempfile::tempdir().unwrap();
        let mut process = Process::start_in(dir.path());
        let mut client = Client::new(process.at);
        for (run, _) in &ends {
            client.accept(run, &with_hidden_tail("https://internal-host")).await;
        }
        if let Some(signal) = signal {
            process.signal(signal);
            process.wait();
            process = Process::start_in(dir.path());
            client = client.of(process.at);
        }
        for (run, end) in &ends {
            match end.is_empty() {
                true => drop(client.post(&format!("/v1/runs/{run}/settle"), &[], "").await.ok()),
                false => drop(client.accept(run, end).await),
            }
            let [user, dashboard, internal] = outputs(&client, run).await;
            let and_on = if *run == "again" { " and on" } else { "" };
            assert_eq!((user.as_str(), dashboard.as_str()), (and_on, and_on), "{run} after {signal:?}");
            assert_eq!(internal, format!("https://internal-host{and_on}"), "{run} after {signal:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_without_a_secret_reads_the_same_after_any_restart_between_its_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let pieces = ["see http://localhost:", "30", "00/ and ta", "sk-0123456789abcdef", " and http://[::1", "]:80", "80/ now"];
    for piece in pieces {
        let process = Process::start_in(dir.path());
        let chunk = fact("text.delta", json!({"messageId": "m", "payload": {"text": piece}}));
        Client::new(process.at).accept("r", &[chunk]).await;
    }
    let process = Process::start_in(dir.path());
    let client = Client::new(process.at);
    client.accept("r", &[fact("run.finished", json!({}))]).await;
    let texts = client.events("r", "audience=user", 100).await;
    let text: String = texts.iter().filter_map(|event| event["payload"]["text"].as_str()).collect();
    assert_eq!(text, pieces.concat());
}

/// The texts that a run of the line has stored.
fn stored(line: &Line, run: &str, facts: &[Value]) -> String {
    let (_, rows) = wait(line.append(run, facts));
    let texts = rows.iter().map(|row| serde_json::from_slice::<Value>(row.view(Audience::Internal).unwrap()).unwrap());
    texts.filter_map(|event| event["payload"]["text"].as_str().map(str::to_owned)).collect()
}

fn chunk(text: &str) -> Value {
    fact("text.delta", json!({"messageId": "m", "payload": {"text": text}}))
}

#[test]
fn a_held_tail_waits_for_the_next_chunk_through_any_number_of_sweeps() {
    let line = Line::new();
    for (before, after) in [
        ("see http://localhost:", "3000/ "),
        ("see http://some.body", "@host/ "),
        ("see http://some:", "where/ "),
        ("see http://some:w", "here/ "),
        ("import sk-learn-contrib-pack", "ages. "),
        ("eyJhbGciOiJIUzI1NiJ9", " is no token. "),
        ("a ta", "sk-0123456789abcdef. "),
    ] {
        stored(&line, before, &[chunk(before)]);
        (0..5).for_each(|_| line.sweep());
        assert_eq!(stored(&line, before, &[chunk(after)]), format!("{before}{after}"));
    }
}

#[test]
fn beyond_1024_silent_logs_a_telling_tail_reads_redacted_and_the_desks_are_let_go() {
    let line = Line::new();
    let run = |i: usize| format!("r{i}");
    for i in 0..=HOLDING_LOGS_MAX {
        stored(&line, &run(i), &[chunk("http://some:w")]);
    }
    (0..3).for_each(|_| line.sweep());
    let whole = (0..=HOLDING_LOGS_MAX).filter(|i| {
        let text = stored(&line, &run(*i), &[chunk("here/")]);
        assert!(text == "http://some:where/" || text == "http://[redacted]/", "{text}");
        text == "http://some:where/"
    });
    assert_eq!(whole.count(), HOLDING_LOGS_MAX);
}
