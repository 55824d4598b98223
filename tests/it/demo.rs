//! The demo: real producers play a story through the public API, and a viewer sees every feature of the server in it.

use super::cli::{DEADLINE, Running, proscenium, run, stderr, stdout};
use crate::harness::repository;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LEAD: &str = "demo-1-release";

/// The runs of the story's first round, in the order in which it starts them.
const RUNS: &[&str] = &[LEAD, "demo-1-research", "demo-1-draft", "demo-1-benchmark", "demo-1-links", "demo-1-publish"];

const AUDIENCES: &[&str] = &["user", "dashboard", "internal"];

/// A secret that one producer sends and no reader may see.
const SECRET: &str = "n0tArealKeyOnlyForTheDemo4p2x";

/// A demo that plays the story once, as fast as possible.
struct Demo {
    running: Running,
    client: reqwest::Client,
    /// The demo's data directory; dropped after the process.
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

    /// Submits a control to a run, and asserts its acceptance.
    async fn control(&self, run: &str, body: Value) {
        let (status, answer) = self.post(&format!("/v1/runs/{run}/controls"), &body).await;
        assert_eq!(status, 202, "{body}: {answer}");
    }

    /// Polls until `look` returns a value.
    async fn poll_until<T>(&self, what: &str, path: &str, look: impl Fn(&Value) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            let shown = self.get(path).await;
            if let Some(found) = look(&shown) {
                return found;
            }
            assert!(begun.elapsed() < DEADLINE, "{what}: not received: {shown}");
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    async fn wait_for_status(&self, run: &str, wanted: &str) {
        self.poll_until(&format!("{run} {wanted}"), &format!("/v1/runs/{run}"), |run| (run["status"] == wanted).then_some(()))
            .await;
    }

    /// Waits until the session has this pending action.
    async fn wait_for_action(&self, action: &str) -> Value {
        let look = |session: &Value| {
            let actions = session["pendingActions"].as_array()?;
            actions.iter().find(|asked| asked["activityId"] == action).cloned()
        };
        self.poll_until(action, "/v1/sessions/demo-1", look).await
    }

    async fn read_activities(&self, run: &str, audience: &str) -> Vec<Value> {
        let mut shown = self.get(&format!("/v1/runs/{run}/activities?audience={audience}")).await;
        serde_json::from_value(shown["activities"].take()).unwrap()
    }

    /// Returns the content of an activity for this audience; null if it does not exist.
    async fn read_content(&self, run: &str, audience: &str, kind: &str, id: &str) -> Value {
        let all = self.read_activities(run, audience).await;
        all.iter().find(|of| of["activityType"] == kind && of["activityId"] == id).map_or(Value::Null, |of| of["content"].clone())
    }

    /// Reads all envelopes of a run that an audience may see.
    async fn read_events(&self, run: &str, audience: &str) -> Vec<Value> {
        let text = self.raw(&format!("/v1/runs/{run}/export?audience={audience}")).await.text().await.unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Runs the linter, asserts that it finds no errors, and returns the rules of its warnings.
    fn check_run(&self, of: &str) -> Vec<String> {
        let output = run(&mut proscenium(&["check", of, "--url", &self.running.url, "--format", "json"]));
        let report: Value = serde_json::from_str(&stdout(&output)).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
        assert_eq!((&report["counts"]["error"], output.status.code()), (&json!(0), Some(0)), "{of}: {report}");
        let findings = report["findings"].as_array().unwrap().iter();
        findings.filter(|found| found["severity"] != "info").map(|found| found["rule"].as_str().unwrap().to_owned()).collect()
    }

    /// Plays the story to its end, unattended.
    async fn play_to_the_end() -> Self {
        let demo = Self::start(&["--unattended"]);
        demo.wait_for_status(LEAD, "completed").await;
        demo
    }
}

fn texts(list: &Value, member: &str) -> Vec<String> {
    list.as_array().unwrap().iter().map(|item| item[member].to_string()).collect()
}

/// One story serves all promises about it: a debug build plays it for ten seconds of processor time.
#[tokio::test]
async fn the_story_shows_every_feature_of_the_server() {
    let demo = Demo::play_to_the_end().await;
    every_run_of_the_story_passes_the_check(&demo).await;
    every_audience_sees_the_team_its_board_and_its_hand_offs(&demo).await;
    every_activity_type_of_a_run_appears_in_the_story(&demo).await;
    delegation_appears_in_sessions_and_state_changes_appear_in_events(&demo).await;
    tools_run_long_fail_produce_large_output_and_leak_no_secret(&demo).await;
    reasoning_plans_and_messages_are_streamed_in_every_script(&demo).await;
    the_server_settles_the_run_of_a_runtime_that_dies(&demo).await;
    recordings_of_every_source_play_beside_the_story(&demo).await;
    each_version_of_an_artifact_names_its_author_and_its_body_is_in_its_event(&demo).await;
}

async fn every_run_of_the_story_passes_the_check(demo: &Demo) {
    for of in RUNS {
        // Only the run whose process dies leaves something open.
        let meant: &[&str] = if *of == "demo-1-benchmark" { &["tool-never-ended", "part-never-ended"] } else { &[] };
        assert_eq!(demo.check_run(of), meant, "{of}");
        let expected = if *of == "demo-1-benchmark" { "failed" } else { "completed" };
        assert_eq!(demo.get(&format!("/v1/runs/{of}")).await["status"], expected, "{of}");
    }
}

async fn every_audience_sees_the_team_its_board_and_its_hand_offs(demo: &Demo) {
    for audience in AUDIENCES {
        let shown = demo.read_activities(LEAD, audience).await;
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
        let mut artifacts = surfaces["artifact_workspace"].clone();
        artifacts.sort_unstable();
        let files = ["links.html", "migrate.py", "release-notes", "start-time.png", "start-times.csv", "tests.json"];
        let expected = files.map(|id| (id, if id == "release-notes" { "exported" } else { "version_created" }));
        assert_eq!(artifacts, expected, "{audience}");
        expect("hitl", &[("headline", "resolved"), ("publish-page", "resolved")]);
        assert_eq!(surfaces["teammate_transcript"].len(), 2, "{audience}: the editor has two messages");
        assert_eq!(surfaces["worker_notifications"].len(), 4, "{audience}");
        assert_eq!(surfaces["team_policy"].len(), 6, "{audience}: the coordinator has one, and so has each teammate");
        assert_eq!(surfaces.contains_key("diagnostics"), *audience == "internal");

        let of = async |kind: &str, id: &str| demo.read_content(LEAD, audience, kind, id).await;
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

async fn every_activity_type_of_a_run_appears_in_the_story(demo: &Demo) {
    let mut seen = BTreeSet::new();
    for of in RUNS {
        seen.extend(demo.read_activities(of, "internal").await.iter().map(|of| of["activityType"].as_str().unwrap().to_owned()));
    }
    // `page-preview` is the source's own type; queues and sessions are in a session's own log. No runtime of the
    // story generates interfaces.
    assert!(seen.remove("page-preview"), "{seen:?}");
    let schemas = std::fs::read_dir(repository("schema/activities")).unwrap();
    let types = schemas.map(|file| file.unwrap().file_name().to_str().unwrap().trim_end_matches(".schema.json").to_owned());
    let types: BTreeSet<String> =
        types.filter(|kind| !["custom", "queue", "session", "a2ui-surface"].contains(&kind.as_str())).collect();
    assert_eq!(seen, types);
    let state = demo.read_content(LEAD, "user", "state", "state").await;
    assert_eq!(state["state"]["checklist"], json!({ "researched": true, "reviewed": true, "public": true }));
    assert_eq!(demo.get("/v1/sessions/demo-1").await["title"], "Release notes of Aurora 4.2");
}

async fn delegation_appears_in_sessions_and_state_changes_appear_in_events(demo: &Demo) {
    let mut children: Vec<String> = serde_json::from_value(demo.get("/v1/sessions/demo-1").await["children"].clone()).unwrap();
    children.sort_unstable();
    let expected =
        ["demo-1-editor", "demo-1-link-watch", "demo-1-profiler", "demo-1-publisher", "demo-1-researcher", "demo-1-writer"];
    assert_eq!(children, expected);
    let agent = demo.read_content(LEAD, "user", "agent", "writer").await;
    assert_eq!((&agent["sessionId"], &agent["parentSessionId"]), (&json!("demo-1-writer"), &json!("demo-1")));
    assert_eq!(agent["parentThreadId"], "demo-1-main");
    let own = demo.read_content("demo-1-draft", "user", "run", "demo-1-draft").await;
    assert_eq!(own["parentRunId"], LEAD);
    let events = demo.read_events(LEAD, "user").await;
    for (agent, status) in [("writer", "plan_ready"), ("publisher", "needs_input")] {
        let is_it = |event: &&Value| event["type"] == "agent.changed" && event["agentId"] == agent;
        let mut statuses = events.iter().filter(is_it).map(|event| event["payload"]["status"].as_str().unwrap());
        assert!(statuses.any(|statuses| statuses == status), "{agent} was never {status}");
    }
    assert!(events.iter().any(|event| event["payload"]["blocker"] == "the viewer's approval"));
}

async fn tools_run_long_fail_produce_large_output_and_leak_no_secret(demo: &Demo) {
    for audience in AUDIENCES {
        let call = async |run: &str, id: &str| demo.read_content(run, audience, "tool-call-progress", id).await;
        let long = call("demo-1-research", "read-commits").await;
        assert_eq!(
            (&long["state"], &long["progress"], &long["loaded"], &long["total"]),
            (&json!("output-available"), &json!(1.0), &json!(340), &json!(340))
        );
        let failed = call("demo-1-research", "issue-first-try").await;
        assert_eq!((&failed["state"], &failed["error"]["code"]), (&json!("output-error"), &json!("timeout")), "{audience}");
        assert_eq!(call("demo-1-research", "issue-second-try").await["untrusted"], true, "{audience}");

        let log = call("demo-1-research", "test-log").await;
        assert!(log["output"].as_str().unwrap().len() < 2000, "{audience}: the output is a preview");
        let body = demo.raw(&format!("{}?audience={audience}", log["output_ref"].as_str().unwrap())).await.bytes().await.unwrap();
        assert_eq!(body.len(), 5_000_000, "{audience}");

        let deploy = call("demo-1-publish", "publish-page").await;
        assert_eq!(deploy["output"]["apiKey"], "[redacted]", "{audience}");
        assert_eq!(
            deploy["output_text"][0], "$ deploy releases/4.2\nusing DEPLOY_KEY=[redacted]\nuploaded 14 files\n",
            "{audience}"
        );
        let preview = demo.read_content("demo-1-draft", audience, "page-preview", "render-outline").await;
        assert_eq!(preview["sections"], json!(["Why upgrade", "What is new", "What breaks"]), "{audience}");
    }
    for of in RUNS {
        let export = demo.raw(&format!("/v1/runs/{of}/export?audience=internal")).await.text().await.unwrap();
        assert!(!export.contains(SECRET) && !export.contains(&SECRET[7..]), "{of}");
        assert!(!serde_json::to_string(&demo.read_activities(of, "internal").await).unwrap().contains(&SECRET[7..]), "{of}");
    }
    let operators = demo.read_events("demo-1-research", "dashboard").await;
    let batches = |events: &[Value]| {
        events.iter().filter(|e| e["payload"]["message"].as_str().is_some_and(|m| m.starts_with("batch "))).count()
    };
    assert_eq!((batches(&operators), batches(&demo.read_events("demo-1-research", "user").await)), (17, 0));
}

async fn reasoning_plans_and_messages_are_streamed_in_every_script(demo: &Demo) {
    let events = demo.read_events(LEAD, "user").await;
    for (chunk, whole) in [("reasoning.delta", "reasoning.summary"), ("plan.delta", "plan.final"), ("text.delta", "text.final")] {
        let of = |class: &str| events.iter().filter(|event| event["type"] == class).count();
        assert!(of(chunk) > 5 && of(whole) > 0, "{chunk} {whole}");
    }
    let activities = demo.read_activities("demo-1-research", "user").await;
    let text =
        activities.iter().find(|of| of["activityType"] == "message").unwrap()["content"]["parts"][0]["text"][0].as_str().unwrap();
    assert!(text.contains("日本語") && text.contains("العربية") && text.contains("naïve") && text.contains('🚧'), "{text}");
}

async fn the_server_settles_the_run_of_a_runtime_that_dies(demo: &Demo) {
    let dead = "demo-1-benchmark";
    for audience in AUDIENCES {
        let run = demo.read_content(dead, audience, "run", dead).await;
        assert_eq!((&run["status"], &run["synthetic"]), (&json!("failed"), &json!(true)), "{audience}");
        let call = demo.read_content(dead, audience, "tool-call-progress", "cold-starts").await;
        assert_eq!((&call["state"], &call["synthetic"], &call["progress"]), (&json!("cancelled"), &json!(true), &json!(0.4)));
        let shown = demo.read_activities(dead, audience).await;
        let message = shown.iter().find(|of| of["activityType"] == "message").unwrap();
        assert_eq!(message["content"]["status"], "interrupted", "{audience}");
        assert_eq!(demo.read_content(LEAD, audience, "worker-notification", "profiler-benchmark").await["status"], "failed");
    }
    let events = demo.read_events(dead, "internal").await;
    let end = events.last().unwrap();
    assert_eq!((&end["type"], &end["owner"]), (&json!("run.failed"), &json!("diagnostics")));
}

async fn recordings_of_every_source_play_beside_the_story(demo: &Demo) {
    let names = [
        "tool-progress",
        "ethos-progress",
        "turn-runner-tools",
        "ag-ui-tools",
        "ai-sdk-tools",
        "responses-search",
        "a2a-artifacts",
    ];
    for name in names {
        let completed = |shown: &Value| {
            let runs = shown["runs"].as_array()?;
            runs.iter()
                .any(|run| run["runId"].as_str().unwrap().ends_with(&format!("-{name}")) && run["status"] == "completed")
                .then_some(())
        };
        demo.poll_until(name, "/v1/runs?limit=100", completed).await;
    }
}

/// Plays the story up to the approval without automatic decisions.
///
/// Answers the question about the headline as a viewer would.
async fn play_to_the_approval() -> Demo {
    let demo = Demo::start(&[]);
    let asked = demo.wait_for_action("headline").await;
    assert_eq!(
        (&asked["content"]["kind"], &asked["content"]["schema"]["required"]),
        (&json!("structured_input"), &json!(["headline", "readers"]))
    );
    // All other agents have finished, and the run still waits: no agent decides for the viewer.
    demo.wait_for_status("demo-1-links", "completed").await;
    demo.wait_for_status("demo-1-benchmark", "failed").await;
    let run = demo.get(&format!("/v1/runs/{LEAD}")).await;
    assert_eq!(run["status"], "waiting");
    assert_eq!(demo.get(&format!("/v1/runs/{LEAD}/controls")).await["controls"], json!([]));
    let value = json!({ "headline": "Grüße aus dem Test", "readers": "developers", "breaking": true });
    demo.control(LEAD, json!({ "control": "answer", "actionId": "headline", "value": value })).await;
    let asked = demo.wait_for_action("publish-page").await;
    assert_eq!((&asked["content"]["kind"], &asked["content"]["agentId"]), (&json!("delegated_permission"), &json!("publisher")));
    for member in ["policyScope", "safeInput", "parentRouting", "risk"] {
        assert!(!asked["content"][member].is_null(), "{member}");
    }
    assert_eq!(demo.get(&format!("/v1/runs/{LEAD}")).await["status"], "waiting");
    assert_eq!(demo.get("/v1/runs/demo-1-publish").await, Value::Null, "nothing is published before the approval");
    let page = demo.read_content(LEAD, "user", "artifact", "release-notes").await;
    assert!(page["preview"].as_str().unwrap().contains("Grüße aus dem Test"), "the page contains the answer: {page}");
    demo
}

/// Waits until the run's owner has acknowledged these controls.
async fn wait_until_acked(demo: &Demo, run: &str, controls: &[&str]) {
    let look = |listed: &Value| {
        let listed = listed["controls"].as_array()?;
        let names: Vec<_> = listed
            .iter()
            .filter(|control| control["status"] == "acked")
            .map(|control| control["control"].as_str().unwrap())
            .collect();
        (names == controls).then_some(())
    };
    demo.poll_until("the acknowledgement", &format!("/v1/runs/{run}/controls"), look).await;
}

#[tokio::test]
async fn an_approval_reaches_the_asking_teammate_and_the_page_is_published() {
    let demo = play_to_the_approval().await;
    demo.control(LEAD, json!({ "control": "approve", "actionId": "publish-page" })).await;
    demo.wait_for_status(LEAD, "completed").await;
    let action = demo.read_content(LEAD, "user", "action", "publish-page").await;
    assert_eq!((&action["status"], &action["outcome"]), (&json!("resolved"), &json!("approved")));
    assert_eq!(demo.get("/v1/runs/demo-1-publish").await["status"], "completed");
    assert_eq!(demo.read_content(LEAD, "user", "artifact", "release-notes").await["status"], "exported");
    assert_eq!(demo.read_content(LEAD, "user", "task", "publish").await["status"], "done");
    demo.control(LEAD, json!({ "control": "export", "artifactId": "release-notes" })).await;
    demo.control(LEAD, json!({ "control": "assign", "taskId": "draft", "value": "you" })).await;
    wait_until_acked(&demo, LEAD, &["answer", "approve", "export", "assign"]).await;
    let exported = |shown: &Value| shown.to_string().contains("exports/release-notes.pdf").then_some(());
    demo.poll_until("the export", &format!("/v1/runs/{LEAD}/activities"), exported).await;
    assert_eq!(demo.read_content(LEAD, "user", "task", "draft").await["assignee"], "you");
    // A control that cannot be carried out is refused with a reason.
    demo.control(LEAD, json!({ "control": "rollback", "artifactId": "release-notes", "value": { "version": 77 } })).await;
    let refused = |listed: &Value| (listed["controls"][4]["status"] == "nacked").then(|| listed["controls"][4]["reason"].clone());
    let reason = demo.poll_until("the refusal", &format!("/v1/runs/{LEAD}/controls"), refused).await;
    assert_eq!(reason, "the artifact has no such version");
    assert_eq!(demo.check_run(LEAD), Vec::<String>::new());
}

async fn each_version_of_an_artifact_names_its_author_and_its_body_is_in_its_event(demo: &Demo) {
    let page = demo.read_content(LEAD, "user", "artifact", "release-notes").await;
    let mut bodies = Vec::new();
    for version in page["versions"].as_array().unwrap() {
        assert_eq!(version["agentId"], "writer");
        assert!(version["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{version}");
        let sequence = version["sequence"].as_u64().unwrap();
        let read = demo.get(&format!("/v1/runs/{LEAD}/events?after={}&before={}", sequence - 1, sequence + 1)).await;
        bodies.push(read["events"][0]["payload"]["body"].as_str().unwrap().to_owned());
        assert!(version["body"].is_null(), "{version}");
    }
    assert!(bodies[0].contains("much faster") && bodies[2].contains("| 4.2 | 0.81 s | 0.94 s |"), "{bodies:?}");
    demo.control(LEAD, json!({ "control": "rollback", "artifactId": "release-notes", "value": { "version": 1 } })).await;
    let restored = |shown: &Value| {
        let shown = shown["events"].as_array()?.iter().find(|event| event["payload"]["version"] == 4)?;
        Some(shown["payload"]["body"].clone())
    };
    let path = format!("/v1/runs/{LEAD}/events?type=artifact.version.created&limit=100");
    assert_eq!(demo.poll_until("the restored version", &path, restored).await, bodies[0]);
}

#[tokio::test]
async fn small_sessions_wait_for_the_viewer_work_and_fail_beside_the_story() {
    let demo = Demo::start(&[]);
    let waiting = |listed: &Value| {
        let listed = listed["sessions"].as_array()?;
        let mut ids: Vec<&str> = listed.iter().filter_map(|session| session["sessionId"].as_str()).collect();
        ids.sort_unstable();
        (ids == ["demo-1", "demo-digest", "demo-keys", "demo-triage"]).then_some(())
    };
    demo.poll_until("four sessions that wait", "/v1/sessions?needsAction=true", waiting).await;
    demo.wait_for_status("demo-nightly-benchmark", "failed").await;
    demo.wait_for_status("demo-upgrade-index", "completed").await;
    for (run, control, said) in [
        (
            "demo-rotate-keys",
            json!({ "control": "approve", "actionId": "deploy-production", "value": { "optionId": "once" } }),
            "All three services",
        ),
        (
            "demo-support-digest",
            json!({ "control": "answer", "actionId": "digest-form", "value": { "readers": "everyone", "language": "English" } }),
            "Digest for everyone",
        ),
        ("demo-triage-issues", json!({ "control": "reject", "actionId": "triage-plan" }), "I did not change any issue"),
    ] {
        demo.control(run, control).await;
        demo.wait_for_status(run, "completed").await;
        let shown = demo.get(&format!("/v1/runs/{run}/activities")).await.to_string();
        assert!(shown.contains(said), "{run}: {shown}");
        assert_eq!(demo.check_run(run), Vec::<String>::new(), "{run}");
    }
}

#[tokio::test]
async fn every_control_of_the_page_is_acknowledged_and_its_effect_appears_in_facts() {
    let demo = play_to_the_approval().await;
    let submit_and_wait = async |run: &str, body: Value| {
        let (status, asked) = demo.post(&format!("/v1/runs/{run}/controls"), &body).await;
        assert_eq!(status, 202, "{body}: {asked}");
        let id = asked["controlId"].as_str().unwrap().to_owned();
        let look = |listed: &Value| {
            let all = listed["controls"].as_array()?;
            let control = all.iter().find(|control| control["controlId"] == id)?;
            assert_ne!(control["status"], "nacked", "{body}: {control}");
            (control["status"] == "acked").then_some(())
        };
        demo.poll_until(&body.to_string(), &format!("/v1/runs/{run}/controls"), look).await;
        id
    };
    let wait_for_content = async |run: &str, kind: &str, id: &str, what: &str, wanted: Value| {
        let path = format!("/v1/runs/{run}/activities");
        let look = |shown: &Value| {
            let all = shown["activities"].as_array()?;
            let of = all.iter().find(|of| of["activityType"] == kind && of["activityId"] == id)?;
            (of["content"][what] == wanted).then_some(())
        };
        demo.poll_until(&format!("{kind} {id}: {what} {wanted}"), &path, look).await;
    };
    // The page's controls, as its surfaces send them.
    let review = submit_and_wait(
        LEAD,
        json!({ "control": "request_review", "artifactId": "release-notes", "value": { "target": "release-notes" } }),
    )
    .await;
    wait_for_content(LEAD, "review", &format!("review-{review}"), "verdict", json!("passed")).await;
    let again = json!({ "reviewId": "review-of-version-2", "target": { "artifactId": "release-notes", "version": 2 }, "reviewer": "editor" });
    submit_and_wait(LEAD, json!({ "control": "request_review", "value": again })).await;
    submit_and_wait(LEAD, json!({ "control": "rollback", "artifactId": "release-notes", "value": { "version": 2 } })).await;
    wait_for_content(LEAD, "artifact", "release-notes", "version", json!(4)).await;
    submit_and_wait(LEAD, json!({ "control": "edit", "artifactId": "release-notes", "value": { "text": "# Mine" } })).await;
    wait_for_content(LEAD, "artifact", "release-notes", "preview", json!("# Mine")).await;
    submit_and_wait(LEAD, json!({ "control": "retry", "taskId": "link-check" })).await;
    wait_for_content(LEAD, "task", "link-check", "status", json!("sleeping")).await;
    submit_and_wait(LEAD, json!({ "control": "close", "agentId": "researcher" })).await;
    wait_for_content(LEAD, "agent", "researcher", "status", json!("closed")).await;
    submit_and_wait(LEAD, json!({ "control": "stop", "taskId": "translate" })).await;
    wait_for_content(LEAD, "task", "translate", "status", json!("canceled")).await;
    submit_and_wait(LEAD, json!({ "control": "stop", "agentId": "translator" })).await;
    let task =
        submit_and_wait(LEAD, json!({ "control": "delegate", "value": { "text": "Count the links", "assignee": "researcher" } }))
            .await;
    wait_for_content(LEAD, "task", &format!("delegated-{task}"), "status", json!("done")).await;
    submit_and_wait(LEAD, json!({ "control": "wait", "agentId": "writer" })).await;
    submit_and_wait(LEAD, json!({ "control": "export", "evidenceId": "tests-4.2" })).await;
    let call = submit_and_wait("demo-1-research", json!({ "control": "retry", "toolCallId": "issue-first-try" })).await;
    wait_for_content(
        "demo-1-research",
        "tool-call-progress",
        &format!("issue-first-try-{call}"),
        "tool_name",
        json!("fetch_issue"),
    )
    .await;
    // The run whose process died starts again.
    submit_and_wait("demo-1-benchmark", json!({ "control": "retry" })).await;
    demo.wait_for_status("demo-1-benchmark", "completed").await;
    assert_eq!(demo.get("/v1/runs/demo-1-benchmark").await["attempt"], 2);
    // An edit answers a pending action.
    submit_and_wait(LEAD, json!({ "control": "edit", "actionId": "publish-page", "value": { "page": "releases/4.2" } })).await;
    demo.wait_for_status(LEAD, "completed").await;
    submit_and_wait(LEAD, json!({ "control": "retry" })).await;
    demo.wait_for_status(LEAD, "completed").await;
}

#[tokio::test]
async fn a_rejection_leads_to_the_other_end_of_the_story() {
    let demo = play_to_the_approval().await;
    demo.control(LEAD, json!({ "control": "reject", "actionId": "publish-page", "value": "not on a Friday" })).await;
    demo.wait_for_status(LEAD, "completed").await;
    let action = demo.read_content(LEAD, "user", "action", "publish-page").await;
    assert_eq!((&action["outcome"], &action["value"]), (&json!("rejected"), &json!("not on a Friday")));
    assert_eq!(demo.get("/v1/runs/demo-1-publish").await, Value::Null);
    assert_eq!(demo.read_content(LEAD, "user", "artifact", "release-notes").await["status"], "draft");
    let task = demo.read_content(LEAD, "user", "task", "publish").await;
    assert_eq!((&task["status"], &task["blocker"]), (&json!("blocked"), &json!("the viewer did not approve")));
    wait_until_acked(&demo, LEAD, &["answer", "reject"]).await;
    assert_eq!(demo.check_run(LEAD), Vec::<String>::new());
}

#[tokio::test]
async fn send_queue_steer_and_interrupt_have_different_effects() {
    let demo = Demo::start(&[]);
    demo.wait_for_action("headline").await;
    // A steer is part of the active turn.
    demo.control(LEAD, json!({ "control": "steer", "value": "keep it short" })).await;
    let is_noted = |shown: &Value| shown["activities"].to_string().contains("keep “keep it short” in mind").then_some(());
    demo.poll_until("the steering text", &format!("/v1/runs/{LEAD}/activities"), is_noted).await;
    // A send starts a new run at once.
    let (status, sent) = demo.post("/v1/sessions/demo-1/controls", &json!({ "control": "send", "value": "who is it?" })).await;
    assert_eq!(status, 202, "{sent}");
    let turn = format!("demo-turn-{}", sent["controlId"].as_str().unwrap());
    demo.wait_for_status(&turn, "completed").await;
    let activities = demo.read_activities(&turn, "user").await;
    let roles: Vec<_> =
        activities.iter().filter(|of| of["activityType"] == "message").map(|of| of["content"]["role"].clone()).collect();
    assert_eq!(roles, ["user", "assistant"]);
    assert_eq!(demo.get(&format!("/v1/runs/{LEAD}")).await["status"], "waiting", "the first turn still waits");
    // A queued turn waits for the active one.
    let (_, queued) = demo.post("/v1/sessions/demo-1/controls", &json!({ "control": "queue", "value": "and then?" })).await;
    let later = format!("demo-turn-{}", queued["controlId"].as_str().unwrap());
    let waits = |session: &Value| {
        (session["queue"][0]["content"]["queuedTurnCount"] == 1).then(|| session["queue"][0]["content"].clone())
    };
    let queue = demo.poll_until("the queue", "/v1/sessions/demo-1", waits).await;
    assert_eq!((&queue["items"][0]["text"], queue["queueReason"].is_string()), (&json!("and then?"), true));
    assert_eq!(demo.get(&format!("/v1/runs/{later}")).await, Value::Null);
    // An interrupt ends the turn by the runtime's own fact, and the queue moves on.
    demo.control(LEAD, json!({ "control": "interrupt" })).await;
    demo.wait_for_status(LEAD, "interrupted").await;
    assert_eq!(demo.read_content(LEAD, "user", "action", "headline").await["outcome"], "cancelled");
    let events = demo.read_events(LEAD, "user").await;
    let end = events.iter().rfind(|event| event["type"] == "run.finished").unwrap();
    assert_eq!((&end["owner"], &end["phase"]), (&json!("runtime"), &json!("interrupted")));
    demo.wait_for_status(&later, "completed").await;
    let moved = |session: &Value| (session["queue"][0]["content"]["queuedTurnCount"] == 0).then_some(());
    demo.poll_until("the empty queue", "/v1/sessions/demo-1", moved).await;
    wait_until_acked(&demo, LEAD, &["steer", "interrupt"]).await;
    for of in [LEAD, &turn, &later] {
        assert_eq!(demo.check_run(of), Vec::<String>::new(), "{of}");
    }
}

#[tokio::test]
async fn the_server_settles_a_silent_run_and_never_one_that_waits_for_a_decision() {
    // At any speed except 0 no client asks the server to settle: the server does it after its timeouts.
    let demo = Demo::start_at("1000", &[]);
    demo.wait_for_action("headline").await;
    demo.wait_for_status("demo-1-benchmark", "failed").await;
    let events = demo.read_events("demo-1-benchmark", "user").await;
    let server_events: Vec<_> = events.iter().filter(|event| event["owner"] == "diagnostics").collect();
    assert_eq!((&server_events[0]["type"], &server_events[0]["payload"]["stale"]), (&json!("run.status"), &json!(true)));
    assert_eq!(
        (&server_events[1]["type"], &server_events[1]["payload"]["error"]["code"]),
        (&json!("run.failed"), &json!("not_heard_of"))
    );
    assert_eq!(server_events.len(), 2);
    // The coordinator waits as long, and a waiting run does not become stale.
    assert_eq!(demo.wait_for_action("headline").await["content"]["status"], "pending");
    let run = demo.read_content(LEAD, "user", "run", LEAD).await;
    assert_eq!((&run["status"], &run["stale"]), (&json!("waiting"), &Value::Null));
    assert_eq!(demo.get(&format!("/v1/runs/{LEAD}/controls")).await["controls"], json!([]));
}

#[tokio::test]
async fn stopping_a_teammate_ends_only_it_and_stopping_the_coordinator_ends_the_team() {
    // Slow enough that a teammate is active when the control arrives.
    let demo = Demo::start_at("3", &[]);
    let is_at_it = |shown: &Value| shown.to_string().contains("of 340 commits").then_some(());
    demo.poll_until("a working tool", "/v1/runs/demo-1-research/activities", is_at_it).await;
    demo.control(LEAD, json!({ "control": "stop", "agentId": "researcher" })).await;
    demo.wait_for_status("demo-1-research", "interrupted").await;
    let killed = |shown: &Value| shown.to_string().contains("Stopped by the viewer before it finished.").then_some(());
    demo.poll_until("the report about the stop", &format!("/v1/runs/{LEAD}/activities"), killed).await;
    assert_eq!(demo.read_content(LEAD, "user", "agent", "researcher").await["status"], "killed");
    // The coordinator continues with the other teammates.
    demo.wait_for_action("headline").await;
    assert_eq!(demo.get("/v1/runs/demo-1-draft").await["status"], "completed");
    demo.control(LEAD, json!({ "control": "interrupt" })).await;
    demo.wait_for_status(LEAD, "interrupted").await;
    for of in RUNS {
        let run = demo.get(&format!("/v1/runs/{of}")).await;
        let is_over = ["completed", "failed", "interrupted"].iter().any(|over| run["status"] == *over);
        assert!(run.is_null() || is_over, "{of} continues without its coordinator: {run}");
        if !run.is_null() {
            demo.check_run(of);
        }
    }
    assert_eq!(demo.read_content(LEAD, "user", "team", "release-team").await["teamPhase"], "done");
    wait_until_acked(&demo, LEAD, &["stop", "interrupt"]).await;
}

#[test]
fn the_speed_must_be_a_valid_factor() {
    for wrong in ["-1", "fast", "0.01", "NaN"] {
        let refused = run(&mut proscenium(&["demo", &format!("--speed={wrong}")]));
        assert_eq!(refused.status.code(), Some(2), "{wrong}");
        assert!(stderr(&refused).contains("--speed"), "{}", stderr(&refused));
    }
}
