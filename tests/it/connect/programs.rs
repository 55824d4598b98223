//! Programs keep a session for several turns, and a new program after a restart finds it again.

use super::endpoint::{activities, say, start_server, start_server_on, text_of};
use super::failures::agent_fails;
use super::protocols::program;
use crate::harness::storage_in;
use proscenium::log::embedded::Sync;
use serde_json::{Value, json};
use std::path::Path;
use tokio::sync::oneshot;

fn user(id: &str, text: &str) -> Value {
    json!([{ "id": id, "role": "user", "content": text }])
}

/// Two turns in one process, and after a restart of the server a third in another. Returns the texts of the answers.
async fn three_turns(directory: &Path, protocol: &str, script: &str) -> Vec<String> {
    let table = program(directory, protocol, script);
    let store = directory.join("store");
    std::fs::create_dir(&store).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let (client, serving) = start_server_on(storage_in(&store, Sync::Never).await, &table, async { drop(stopped.await) }).await;
    let mut texts = vec![
        text_of(&say(&client, "t", "r1", user("u1", "One")).await),
        text_of(&say(&client, "t", "r2", user("u2", "Two")).await),
    ];
    stop.send(()).unwrap();
    serving.await.unwrap();
    let (client, _serving) = start_server_on(storage_in(&store, Sync::Never).await, &table, std::future::pending()).await;
    texts.push(text_of(&say(&client, "t", "r3", user("u3", "Three")).await));
    for run in ["r1", "r2", "r3"] {
        assert_eq!(activities(&client, run, "user", "run").await[0]["attempt"], 1, "{run}");
    }
    texts
}

#[tokio::test]
async fn claude_s_session_is_resumed_by_a_new_process_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"
n=0
while [ $# != 1 ]; do shift; done
while read -r line; do
  n=$((n + 1))
  said=$(printf '%s\n' "$line" | sed 's/.*"text":"\([^"]*\)".*/\1/')
  [ $n = 1 ] && echo "{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"s\",\"uuid\":\"i$n\",\"model\":\"m\",\"permissionMode\":\"default\",\"tools\":[]}"
  echo "{\"type\":\"assistant\",\"session_id\":\"s\",\"uuid\":\"a$n\",\"parent_tool_use_id\":null,\"message\":{\"id\":\"${1%%=*}-m$n\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[{\"type\":\"text\",\"text\":\"$1 turn $n: $said\"}]}}"
  echo "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"session_id\":\"s\",\"uuid\":\"r$n\",\"result\":\"\",\"num_turns\":1,\"result_index\":0}"
done
"#;
    let texts = three_turns(dir.path(), "claude-stream-json", script).await;
    let session = texts[0].strip_prefix("--session-id=").unwrap().split(' ').next().unwrap();
    uuid::Uuid::parse_str(session).unwrap();
    let expected = [
        format!("--session-id={session} turn 1: One"),
        format!("--session-id={session} turn 2: Two"),
        format!("--resume={session} turn 1: Three"),
    ];
    assert_eq!(texts, expected);
}

/// An ACP agent that answers with the method that opened its session, and the first words of each prompt.
fn acp(abilities: &str) -> String {
    let script = r#"
n=0
while read -r line; do
  id=$(printf '%s\n' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
  case "$line" in
    *'"initialize"'*) echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"protocolVersion\":1,\"agentCapabilities\":{ABILITIES}}}" ;;
    *'"session/new"'*) opened=new; echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"sessionId\":\"s\"}}" ;;
    *'"session/load"'*'"sessionId":"s"'*) opened=loaded; echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{}}" ;;
    *'"session/prompt"'*)
      n=$((n + 1))
      case "$line" in *'conversation so far'*One*Two*) opened="$opened, told" ;; esac
      echo "{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"sessionId\":\"s\",\"update\":{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"$opened: turn $n\"}}}}"
      echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"stopReason\":\"end_turn\"}}" ;;
  esac
done
"#;
    script.replace("ABILITIES", abilities)
}

#[tokio::test]
async fn an_acp_session_is_loaded_by_a_new_process_or_gets_the_conversation() {
    for (abilities, third) in [("\\\"loadSession\\\":true", "loaded: turn 1"), ("", "new, told: turn 1")] {
        let dir = tempfile::tempdir().unwrap();
        let texts = three_turns(dir.path(), "acp", &acp(abilities)).await;
        assert_eq!(texts, ["new: turn 1", "new: turn 2", third]);
    }
}

#[tokio::test]
async fn a_program_may_write_any_bytes_to_its_standard_error() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"
read -r line
printf '\377\n' >&2
head -c 1000000 /dev/zero >&2 || exit 9
echo '{"type":"system","subtype":"init","session_id":"s","uuid":"1","model":"m","permissionMode":"default","tools":[]}'
echo '{"type":"assistant","session_id":"s","uuid":"2","parent_tool_use_id":null,"message":{"id":"m","role":"assistant","model":"m","content":[{"type":"text","text":"Still here"}]}}'
echo '{"type":"result","subtype":"success","is_error":false,"session_id":"s","uuid":"3","result":"","num_turns":1,"result_index":0}'
read -r line
"#;
    let client = start_server(&program(dir.path(), "claude-stream-json", script)).await;
    assert_eq!(text_of(&say(&client, "t", "r1", user("u1", "Hello")).await), "Still here");
}

#[tokio::test]
async fn a_run_ends_with_its_program_although_a_child_holds_the_output_open() {
    for protocol in ["acp", "claude-stream-json"] {
        let dir = tempfile::tempdir().unwrap();
        let script = "read -r line; sleep 600 & echo 'out of memory' >&2; exit 3";
        let reason = agent_fails(&program(dir.path(), protocol, script), "process_ended").await;
        assert!(reason.contains("exit status: 3") && reason.contains("out of memory"), "{reason}");
    }
}
