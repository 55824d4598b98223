//! The commands that list, decide and manage on a running server: the built binary, right and wrong.

use crate::cli::{Running, proscenium, run, stderr, stdout};
use serde_json::{Value, json};

/// A server with a run that asks and one that has failed, in one session.
async fn waiting_server() -> Running {
    let server = Running::serve();
    fill(&server).await;
    server
}

async fn fill(server: &Running) {
    let asks = json!([
        { "type": "run.started", "sessionId": "s1", "agentId": "coder" },
        { "type": "tool.args", "toolCallId": "c1", "payload": { "toolName": "delete_file", "input": { "path": "a.txt" } } },
        { "type": "action.required", "actionId": "a1", "toolCallId": "c1", "payload": { "kind": "tool_approval", "risk": "high" } },
    ]);
    server.post("r1", "agentui", "application/json", asks.to_string()).await;
    let fails = json!([
        { "type": "run.started", "sessionId": "s1", "agentId": "coder" },
        { "type": "text.final", "messageId": "m", "payload": { "text": "The disk space is gone." } },
        { "type": "run.failed", "payload": { "error": { "code": "disk", "message": "full" } } },
    ]);
    server.post("r2", "agentui", "application/json", fails.to_string()).await;
}

/// What a command prints; it must succeed.
fn printed(server: &Running, arguments: &[&str]) -> String {
    let output = run(proscenium(arguments).args(["--url", &server.url]));
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

fn json_of(server: &Running, arguments: &[&str]) -> Value {
    let text = printed(server, &[arguments, &["--json"]].concat());
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// The error of a command that must fail.
fn refused(server: &Running, arguments: &[&str]) -> String {
    let output = run(proscenium(arguments).args(["--url", &server.url]));
    assert_eq!((output.status.code(), stdout(&output)), (Some(1), String::new()), "{arguments:?}");
    stderr(&output)
}

#[tokio::test]
async fn runs_and_sessions_are_tables_for_people_and_objects_for_programs() {
    let server = waiting_server().await;
    let table = printed(&server, &["runs"]);
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].starts_with("STATUS") && lines.len() == 3, "{table}");
    assert!(lines[1].starts_with("failed") && lines[1].contains("r2"), "the newest first: {table}");
    let listed = json_of(&server, &["runs", "--limit", "1"]);
    assert_eq!((listed["runs"].as_array().unwrap().len(), listed["nextCursor"].is_string()), (1, true), "{listed}");
    assert!(printed(&server, &["runs", "--limit", "1"]).contains("1 of 2 listed; --limit lists more"));
    let failed = json_of(&server, &["runs", "--filter", "status:failed agent:coder", "--sort", "-duration"]);
    assert_eq!((&failed["total"], &failed["runs"][0]["runId"]), (&json!(1), &json!("r2")), "{failed}");
    assert_eq!(printed(&server, &["runs", "--filter", "status:cancelled"]), "No runs\n");
    let unknown = refused(&server, &["runs", "--filter", "colour:red"]);
    assert!(unknown.contains("colour:red") && unknown.contains("bad_query"), "{unknown}");

    let table = printed(&server, &["sessions", "--needs-action"]);
    assert!(table.lines().nth(1).is_some_and(|line| line.contains("s1")), "{table}");
    assert_eq!(json_of(&server, &["sessions"])["sessions"][0]["sessionId"], "s1");
    assert_eq!(printed(&server, &["sessions", "--archived"]), "No sessions\n");
    let mut found = String::new();
    for _ in 0..200 {
        found = printed(&server, &["sessions", "--search", "disk space"]);
        if found != "No sessions\n" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(found.contains("disk space is gone"), "{found}");
}

#[tokio::test]
async fn what_waits_is_listed_and_decided_from_the_terminal() {
    let server = waiting_server().await;
    let inbox = printed(&server, &["inbox"]);
    let line = inbox.lines().nth(1).unwrap();
    assert!(["high", "Delete file a.txt?", "coder", "r1", "a1"].iter().all(|part| line.contains(part)), "{inbox}");
    assert!(inbox.contains("proscenium approve RUN ACTION"), "{inbox}");

    let sent = printed(&server, &["approve", "r1", "a1"]);
    assert!(sent.starts_with("Queued for the agent: approve a1 (control "), "{sent}");
    assert!(printed(&server, &["inbox"]).lines().nth(1).unwrap().starts_with("answered"));
    let again = refused(&server, &["reject", "r1", "a1", "--reason", "no"]);
    assert!(again.contains("action_not_pending"), "{again}");
    let decided = json_of(&server, &["decisions", "r1"]);
    assert_eq!(decided["decisions"].as_array().unwrap().len(), 1, "{decided}");

    server
        .post(
            "r1",
            "agentui",
            "application/json",
            json!([{ "type": "action.required", "actionId": "a2", "payload": { "kind": "clarification", "message": "Which?" } }])
                .to_string(),
        )
        .await;
    let answered = json_of(&server, &["answer", "r1", "a2", "The blue one"]);
    assert_eq!(answered["status"], "queued");
    let unknown = refused(&server, &["approve", "r1", "a9"]);
    assert!(unknown.contains("a9") && unknown.contains("action_not_pending"), "{unknown}");
    let missing = refused(&server, &["approve", "no-run", "a1"]);
    assert!(missing.contains("no-run") && missing.contains("no_such_run"), "{missing}");
    let output = run(proscenium(&["answer", "r1", "a2", "--value", "{half"]).args(["--url", &server.url]));
    assert!(output.status.code() == Some(2) && stderr(&output).contains("not JSON"), "{}", stderr(&output));
}

#[tokio::test]
async fn a_message_begins_a_session_and_a_run_is_stopped_settled_and_erased() {
    let server = waiting_server().await;
    let sent = printed(&server, &["send", "new-chat", "Hello", "--agent", "support"]);
    assert!(sent.starts_with("Queued for the agent of session new-chat (control "), "{sent}");
    assert!(printed(&server, &["stop", "r1"]).starts_with("Queued for the agent: interrupt run r1"));
    assert_eq!(printed(&server, &["settle", "r1"]), "Run r1 is settled: failed.\n");
    assert_eq!(printed(&server, &["settle", "r1"]), "Run r1 had ended before: failed. Nothing changed.\n");

    let unsure = refused(&server, &["erase", "r1"]);
    assert!(unsure.contains("this would erase run r1 permanently"), "{unsure}");
    assert_eq!(printed(&server, &["erase", "r1", "--yes"]), "Erased run r1.\n");
    assert!(refused(&server, &["erase", "r1", "--yes"]).contains("erased"));
    assert_eq!(json_of(&server, &["erase", "--session", "s1", "--yes"]), json!({ "erased": true, "session": "s1" }));
    assert!(!printed(&server, &["sessions"]).contains("s1 "));
}

#[tokio::test]
async fn links_and_webhooks_are_made_listed_and_removed() {
    let server = waiting_server().await;
    assert_eq!(printed(&server, &["links"]), "No open links\n");
    let url = printed(&server, &["links", "add", "--run", "r1", "--for", "24h"]);
    assert!(url.contains("#link="), "{url}");
    let listed = json_of(&server, &["links"]);
    let id = listed["links"][0]["id"].as_str().unwrap();
    assert!(printed(&server, &["links"]).contains("run r1"));
    assert_eq!(printed(&server, &["links", "remove", id]), format!("Link {id} has ended.\n"));
    let long = refused(&server, &["links", "add", "--session", "s1", "--for", "400d"]);
    assert!(long.contains("90 days"), "{long}");

    assert_eq!(printed(&server, &["webhooks"]), "No webhooks\n");
    let made = printed(&server, &["webhooks", "add", "https://example.com/hook", "--event", "run.waiting"]);
    assert!(made.lines().last().unwrap().starts_with("whsec_"), "{made}");
    let listed = json_of(&server, &["webhooks"]);
    let id = listed["webhooks"][0]["id"].as_str().unwrap();
    assert!(printed(&server, &["webhooks"]).contains("run.waiting"));
    assert_eq!(printed(&server, &["webhooks", "deliveries", id]), "No deliveries yet\n");
    assert!(refused(&server, &["webhooks", "redeliver", id, "msg_none"]).contains("no_such_delivery"));
    assert_eq!(printed(&server, &["webhooks", "remove", id]), format!("Webhook {id} is removed.\n"));
    assert!(refused(&server, &["webhooks", "add", "not a url"]).contains("url"));
}

#[tokio::test]
async fn tail_watches_the_runs_of_a_session_in_words_or_as_json() {
    let server = waiting_server().await;
    let mut command = proscenium(&["tail", "--session", "s1", "--url", &server.url]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let mut shown = Vec::new();
    for line in lines {
        shown.push(line.unwrap());
        if shown.last().is_some_and(|line| line == "■ failed") {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let shown = shown.join("\n");
    for part in ["— run r1", "— run r2", "The disk space is gone.", "● failed: disk: full"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let json = printed(&server, &["tail", "r2", "--json"]);
    let types: Vec<_> = json.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].clone()).collect();
    assert_eq!(types, ["run.started", "text.final", "run.failed"]);
}

/// Each command, as it succeeds, and as it is refused with this exit code and these words.
const ROWS: &[(&[&str], &[&str], i32, &str)] = &[
    (&["runs"], &["runs", "--filter", "colour:red"], 1, "colour:red"),
    (&["sessions"], &["sessions", "--limit", "none"], 2, "--limit"),
    (&["inbox"], &["inbox", "--colour"], 2, "--colour"),
    (&["decisions", "r1"], &["decisions", "never"], 1, "no_such_run"),
    (&["approve", "r1", "a1"], &["approve", "r1", "a9"], 1, "action_not_pending"),
    (&["reject", "r3", "a1"], &["reject", "r3", "a9"], 1, "action_not_pending"),
    (&["answer", "r4", "a1", "Blue"], &["answer", "r4", "a9", "Blue"], 1, "action_not_pending"),
    (&["send", "s1", "Go on"], &["send", "s1"], 2, "TEXT"),
    (&["stop", "r1"], &["stop", "never"], 1, "no_such_run"),
    (&["settle", "r1"], &["settle", "never"], 1, "no_such_run"),
    (&["tail", "r2", "--json"], &["tail"], 2, "required"),
    (&["export", "r2"], &["export", "never"], 1, "no_such_run"),
    (&["import", "FILE", "--run", "again"], &["import", "MISSING", "--run", "again"], 1, "MISSING"),
    (&["publish", "r9"], &["publish", "r9", "--source", "morse"], 1, "morse"),
    (
        &["token", "--key", "KEY", "--generate", "--sessions", "*"],
        &["token", "--key", "MISSING", "--sessions", "*"],
        1,
        "MISSING",
    ),
    (&["check", "FILE"], &["check", "MISSING"], 2, "MISSING"),
    (&["verify", "PROVED"], &["verify", "MISSING"], 2, "MISSING"),
    (&["acp"], &["acp", "--audience", "never"], 2, "never"),
    (&["conform", "--dialect", "ag-ui", "--run", "r2"], &["conform", "--dialect", "morse", "--run", "r2"], 2, "morse"),
    (&["links"], &["links", "remove", "never"], 1, "no_such_link"),
    (&["webhooks"], &["webhooks", "remove", "never"], 1, "no_such_webhook"),
    (&["holds", "set", "--session", "s1", "--reason", "Case 1"], &["holds", "lift", "--session", "s9"], 1, "no_such_hold"),
    (&["erase", "--session", "s2", "--yes"], &["erase", "--session", "s1", "--yes"], 1, "held"),
    (&["retention", "--dry-run", "--config", "RULES"], &["retention", "--dry-run", "--config", "MISSING"], 1, "MISSING"),
    (&["backup", "--to", "BACKUPS"], &["backup", "--to", "ftp://host/x"], 1, "ftp://host/x"),
    (
        &["restore", "--from", "BACKUPS", "--data-dir", "DATA"],
        &["restore", "--from", "MISSING", "--data-dir", "DATA2"],
        1,
        "MISSING",
    ),
    (&["doctor", "--data-dir", "DATA"], &["doctor", "--data-dir", "MISSING"], 2, "MISSING"),
    (&["doctor", "--data-dir", "DATA", "--salvage", "OUT"], &["doctor", "--data-dir", "DATA", "--salvage", "DATA"], 2, "DATA"),
    (&["health"], &["health", "--ca", "MISSING"], 1, "MISSING"),
    (&["completions", "bash"], &["completions", "never"], 2, "never"),
    (&["man"], &["man", "--dir", "FILE"], 1, "FILE"),
];

/// Commands that need no `--url`.
const LOCAL: [&str; 7] = ["token", "check", "verify", "restore", "doctor", "completions", "man"];

#[tokio::test]
async fn each_command_succeeds_once_and_is_refused_once_by_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::serve_in(&dir.path().join("server"));
    fill(&server).await;
    for (run, kind) in [("r3", "tool_approval"), ("r4", "clarification")] {
        let asks = json!([{ "type": "run.started", "sessionId": run.replace('r', "s"), "agentId": "coder" },
            { "type": "action.required", "actionId": "a1", "payload": { "kind": kind, "message": "Which?" } }]);
        server.post(run, "agentui", "application/json", asks.to_string()).await;
    }
    let facts = json!([{ "type": "run.started", "sessionId": "s2" }, { "type": "run.finished" }]);
    server.post("r5", "agentui", "application/json", facts.to_string()).await;
    std::fs::write(dir.path().join("FILE"), printed(&server, &["export", "r2"])).unwrap();
    std::fs::write(dir.path().join("PROVED"), printed(&server, &["export", "r2", "--proof"])).unwrap();
    std::fs::write(dir.path().join("RULES"), "retention = [{ name = \"old\", after = \"30d\", then = \"compact\" }]").unwrap();
    let call = |arguments: &[&str]| {
        let mut command = proscenium(arguments);
        if !LOCAL.contains(&arguments[0]) {
            command.args(["--url", &server.url]);
        }
        run(command.current_dir(dir.path()))
    };
    for (right, wrong, code, words) in ROWS {
        let output = call(right);
        assert!(output.status.success(), "{right:?}: {}", stderr(&output));
        let output = call(wrong);
        let error = stderr(&output);
        assert!(output.status.code() == Some(*code) && error.contains(words), "{wrong:?}: {:?}: {error}", output.status);
        let last = error.lines().find(|line| line.contains(words)).unwrap_or_default();
        println!(
            "| `{}` | `{}` | {code}: {} |",
            right.join(" "),
            wrong.join(" "),
            last.replace(&*dir.path().to_string_lossy(), "")
        );
    }
    let help = stdout(&run(&mut proscenium(&["help"])));
    let listed = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1).take_while(|line| !line.is_empty());
    for name in listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).filter(|name| !name.is_empty()) {
        let has_row = ROWS.iter().any(|(right, ..)| right[0] == name);
        // Servers run until they are stopped, and have tests of their own; so has a cluster.
        assert!(has_row || ["serve", "demo", "cluster-seed", "help"].contains(&name), "{name} has no row");
    }
}
