//! Approvals: readers see each source's question, and the worker receives the user's answer.

use crate::harness::{AUDIENCES, Client, Response, fact, recordings, start_local, to_ndjson};
use proscenium::model::options::OPTIONS_MAX;
use serde_json::{Map, Value, json};

/// A question of one source: the facts up to it, and the content that its readers see.
struct Question {
    source: &'static str,
    name: &'static str,
    facts: Vec<Value>,
    action: &'static str,
    call: Option<&'static str>,
    /// Members of the action that every reader of the call sees.
    shown: Value,
}

/// Returns the facts of a recording up to the first one for which `is_last` holds.
fn up_to(name: &str, is_last: impl Fn(&Value) -> bool) -> Vec<Value> {
    let (_, _, facts) = recordings().into_iter().find(|(_, of, _)| of == name).expect("the recording exists");
    let end = facts.iter().position(is_last).expect("the recording has a question");
    facts[..=end].to_vec()
}

fn questions() -> Vec<Question> {
    let approved = json!({"type": "object", "properties": {"approved": {"type": "boolean"}}});
    let mut required = approved.clone();
    required["required"] = json!(["approved"]);
    let native = fact(
        "action.required",
        json!({"actionId": "a1", "toolCallId": "c1", "title": "Publish the notes", "scope": "workspace",
            "artifactId": "notes", "evidenceId": "trace", "refs": [{"rel": "diff", "href": "/v1/blobs/d"}],
            "payload": {"kind": "artifact_review", "message": "Publish?", "risk": "low", "scope": {"paths": ["/docs"]}, "versionId": "v3",
                "plan": {"steps": ["build", "publish"]}, "payload": {"ticket": 7}, "responseSchema": approved,
                "options": [{"optionId": "once", "label": "Allow once", "kind": "allow_once"}]}}),
    );
    let call = fact("tool.started", json!({"toolCallId": "c1", "payload": {"toolName": "publish", "input": {"to": "main"}}}));
    let permission = json!({"type": "tool.approval_required", "request": {"approvalId": "ap", "sessionId": "t", "toolCallId": "tu",
        "toolName": "bash", "args": {"cmd": "ls"}, "reason": "destructive", "risk": "medium", "scope": "session"}});
    vec![
        Question {
            source: "agentui",
            name: "native",
            facts: vec![fact("run.started", json!({})), call, native],
            action: "a1",
            call: Some("c1"),
            shown: json!({"kind": "artifact_review", "title": "Publish the notes", "message": "Publish?", "risk": "low",
                "scope": {"paths": ["/docs"]}, "toolName": "publish", "parameters": {"to": "main"}, "artifactId": "notes",
                "versionId": "v3", "evidenceId": "trace", "plan": {"steps": ["build", "publish"]}, "payload": {"ticket": 7},
                "responseSchema": approved, "schema": approved, "refs": [{"rel": "diff", "href": "/v1/blobs/d"}],
                "options": [{"optionId": "once", "label": "Allow once", "kind": "allow_once", "effect": "allow", "width": "once"}],
                "titleFrom": "source", "toolCallId": "c1"}),
        },
        Question {
            source: "awaken",
            name: "awaken/hitl_approve",
            facts: up_to("awaken/hitl_approve", |fact| fact["event_type"] == "run_finish"),
            action: "perm_call_del",
            call: Some("call_del"),
            shown: json!({"kind": "tool_approval", "message": "Delete branch feat/old?", "risk": "high", "toolName": "delete_branch",
                "parameters": {"branch": "feat/old"}, "input": {"branch": "feat/old"}, "responseSchema": required, "schema": required}),
        },
        Question {
            source: "turnrunner",
            name: "turn-runner/handwritten-port-gate_approved",
            facts: up_to("turn-runner/handwritten-port-gate_approved", |fact| fact["event"] == "turnGateOpen"),
            action: "gate-prod-0",
            call: Some("call_d"),
            shown: json!({"kind": "tool_approval", "risk": "high", "toolName": "deploy", "parameters": {"env": "prod"}}),
        },
        Question {
            source: "ag-ui",
            name: "ag-ui/scripted-sdk1.0-interrupt_resume",
            facts: up_to("ag-ui/scripted-sdk1.0-interrupt_resume", |fact| fact["type"] == "RUN_FINISHED"),
            action: "int-1",
            call: Some("del"),
            shown: json!({"kind": "tool_approval", "message": "Delete feat/x?", "toolName": "delete_branch",
                "parameters": {"branch": "feat/x"}, "responseSchema": approved, "expiresAt": "2026-12-31T23:59:59Z"}),
        },
        Question {
            source: "ag-ui",
            name: "ag-ui/awaken-encoder-hitl_approve",
            facts: up_to("ag-ui/awaken-encoder-hitl_approve", |fact| fact["type"] == "RUN_FINISHED"),
            action: "perm_call_del",
            call: Some("call_del"),
            shown: json!({"kind": "tool_approval", "toolName": "delete_branch", "parameters": {"branch": "feat/old"}}),
        },
        Question {
            source: "ethos",
            name: "the web server's gate",
            facts: vec![json!({"type": "run_start", "provider": "p", "model": "m", "source": "global"}), permission],
            action: "ap",
            call: Some("tu"),
            shown: json!({"kind": "tool_approval", "message": "destructive", "toolName": "bash", "parameters": {"cmd": "ls"},
                "risk": "medium", "scope": "session"}),
        },
        Question {
            source: "ethos",
            name: "ethos/hitl_credential_required",
            facts: up_to("ethos/hitl_credential_required", |fact| fact["type"] == "credential_required"),
            action: "cred:linear:LINEAR_TOKEN",
            call: None,
            shown: json!({"kind": "credential_request", "message": "Connect Linear", "description": "needed to read issues",
                "payload": {"credentialKind": "oauth"}, "refs": {"sessionKey": "s3"}}),
        },
    ]
}

/// Renames tools and arguments throughout: nothing may depend on the names in the recording.
fn renamed(asked: &Question) -> (Vec<Value>, Value) {
    let names =
        [("delete_branch", "purge_index"), ("feat/old", "idx/é~7"), ("deploy", "ship"), ("prod", "moon"), ("bash", "zsh")];
    // AG-UI streams arguments in pieces, so only the tool's name can be replaced.
    let names = if asked.source == "ag-ui" { &names[..1] } else { &names[..] };
    let rename =
        |text: String| names.iter().fold(text, |text, (from, to)| text.replace(&format!("\"{from}\""), &format!("\"{to}\"")));
    let change = |value: &Value| serde_json::from_str::<Value>(&rename(value.to_string())).unwrap();
    (asked.facts.iter().map(change).collect(), change(&asked.shown))
}

