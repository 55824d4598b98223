//! The demo: a story that real producers play through the public API, and every promise of it, as a viewer finds it there.

use super::cli::{DEADLINE, Running, proscenium, run, stderr, stdout};
use crate::harness::repository;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LEAD: &str = "demo-1-release";

/// The runs of the first telling, in the order in which it needs them.
const RUNS: &[&str] = &[LEAD, "demo-1-research", "demo-1-draft", "demo-1-benchmark", "demo-1-links", "demo-1-publish"];

const AUDIENCES: &[&str] = &["user", "dashboard", "internal"];

/// What a producer of the story sends and nobody may ever read.
const SECRET: &str = "n0tArealKeyOnlyForTheDemo4p2x";

/// A demo that is told once, as fast as it can be.
struct Demo {
    running: Running,
    client: reqwest::Client,
    /// Where it keeps what it has, dropped after it.
    _directory: TempDir,
}

impl Demo {
    fn start(further: &[&str]) -> Self {
        Self::start_at("0", further)
    }

    fn start_at(speed: &str, further: &[&str]) -> Self {
        let mut arguments = vec!["demo", "--listen", "127.0.0.1:0", "--speed", speed, "--once"];
        arguments.extend(further);
        let directory = TempDir::new().unwrap();
        let running = Running::start_logging(proscenium(&arguments).env("TMPDIR", directory.path()), Stdio::null());
        Self { running, client: reqwest::Client::new(), _directory: directory }
    }

    async fn raw(&self, path: &str) -> reqwest::Response {
        self.client.get(format!("{}{path}", self.running.url)).send().await.unwrap()
    }

