//! Rules of retention and legal holds: what a rule erases or compacts, what stays, and what a dry run says before.

use crate::cli::{proscenium, run, stderr, stdout};
use crate::erase_sessions::{files_with_marker, until_purged};
use crate::harness::{Client, ClockedProcess, LITERAL_MARKER as MARKER, Process, fact, start_local, with_timeout};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];
/// Runs stay as open as their facts leave them.
const UNSETTLED: [&str; 4] = ["--stale-after", "31536000", "--settle-after", "31536000"];
const HOUR: Duration = Duration::from_hours(1);

fn config(dir: &Path, text: &str) -> String {
    let file = dir.join("proscenium.toml");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

fn says(words: &str) -> Value {
    fact("text.final", json!({ "messageId": "m", "payload": { "role": "user", "text": words } }))
}

fn ended(how: &str) -> Value {
    fact(how, json!({}))
}

pub async fn write(client: &Client, run: &str, query: &str, facts: &[Value]) {
    client.post(&format!("/v1/runs/{run}/facts?{query}"), &JSON, json!(facts).to_string()).await.ok();
}

/// A run that has completed.
async fn completed(client: &Client, run: &str, query: &str) {
    write(client, run, query, &[fact("run.started", json!({})), says(run), ended("run.finished")]).await;
}

/// The ids of all sessions and runs.
pub async fn listed(client: &Client) -> (BTreeSet<String>, BTreeSet<String>) {
    let of = async |path: &str, member: &str, id: &str| {
        let list = client.get(path).await.ok();
        list[member].as_array().unwrap().iter().map(|line| line[id].as_str().unwrap().to_owned()).collect()
    };
    (of("/v1/sessions", "sessions", "sessionId").await, of("/v1/runs", "runs", "runId").await)
}

fn set(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

async fn dry_run(client: &Client, body: Value) -> Value {
    client.post("/v1/retention/dry-run", &JSON, body.to_string()).await.ok()["rules"].clone()
}

async fn hold(client: &Client, path: &str, reason: &str) -> Value {
    client.put(&format!("{path}/hold"), &json!({ "reason": reason })).await.ok()
}

/// The entries of the audit about erasures.
async fn erasures(client: &Client) -> Vec<Value> {
    let audit = client.get("/v1/audit").await.ok();
    audit["entries"].as_array().unwrap().iter().filter(|entry| entry["what"] == "erase").cloned().collect()
}

/// The whole part of a metric's value.
async fn metric(client: &Client, name: &str) -> u64 {
    let text = client.get("/metrics").await;
    let text = String::from_utf8_lossy(&text.body).into_owned();
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.trim().split('.').next()?.parse().ok());
    found.unwrap_or_else(|| panic!("no {name} in {text}"))
}

#[tokio::test]
async fn a_rule_erases_silent_sessions_as_a_whole_and_open_runs_newer_sessions_and_others_stay() {
    let dir = tempfile::tempdir().unwrap();
    let rules = "[[retention]]\nname = \"acme-day\"\nowner = \"acme/*\"\nafter = \"24h\"\nthen = \"erase\"\n";
    let file = config(dir.path(), rules);
    let flags = [&["--config", &file][..], &UNSETTLED].concat();
    let clocked = ClockedProcess::start(dir.path(), &flags);
    let client = &clocked.client;
    for (run, query) in [
        ("old-1", "sessionId=old&owner=acme/a"),
        ("old-2", "sessionId=old&owner=acme/a"),
        ("half-1", "sessionId=half&owner=acme/a"),
        ("top-1", "sessionId=top&owner=acme/a"),
        ("below-1", "sessionId=below&parentSessionId=top&owner=acme/a"),
        ("all-1", "sessionId=all&owner=acme/b"),
        ("under-1", "sessionId=under&parentSessionId=all&owner=acme/b"),
        ("alone", "owner=acme/a"),
        ("theirs-1", "sessionId=theirs&owner=umbrella"),
        ("unowned-1", "sessionId=unowned"),
        ("free", ""),
    ] {
        completed(client, run, query).await;
    }
    let asks = fact("action.required", json!({ "actionId": "a", "payload": { "kind": "tool_approval" } }));
    write(client, "open-1", "sessionId=open&owner=acme/a", &[fact("run.started", json!({})), asks]).await;
    write(client, "open-alone", "owner=acme/a", &[fact("run.started", json!({}))]).await;

    clocked.advance(20 * HOUR).await;
    completed(client, "half-2", "sessionId=half&owner=acme/a").await;
    completed(client, "below-2", "sessionId=below&parentSessionId=top&owner=acme/a").await;
    clocked.advance(3 * HOUR).await;
    let none = dry_run(client, json!({})).await;
    assert_eq!(json!([none[0]["name"], none[0]["due"]["sessions"], none[0]["due"]["runs"]]), json!(["acme-day", 0, 0]));
    let is_erased = async || !listed(client).await.1.contains("alone");
    let passed = clocked.advance_until("the rule", Duration::from_mins(10), is_erased).await;
    assert!(passed + Duration::from_mins(1) >= HOUR, "{passed:?}");
    let kept = ["half", "top", "below", "theirs", "unowned", "open"];
    let runs = ["half-1", "half-2", "top-1", "below-1", "below-2", "theirs-1", "unowned-1", "free", "open-1", "open-alone"];
    assert_eq!(listed(client).await, (set(&kept), set(&runs)));
    client.get("/v1/sessions/old").await.problem(410, "erased");
    client.post("/v1/runs/old-1/facts", &JSON, json!([says("late")]).to_string()).await.problem(410, "erased");
    let entries = erasures(client).await;
    let about: BTreeSet<_> = entries.iter().map(|entry| format!("{}{}", entry["sessionId"], entry["runId"])).collect();
    let expected = ["\"all\"null", "\"old\"null", "\"under\"null", "null\"alone\""];
    assert_eq!((entries.len(), about), (4, set(&expected)), "{entries:?}");
    assert!(entries.iter().all(|entry| entry["by"]["via"] == "rule" && entry["by"]["name"] == "acme-day"), "{entries:?}");
    assert_eq!(metric(client, "proscenium_retention_erased_sessions_total{rule=\"acme-day\"}").await, 3);
    assert_eq!(metric(client, "proscenium_retention_erased_runs_total{rule=\"acme-day\"}").await, 5);

    // What was newer goes in its time, also with a server that starts later; what is open stays.
    let is_erased = async || listed(client).await.0 == set(&["theirs", "unowned", "open"]);
    clocked.advance_until("the newer ones", HOUR, is_erased).await;
    assert_eq!(listed(client).await.1, set(&["theirs-1", "unowned-1", "free", "open-1", "open-alone"]));
}

#[tokio::test]
async fn a_rule_for_a_status_goes_by_the_newest_run_and_a_rule_compacts_before_another_one_erases() {
    let dir = tempfile::tempdir().unwrap();
    let rules = "[[retention]]\nname = \"failed\"\nstatus = [\"failed\", \"cancelled\"]\nafter = \"2h\"\nthen = \"erase\"\n\
                 [[retention]]\nname = \"thin\"\nafter = 3600\nthen = \"compact\"\n";
    let file = config(dir.path(), rules);
    let clocked = ClockedProcess::start(dir.path(), &[&["--config", &file][..], &UNSETTLED].concat());
    let client = &clocked.client;
    let live = fact("tool.progress", json!({ "toolCallId": "c", "payload": { "message": "working" } }));
    let work = |end: &str| {
        let call = fact("tool.started", json!({ "toolCallId": "c", "payload": { "toolName": "t" } }));
        let done = fact("tool.done", json!({ "toolCallId": "c", "payload": { "output": "x" } }));
        let working = vec![live.clone(); 20];
        [vec![fact("run.started", json!({})), call], working, vec![done, says("x"), ended(end)]].concat()
    };
    write(client, "f-1", "sessionId=fails", &work("run.failed")).await;
    write(client, "r-1", "sessionId=repaired", &work("run.failed")).await;
    write(client, "r-2", "sessionId=repaired", &work("run.finished")).await;
    write(client, "w-1", "sessionId=works", &work("run.finished")).await;
    hold(client, "/v1/sessions/works", "Case 1").await;
    let state = async |run: &str| client.get(&format!("/v1/runs/{run}")).await.ok()["compacted"] == true;
    let is_compacted = async || state("r-1").await && state("r-2").await;
    clocked.advance_until("the compaction", Duration::from_mins(10), is_compacted).await;
    assert!(!state("w-1").await, "a hold keeps all of it");
    let is_erased = async || listed(client).await.0 == set(&["repaired", "works"]);
    clocked.advance_until("the erasure", Duration::from_mins(20), is_erased).await;
    client.get("/v1/sessions/fails").await.problem(410, "erased");
    assert!(metric(client, "proscenium_retention_compacted_runs_total{rule=\"thin\"}").await >= 2);
    let is_shown = async || metric(client, "proscenium_retention_held_waiting{rule=\"thin\"}").await == 1;
    clocked.advance_until("the look", Duration::from_mins(10), is_shown).await;
    assert!(client.delete("/v1/sessions/works/hold").await.status == 204);
    clocked.advance_until("the held one", Duration::from_mins(10), async || state("w-1").await).await;
}

#[tokio::test]
async fn what_a_dry_run_says_is_what_then_happens_and_it_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let rules = "[[retention]]\nname = \"tests\"\nowner = \"test/*\"\nafter = \"1s\"\nthen = \"erase\"\n\
                 [[retention]]\nname = \"failed\"\nstatus = \"failed\"\nafter = \"1s\"\nthen = \"erase\"\n";
    let file = config(dir.path(), rules);
    let flags = UNSETTLED;
    let server = Process::start_with(dir.path(), &flags);
    let client = Client::new(server.at);
    for n in 0..5 {
        completed(&client, &format!("t{n}"), &format!("sessionId=t{n}&owner=test/{n}")).await;
        completed(&client, &format!("k{n}"), &format!("sessionId=k{n}&owner=keep")).await;
        let fails = [fact("run.started", json!({})), ended("run.failed")];
        write(&client, &format!("f{n}"), &format!("sessionId=f{n}"), &fails).await;
    }
    completed(&client, "alone", "owner=test/x").await;
    hold(&client, "/v1/sessions/t1", "Case 1").await;
    hold(&client, "/v1/owners/test%2F2", "Case 2").await;
    let before = listed(&client).await;
    let url = format!("http://{}", server.at);
    let show = |more: &[&str]| {
        let arguments = [&["retention", "--dry-run", "--config", &file, "--limit", "1000", "--url", &url][..], more].concat();
        let output = run(&mut proscenium(&arguments));
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let due = with_timeout("the time", async {
        loop {
            let due: Value = serde_json::from_str(&show(&["--json"])).unwrap();
            if due["rules"][0]["due"]["runs"] == 4 && due["rules"][1]["due"]["sessions"] == 5 {
                return due["rules"].clone();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    let ids = |part: &Value| -> BTreeSet<String> {
        let first = part["first"].as_array().unwrap().iter();
        first.map(|found| found["sessionId"].as_str().or(found["runId"].as_str()).unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&due[0]["due"]), set(&["t0", "t3", "t4", "alone"]), "{due}");
    assert_eq!(json!([due[0]["due"]["sessions"], due[0]["held"]["sessions"], due[0]["held"]["runs"]]), json!([3, 2, 2]));
    let held = due[0]["held"]["first"].as_array().unwrap();
    let reasons: BTreeSet<_> = held.iter().map(|held| held["hold"]["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, BTreeSet::from(["Case 1", "Case 2"]));
    assert_eq!(due[0]["due"]["first"][0]["sessionId"], "t0", "the oldest first");
    assert_eq!(due[0]["due"]["oldest"], due[0]["due"]["first"][0]["lastActivity"]);
    let shown = show(&[]);
    assert!(shown.contains("tests: erase session t0 (1 runs), last active "), "{shown}");
    assert!(shown.contains("held with owner test/2: Case 2"), "{shown}");
    let few = dry_run(&client, json!({ "limit": 1, "rules": [{ "after": 1, "then": "erase" }] })).await;
    assert_eq!((few[0]["due"]["first"].as_array().unwrap().len(), &few[0]["due"]["sessions"]), (1, &json!(13)), "{few}");
    assert_eq!(dry_run(&client, json!({})).await, json!([]), "the server has no rules");
    assert_eq!((listed(&client).await, erasures(&client).await), (before.clone(), vec![]), "it changes nothing");

    drop(server);
    let flags = [&["--config", &file][..], &flags].concat();
    let server = Process::start_with(dir.path(), &flags);
    let client = Client::new(server.at);
    let gone: BTreeSet<_> = due.as_array().unwrap().iter().flat_map(|rule| ids(&rule["due"])).collect();
    let left: BTreeSet<_> = before.0.union(&before.1).filter(|id| !gone.contains(*id)).cloned().collect();
    let erased = async {
        loop {
            let (sessions, runs) = listed(&client).await;
            if sessions.union(&runs).cloned().collect::<BTreeSet<_>>() == left {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    with_timeout("the rules", erased).await;
    let is_done = async {
        while metric(&client, "proscenium_retention_held_waiting{rule=\"tests\"}").await != 2
            || metric(&client, "proscenium_retention_due_waiting{rule=\"tests\"}").await != 0
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    with_timeout("the metrics", is_done).await;
    assert_eq!(metric(&client, "proscenium_retention_overdue_seconds{rule=\"tests\"}").await, 0);
    assert_eq!(erasures(&client).await.len(), gone.len());
}

#[tokio::test]
async fn a_held_session_and_a_held_owner_stay_until_the_hold_is_lifted() {
    let dir = tempfile::tempdir().unwrap();
    let file = config(dir.path(), "[[retention]]\nafter = \"1s\"\nthen = \"erase\"\nconfirm = true\n");
    let server = Process::start_with(dir.path(), &UNSETTLED);
    let client = Client::new(server.at);
    completed(&client, "r", "sessionId=s&owner=acme").await;
    completed(&client, "below", "sessionId=below&parentSessionId=s&owner=acme").await;
    completed(&client, "o", "sessionId=o&owner=umbrella").await;
    completed(&client, "alone", "owner=umbrella").await;
    completed(&client, "p", "sessionId=p&owner=acme").await;
    let set_hold = hold(&client, "/v1/sessions/s", " Case 2026-17 ").await;
    assert_eq!(json!([set_hold["sessionId"], set_hold["reason"], set_hold["by"]["via"]]), json!(["s", "Case 2026-17", "rest"]));
    hold(&client, "/v1/owners/umbrella", "Audit").await;

    let refusals = async |client: &Client| {
        for path in ["/v1/sessions/s?children=true", "/v1/sessions/below", "/v1/runs/r", "/v1/runs/below", "/v1/owners/acme"] {
            let problem = client.delete(path).await.problem(409, "held");
            assert!(problem["detail"].as_str().unwrap().contains("Nothing was erased."), "{path}: {problem}");
            assert!(!problem.to_string().contains("Case"), "the reason is for those who may list holds: {problem}");
        }
        for path in ["/v1/sessions/o", "/v1/runs/o", "/v1/runs/alone", "/v1/owners/umbrella", "/copilotkit/threads/o"] {
            let problem = client.delete(path).await.problem(409, "held");
            assert!(problem["detail"].as_str().unwrap().contains("The hold on owner umbrella must be lifted"), "{problem}");
        }
        assert_eq!(client.delete("/v1/sessions/s?children=true").await.problem(409, "held")["sessionIds"], json!(["below", "s"]));
    };
    refusals(&client).await;
    for (session, reason) in [("s", "Case 2026-17"), ("below", "Case 2026-17"), ("o", "Audit")] {
        for audience in ["dashboard", "internal"] {
            let shown = client.get(&format!("/v1/sessions/{session}?audience={audience}")).await.ok();
            assert_eq!(shown["hold"]["reason"], reason, "{shown}");
            let list = client.get(&format!("/v1/sessions?audience={audience}")).await.ok();
            let line = list["sessions"].as_array().unwrap().iter().find(|line| line["sessionId"] == session).unwrap();
            assert_eq!(line["hold"], shown["hold"]);
        }
        let shown = client.get(&format!("/v1/sessions/{session}")).await.ok();
        assert!(shown["hold"].is_null(), "{shown}");
    }
    assert!(!client.get("/v1/sessions").await.ok().to_string().contains("hold"));
    assert!(client.get("/v1/sessions/p?audience=internal").await.ok()["hold"].is_null());
    let mut lists =
        client.open(crate::harness::Transport::Raw, "/v1/lists/stream?sessions=true&after=now&audience=internal", None).await;
    assert_eq!(lists.next_frame().await.kind(), "Hydrated");
    hold(&client, "/v1/sessions/p", "Case 3").await;
    assert_eq!(lists.next_frame().await.data["entry"]["hold"]["reason"], "Case 3", "a list stream shows it at once");

    // A rule erases nothing of it, also after a restart.
    server.kill();
    let server = Process::start_with(dir.path(), &[&["--config", &file][..], &UNSETTLED].concat());
    let client = Client::new(server.at);
    let looked = async {
        while metric(&client, "proscenium_retention_held_waiting{rule=\"retention-1\"}").await < 4 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    with_timeout("the look", looked).await;
    refusals(&client).await;
    assert_eq!(listed(&client).await.0, set(&["s", "below", "o", "p"]));
    let holds = client.get("/v1/holds").await.ok();
    let on: Vec<_> = holds["holds"].as_array().unwrap().iter().map(|hold| [&hold["ownerId"], &hold["sessionId"]]).collect();
    assert_eq!(on, [[&json!("umbrella"), &Value::Null], [&Value::Null, &json!("p")], [&Value::Null, &json!("s")]]);
    let first = client.get("/v1/holds?limit=2").await.ok();
    let rest = client.get(&format!("/v1/holds?cursor={}", first["nextCursor"].as_str().unwrap())).await.ok();
    assert_eq!((&rest["holds"][0], &rest["nextCursor"]), (&holds["holds"][2], &Value::Null));

    // Lifted, the rule takes it.
    client.delete("/v1/sessions/below/hold").await.problem(404, "no_such_hold");
    client.delete("/v1/owners/acme/hold").await.problem(404, "no_such_hold");
    assert_eq!(client.delete("/v1/sessions/s/hold").await.status, 204);
    let erased = async {
        while listed(&client).await.0 != set(&["o", "p"]) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    with_timeout("the rule", erased).await;
    let url = format!("http://{}", server.at);
    let command = |arguments: &[&str]| run(proscenium(arguments).args(["--url", &url]));
    let table = stdout(&command(&["holds"]));
    assert!(table.contains("owner umbrella") && table.contains("Audit") && table.contains("session p"), "{table}");
    let moved = command(&["holds", "set", "--session", "p", "--reason", "Case 4"]);
    assert_eq!(stdout(&moved), "The session p is held.\n", "{}", stderr(&moved));
    assert_eq!(stdout(&command(&["holds", "lift", "--owner", "umbrella"])), "The hold on owner umbrella is lifted.\n");
    let again = command(&["holds", "lift", "--owner", "umbrella"]);
    assert!(!again.status.success() && stderr(&again).contains("no_such_hold"), "{}", stderr(&again));
    assert_eq!(stdout(&command(&["holds", "lift", "--session", "p"])), "The hold on session p is lifted.\n");
    let erased = async {
        while listed(&client).await != (set(&[]), set(&[])) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    with_timeout("the rule", erased).await;
    assert_eq!(stdout(&command(&["holds"])), "No holds\n");
    let audit = client.get("/v1/audit").await.ok();
    let entries = audit["entries"].as_array().unwrap().iter().rev();
    let of_holds: Vec<_> = entries
        .filter(|entry| entry["what"].as_str().unwrap().starts_with("hold."))
        .map(|entry| json!([entry["what"], entry["sessionId"], entry["id"], entry["reason"], entry["by"]["via"]]))
        .collect();
    let expected = json!([
        ["hold.set", "s", null, "Case 2026-17", "rest"],
        ["hold.set", null, "umbrella", "Audit", "rest"],
        ["hold.set", "p", null, "Case 3", "rest"],
        ["hold.lifted", "s", null, null, "rest"],
        ["hold.set", "p", null, "Case 4", "rest"],
        ["hold.lifted", null, "umbrella", null, "rest"],
        ["hold.lifted", "p", null, null, "rest"],
    ]);
    assert_eq!(json!(of_holds), expected);
}

#[tokio::test]
async fn a_hold_needs_a_reason_and_something_that_is_there_and_not_on_its_way_out() {
    let client = start_local().await;
    completed(&client, "r", "sessionId=s&owner=acme").await;
    let put = async |path: &str, body: Value| client.put(&format!("{path}/hold"), &body).await;
    put("/v1/sessions/never", json!({ "reason": "x" })).await.problem(404, "no_such_session");
    for (body, says) in [
        (json!({}), "changes nothing"),
        (json!({ "reason": " " }), "reason is empty"),
        (json!({ "reason": 5 }), "reason is"),
        (json!({ "reason": "a\u{7}" }), "control character"),
        (json!({ "reason": "x".repeat(1001) }), "reason has 1001 characters"),
        (json!({ "reason": "x", "until": "never" }), "until"),
    ] {
        let problem = put("/v1/sessions/s", body).await.problem(422, "bad_member");
        assert!(problem["detail"].as_str().unwrap().contains(says), "{problem}");
    }
    // A run that its runtime does not end keeps an erasure under way for some seconds.
    write(&client, "busy", "sessionId=t&owner=acme&agentId=a", &[fact("run.started", json!({}))]).await;
    let claiming = {
        let client = client.clone();
        tokio::spawn(async move { client.post("/v1/agents/a/controls/claim?wait=30", &JSON, "").await.ok() })
    };
    let is_waiting = async {
        while client.get("/copilotkit/info").await.ok()["agents"].get("a").is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    with_timeout("the runtime to wait", is_waiting).await;
    assert_eq!(client.delete("/v1/owners/acme?wait=0").await.status, 202);
    put("/v1/owners/acme", json!({ "reason": "x" })).await.problem(409, "erasure_under_way");
    put("/v1/sessions/t", json!({ "reason": "x" })).await.problem(409, "erasure_under_way");
    claiming.abort();
    assert_eq!(client.delete("/v1/owners/acme").await.status, 204);
}

#[tokio::test]
async fn a_server_has_a_limited_number_of_holds() {
    let client = start_local().await;
    let setting = (0..8).map(|part| {
        let client = client.clone();
        tokio::spawn(async move {
            for n in (part..proscenium::holds::HOLDS_MAX).step_by(8) {
                hold(&client, &format!("/v1/owners/o{n}"), "x").await;
            }
        })
    });
    for part in setting.collect::<Vec<_>>() {
        part.await.unwrap();
    }
    let problem = client.put("/v1/owners/one-more/hold", &json!({ "reason": "x" })).await.problem(429, "too_many_holds");
    assert_eq!(problem["limit"], proscenium::holds::HOLDS_MAX);
    hold(&client, "/v1/owners/o1", "another reason").await;
    assert_eq!(client.delete("/v1/owners/o1/hold").await.status, 204);
    hold(&client, "/v1/owners/one-more", "x").await;
}

#[test]
fn a_rule_that_cannot_work_keeps_the_server_from_starting_with_its_number_its_line_and_why() {
    for (text, why) in [
        ("[[retention]]\nthen = \"erase\"\n", "[[retention]] 1, line 1: after: the rule is never due"),
        (
            "depth-max = 9\n\n[[retention]]\nowner = \"acme\"\nafter = \"1h\"\nthen = \"erase\"\n\n[[retention]]\nname = \"all\"\nafter = \"30d\"\nthen = \"erase\"\n",
            "[[retention]] 2 (all), line 8: confirm: the rule would erase everything: it names no owner and no status; name some, or set confirm = true",
        ),
        (
            "[[retention]]\nafter = \"30d\"\nthen = \"erase\"\nstatus = \"done\"\n",
            "[[retention]] 1, line 1: status: \"done\" is no status of a run that has ended; use some of completed, failed, cancelled, interrupted",
        ),
        ("[[retention]]\nafter = -30\nthen = \"compact\"\n", "[[retention]] 1, line 1: a duration such as 90s, 15m, 24h or 30d"),
        ("[[retention]]\nafter = \"-30d\"\nthen = \"compact\"\n", "[[retention]] 1, line 1: \"-30d\" is no duration"),
        (
            "[[retention]]\nafter = \"30d\"\nthen = \"erase\"\nowner = [\"umbrella\", \"ac*me\"]\n",
            "[[retention]] 1, line 1: owner: \"ac*me\" has a `*` before its end",
        ),
        ("[[retention]]\nafter = \"30d\"\nthen = \"shred\"\n", "unknown variant `shred`"),
        ("[[retention]]\nafter = \"30d\"\nthen = \"erase\"\nowners = \"a\"\n", "unknown field `owners`"),
        ("retention = 5\n", "[[retention]]: "),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let file = config(dir.path(), text);
        let mut command = Process::command(dir.path(), "error");
        let output = command.args(["--config", &file]).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(why), "{text}: {error}");
        assert!(error.contains("proscenium.toml: "), "{error}");
    }
}

#[tokio::test]
async fn a_dry_run_refuses_rules_that_cannot_work_and_the_command_names_their_lines() {
    let client = start_local().await;
    let post = async |body: Value| client.post("/v1/retention/dry-run", &JSON, body.to_string()).await;
    for (body, says) in [
        (json!({ "rules": 5 }), "rules is no list of rules"),
        (json!({ "rules": [{ "after": "30d" }] }), "[[retention]] 1: then: the rule does nothing"),
        (json!({ "rules": [{ "after": "30d", "then": "erase", "x": 1 }] }), "[[retention]] 1: unknown field `x`"),
        (json!({ "limit": 1001 }), "limit is 1001"),
        (json!({ "limit": -1 }), "limit is -1"),
        (json!({ "rule": [] }), "rule is no member of a dry run"),
    ] {
        let problem = post(body).await.problem(422, "bad_member");
        assert!(problem["detail"].as_str().unwrap().contains(says), "{problem}");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = config(dir.path(), "[[retention]]\nafter = \"x\"\nthen = \"erase\"\n");
    let url = format!("http://{}", client.at);
    let output = run(&mut proscenium(&["retention", "--dry-run", "--config", &file, "--url", &url]));
    assert!(stderr(&output).contains("proscenium.toml: [[retention]] 1, line 1: \"x\" is no duration"), "{}", stderr(&output));
    let output = run(&mut proscenium(&["retention", "--url", &url]));
    assert!(output.status.code() == Some(2) && stderr(&output).contains("--dry-run"), "{}", stderr(&output));
    let empty = config(dir.path(), "depth-max = 9\n");
    let output =
        tokio::task::spawn_blocking(move || run(&mut proscenium(&["retention", "--dry-run", "--config", &empty, "--url", &url])));
    assert_eq!(stdout(&output.await.unwrap()), "The file has no rules of retention\n");
}

#[tokio::test]
async fn erasures_by_a_rule_that_crashes_cut_off_complete_each_once_and_leave_no_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let file = config(dir.path(), "[[retention]]\nname = \"tests\"\nowner = \"test\"\nafter = \"1s\"\nthen = \"erase\"\n");
    let plain = [&["--erase-within", "2"][..], &UNSETTLED].concat();
    let server = Process::start_with(dir.path(), &plain);
    let client = Client::new(server.at);
    let mut sessions = BTreeSet::new();
    for n in 0..40 {
        for of in 0..3 {
            let facts = [says(MARKER), ended("run.finished")];
            write(&client, &format!("r{n}-{of}"), &format!("sessionId=s{n}&owner=test"), &facts).await;
        }
        sessions.insert(format!("s{n}"));
    }
    completed(&client, "kept", "sessionId=kept&owner=acme").await;
    server.kill();
    let flags = [&["--config", &file][..], &plain].concat();
    let mut cut_off = 0;
    for round in 0..8_u64 {
        let server = Process::start_with(dir.path(), &flags);
        tokio::time::sleep(Duration::from_millis(10 + 25 * round)).await;
        let left = listed(&Client::new(server.at)).await.0.len();
        cut_off += usize::from((2..41).contains(&left));
        server.kill();
    }
    assert!(cut_off > 0, "no crash came in the middle");
    let server = Process::start_with(dir.path(), &flags);
    let client = Client::new(server.at);
    let erased = async {
        while listed(&client).await != (set(&["kept"]), set(&["kept"])) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    with_timeout("the erasures", erased).await;
    let entries = erasures(&client).await;
    let about: BTreeSet<_> = entries.iter().map(|entry| entry["sessionId"].as_str().unwrap().to_owned()).collect();
    assert_eq!((entries.len(), about), (40, sessions), "each has one entry");
    for n in [0, 20, 39] {
        client.get(&format!("/v1/sessions/s{n}")).await.problem(410, "erased");
    }
    until_purged(&client).await;
    assert_eq!(files_with_marker(&dir.path().join("data")), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn an_owner_is_exported_whole_and_imported_elsewhere_once() {
    let from = Process::start();
    let client = Client::new(from.at);
    let large = fact("task.changed", json!({ "payload": { "output": "x".repeat(100_000) } }));
    for n in 0..3 {
        let facts = [fact("run.started", json!({})), says(&format!("hello {n}")), large.clone(), ended("run.finished")];
        write(&client, &format!("r{n}"), &format!("sessionId=s{}&owner=acme", n % 2), &facts).await;
    }
    completed(&client, "alone", "owner=acme").await;
    completed(&client, "theirs", "sessionId=theirs&owner=umbrella").await;
    let title = json!([fact("session.updated", json!({ "payload": { "title": "The trip" } }))]).to_string();
    client.post("/v1/sessions/s0/facts", &JSON, title).await.ok();
    let export = client.get("/v1/owners/acme/export?audience=internal").await;
    assert_eq!((export.status, &export.headers["content-type"].to_str().unwrap()), (200, &"application/x-ndjson"));
    let text = String::from_utf8(export.body.clone()).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let parts: Vec<_> = lines.iter().filter(|line| line["export"].is_string()).collect();
    let kinds: Vec<_> = parts.iter().map(|part| part["export"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["owner", "session", "run", "run", "session", "run", "run", "end"]);
    assert_eq!(
        json!([parts[1]["sessionId"], parts[1]["title"], parts[7]["sessions"], parts[7]["runs"]]),
        json!(["s0", "The trip", 2, 4])
    );
    let envelopes = lines.iter().filter(|line| line["type"].is_string()).count();
    assert_eq!(envelopes + parts.len(), lines.len());
    assert!(text.contains("hello 2") && text.contains("/v1/blobs/") && !text.contains("theirs"));
    assert_eq!(String::from_utf8(client.get("/v1/owners/nothing/export").await.body).unwrap().lines().count(), 2);

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("acme.ndjson").to_str().unwrap().to_owned();
    let url = format!("http://{}", from.at);
    let output = run(&mut proscenium(&["export", "--owner", "acme", "-o", &file, "--url", &url]));
    assert!(output.status.success() && stderr(&output).contains("lines of owner acme"), "{}", stderr(&output));
    let to = Process::start();
    let url = format!("http://{}", to.at);
    let import = |more: &[&str]| run(&mut proscenium(&[&["import", &file, "--url", &url][..], more].concat()));
    let refused = import(&["--run", "x"]);
    assert!(!refused.status.success() && stderr(&refused).contains("omit --run"), "{}", stderr(&refused));
    let imported = import(&[]);
    assert!(imported.status.success() && stderr(&imported).contains("logs of owner acme"), "{}", stderr(&imported));
    let there = Client::new(to.at);
    let again = import(&[]);
    assert!(stderr(&again).contains("imported 0 envelopes") && stderr(&again).contains("already"), "{}", stderr(&again));
    assert_eq!(listed(&there).await, (set(&["s0", "s1"]), set(&["r0", "r1", "r2", "alone"])));
    let texts = async |client: &Client, run: &str| {
        let events = client.read_events(run, "type=text.final", 100).await;
        events.iter().map(|event| event["payload"]["text"].clone()).collect::<Vec<_>>()
    };
    for run in ["r0", "r1", "r2", "alone"] {
        assert_eq!(texts(&there, run).await, texts(&client, run).await, "{run}");
    }
    assert_eq!(there.get("/v1/sessions/s0").await.ok()["title"], "The trip");
    assert_eq!(there.delete("/v1/owners/acme").await.status, 204, "they belong to the owner");
    assert_eq!(listed(&there).await, (set(&[]), set(&[])));
    std::fs::write(&file, text.rsplit_once("{\"export\":\"end\"").unwrap().0).unwrap();
    let cut = import(&[]);
    assert!(stderr(&cut).contains("the export is not whole"), "{}", stderr(&cut));
    assert_eq!(listed(&there).await, (set(&[]), set(&[])), "nothing was sent");
}