async fn publish(client: &Client, run: &str, source: &str, facts: &[Value]) {
    // The checksum of a TurnRunner call covers its own tool and arguments: the gate names neither.
    let path = format!("/v1/runs/{run}/facts?source={source}&sessionId=t-{run}&agentId=helper");
    client.post_lines(&path, to_ndjson(facts)).await.ok();
}

async fn read_activities(client: &Client, run: &str, audience: &str) -> Vec<Value> {
    let shown = client.get(&format!("/v1/runs/{run}/activities?audience={audience}")).await.ok();
    shown["activities"].as_array().unwrap().clone()
}

async fn read_content(client: &Client, run: &str, audience: &str, kind: &str, id: &str) -> Option<Value> {
    let all = read_activities(client, run, audience).await;
    all.into_iter().find(|one| one["activityType"] == kind && one["activityId"] == id).map(|one| one["content"].clone())
}

/// Returns the members of `content` that `expected` names.
fn pick_members(content: &Value, expected: &Value) -> Value {
    let names = expected.as_object().unwrap().keys();
    Value::Object(names.map(|name| (name.clone(), content[name].clone())).collect::<Map<_, _>>())
}

async fn post_control(client: &Client, run: &str, body: Value) -> Response {
    client.post(&format!("/v1/runs/{run}/controls"), &[("content-type", "application/json")], body.to_string()).await
}

/// Claims the agent's only queued control.
async fn claim_one(client: &Client) -> Value {
    let claimed = client.post("/v1/agents/helper/controls/claim?wait=30", &[], "").await.ok();
    let controls = claimed["controls"].as_array().unwrap();
    assert_eq!(controls.len(), 1, "{controls:#?}");
    controls[0].clone()
}

async fn nack(client: &Client, claimed: &Value) {
    let path = format!("/v1/controls/{}/nack", claimed["controlId"].as_str().unwrap());
    let body = json!({"lease": claimed["lease"], "reason": "a test"});
    client.post(&path, &[("content-type", "application/json")], body.to_string()).await.ok();
}

#[tokio::test]
async fn every_source_s_question_shows_tool_arguments_risk_and_reviewed_objects() {
    let client = start_local().await;
    for (n, asked) in questions().iter().enumerate() {
        for (variation, (facts, shown)) in [(asked.facts.clone(), asked.shown.clone()), renamed(asked)].into_iter().enumerate() {
            let run = format!("r{n}-{variation}");
            publish(&client, &run, asked.source, &facts).await;
            for audience in AUDIENCES {
                let content = read_content(&client, &run, audience, "action", asked.action).await;
                let content = content.unwrap_or_else(|| panic!("{}: no action for {audience}", asked.name));
                assert_eq!(pick_members(&content, &shown), shown, "{} as {audience}", asked.name);
                assert_eq!(content["status"], "pending", "{} as {audience}", asked.name);
                crate::schema::assert_valid("activities/action.schema.json", &content);
            }
        }
    }
}

#[tokio::test]
async fn a_reader_that_cannot_see_a_call_learns_nothing_about_it_from_its_question() {
    let client = start_local().await;
    for (n, asked) in questions().iter().enumerate() {
        let Some(call) = asked.call else { continue };
        let run = format!("r{n}");
        let hidden = fact("tool.started", json!({"toolCallId": call, "audience": "internal", "payload": {"toolName": "x"}}));
        publish(&client, &run, "agentui", &[fact("run.started", json!({})), hidden]).await;
        publish(&client, &run, asked.source, &asked.facts).await;
        for audience in ["user", "dashboard"] {
            let content = read_content(&client, &run, audience, "action", asked.action).await.expect("the question is for users");
            for member in ["toolName", "parameters", "input", "safeInput", "payload", "toolCallId"] {
                assert_eq!(content.get(member), None, "{} shows {audience} {member}: {content}", asked.name);
            }
            assert_eq!((&content["kind"], &content["status"]), (&asked.shown["kind"], &json!("pending")), "{}", asked.name);
            assert_eq!(content.get("risk"), asked.shown.get("risk"), "{}", asked.name);
        }
        let content = read_content(&client, &run, "internal", "action", asked.action).await.unwrap();
        assert_eq!(content["parameters"], asked.shown["parameters"], "{}", asked.name);
    }
}

#[tokio::test]
async fn members_of_a_hidden_call_stay_hidden_under_any_name_in_its_question() {
    let client = start_local().await;
    let secret = json!({"deep": ["SECRET-ARGUMENT"]});
    let mut question = fact(
        "action.required",
        json!({"actionId": "a", "toolCallId": "c", "rawEventRef": "SECRET-ARGUMENT",
        "payload": {"kind": "tool_approval", "message": "May I?", "options": ["yes"]}}),
    );
    for member in ["input", "safeInput", "toolName", "parameters", "payload2", "arguments", "args", "command", "tool"] {
        question[member] = secret.clone();
        question["payload"][member] = secret.clone();
    }
    question["payload"]["payload"] = secret.clone();
    question["refs"] = json!([{"rel": "output", "href": "SECRET-ARGUMENT"}, {"rel": "artifact", "id": "plan.md"}]);
    let hidden = fact("tool.started", json!({"toolCallId": "c", "audience": "internal"}));
    client.append("r", &[fact("run.started", json!({})), hidden, question]).await;
    let path = "/v1/runs/r";
    for path in
        [format!("{path}/activities"), format!("{path}/events"), format!("{path}/export"), "/ag-ui/helper?threadId=r".into()]
    {
        let answer = client.get(&path).await;
        assert_eq!(answer.status, 200, "{path}");
        let text = String::from_utf8(answer.body).unwrap();
        assert!(text.contains("May I?") && !text.contains("SECRET-ARGUMENT"), "{path}: {text}");
    }
    let shown = read_content(&client, "r", "user", "action", "a").await.unwrap();
    assert_eq!(shown["refs"], json!([{"rel": "artifact", "id": "plan.md"}]), "the reviewed artifact is not part of the call");
    let internal = read_content(&client, "r", "internal", "action", "a").await.unwrap();
    assert_eq!(internal["parameters"], secret);
}