    async fn get(&self, path: &str) -> Value {
        let answer = self.raw(path).await;
        if answer.status() == 404 { Value::Null } else { answer.json().await.unwrap() }
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let answer = self.client.post(format!("{}{path}", self.running.url)).json(body).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    /// Asks for a control of a run, which is taken.
    async fn control(&self, run: &str, body: Value) {
        let (status, answer) = self.post(&format!("/v1/runs/{run}/controls"), &body).await;
        assert_eq!(status, 202, "{body}: {answer}");
    }

    /// What `look` finds, as soon as it finds something.
    async fn until<T>(&self, what: &str, path: &str, look: impl Fn(&Value) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            let shown = self.get(path).await;
            if let Some(found) = look(&shown) {
                return found;
            }
            assert!(begun.elapsed() < DEADLINE, "{what} did not come: {shown}");
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    async fn status(&self, run: &str, wanted: &str) {
        self.until(&format!("{run} {wanted}"), &format!("/v1/runs/{run}"), |run| (run["status"] == wanted).then_some(())).await;
    }

    /// Waits until the session asks this.
    async fn asks(&self, action: &str) -> Value {
        let look = |session: &Value| {
            let actions = session["pendingActions"].as_array()?;
            actions.iter().find(|asked| asked["activityId"] == action).cloned()
        };
        self.until(action, "/v1/sessions/demo-1", look).await
    }

    async fn activities(&self, run: &str, audience: &str) -> Vec<Value> {
        let mut shown = self.get(&format!("/v1/runs/{run}/activities?audience={audience}")).await;
        serde_json::from_value(shown["activities"].take()).unwrap()
    }

    /// The content of an activity, to this audience; null where it has none.
    async fn content(&self, run: &str, audience: &str, kind: &str, id: &str) -> Value {
        let all = self.activities(run, audience).await;
        all.iter().find(|of| of["activityType"] == kind && of["activityId"] == id).map_or(Value::Null, |of| of["content"].clone())
    }

    /// All envelopes of a run as an audience may see them.
    async fn events(&self, run: &str, audience: &str) -> Vec<Value> {
        let text = self.raw(&format!("/v1/runs/{run}/export?audience={audience}")).await.text().await.unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// What the linter finds worse than worth knowing, by rule; errors are none, or the test fails.
    fn checked(&self, of: &str) -> Vec<String> {
        let output = run(&mut proscenium(&["check", of, "--url", &self.running.url, "--format", "json"]));
        let report: Value = serde_json::from_str(&stdout(&output)).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
        assert_eq!((&report["counts"]["error"], output.status.code()), (&json!(0), Some(0)), "{of}: {report}");
        let findings = report["findings"].as_array().unwrap().iter();
        findings.filter(|found| found["severity"] != "info").map(|found| found["rule"].as_str().unwrap().to_owned()).collect()
    }

    /// The story up to its end, unattended.
    async fn told() -> Self {
        let demo = Self::start(&["--unattended"]);
        demo.status(LEAD, "completed").await;
        demo
    }
}

fn texts(list: &Value, member: &str) -> Vec<String> {
    list.as_array().unwrap().iter().map(|item| item[member].to_string()).collect()
}

#[tokio::test]
async fn every_run_of_the_story_keeps_what_the_seed_demands() {
    let demo = Demo::told().await;
    for of in RUNS {
        // Whoever dies leaves something open; nobody else does.
        let meant: &[&str] = if *of == "demo-1-benchmark" { &["tool-never-ended", "part-never-ended"] } else { &[] };
        assert_eq!(demo.checked(of), meant, "{of}");
        let expected = if *of == "demo-1-benchmark" { "failed" } else { "completed" };
        assert_eq!(demo.get(&format!("/v1/runs/{of}")).await["status"], expected, "{of}");
    }
}

#[tokio::test]
async fn the_team_is_told_in_facts_to_every_audience() {
    let demo = Demo::told().await;
    for audience in AUDIENCES {
        let shown = demo.activities(LEAD, audience).await;
        let mut surfaces: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
        for activity in &shown {
            let of = (activity["activityId"].as_str().unwrap(), activity["content"]["status"].as_str().unwrap_or_default());
            surfaces.entry(activity["surface"].as_str().unwrap()).or_default().push(of);
        }
        let expect = |surface: &str, expected: &[(&str, &str)]| assert_eq!(surfaces[surface], expected, "{audience} {surface}");
        expect(
            "work_board",
            &[("research", "done"), ("draft", "done"), ("benchmark", "failed"), ("review", "done"), ("publish", "done")],
        );
        let mut roster = surfaces["team_roster"].clone();
        roster.sort_unstable();
        let cast = [
            ("editor", "idle"),
            ("link-watch", "sleeping"),
            ("profiler", "failed"),
            ("publisher", "completed"),
            ("release-team", ""),
            ("researcher", "completed"),
            ("translator", "waiting"),
            ("writer", "idle"),
        ];
        assert_eq!(roster, cast, "{audience}");
        expect("handoff_lane", &[("research-to-draft", "accepted")]);
        expect("review_lane", &[("review-of-version-2", "changes_requested"), ("review-of-version-3", "passed")]);
        expect("background_teammate", &[("link-check", "sleeping")]);
        expect("remote_teammate", &[("translate", "auth_required")]);
        expect("artifact_workspace", &[("release-notes", "exported")]);
        expect("hitl", &[("headline", "resolved"), ("publish-page", "resolved")]);
        assert_eq!(surfaces["teammate_transcript"].len(), 2, "{audience}: the editor speaks twice");
        assert_eq!(surfaces["worker_notifications"].len(), 4, "{audience}");
        assert_eq!(surfaces["team_policy"].len(), 6, "{audience}: the coordinator's own, and one a teammate");
        assert_eq!(surfaces.contains_key("diagnostics"), *audience == "internal");

        let of = async |kind: &str, id: &str| demo.content(LEAD, audience, kind, id).await;
        assert_eq!(of("team", "release-team").await["topology"], "coordinator_team");
        assert_eq!(of("agent", "researcher").await["topology"], "parallel_workers");
        assert_eq!(of("task", "review").await["dependencies"], json!(["draft"]));
        let handoff = of("handoff", "research-to-draft").await;
        for member in ["from", "to", "reason", "resumeTarget", "memoryBoundary", "contextBoundary", "acceptedAt"] {
            assert!(handoff[member].is_string(), "{audience}: {member} of {handoff}");
        }
        let review = of("review", "review-of-version-2").await;
        assert_eq!(review["requestedFixes"].as_array().unwrap().len(), 2);
        for evidence in review["evidenceRefs"].as_array().unwrap() {
            assert_eq!(of("evidence", evidence.as_str().unwrap()).await["status"], "verified", "{audience}: {evidence}");
        }
        assert_eq!(of("evidence", "commit-8f1c2").await["kind"], "citation");
        let job = of("task", "link-check").await;
        assert_eq!((&job["schedule"]["cron"], &job["lastRunRef"]), (&json!("0 */6 * * *"), &json!("demo-1-links")), "{audience}");
        assert!(job["wakeReason"].as_str().unwrap().contains("schedule"), "{audience}");
        let remote = of("task", "translate").await;
        assert!(remote["capabilityRef"].as_str().unwrap().ends_with("agent-card.json"), "{audience}");
        assert_eq!(remote["authNeeds"]["scheme"], "oauth2", "{audience}");
        assert_eq!(of("context", "budget").await["budget"], json!({ "usedTokens": 22_400, "maxTokens": 200_000 }), "{audience}");
        assert_eq!(of("context", "team-memory").await["scope"], "team", "{audience}");
        let compaction = of("compaction", "after-review").await;
        assert_eq!((&compaction["preTokens"], &compaction["postTokens"]), (&json!(184_000), &json!(22_400)), "{audience}");
        let page = of("artifact", "release-notes").await;
        assert_eq!(texts(&page["versions"], "version"), ["1", "2", "3"], "{audience}");
        assert!(page["versions"].as_array().unwrap().iter().all(|version| version["preview"].is_string()), "{audience}: {page}");
        assert_eq!(page["diffRef"], "artifacts/release-notes/2..3", "{audience}");
    }
}

#[tokio::test]
async fn every_type_of_activity_that_a_run_can_have_is_there_to_be_looked_at() {
    let demo = Demo::told().await;
    let mut seen = BTreeSet::new();
    for of in RUNS {
        seen.extend(demo.activities(of, "internal").await.iter().map(|of| of["activityType"].as_str().unwrap().to_owned()));
    }
    // The source's own one; queues and sessions are in a session's own log.
    assert!(seen.remove("page-preview"), "{seen:?}");
    let schemas = std::fs::read_dir(repository("schema/activities")).unwrap();
    let types = schemas.map(|file| file.unwrap().file_name().to_str().unwrap().trim_end_matches(".schema.json").to_owned());
    let types: BTreeSet<String> = types.filter(|kind| !["custom", "queue", "session"].contains(&kind.as_str())).collect();
    assert_eq!(seen, types);
    let state = demo.content(LEAD, "user", "state", "state").await;
    assert_eq!(state["state"]["checklist"], json!({ "researched": true, "reviewed": true, "public": true }));
    assert_eq!(demo.get("/v1/sessions/demo-1").await["title"], "Release notes of Aurora 4.2");
}

#[tokio::test]
async fn who_works_for_whom_survives_in_sessions_and_states_on_the_way_in_events() {
    let demo = Demo::told().await;
    let mut children: Vec<String> = serde_json::from_value(demo.get("/v1/sessions/demo-1").await["children"].clone()).unwrap();
    children.sort_unstable();
    let expected =
        ["demo-1-editor", "demo-1-link-watch", "demo-1-profiler", "demo-1-publisher", "demo-1-researcher", "demo-1-writer"];
    assert_eq!(children, expected);
    let agent = demo.content(LEAD, "user", "agent", "writer").await;
    assert_eq!((&agent["sessionId"], &agent["parentSessionId"]), (&json!("demo-1-writer"), &json!("demo-1")));
    assert_eq!(agent["parentThreadId"], "demo-1-main");
    let own = demo.content("demo-1-draft", "user", "run", "demo-1-draft").await;
    assert_eq!(own["parentRunId"], LEAD);
    let events = demo.events(LEAD, "user").await;
    for (agent, status) in [("writer", "plan_ready"), ("publisher", "needs_input")] {
        let is_it = |event: &&Value| event["type"] == "agent.changed" && event["agentId"] == agent;
        let mut stood = events.iter().filter(is_it).map(|event| event["payload"]["status"].as_str().unwrap());
        assert!(stood.any(|stood| stood == status), "{agent} was never {status}");
    }
    assert!(events.iter().any(|event| event["payload"]["blocker"] == "the viewer's approval"));
}

#[tokio::test]
async fn tools_are_long_fail_put_out_much_and_keep_no_secret() {
    let demo = Demo::told().await;
    for audience in AUDIENCES {
        let call = async |run: &str, id: &str| demo.content(run, audience, "tool-call-progress", id).await;
        let long = call("demo-1-research", "read-commits").await;
        assert_eq!(
            (&long["state"], &long["progress"], &long["loaded"], &long["total"]),
            (&json!("output-available"), &json!(1.0), &json!(340), &json!(340))
        );
        let failed = call("demo-1-research", "issue-first-try").await;
        assert_eq!((&failed["state"], &failed["error"]["code"]), (&json!("output-error"), &json!("timeout")), "{audience}");
        assert_eq!(call("demo-1-research", "issue-second-try").await["untrusted"], true, "{audience}");

        let log = call("demo-1-research", "test-log").await;
        assert!(log["output"].as_str().unwrap().len() < 2000, "{audience}: a preview");
        let body = demo.raw(&format!("{}?audience={audience}", log["output_ref"].as_str().unwrap())).await.bytes().await.unwrap();
        assert_eq!(body.len(), 5_000_000, "{audience}");

        let deploy = call("demo-1-publish", "publish-page").await;
        assert_eq!(deploy["output"]["apiKey"], "[redacted]", "{audience}");
        assert_eq!(
            deploy["output_text"][0], "$ deploy releases/4.2\nusing DEPLOY_KEY=[redacted]\nuploaded 14 files\n",
            "{audience}"
        );
        let preview = demo.content("demo-1-draft", audience, "page-preview", "render-outline").await;
        assert_eq!(preview["sections"], json!(["Why upgrade", "What is new", "What breaks"]), "{audience}");
    }
    for of in RUNS {
        let export = demo.raw(&format!("/v1/runs/{of}/export?audience=internal")).await.text().await.unwrap();
        assert!(!export.contains(SECRET) && !export.contains(&SECRET[7..]), "{of}");
        assert!(!serde_json::to_string(&demo.activities(of, "internal").await).unwrap().contains(&SECRET[7..]), "{of}");
    }
    let operators = demo.events("demo-1-research", "dashboard").await;
    let batches = |events: &[Value]| {
        events.iter().filter(|e| e["payload"]["message"].as_str().is_some_and(|m| m.starts_with("batch "))).count()
    };
    assert_eq!((batches(&operators), batches(&demo.events("demo-1-research", "user").await)), (17, 0));
}

#[tokio::test]
async fn what_is_thought_planned_and_said_is_streamed_in_every_script() {
    let demo = Demo::told().await;
    let events = demo.events(LEAD, "user").await;
    for (chunk, whole) in [("reasoning.delta", "reasoning.summary"), ("plan.delta", "plan.final"), ("text.delta", "text.final")] {
        let of = |class: &str| events.iter().filter(|event| event["type"] == class).count();
        assert!(of(chunk) > 5 && of(whole) > 0, "{chunk} {whole}");
    }
    let said = demo.activities("demo-1-research", "user").await;
    let text =
        said.iter().find(|of| of["activityType"] == "message").unwrap()["content"]["parts"][0]["text"][0].as_str().unwrap();
    assert!(text.contains("日本語") && text.contains("العربية") && text.contains("naïve") && text.contains('🚧'), "{text}");
}

#[tokio::test]
async fn a_runtime_that_dies_is_settled_by_the_server_and_said_so() {
    let demo = Demo::told().await;
    let dead = "demo-1-benchmark";
    for audience in AUDIENCES {
        let stands = demo.content(dead, audience, "run", dead).await;
        assert_eq!((&stands["status"], &stands["synthetic"]), (&json!("failed"), &json!(true)), "{audience}");
        let call = demo.content(dead, audience, "tool-call-progress", "cold-starts").await;
        assert_eq!((&call["state"], &call["synthetic"], &call["progress"]), (&json!("cancelled"), &json!(true), &json!(0.4)));
        let shown = demo.activities(dead, audience).await;
        let message = shown.iter().find(|of| of["activityType"] == "message").unwrap();
        assert_eq!(message["content"]["status"], "interrupted", "{audience}");
        assert_eq!(demo.content(LEAD, audience, "worker-notification", "profiler-benchmark").await["status"], "failed");
    }
    let events = demo.events(dead, "internal").await;
    let end = events.last().unwrap();
    assert_eq!((&end["type"], &end["owner"]), (&json!("run.failed"), &json!("diagnostics")));
}

#[tokio::test]
async fn every_source_is_heard_beside_the_story() {
    let demo = Demo::told().await;
    for name in ["tool-progress", "ethos-progress", "turn-runner-tools", "ag-ui-tools"] {
        let completed = |shown: &Value| {
            let runs = shown["runs"].as_array()?;
            runs.iter()
                .any(|run| run["runId"].as_str().unwrap().ends_with(&format!("-{name}")) && run["status"] == "completed")
                .then_some(())
        };
        demo.until(name, "/v1/runs?limit=100", completed).await;
    }
}

/// The story up to the approval, without anybody who decides; the headline is answered as a viewer would.
async fn up_to_the_approval() -> Demo {
    let demo = Demo::start(&[]);
    let asked = demo.asks("headline").await;
    assert_eq!(
        (&asked["content"]["kind"], &asked["content"]["schema"]["required"]),
        (&json!("structured_input"), &json!(["headline", "readers"]))
    );
    // Everybody else is done with what they had to do, and it still waits: nobody decides for the viewer.
    demo.status("demo-1-links", "completed").await;
    demo.status("demo-1-benchmark", "failed").await;
    let stands = demo.get(&format!("/v1/runs/{LEAD}")).await;
    assert_eq!(stands["status"], "waiting");
    assert_eq!(demo.get(&format!("/v1/runs/{LEAD}/controls")).await["controls"], json!([]));
    let value = json!({ "headline": "Grüße aus dem Test", "readers": "developers", "breaking": true });
    demo.control(LEAD, json!({ "control": "answer", "actionId": "headline", "value": value })).await;
    let asked = demo.asks("publish-page").await;
    assert_eq!((&asked["content"]["kind"], &asked["content"]["agentId"]), (&json!("delegated_permission"), &json!("publisher")));
    for member in ["policyScope", "safeInput", "parentRouting", "risk"] {
        assert!(!asked["content"][member].is_null(), "{member}");
    }
    assert_eq!(demo.get(&format!("/v1/runs/{LEAD}")).await["status"], "waiting");
    assert_eq!(demo.get("/v1/runs/demo-1-publish").await, Value::Null, "nothing is published before somebody allows it");
    let page = demo.content(LEAD, "user", "artifact", "release-notes").await;
    assert!(page["preview"].as_str().unwrap().contains("Grüße aus dem Test"), "what was answered is what is written: {page}");
    demo
}

/// Every control of the run was taken by its owner.
async fn all_acked(demo: &Demo, run: &str, controls: &[&str]) {
    let look = |listed: &Value| {
        let listed = listed["controls"].as_array()?;
        let names: Vec<_> = listed
            .iter()
            .filter(|control| control["status"] == "acked")
            .map(|control| control["control"].as_str().unwrap())
            .collect();
        (names == controls).then_some(())
    };
    demo.until("the acknowledgement", &format!("/v1/runs/{run}/controls"), look).await;
}

#[tokio::test]
async fn who_approves_is_heard_by_the_teammate_that_asked_and_the_page_goes_out() {
    let demo = up_to_the_approval().await;
    demo.control(LEAD, json!({ "control": "approve", "actionId": "publish-page" })).await;
    demo.status(LEAD, "completed").await;
    let action = demo.content(LEAD, "user", "action", "publish-page").await;
    assert_eq!((&action["status"], &action["outcome"]), (&json!("resolved"), &json!("approved")));
    assert_eq!(demo.get("/v1/runs/demo-1-publish").await["status"], "completed");
    assert_eq!(demo.content(LEAD, "user", "artifact", "release-notes").await["status"], "exported");
    assert_eq!(demo.content(LEAD, "user", "task", "publish").await["status"], "done");
    demo.control(LEAD, json!({ "control": "export", "artifactId": "release-notes" })).await;
    demo.control(LEAD, json!({ "control": "assign", "taskId": "draft", "value": "you" })).await;
    all_acked(&demo, LEAD, &["answer", "approve", "export", "assign"]).await;
    let exported = |shown: &Value| shown.to_string().contains("exports/release-notes.pdf").then_some(());
    demo.until("the export", &format!("/v1/runs/{LEAD}/activities"), exported).await;
    assert_eq!(demo.content(LEAD, "user", "task", "draft").await["assignee"], "you");
    // What cannot be is refused, and says so.
    demo.control(LEAD, json!({ "control": "rollback", "artifactId": "release-notes", "value": { "version": 77 } })).await;
    let refused = |listed: &Value| (listed["controls"][4]["status"] == "nacked").then(|| listed["controls"][4]["reason"].clone());
    let reason = demo.until("the refusal", &format!("/v1/runs/{LEAD}/controls"), refused).await;
    assert_eq!(reason, "the artifact has no such version");
    assert_eq!(demo.checked(LEAD), Vec::<String>::new());
}

#[tokio::test]
async fn each_control_that_the_page_offers_is_taken_and_told_by_facts() {
    let demo = up_to_the_approval().await;
    let taken = async |run: &str, body: Value| {
        let (status, asked) = demo.post(&format!("/v1/runs/{run}/controls"), &body).await;
        assert_eq!(status, 202, "{body}: {asked}");
        let id = asked["controlId"].as_str().unwrap().to_owned();
        let look = |listed: &Value| {
            let all = listed["controls"].as_array()?;
            let control = all.iter().find(|control| control["controlId"] == id)?;
            assert_ne!(control["status"], "nacked", "{body}: {control}");
            (control["status"] == "acked").then_some(())
        };
        demo.until(&body.to_string(), &format!("/v1/runs/{run}/controls"), look).await;
        id
    };
    let shows = async |run: &str, kind: &str, id: &str, what: &str, wanted: Value| {
        let path = format!("/v1/runs/{run}/activities");
        let look = |shown: &Value| {
            let all = shown["activities"].as_array()?;
            let of = all.iter().find(|of| of["activityType"] == kind && of["activityId"] == id)?;
            (of["content"][what] == wanted).then_some(())
        };
        demo.until(&format!("{kind} {id}: {what} {wanted}"), &path, look).await;
    };
    // The page's own controls, as its surfaces send them.
    let review = taken(
        LEAD,
        json!({ "control": "request_review", "artifactId": "release-notes", "value": { "target": "release-notes" } }),
    )
    .await;
    shows(LEAD, "review", &format!("review-{review}"), "verdict", json!("passed")).await;
    let again = json!({ "reviewId": "review-of-version-2", "target": { "artifactId": "release-notes", "version": 2 }, "reviewer": "editor" });
    taken(LEAD, json!({ "control": "request_review", "value": again })).await;
    taken(LEAD, json!({ "control": "rollback", "artifactId": "release-notes", "value": { "version": 2 } })).await;
    shows(LEAD, "artifact", "release-notes", "version", json!(4)).await;
    taken(LEAD, json!({ "control": "edit", "artifactId": "release-notes", "value": { "text": "# Mine" } })).await;
    shows(LEAD, "artifact", "release-notes", "preview", json!("# Mine")).await;
    taken(LEAD, json!({ "control": "retry", "taskId": "link-check" })).await;
    shows(LEAD, "task", "link-check", "status", json!("sleeping")).await;
    taken(LEAD, json!({ "control": "close", "agentId": "researcher" })).await;
    shows(LEAD, "agent", "researcher", "status", json!("closed")).await;
    taken(LEAD, json!({ "control": "stop", "taskId": "translate" })).await;
    shows(LEAD, "task", "translate", "status", json!("canceled")).await;
    taken(LEAD, json!({ "control": "stop", "agentId": "translator" })).await;
    let task =
        taken(LEAD, json!({ "control": "delegate", "value": { "text": "Count the links", "assignee": "researcher" } })).await;
    shows(LEAD, "task", &format!("delegated-{task}"), "status", json!("done")).await;
    taken(LEAD, json!({ "control": "wait", "agentId": "writer" })).await;
    taken(LEAD, json!({ "control": "export", "evidenceId": "tests-4.2" })).await;
    let call = taken("demo-1-research", json!({ "control": "retry", "toolCallId": "issue-first-try" })).await;
    shows("demo-1-research", "tool-call-progress", &format!("issue-first-try-{call}"), "tool_name", json!("fetch_issue")).await;
    // The run whose process died begins again.
    taken("demo-1-benchmark", json!({ "control": "retry" })).await;
    demo.status("demo-1-benchmark", "completed").await;
    assert_eq!(demo.get("/v1/runs/demo-1-benchmark").await["attempt"], 2);
    // An edit is an answer to what is asked.
    taken(LEAD, json!({ "control": "edit", "actionId": "publish-page", "value": { "page": "releases/4.2" } })).await;
    demo.status(LEAD, "completed").await;
    taken(LEAD, json!({ "control": "retry" })).await;
    demo.status(LEAD, "completed").await;
}

#[tokio::test]
async fn who_rejects_gets_the_other_end_of_the_story() {
    let demo = up_to_the_approval().await;
    demo.control(LEAD, json!({ "control": "reject", "actionId": "publish-page", "value": "not on a Friday" })).await;
    demo.status(LEAD, "completed").await;
    let action = demo.content(LEAD, "user", "action", "publish-page").await;
    assert_eq!((&action["outcome"], &action["value"]), (&json!("rejected"), &json!("not on a Friday")));
    assert_eq!(demo.get("/v1/runs/demo-1-publish").await, Value::Null);
    assert_eq!(demo.content(LEAD, "user", "artifact", "release-notes").await["status"], "draft");
    let task = demo.content(LEAD, "user", "task", "publish").await;
    assert_eq!((&task["status"], &task["blocker"]), (&json!("blocked"), &json!("the viewer did not approve")));
    all_acked(&demo, LEAD, &["answer", "reject"]).await;
    assert_eq!(demo.checked(LEAD), Vec::<String>::new());
}

#[tokio::test]
async fn send_queue_steer_and_interrupt_are_four_things() {
    let demo = Demo::start(&[]);
    demo.asks("headline").await;
    // A word into the turn that goes on is in that turn.
    demo.control(LEAD, json!({ "control": "steer", "value": "keep it short" })).await;
    let heard = |shown: &Value| shown["activities"].to_string().contains("keep “keep it short” in mind").then_some(());
    demo.until("the word", &format!("/v1/runs/{LEAD}/activities"), heard).await;
    // A new turn is a run of its own, at once.
    let (status, sent) = demo.post("/v1/sessions/demo-1/controls", &json!({ "control": "send", "value": "who is it?" })).await;
    assert_eq!(status, 202, "{sent}");
    let turn = format!("demo-turn-{}", sent["controlId"].as_str().unwrap());
    demo.status(&turn, "completed").await;
    let said = demo.activities(&turn, "user").await;
    let roles: Vec<_> =
        said.iter().filter(|of| of["activityType"] == "message").map(|of| of["content"]["role"].clone()).collect();
    assert_eq!(roles, ["user", "assistant"]);
    assert_eq!(demo.get(&format!("/v1/runs/{LEAD}")).await["status"], "waiting", "the turn that went on still does");
    // One that is queued waits for the turn that goes on.
    let (_, queued) = demo.post("/v1/sessions/demo-1/controls", &json!({ "control": "queue", "value": "and then?" })).await;
    let later = format!("demo-turn-{}", queued["controlId"].as_str().unwrap());
    let waits = |session: &Value| {
        (session["queue"][0]["content"]["queuedTurnCount"] == 1).then(|| session["queue"][0]["content"].clone())
    };
    let queue = demo.until("the queue", "/v1/sessions/demo-1", waits).await;
    assert_eq!((&queue["items"][0]["text"], queue["queueReason"].is_string()), (&json!("and then?"), true));
    assert_eq!(demo.get(&format!("/v1/runs/{later}")).await, Value::Null);
    // Who interrupts ends the turn, by the runtime's own fact, and the queue moves.
    demo.control(LEAD, json!({ "control": "interrupt" })).await;
    demo.status(LEAD, "interrupted").await;
    assert_eq!(demo.content(LEAD, "user", "action", "headline").await["outcome"], "cancelled");
    let events = demo.events(LEAD, "user").await;
    let end = events.iter().rfind(|event| event["type"] == "run.finished").unwrap();
    assert_eq!((&end["owner"], &end["phase"]), (&json!("runtime"), &json!("interrupted")));
    demo.status(&later, "completed").await;
    let moved = |session: &Value| (session["queue"][0]["content"]["queuedTurnCount"] == 0).then_some(());
    demo.until("the empty queue", "/v1/sessions/demo-1", moved).await;
    all_acked(&demo, LEAD, &["steer", "interrupt"]).await;
    for of in [LEAD, &turn, &later] {
        assert_eq!(demo.checked(of), Vec::<String>::new(), "{of}");
    }
}

#[tokio::test]
async fn the_server_gives_up_who_is_silent_and_never_who_waits_for_a_decision() {
    // At any speed but 0 nobody asks the server to settle anything: it does when its patience is over.
    let demo = Demo::start_at("1000", &[]);
    demo.asks("headline").await;
    demo.status("demo-1-benchmark", "failed").await;
    let events = demo.events("demo-1-benchmark", "user").await;
    let told: Vec<_> = events.iter().filter(|event| event["owner"] == "diagnostics").collect();
    assert_eq!((&told[0]["type"], &told[0]["payload"]["stale"]), (&json!("run.status"), &json!(true)));
    assert_eq!((&told[1]["type"], &told[1]["payload"]["error"]["code"]), (&json!("run.failed"), &json!("not_heard_of")));
    assert_eq!(told.len(), 2);
    // The coordinator waits for as long, and what waits does not age.
    assert_eq!(demo.asks("headline").await["content"]["status"], "pending");
    let run = demo.content(LEAD, "user", "run", LEAD).await;
    assert_eq!((&run["status"], &run["stale"]), (&json!("waiting"), &Value::Null));
    assert_eq!(demo.get(&format!("/v1/runs/{LEAD}/controls")).await["controls"], json!([]));
}

#[tokio::test]
async fn who_is_stopped_ends_alone_and_who_leads_takes_the_team_along() {
    // Slow enough that somebody is at work when the control comes.
    let demo = Demo::start_at("3", &[]);
    let is_at_it = |shown: &Value| shown.to_string().contains("of 340 commits").then_some(());
    demo.until("a working tool", "/v1/runs/demo-1-research/activities", is_at_it).await;
    demo.control(LEAD, json!({ "control": "stop", "agentId": "researcher" })).await;
    demo.status("demo-1-research", "interrupted").await;
    let killed = |shown: &Value| shown.to_string().contains("Stopped by the viewer before it was done.").then_some(());
    demo.until("the report of it", &format!("/v1/runs/{LEAD}/activities"), killed).await;
    assert_eq!(demo.content(LEAD, "user", "agent", "researcher").await["status"], "killed");
    // The coordinator goes on with whom it has.
    demo.asks("headline").await;
    assert_eq!(demo.get("/v1/runs/demo-1-draft").await["status"], "completed");
    demo.control(LEAD, json!({ "control": "interrupt" })).await;
    demo.status(LEAD, "interrupted").await;
    for of in RUNS {
        let run = demo.get(&format!("/v1/runs/{of}")).await;
        let is_over = ["completed", "failed", "interrupted"].iter().any(|over| run["status"] == *over);
        assert!(run.is_null() || is_over, "{of} goes on without anybody who leads it: {run}");
        if !run.is_null() {
            demo.checked(of);
        }
    }
    assert_eq!(demo.content(LEAD, "user", "team", "release-team").await["teamPhase"], "done");
    all_acked(&demo, LEAD, &["stop", "interrupt"]).await;
}

#[test]
fn a_speed_is_a_factor() {
    for wrong in ["-1", "fast", "0.01", "NaN"] {
        let refused = run(&mut proscenium(&["demo", &format!("--speed={wrong}")]));
        assert_eq!(refused.status.code(), Some(2), "{wrong}");
        assert!(stderr(&refused).contains("--speed"), "{}", stderr(&refused));
    }
}
