//! The binary's supervisor ends a program with everything that it started, however the program or the server ends.

use super::endpoint::{activities, post, wait_for_control, wait_for_status};
use crate::harness::{Client, Process, with_timeout};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

const CLAUDE: &str = "claude-stream-json";

/// A server with a program `helper`, which finds this directory in `DIR`.
fn start(dir: &Path, protocol: &str, command: &str) -> Process {
    let table = format!(
        "[helper]\nprotocol = \"{protocol}\"\ncommand = {command}\nsilence-seconds = 1\nenvironment = {{ DIR = {:?} }}\n",
        dir.to_str().unwrap()
    );
    std::fs::write(dir.join("agents.toml"), table).unwrap();
    Process::start_with(dir, &["--connect-file", dir.join("agents.toml").to_str().unwrap()])
}

fn start_script(dir: &Path, protocol: &str, script: &str) -> Process {
    std::fs::write(dir.join("agent.sh"), script).unwrap();
    start(dir, protocol, &format!("[\"/bin/sh\", {:?}]", dir.join("agent.sh").to_str().unwrap()))
}

async fn ask(client: &Client) {
    let value = json!({ "runId": "r", "messages": [{ "id": "u", "role": "user", "content": "Go" }] });
    let sent = post(client, "/v1/sessions/t/controls", &json!({ "control": "send", "agentId": "helper", "value": value })).await;
    assert_eq!(sent.status, 202, "{sent:?}");
}

/// Waits until the program has written this file, and returns the ids in it.
async fn ids_in(file: &Path) -> Vec<u32> {
    let written = async {
        loop {
            match std::fs::read_to_string(file) {
                Ok(text) if text.ends_with("end\n") => return text,
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let text = with_timeout("the program's file", written).await;
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Waits until none of these processes runs. A zombie waits for the machine's first process only.
async fn have_ended(processes: &[u32]) {
    let runs = |process: &u32| std::fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    let ended = async {
        while processes.iter().any(runs) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    with_timeout("the end of all that the program started", ended).await;
}

/// Starts a child, and one in a session of its own whose parent has ended.
const CHILDREN: &str = r#"
read -r line
sleep 600 & echo $! >> "$DIR/ids"
setsid sh -c 'echo $$ >> "$DIR/ids"; exec sleep 600' > /dev/null 2>&1 &
wait_for() { until [ "$(wc -l < "$DIR/ids")" -ge $1 ]; do :; done; }
wait_for 2
(setsid sh -c 'echo $$ >> "$DIR/ids"; exec sleep 600' > /dev/null 2>&1 &)
wait_for 3
echo $$ >> "$DIR/ids"; echo end >> "$DIR/ids"
"#;

#[tokio::test]
async fn all_that_a_program_started_ends_with_the_server_although_it_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_script(dir.path(), CLAUDE, &format!("{CHILDREN} exec sleep 600"));
    ask(&Client::new(server.at)).await;
    let ids = ids_in(&dir.path().join("ids")).await;
    assert_eq!(ids.len(), 4);
    server.kill();
    have_ended(&ids).await;
}

#[tokio::test]
async fn all_that_a_program_started_ends_with_the_program_or_when_its_turn_fails() {
    // It exits, it kills its own group, and it writes nothing for longer than the limit.
    for (ends, reason) in [("echo last words >&2; exit 3", "exit status: 3"), ("kill 0", "signal: 15"), ("exec sleep 600", "1 s")]
    {
        let dir = tempfile::tempdir().unwrap();
        let server = start_script(dir.path(), CLAUDE, &format!("{CHILDREN} {ends}"));
        let client = Client::new(server.at);
        ask(&client).await;
        have_ended(&ids_in(&dir.path().join("ids")).await).await;
        wait_for_status(&client, "r", "failed").await;
        let shown = json!(activities(&client, "r", "dashboard", "diagnostics").await).to_string();
        assert!(shown.contains(reason) && (!ends.contains("words") || shown.contains("last words")), "{ends}: {shown}");
    }
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_named_in_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), CLAUDE, "[\"/no/such/program\", \"--flag\"]");
    let client = Client::new(server.at);
    ask(&client).await;
    wait_for_status(&client, "r", "failed").await;
    let shown = json!(activities(&client, "r", "dashboard", "diagnostics").await).to_string();
    assert!(shown.contains("process_not_started") && shown.contains("/no/such/program"), "{shown}");
}

/// The text of an ACP agent that never ends.
const ENDLESS: &str = r#"
read -r line; echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{}}}'
read -r line; echo '{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}'
read -r line
setsid sh -c 'echo $$ >> "$DIR/ids"; exec sleep 600' > /dev/null 2>&1 &
until [ -s "$DIR/ids" ]; do :; done
echo $$ >> "$DIR/ids"; echo end >> "$DIR/ids"
while echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"and on "}}}}'; do :; done
"#;

#[tokio::test]
async fn a_stop_ends_a_supervised_program_that_goes_on_writing_and_drops_what_comes_after() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_script(dir.path(), "acp", ENDLESS);
    let client = Client::new(server.at);
    ask(&client).await;
    let ids = ids_in(&dir.path().join("ids")).await;
    wait_for_status(&client, "r", "running").await;
    let stop = post(&client, "/v1/runs/r/controls", &json!({ "control": "stop" })).await.json();
    wait_for_control(&client, "r", &stop["controlId"], "acked").await;
    wait_for_status(&client, "r", "cancelled").await;
    have_ended(&ids).await;
    let rows = client.get("/v1/runs/r/events?audience=internal&limit=1000&before=1000000000").await.ok()["events"].clone();
    let rows = rows.as_array().unwrap();
    let acked = rows.iter().rposition(|event| event["payload"]["status"] == "acked").unwrap();
    assert!(!rows[acked..].iter().any(|event| event["type"] == "text.delta"), "nothing follows the stop");
}