#[tokio::test]
async fn an_action_without_tool_and_arguments_takes_them_from_its_call_in_any_order() {
    let client = start_local().await;
    let started = || fact("run.started", json!({}));
    let named = fact("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "rm"}}));
    let args = fact("tool.args", json!({"toolCallId": "c", "payload": {"input": {"path": "/tmp"}}}));
    let question = fact("action.required", json!({"actionId": "a", "toolCallId": "c", "payload": {"kind": "tool_approval"}}));
    let orders = [[&named, &args, &question], [&named, &question, &args], [&question, &named, &args]];
    for (n, order) in orders.into_iter().enumerate() {
        let run = format!("r{n}");
        let facts: Vec<Value> = std::iter::once(started()).chain(order.into_iter().cloned()).collect();
        client.append(&run, &facts).await;
        let action = read_content(&client, &run, "user", "action", "a").await.unwrap();
        assert_eq!(json!([action["toolName"], action["parameters"]]), json!(["rm", {"path": "/tmp"}]), "order {n}");
        let call = read_content(&client, &run, "user", "tool-call-progress", "c").await.unwrap();
        assert_eq!(call["action_id"], "a", "order {n}");
    }
    // The action's own members take precedence over the call's.
    let own =
        fact("action.required", json!({"actionId": "b", "toolCallId": "c", "toolName": "remove", "parameters": {"path": "…"}}));
    client.append("r0", &[own]).await;
    let action = read_content(&client, "r0", "user", "action", "b").await.unwrap();
    assert_eq!(json!([action["toolName"], action["parameters"]]), json!(["remove", {"path": "…"}]));
}

#[tokio::test]
async fn a_call_that_waits_for_approval_is_pending_until_it_is_approved() {
    let client = start_local().await;
    for (n, asked) in questions().iter().enumerate().filter(|(_, asked)| asked.source != "ethos") {
        let run = format!("r{n}");
        publish(&client, &run, asked.source, &asked.facts).await;
        for audience in AUDIENCES {
            let call = read_content(&client, &run, audience, "tool-call-progress", asked.call.unwrap()).await.unwrap();
            let actual = json!([call["status"], call["state"], call["action_id"]]);
            assert_eq!(actual, json!(["pending", "input-available", asked.action]), "{} as {audience}", asked.name);
        }
        let allowed = fact("action.resolved", json!({"actionId": asked.action, "payload": {"outcome": "approved"}}));
        client.append(&run, &[allowed]).await;
        let call = read_content(&client, &run, "user", "tool-call-progress", asked.call.unwrap()).await.unwrap();
        assert_eq!(json!([call["status"], call["state"]]), json!(["running", "running"]), "{}", asked.name);
    }
}

#[tokio::test]
async fn a_rejected_call_never_becomes_running_and_a_report_without_status_keeps_it_pending() {
    let client = start_local().await;
    let tool = |event_type: &str, members: Value| {
        let mut fact = fact(event_type, json!({"toolCallId": "c", "audience": "user"}));
        fact.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        fact
    };
    let question = tool("action.required", json!({"actionId": "a", "payload": {"kind": "tool_approval"}}));
    client.append("r", &[fact("run.started", json!({})), tool("tool.started", json!({})), question]).await;
    client.append("r", &[tool("tool.progress", json!({"message": "waiting for you"}))]).await;
    let actual = |call: Value| json!([call["status"], call["message"]]);
    let call = read_content(&client, "r", "user", "tool-call-progress", "c").await.unwrap();
    assert_eq!(actual(call), json!(["pending", "waiting for you"]));
    client.append("r", &[fact("action.resolved", json!({"actionId": "a", "payload": {"outcome": "rejected"}}))]).await;
    let call = read_content(&client, "r", "user", "tool-call-progress", "c").await.unwrap();
    assert_eq!(actual(call), json!(["pending", "waiting for you"]));
    client.append("r", &[fact("run.finished", json!({}))]).await;
    let call = read_content(&client, "r", "user", "tool-call-progress", "c").await.unwrap();
    assert_eq!(json!([call["status"], call["state"]]), json!(["cancelled", "cancelled"]));
}

#[tokio::test]
async fn the_worker_claims_exactly_the_user_s_answer_to_every_source_s_question() {
    let client = start_local().await;
    for (n, asked) in questions().iter().enumerate() {
        let run = format!("r{n}");
        publish(&client, &run, asked.source, &asked.facts).await;
        let is_question = asked.shown["kind"] == "credential_request";
        let answers = [
            ("approve", Value::Null),
            ("approve", json!({"approved": true})),
            ("approve", json!({"scope": "once"})),
            ("reject", Value::Null),
            ("reject", json!({"approved": false, "reason": "no"})),
            ("reject", json!("not now")),
            ("answer", json!({"approved": false})),
            ("answer", json!({"approved": true, "note": "go"})),
            ("answer", json!(false)),
            ("edit", json!({"parameters": {"branch": "other"}})),
        ];
        for (control, value) in answers.into_iter().filter(|(control, _)| !(is_question && *control == "approve")) {
            let mut body = json!({"control": control, "actionId": asked.action});
            if !value.is_null() {
                body["value"] = value.clone();
            }
            let answer = post_control(&client, &run, body).await;
            assert_eq!(answer.status, 202, "{} {control} {value}: {}", asked.name, String::from_utf8_lossy(&answer.body));
            let claimed = claim_one(&client).await;
            let actual = json!([claimed["control"], claimed["value"], claimed["actionId"], claimed["runId"]]);
            // Where the source offers options, a plain yes has the narrowest one beside the user's own members.
            let mut expected = value;
            if asked.shown.get("options").is_some() && control == "approve" {
                expected["optionId"] = "once".into();
            }
            assert_eq!(actual, json!([control, expected, asked.action, run]), "{}", asked.name);
            nack(&client, &claimed).await;
        }
    }
}

#[tokio::test]
async fn a_control_that_contradicts_its_own_value_is_rejected() {
    let client = start_local().await;
    let question = |id: &str, members: Value| fact("action.required", json!({"actionId": id, "payload": members}));
    let schema = json!({"type": "object", "properties": {"approved": {"type": "boolean"}}});
    let options = json!([{"optionId": "yes", "label": "Yes", "kind": "allow_once"}, {"optionId": "no", "label": "No", "kind": "reject_once"}]);
    let facts = [
        fact("run.started", json!({})),
        question("plain", json!({"kind": "tool_approval"})),
        question("schema", json!({"kind": "tool_approval", "schema": schema})),
        question("choice", json!({"kind": "tool_approval", "options": options})),
    ];
    client.append("r", &facts).await;
    for action in ["plain", "schema", "choice"] {
        for (control, value) in [
            ("approve", json!({"approved": false})),
            ("approve", json!(false)),
            ("reject", json!({"approved": true})),
            ("reject", json!(true)),
        ] {
            for path in ["/v1/runs/r/controls"] {
                let body = json!({"control": control, "actionId": action, "value": value});
                let answer = client.post(path, &[("content-type", "application/json")], body.to_string()).await;
                let problem = answer.problem(422, "bad_control");
                assert_eq!(problem["member"], "value", "{control} {value}: {problem}");
                assert!(problem["detail"].as_str().unwrap().contains(control), "{problem}");
            }
        }
    }
    for (control, option) in [("approve", "no"), ("reject", "yes")] {
        let body = json!({"control": control, "actionId": "choice", "value": {"optionId": option}});
        assert_eq!(post_control(&client, "r", body).await.problem(422, "bad_control")["member"], "value", "{control} {option}");
    }
    let body = json!({"control": "approve", "actionId": "choice", "value": {"optionId": "yes"}});
    assert_eq!(post_control(&client, "r", body).await.status, 202);

    // The server remembers a bounded number of options; beyond it, only the runtime knows their meaning.
    let many: Vec<Value> =
        (0..=OPTIONS_MAX).map(|n| json!({"optionId": format!("no{n}"), "label": "No", "kind": "reject_once"})).collect();
    client
        .append("many", &[fact("run.started", json!({})), question("a", json!({"kind": "tool_approval", "options": many}))])
        .await;
    let choose = |n: usize| json!({"control": "approve", "actionId": "a", "value": {"optionId": format!("no{n}")}});
    post_control(&client, "many", choose(OPTIONS_MAX - 1)).await.problem(422, "bad_control");
    assert_eq!(post_control(&client, "many", choose(OPTIONS_MAX)).await.status, 202);
}

#[tokio::test]
async fn a_call_that_starts_late_is_matched_against_a_bounded_number_of_questions() {
    let client = start_local().await;
    let mut facts = vec![fact("run.started", json!({}))];
    for n in 0..70 {
        let ids = json!({"actionId": format!("a{n:02}"), "toolCallId": format!("c{n}"), "payload": {"kind": "tool_approval"}});
        facts.push(fact("action.required", ids));
    }
    facts.extend([0, 63, 64].map(|n| fact("tool.started", json!({"toolCallId": format!("c{n}"), "payload": {"toolName": "t"}}))));
    client.append("r", &facts).await;
    for (n, found) in [(0, json!("a00")), (63, json!("a63")), (64, Value::Null)] {
        let call = read_content(&client, "r", "user", "tool-call-progress", &format!("c{n}")).await.unwrap();
        assert_eq!(call.get("action_id").cloned().unwrap_or_default(), found);
    }
}

/// Parses the events of a stream that ends.
fn parse_events(answer: &Response) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    let text = String::from_utf8(answer.body.clone()).unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[tokio::test]
async fn ag_ui_and_ai_sdk_clients_receive_the_same_question() {
    let client = start_local().await;
    for (n, asked) in questions().iter().enumerate() {
        let run = format!("r{n}");
        publish(&client, &run, asked.source, &asked.facts).await;
        if asked.name == "ethos/hitl_credential_required" {
            publish(&client, &run, "ethos", &[json!({"type": "done", "text": "", "turnCount": 0})]).await;
        }
        let body = json!({"threadId": format!("t-{run}"), "runId": run, "messages": [], "tools": [], "context": [], "protocolVersion": "1.0"});
        let answer = client.post("/ag-ui/helper", &[("content-type", "application/json")], body.to_string()).await;
        let events = parse_events(&answer);
        let last = events.last().unwrap();
        let interrupt = &last["outcome"]["interrupts"][0];
        assert_eq!(interrupt["id"], asked.action, "{}: {last}", asked.name);
        let known = ["id", "reason", "message", "toolCallId", "responseSchema", "expiresAt", "metadata"];
        assert!(interrupt.as_object().unwrap().keys().all(|member| known.contains(&member.as_str())), "{interrupt}");
        let actual = &interrupt["metadata"]["proscenium"];
        let members = [
            "kind",
            "risk",
            "toolName",
            "parameters",
            "scope",
            "artifactId",
            "versionId",
            "evidenceId",
            "plan",
            "payload",
            "refs",
            "options",
            "description",
        ];
        for member in members {
            assert_eq!(actual.get(member), asked.shown.get(member), "{}, {member}: {interrupt}", asked.name);
        }
        let content = read_content(&client, &run, "user", "action", asked.action).await.unwrap();
        assert_eq!(actual.get("title"), content.get("title"), "{}", asked.name);
        for member in ["responseSchema", "expiresAt"] {
            assert_eq!(interrupt.get(member), asked.shown.get(member), "{}, {member}: {interrupt}", asked.name);
        }
        // A request without words of its own has those of its title.
        let message = asked.shown.get("message").or(content.get("title"));
        assert_eq!(interrupt.get("message"), message, "{}: {interrupt}", asked.name);
        // The same holds for the page, and for the run read by itself.
        let rest = client.get(&format!("/ag-ui/helper?threadId=t-{run}")).await.ok();
        assert_eq!(rest["interrupts"]["pending"][0]["metadata"]["proscenium"], *actual, "{}", asked.name);

        let chat = client.get(&format!("/ai-sdk/helper/t-{run}?version=7")).await.ok();
        let parts: Vec<&Value> =
            chat["messages"].as_array().unwrap().iter().flat_map(|m| m["parts"].as_array().unwrap()).collect();
        let data = parts.iter().find(|part| part["type"] == "data-action").unwrap_or_else(|| panic!("{}: {chat}", asked.name));
        assert_eq!(pick_members(&data["data"], &asked.shown), asked.shown, "{}", asked.name);
        if asked.shown["kind"] == "tool_approval" {
            let call =
                parts.iter().find(|part| part["type"] == "dynamic-tool").unwrap_or_else(|| panic!("{}: {chat}", asked.name));
            assert_eq!(
                json!([call["state"], call["approval"]["id"], call["toolName"], call["input"]]),
                json!(["approval-requested", asked.action, asked.shown["toolName"], asked.shown["parameters"]]),
                "{}",
                asked.name
            );
        }
    }
}

#[tokio::test]
async fn a_client_s_answer_without_an_explicit_approval_is_not_an_approval() {
    let client = start_local().await;
    for (n, (payload, control)) in [
        (json!({"approved": "false"}), "answer"),
        (json!({"approved": null}), "answer"),
        (json!({"decision": "deny"}), "answer"),
        (json!({"optionId": "no"}), "answer"),
        (json!({"approved": false}), "reject"),
        (json!({"approved": true}), "approve"),
        (json!({"scope": "once"}), "approve"),
    ]
    .into_iter()
    .enumerate()
    {
        let (run, thread) = (format!("r{n}"), format!("t{n}"));
        let question = fact("action.required", json!({"actionId": "a", "payload": {"kind": "tool_approval"}}));
        let path = format!("/v1/runs/{run}/facts?sessionId={thread}&agentId=helper");
        client.post_lines(&path, to_ndjson(&[fact("run.started", json!({})), question])).await.ok();
        let body = json!({"threadId": thread, "runId": "next", "messages": [],
            "resume": [{"interruptId": "a", "status": "resolved", "payload": payload}]});
        let resuming = {
            let client = client.clone();
            tokio::spawn(
                async move { client.post("/ag-ui/helper", &[("content-type", "application/json")], body.to_string()).await },
            )
        };
        let claimed = claim_one(&client).await;
        assert_eq!(json!([claimed["control"], claimed["value"]]), json!([control, payload]));
        nack(&client, &claimed).await;
        assert_eq!(parse_events(&resuming.await.unwrap()).last().unwrap()["code"], "control_refused");
    }
}

#[tokio::test]
async fn a_call_that_failed_at_the_client_is_not_an_approval() {
    let client = start_local().await;
    let question = fact("action.required", json!({"actionId": "a", "toolCallId": "c", "payload": {"kind": "tool_approval"}}));
    let call = fact("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "rm", "input": {}}}));
    client
        .post_lines(
            "/v1/runs/r/facts?sessionId=chat&agentId=helper",
            to_ndjson(&[fact("run.started", json!({})), call, question]),
        )
        .await
        .ok();
    let part = json!({"type": "dynamic-tool", "toolName": "rm", "toolCallId": "c", "state": "output-error", "input": {}, "errorText": "broke"});
    let body =
        json!({"id": "chat", "trigger": "submit-message", "messages": [{"id": "r", "role": "assistant", "parts": [part]}]});
    let sending = {
        let client = client.clone();
        tokio::spawn(async move {
            client.post("/ai-sdk/helper?version=7", &[("content-type", "application/json")], body.to_string()).await
        })
    };
    let claimed = claim_one(&client).await;
    assert_eq!(json!([claimed["control"], claimed["value"]]), json!(["answer", {"error": "broke"}]));
    nack(&client, &claimed).await;
    sending.await.unwrap();
}

#[tokio::test]
async fn an_open_call_is_cancelled_when_its_run_ends_even_after_a_done_report() {
    let client = start_local().await;
    let tool = |event_type: &str, members: Value| {
        let mut fact = fact(event_type, json!({"toolCallId": "c", "audience": "user"}));
        fact.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        fact
    };
    for (n, status) in ["done", "failed", "running", "pending"].into_iter().enumerate() {
        let run = format!("r{n}");
        let report = tool("tool.progress", json!({"status": status, "progress": 1.0}));
        client
            .append(
                &run,
                &[fact("run.started", json!({})), tool("tool.started", json!({})), report, fact("run.finished", json!({}))],
            )
            .await;
        let call = read_content(&client, &run, "user", "tool-call-progress", "c").await.unwrap();
        assert_eq!(json!([call["status"], call["state"], call["progress"]]), json!(["cancelled", "cancelled", 1.0]), "{status}");
    }
    // A call of another run, of which this run has only reports, was never open here.
    let report = tool("tool.progress", json!({"status": "done"}));
    client.append("child", &[fact("run.started", json!({})), report, fact("run.finished", json!({}))]).await;
    let call = read_content(&client, "child", "user", "tool-call-progress", "c").await.unwrap();
    assert_eq!(json!([call["status"], call["state"]]), json!(["done", "output-available"]));
}

#[tokio::test]
async fn output_is_separated_by_channel() {
    let client = start_local().await;
    let output = |channel: Value, text: &str| {
        let mut fact = fact("tool.output.delta", json!({"toolCallId": "c", "audience": "user", "payload": {"text": text}}));
        if !channel.is_null() {
            fact["payload"]["channel"] = channel;
        }
        fact
    };
    let facts = [
        fact("run.started", json!({})),
        fact("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "make"}})),
        output(Value::Null, "plain "),
        output(json!("stderr"), "warn "),
        output(json!("stdout"), "out "),
        output(json!("stderr"), "error"),
        output(json!("a/b~c"), "odd"),
    ];
    client.append("r", &facts).await;
    let call = read_content(&client, "r", "user", "tool-call-progress", "c").await.unwrap();
    crate::schema::assert_valid("activities/tool-call-progress.schema.json", &call);
    assert_eq!(call["output_text"], json!(["plain out "]));
    assert_eq!(call["output_channels"], json!({"stderr": ["warn error"], "a/b~c": ["odd"]}));
    // A reader of deltas ends with the same content, chunk by chunk.
    client.append("r", &[fact("run.finished", json!({}))]).await;
    let mut deltas = client.open_activities("r", "replay=deltas", None).await;
    let patches: Vec<Value> = deltas
        .read_all()
        .await
        .into_iter()
        .filter(|frame| frame.kind() == "ActivityDelta")
        .map(|f| f.data["patch"].clone())
        .collect();
    assert!(patches.iter().any(|patch| patch.to_string().contains("/output_channels/stderr/-")), "{patches:#?}");
    // AG-UI and AI SDK clients receive all channels.
    let mut ended = facts.to_vec();
    ended.push(fact("tool.result", json!({"toolCallId": "c", "audience": "user"})));
    ended.push(fact("run.finished", json!({})));
    client.append("s", &ended).await;
    for path in ["/v1/runs/s/stream?format=ag-ui&protocolVersion=1.0", "/v1/runs/s/stream?format=ai-sdk&version=7"] {
        let text = String::from_utf8(client.get(path).await.body).unwrap();
        assert!(text.contains("warn error") && text.contains("plain out"), "{path}: {text}");
    }
}

#[tokio::test]
async fn a_call_s_output_channels_are_bounded_in_number_and_bytes() {
    use proscenium::model::TEXT_BYTES_MAX;
    let client = start_local().await;
    let output = |channel: &str, text: &str| {
        fact("tool.output.delta", json!({"toolCallId": "c", "audience": "user", "payload": {"channel": channel, "text": text}}))
    };
    let facts: Vec<Value> = (0..40).map(|n| output(&format!("ch{n}"), "x")).chain([output(&"n".repeat(5000), "x")]).collect();
    client.append("many", &facts).await;
    let call = read_content(&client, "many", "user", "tool-call-progress", "c").await.unwrap();
    assert_eq!((call["output_channels"].as_object().unwrap().len(), &call["clipped"]), (8, &json!(true)));

    let chunk = "y".repeat(30 * 1024);
    let mut facts = vec![fact("run.started", json!({}))];
    for n in 0..=TEXT_BYTES_MAX / chunk.len() {
        facts.push(output(if n % 2 == 0 { "one" } else { "two" }, &chunk));
    }
    for facts in facts.chunks(60) {
        client.append("long", facts).await;
    }
    let call = read_content(&client, "long", "user", "tool-call-progress", "c").await.unwrap();
    let bytes: usize = ["one", "two"].iter().map(|channel| call["output_channels"][channel][0].as_str().unwrap().len()).sum();
    assert_eq!((bytes, &call["clipped"]), (TEXT_BYTES_MAX, &json!(true)));
}

#[tokio::test]
async fn a_hidden_call_s_failure_is_counted_without_its_name_or_body() {
    let client = start_local().await;
    let tool = |id: &str, event_type: &str, audience: &str| {
        fact(
            event_type,
            json!({"toolCallId": id, "audience": audience, "turnId": "SECRET", "timestamp": "2020-02-02T02:02:02Z",
            "refs": {"parentToolCallId": "SECRET"}, "payload": {"toolName": "SECRET", "error": {"message": "SECRET"}, "durationMs": 7}}),
        )
    };
    let mut stopped = tool("hush-3", "tool.failed", "internal");
    stopped["phase"] = json!("cancelled");
    let facts = [
        fact("run.started", json!({})),
        tool("hush-1", "tool.started", "internal"),
        tool("hush-1", "tool.failed", "internal"),
        tool("hush-2", "tool.started", "dashboard"),
        tool("hush-2", "tool.failed", "internal"),
        tool("hush-3", "tool.started", "internal"),
        stopped,
    ];
    client.append("r", &facts).await;
    let before = read_content(&client, "r", "user", "run", "r").await.unwrap();
    assert_eq!(before["status"], "accepted", "hidden facts change nothing else");
    for (audience, count) in [("user", json!(2)), ("dashboard", json!(1)), ("internal", Value::Null)] {
        let found = read_content(&client, "r", audience, "diagnostics", "diagnostics").await;
        let found = found.map_or(Value::Null, |content| {
            crate::schema::assert_valid("activities/diagnostics.schema.json", &content);
            content["hiddenFailures"].clone()
        });
        assert_eq!(found, count, "{audience}");
    }
    client.append("r", &[fact("run.finished", json!({}))]).await;
    for path in ["activities", "events", "export", "stream", "stream?frames=events"] {
        let text = String::from_utf8(client.get(&format!("/v1/runs/r/{path}")).await.body).unwrap();
        for hidden in ["SECRET", "hush", "\"durationMs\"", "2020-02-02"] {
            assert!(!text.contains(hidden), "{path} reveals {hidden}: {text}");
        }
    }
    let events = client.read_events("r", "", 100).await;
    let failures: Vec<_> = events.iter().filter(|event| event["type"] == "tool.failed").collect();
    assert_eq!(failures.len(), 2, "{events:#?}");
    for failure in failures {
        crate::schema::assert_valid("agentui-event.schema.json", failure);
        assert_eq!(failure["payload"]["withheld"], true);
    }
}

#[tokio::test]
async fn progress_starts_no_call_so_a_failure_without_a_start_is_for_users() {
    let client = start_local().await;
    let tool = |event_type: &str, audience: &str| {
        fact(
            event_type,
            json!({"toolCallId": "c", "audience": audience, "payload": {"toolName": "fetch", "message": "half", "text": "…",
            "error": {"message": "it broke"}}}),
        )
    };
    for before in [vec!["tool.progress"], vec!["tool.output.delta", "tool.progress"], vec!["tool.args"]] {
        let run = before.join("-");
        let mut facts = vec![fact("run.started", json!({}))];
        facts.extend(before.iter().map(|event_type| tool(event_type, "internal")));
        facts.push(tool("tool.failed", "internal"));
        client.append(&run, &facts).await;
        let call = read_content(&client, &run, "user", "tool-call-progress", "c").await.expect("the failure is for users");
        assert_eq!(json!([call["state"], call["error"]["message"]]), json!(["output-error", "it broke"]), "{run}");
        assert_eq!(read_content(&client, &run, "user", "diagnostics", "diagnostics").await, None);
    }
    // The start decides a call's audience, not the reports before it.
    let facts = [tool("tool.progress", "internal"), tool("tool.started", "user"), tool("tool.result", "internal")];
    client.append("seen", &facts).await;
    let call = read_content(&client, "seen", "user", "tool-call-progress", "c").await.expect("its start is for users");
    assert_eq!(json!([call["state"], call["withheld"]]), json!(["output-available", true]));
    let facts = [tool("tool.progress", "user"), tool("tool.started", "internal"), tool("tool.args", "user")];
    client.append("hidden", &facts).await;
    let events = client.read_events("hidden", "", 10).await;
    assert_eq!(events.len(), 1, "its start is hidden, and so is every later fact: {events:#?}");
}

#[tokio::test]
async fn a_run_s_result_is_in_its_activity_and_in_client_streams() {
    let client = start_local().await;
    let result = json!({"answer": 42});
    client.append("r", &[fact("run.started", json!({})), fact("run.finished", json!({"payload": {"result": result}}))]).await;
    let run = read_content(&client, "r", "user", "run", "r").await.unwrap();
    crate::schema::assert_valid("activities/run.schema.json", &run);
    assert_eq!(run["result"], result);
    let finished = parse_events(&client.get("/v1/runs/r/stream?format=ag-ui&protocolVersion=1.0").await);
    assert_eq!(finished.last().unwrap()["result"], result);
    let actual = String::from_utf8(client.get("/v1/runs/r/stream?format=ai-sdk&version=7").await.body).unwrap();
    assert!(actual.contains("{\"answer\":42}"), "{actual}");
    // A result for a narrower audience is hidden from wider ones, and a new attempt has no result.
    let hidden = fact("run.finished", json!({"audience": "internal", "payload": {"result": result}}));
    client.append("s", &[fact("run.started", json!({})), hidden]).await;
    assert_eq!(read_content(&client, "s", "user", "run", "s").await.unwrap().get("result"), None);
    assert_eq!(read_content(&client, "s", "internal", "run", "s").await.unwrap()["result"], result);
    client.append("s", &[fact("run.started", json!({}))]).await;
    assert_eq!(read_content(&client, "s", "internal", "run", "s").await.unwrap().get("result"), None);
}

#[tokio::test]
async fn a_message_keeps_attachments_parts_of_other_kinds_and_references() {
    let client = start_local().await;
    let attachment = json!({"name": "plan.pdf", "mediaType": "application/pdf", "href": "/v1/blobs/p"});
    let image = json!({"messageId": "m2", "partId": "i", "audience": "user", "payload": {"kind": "image", "role": "user", "text": "",
        "mediaType": "image/png", "url": "https://example.com/a.png", "alt": "a chart"}});
    let change = json!({"messageId": "m3", "partId": "f", "artifactId": "src/main.rs", "payload": {"kind": "file_change", "path": "src/main.rs",
        "diffRef": "/v1/blobs/d", "text": "+1 -2"}, "refs": [{"rel": "diff", "href": "/v1/blobs/d"}]});
    let whole = json!({"messageId": "m1", "payload": {"role": "user", "text": "See this", "attachments": [attachment]},
        "refs": {"source": "composer"}});
    let window = json!({"payload": {"mode": "window", "messages": [{"messageId": "h", "role": "user", "attachments": [attachment],
        "refs": {"old": 1}, "parts": [{"partId": "p", "kind": "image", "url": "https://example.com/b.png"}]}]}});
    let facts = [
        fact("run.started", json!({})),
        fact("text.final", whole),
        fact("text.final", image),
        fact("text.final", change),
        fact("messages.snapshot", window),
    ];
    client.append("r", &facts).await;
    let message = async |id: &str| {
        let message = read_content(&client, "r", "user", "message", id).await.unwrap_or_else(|| panic!("no message {id}"));
        crate::schema::assert_valid("activities/message.schema.json", &message);
        message
    };
    let m1 = message("m1").await;
    assert_eq!(
        json!([m1["attachments"], m1["refs"], m1["parts"][0]["kind"]]),
        json!([[attachment], {"source": "composer"}, "user_text"])
    );
    let part = &message("m2").await["parts"][0];
    assert_eq!(
        json!([part["kind"], part["url"], part["mediaType"], part["alt"]]),
        json!(["image", "https://example.com/a.png", "image/png", "a chart"])
    );
    let part = &message("m3").await["parts"][0];
    assert_eq!(
        json!([part["kind"], part["path"], part["diffRef"], part["artifactId"], part["refs"]]),
        json!(["file_change", "src/main.rs", "/v1/blobs/d", "src/main.rs", [{"rel": "diff", "href": "/v1/blobs/d"}]])
    );
    let old = message("h").await;
    assert_eq!(
        json!([old["attachments"], old["refs"], old["parts"][0]["url"]]),
        json!([[attachment], {"old": 1}, "https://example.com/b.png"])
    );
    // Parts without text do not enter the response text.
    client.append("r", &[fact("run.finished", json!({}))]).await;
    let actual = parse_events(&client.get("/v1/runs/r/stream?format=ai-sdk&version=7").await);
    let text: String =
        actual.iter().filter(|event| event["type"] == "text-delta").filter_map(|event| event["delta"].as_str()).collect();
    assert!(!text.contains("+1 -2"), "{text}");
}

#[tokio::test]
async fn an_ag_ui_message_keeps_parts_that_are_not_text() {
    let client = start_local().await;
    let content_of = json!([{"type": "text", "text": "What is this?"}, {"type": "image", "source": {"type": "url", "value": "https://example.com/a.png", "mimeType": "image/png"}}]);
    let snapshot = json!({"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "u", "role": "user", "content": content_of}]});
    publish(&client, "r", "ag-ui", &[json!({"type": "RUN_STARTED", "threadId": "t", "runId": "x"}), snapshot]).await;
    let message = read_content(&client, "r", "user", "message", "u").await.unwrap();
    let kinds: Vec<&Value> = message["parts"].as_array().unwrap().iter().map(|part| &part["kind"]).collect();
    assert_eq!(kinds, ["user_text", "image"]);
    assert_eq!(message["parts"][1]["source"]["value"], "https://example.com/a.png");
}

/// A real request: what it asks, and the value that a plain yes brings to the agent.
struct Case {
    file: &'static str,
    title: &'static str,
    subject: Value,
    /// `None`: the request is a question, which takes no plain yes.
    yes: Option<Value>,
}

fn cases() -> Vec<Case> {
    let field = |name: &str, value: Value| json!({"name": name, "value": value});
    let mail = json!({"kind": "fields", "toolName": "send_mail", "text": "Please review the mail",
        "fields": [field("to", json!("a@example.com")), field("body", json!("Hi"))]});
    let path = "/srv/demo/src/app.txt";
    let once = |id: &str| Some(json!({"optionId": id}));
    vec![
        Case {
            file: "acp-command.acp",
            title: "Run `rm -r src`?",
            subject: json!({"kind": "command", "command": "rm -r src", "text": "Remove src", "toolName": "Bash"}),
            yes: once("allow"),
        },
        Case {
            file: "acp-edit.acp",
            title: "Edit src/app.txt?",
            subject: json!({"kind": "edit", "path": path, "diffs": [{"path": path, "oldText": "beta", "newText": "BETA — café"}],
                "fields": [field("replace_all", json!(false))], "toolName": "Edit"}),
            yes: once("allow"),
        },
        Case {
            file: "acp-form.acp",
            title: "Which ticket?",
            subject: json!({"kind": "question", "question": "Which ticket?"}),
            yes: None,
        },
        Case {
            file: "acp-options.acp",
            title: "touch 1.txt?",
            subject: json!({"kind": "tool", "toolName": "edit", "text": "touch 1.txt"}),
            yes: once("once"),
        },
        Case {
            file: "ai-sdk-approval.ai-sdk",
            title: "Delete file a.txt?",
            subject: json!({"kind": "fields", "toolName": "deleteFile", "fields": [field("path", json!("a.txt"))]}),
            yes: Some(Value::Null),
        },
        Case {
            file: "claude-command.claude-stream-json",
            title: "Run `touch one.txt`?",
            subject: json!({"kind": "command", "command": "touch one.txt", "text": "Create one", "toolName": "Bash"}),
            yes: once("allow"),
        },
        Case {
            file: "claude-plan.claude-stream-json",
            title: "Approve the plan?",
            subject: json!({"kind": "plan", "plan": "1. Read the code\n2. Change the title\n3. Run the tests"}),
            yes: Some(Value::Null),
        },
        Case {
            file: "claude-question.claude-stream-json",
            title: "Which colour?",
            subject: json!({"kind": "question", "question": "Which colour?"}),
            yes: None,
        },
        Case {
            file: "langgraph-interrupt.langgraph",
            title: "Delete a.txt?",
            subject: json!({"kind": "question", "question": "Delete a.txt?", "fields": [field("path", json!("a.txt"))]}),
            yes: None,
        },
        Case {
            file: "langgraph-middleware.langgraph",
            title: "Send mail to a@example.com?",
            subject: mail.clone(),
            yes: once("approve"),
        },
        Case { file: "langgraph-several.langgraph", title: "Send mail to a@example.com?", subject: mail, yes: Some(Value::Null) },
    ]
}

async fn publish_case(client: &Client, run: &str, file: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/decisions/");
    let facts = std::fs::read_to_string(format!("{path}{file}.ndjson")).unwrap();
    let source = file.rsplit_once('.').unwrap().1;
    client.post_lines(&format!("/v1/runs/{run}/facts?source={source}&sessionId={run}&agentId=helper"), facts).await.ok();
}

async fn pending_action(client: &Client, run: &str, audience: &str) -> (String, Value) {
    let all = read_activities(client, run, audience).await;
    let action = all.into_iter().find(|one| one["activityType"] == "action").expect("the run has an action");
    (action["activityId"].as_str().unwrap().to_owned(), action["content"].clone())
}

#[tokio::test]
async fn every_real_request_says_what_is_decided_and_a_plain_yes_is_the_narrowest_one() {
    let client = start_local().await;
    for (n, case) in cases().into_iter().enumerate() {
        let (run, file) = (format!("case{n}"), case.file);
        publish_case(&client, &run, file).await;
        let (action, content) = pending_action(&client, &run, "user").await;
        crate::schema::assert_valid("activities/action.schema.json", &content);
        assert_eq!((&content["subject"], &content["title"]), (&case.subject, &json!(case.title)), "{file}: {content:#}");
        assert_eq!((&content["titleFrom"], content.get("subjects")), (&json!("server"), None), "{file}");
        let events = client.read_events(&run, "audience=internal", 1000).await;
        let asked = events.iter().find(|event| event["type"] == "action.required").unwrap();
        assert_eq!((asked["payload"].get("subject"), asked["payload"].get("title")), (None, None), "{file}: not in an envelope");
        let answer = post_control(&client, &run, json!({"control": "approve", "actionId": action})).await;
        match case.yes {
            None => drop(answer.problem(422, "bad_control")),
            Some(value) => {
                assert_eq!(answer.status, 202, "{file}");
                let claimed = claim_one(&client).await;
                assert_eq!((&claimed["control"], &claimed["value"]), (&json!("approve"), &value), "{file}");
                nack(&client, &claimed).await;
            }
        }
    }
}

#[tokio::test]
async fn a_wider_yes_must_be_named_and_a_no_never() {
    let client = start_local().await;
    let option = |id: &str, kind: &str| json!({"optionId": id, "label": id, "kind": kind});
    let wide = json!({"kind": "tool_approval", "options": [option("never", "reject_always"), option("always", "allow_always")]});
    let asked = fact("action.required", json!({"actionId": "a", "agentId": "helper", "payload": wide}));
    client.append("r", &[fact("run.started", json!({"agentId": "helper"})), asked]).await;
    let decide = |control: &str, value: Value| json!({"control": control, "actionId": "a", "value": value});
    let refused = post_control(&client, "r", decide("approve", Value::Null)).await.problem(422, "bad_control");
    assert_eq!((&refused["member"], &refused["expected"]), (&json!("value"), &json!(["always"])));
    post_control(&client, "r", decide("approve", json!({"note": "sure"}))).await.problem(422, "bad_control");
    for (control, sent, value) in [
        ("approve", json!({"optionId": "always"}), json!({"optionId": "always"})),
        ("reject", Value::Null, json!({"optionId": "never"})),
        ("reject", json!({"reason": "no"}), json!({"reason": "no", "optionId": "never"})),
        ("reject", json!("no"), json!("no")),
    ] {
        assert_eq!(post_control(&client, "r", decide(control, sent)).await.status, 202);
        let claimed = claim_one(&client).await;
        assert_eq!(claimed["value"], value, "{control}");
        nack(&client, &claimed).await;
    }
}

#[tokio::test]
async fn a_secret_beside_the_chosen_option_reaches_the_agent_with_it() {
    let client = start_local().await;
    let options = json!([{"optionId": "wide", "kind": "allow_always"}, {"optionId": "once", "kind": "allow_once"}]);
    let asked = json!({"actionId": "a", "agentId": "helper", "payload": {"kind": "tool_approval", "options": options}});
    client.append("r", &[fact("run.started", json!({"agentId": "helper"})), fact("action.required", asked)]).await;
    let body = json!({"controlId": "same", "control": "approve", "actionId": "a", "value": {"password": "hunter2hunter2"}});
    for _ in 0..2 {
        assert_eq!(post_control(&client, "r", body.clone()).await.status, 202, "the same request again is the same control");
    }
    assert_eq!(claim_one(&client).await["value"], json!({"password": "hunter2hunter2", "optionId": "once"}));
}

#[tokio::test]
async fn a_reader_that_cannot_see_the_call_gets_no_subject_and_no_words_of_its_options() {
    let client = start_local().await;
    let label = "Always allow SECRET-ARGUMENT";
    let options = json!([{"optionId": "wide", "label": label, "kind": "allow_always", "description": label}, {"optionId": "once", "kind": "allow_once"}]);
    let ask = |action: &str, title: Value| {
        let payload = json!({"kind": "tool_approval", "message": "May I?", "title": title, "input": {"command": "SECRET-ARGUMENT"}, "options": options});
        fact("action.required", json!({"actionId": action, "toolCallId": "c", "payload": payload}))
    };
    let hidden = fact("tool.started", json!({"toolCallId": "c", "audience": "internal"}));
    client.append("r", &[fact("run.started", json!({})), hidden, ask("a", Value::Null), ask("b", json!("Deploy"))]).await;
    let reduced = json!([
        {"optionId": "once", "kind": "allow_once", "label": "Allow once", "effect": "allow", "width": "once"},
        {"optionId": "wide", "kind": "allow_always", "label": "Always allow", "effect": "allow", "width": "always"},
    ]);
    for (action, title) in [("a", Value::Null), ("b", json!("Deploy"))] {
        let content = read_content(&client, "r", "user", "action", action).await.unwrap();
        assert_eq!((content.get("subject"), &content["title"]), (None, &title), "a source's title stays");
        assert_eq!(content["options"], reduced);
        let content = read_content(&client, "r", "internal", "action", action).await.unwrap();
        assert_eq!(content["subject"]["command"], "SECRET-ARGUMENT");
        assert_eq!(content["options"][1]["label"], label);
    }
    for path in ["activities", "events", "export"] {
        let text = String::from_utf8(client.get(&format!("/v1/runs/r/{path}")).await.body).unwrap();
        assert!(!text.contains("SECRET-ARGUMENT"), "{path}: {text}");
    }
    assert_eq!(post_control(&client, "r", json!({"control": "approve", "actionId": "a"})).await.status, 202, "it may decide");
}

#[tokio::test]
async fn a_subject_follows_its_call_whatever_comes_first() {
    let client = start_local().await;
    let named = fact("tool.started", json!({"toolCallId": "c", "payload": {"toolName": "Bash"}}));
    let args = fact("tool.args", json!({"toolCallId": "c", "payload": {"input": {"command": "ls"}}}));
    let asked = fact("action.required", json!({"actionId": "a", "toolCallId": "c", "payload": {"kind": "tool_approval"}}));
    for (n, order) in [[&named, &args, &asked], [&named, &asked, &args], [&asked, &named, &args]].into_iter().enumerate() {
        let run = format!("r{n}");
        let facts: Vec<Value> = std::iter::once(fact("run.started", json!({}))).chain(order.into_iter().cloned()).collect();
        client.append(&run, &facts).await;
        let action = read_content(&client, &run, "user", "action", "a").await.unwrap();
        assert_eq!(action["subject"], json!({"kind": "command", "command": "ls", "toolName": "Bash"}), "order {n}");
        assert_eq!((&action["title"], &action["titleFrom"]), (&json!("Run `ls`?"), &json!("server")), "order {n}");
    }
}
