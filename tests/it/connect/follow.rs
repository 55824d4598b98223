//! Streams that need no connector: a growing file, and standard input.

use super::endpoint::wait_for_status;
use crate::harness::{Client, Process};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn program(server: &Process, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_proscenium"));
    command.args(arguments).args(["--url", &format!("http://{}", server.at)]).stderr(Stdio::piped());
    command
}

fn follow(server: &Process, file: &Path) -> Child {
    program(server, &["import", "--follow", "--run", "r", file.to_str().unwrap()]).spawn().unwrap()
}

#[tokio::test]
async fn a_growing_file_becomes_a_run_and_a_second_look_adds_nothing() {
    let (server, dir) = (Process::start(), tempfile::tempdir().unwrap());
    let client = Client::new(server.at);
    let path = dir.path().join("facts.ndjson");
    let mut file = std::fs::File::create(&path).unwrap();
    writeln!(file, r#"{{"type":"run.started"}}"#).unwrap();
    let mut first = follow(&server, &path);
    wait_for_status(&client, "r", "accepted").await;
    // A line may come in two pieces.
    write!(file, r#"{{"type":"text.final","messageId":"m","#).unwrap();
    file.flush().unwrap();
    writeln!(file, r#""payload":{{"text":"Hi"}}}}"#).unwrap();
    wait_for_status(&client, "r", "running").await;
    first.kill().unwrap();
    first.wait().unwrap();
    writeln!(file, r#"{{"type":"run.finished"}}"#).unwrap();
    let mut second = follow(&server, &path);
    wait_for_status(&client, "r", "completed").await;
    second.kill().unwrap();
    second.wait().unwrap();
    assert_eq!(client.get("/v1/runs/r").await.ok()["lastSequence"], 3);
}

#[tokio::test]
async fn a_line_of_standard_input_that_is_no_fact_is_named() {
    let server = Process::start();
    let mut publishing = program(&server, &["publish", "r"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = publishing.stdin.take().unwrap();
    input.write_all(b"{\"type\":\"run.started\"}\nwhat?\n").unwrap();
    drop(input);
    let output = publishing.wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.contains("standard input:2:") && error.contains("not_json"), "{error}");
    assert_eq!(Client::new(server.at).get("/v1/runs/r").await.ok()["lastSequence"], 1, "the line before it is stored");
}
