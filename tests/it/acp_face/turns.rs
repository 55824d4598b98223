//! Sessions and turns of an editor: from its first message to the erasure, also over connections that are cut.

use super::editor::{Editor, ask, begin_turn, claim, end_turn, prompt_of, resolve, say, texts};
use crate::harness::{Process, fact, repository, start_local, with_timeout};
use serde_json::{Value, json};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

#[tokio::test]
async fn an_editor_begins_a_session_prompts_lists_loads_and_deletes_it() {
    let client = start_local().await;
    let mut editor = Editor::open(&client).await;
    let session = editor.new_session().await;
    let prompt = editor.prompt(&session, "Hello").await;
    let run = begin_turn(&client).await;
    say(&client, &run, &["Good ", "day."]).await;
    end_turn(&client, &run).await;
    let result = editor.finish(prompt).await.unwrap();
    assert_eq!(json!([result["stopReason"], result["_meta"]["proscenium"]["runId"]]), json!(["end_turn", run]));
    let shown = editor.updates();
    assert_eq!(texts(&shown, "agent_message_chunk"), "Good day.");
    assert_eq!(texts(&shown, "user_message_chunk"), "", "the editor shows its own prompt");

    let listed = editor.ok("session/list", json!({})).await;
    let [entry] = &listed["sessions"].as_array().unwrap()[..] else { panic!("one session: {listed}") };
    assert_eq!(json!([entry["sessionId"], entry["cwd"], entry["title"]]), json!([session, "/srv/demo", "Hello"]));
    assert_eq!(editor.ok("session/list", json!({ "cwd": "/other" })).await["sessions"], json!([]));

    let mut other = Editor::open(&client).await;
    other.ok("session/load", json!({ "sessionId": session, "cwd": "/srv/demo", "mcpServers": [] })).await;
    let loaded = other.updates();
    let kinds: Vec<_> = loaded.iter().map(|params| params["update"]["sessionUpdate"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["user_message_chunk", "agent_message_chunk"], "each message once: {loaded:?}");
    assert_eq!(texts(&loaded, "agent_message_chunk"), "Good day.");

    assert_eq!(editor.ok("session/close", json!({ "sessionId": session })).await, json!({}));
    assert_eq!(editor.refused("session/prompt", prompt_of(&session, "More")).await["code"], -32002);
    assert_eq!(other.ok("session/delete", json!({ "sessionId": session })).await, json!({}));
    let gone = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
    assert_eq!(editor.refused("session/load", gone).await["code"], -32002);
    assert_eq!(other.refused("session/prompt", prompt_of(&session, "More")).await["code"], -32002, "it was open, and is erased");
}

#[tokio::test]
async fn several_editors_of_a_session_see_the_same() {
    let client = start_local().await;
    let (mut one, mut two) = (Editor::open(&client).await, Editor::open(&client).await);
    let session = one.new_session().await;
    two.ok("session/resume", json!({ "sessionId": session, "cwd": "/" })).await;
    let prompt = one.prompt(&session, "Hello").await;
    let run = begin_turn(&client).await;
    say(&client, &run, &["Hi"]).await;
    end_turn(&client, &run).await;
    one.finish(prompt).await.unwrap();
    let asked = two.next("session/update").await;
    assert_eq!(asked["params"]["update"]["content"]["text"], "Hello", "another client's prompt is shown");
    assert_eq!(two.next("session/update").await["params"]["update"]["content"]["text"], "Hi");
}

#[tokio::test]
async fn the_first_decision_of_any_face_wins_and_the_others_are_withdrawn() {
    let client = start_local().await;
    let (mut one, mut two) = (Editor::open(&client).await, Editor::open(&client).await);
    let session = one.new_session().await;
    two.ok("session/resume", json!({ "sessionId": session, "cwd": "/" })).await;
    let prompt = one.prompt(&session, "Delete it").await;
    let run = begin_turn(&client).await;
    let choose = |request: &Value, option: &str| {
        let outcome = json!({ "outcome": { "outcome": "selected", "optionId": option } });
        json!({ "jsonrpc": "2.0", "id": request["id"], "result": outcome })
    };

    // One editor answers.
    ask(&client, &run, "a").await;
    let (first, second) = (one.next("session/request_permission").await, two.next("session/request_permission").await);
    let kinds: Vec<_> = first["params"]["options"].as_array().unwrap().iter().map(|option| &option["optionId"]).collect();
    assert_eq!(kinds, ["once", "ever", "no"], "from narrow to wide");
    assert_eq!(first["params"]["toolCall"]["rawInput"], json!({ "path": "a.txt" }));
    two.send(choose(&second, "ever")).await;
    let decided = claim(&client).await;
    let expected = json!(["approve", "a", { "optionId": "ever" }, "acp"]);
    assert_eq!(json!([decided["control"], decided["actionId"], decided["value"], decided["decidedBy"]["via"]]), expected);
    assert_eq!(one.next("$/cancel_request").await["params"]["requestId"], first["id"]);
    // A late answer, and a second one.
    one.send(choose(&first, "no")).await;
    two.send(choose(&second, "no")).await;
    resolve(&client, &run, "a").await;

    // A caller of REST answers.
    ask(&client, &run, "b").await;
    let (first, second) = (one.next("session/request_permission").await, two.next("session/request_permission").await);
    let control = json!({ "control": "reject", "actionId": "b" }).to_string();
    client.post(&format!("/v1/runs/{run}/controls"), &[("content-type", "application/json")], control).await;
    assert_eq!(claim(&client).await["control"], "reject", "the late answers led to no control");
    for (editor, request) in [(&mut one, &first), (&mut two, &second)] {
        assert_eq!(editor.next("$/cancel_request").await["params"]["requestId"], request["id"]);
    }
    resolve(&client, &run, "b").await;
    end_turn(&client, &run).await;
    assert_eq!(one.finish(prompt).await.unwrap()["stopReason"], "end_turn");
}

#[tokio::test]
async fn a_question_with_a_form_is_answered_and_one_without_a_client_that_can_answer_ends_the_turn() {
    let client = start_local().await;
    let mut editor = Editor::open(&client).await;
    let session = editor.new_session().await;
    let form = json!({ "type": "object", "properties": { "file": { "type": "string" } } });
    let question = json!({ "actionId": "q", "payload": { "kind": "structured_input", "message": "Which?", "schema": form } });
    let prompt = editor.prompt(&session, "Ask").await;
    let run = begin_turn(&client).await;
    client.append(&run, &[fact("action.required", question.clone())]).await;
    let asked = editor.next("elicitation/create").await;
    let params = &asked["params"];
    assert_eq!(json!([params["mode"], params["message"], params["requestedSchema"]]), json!(["form", "Which?", form]));
    let accepted = json!({ "action": "accept", "content": { "file": "a.txt" } });
    editor.send(json!({ "jsonrpc": "2.0", "id": asked["id"], "result": accepted })).await;
    let decided = claim(&client).await;
    assert_eq!(json!([decided["control"], decided["value"]]), json!(["answer", { "file": "a.txt" }]));
    client.append(&run, &[fact("action.resolved", json!({ "actionId": "q", "payload": { "outcome": "answered" } }))]).await;
    end_turn(&client, &run).await;
    editor.finish(prompt).await.unwrap();

    let mut plain = Editor::connect(&client, "", &[]).await.unwrap();
    plain.ok("initialize", json!({ "protocolVersion": 1 })).await;
    let session = plain.new_session().await;
    let prompt = plain.prompt(&session, "Ask").await;
    let run = begin_turn(&client).await;
    client.append(&run, &[fact("action.required", question)]).await;
    assert_eq!(plain.finish(prompt).await.unwrap()["stopReason"], "end_turn");
    let superseding = plain.refused("session/prompt", prompt_of(&session, "Go on")).await;
    assert_eq!(superseding["data"]["code"], "would_supersede", "{superseding}");
    let mut anyway = prompt_of(&session, "Go on");
    anyway["_meta"] = json!({ "proscenium": { "supersede": true } });
    let prompt = plain.begin("session/prompt", anyway).await;
    let run = begin_turn(&client).await;
    end_turn(&client, &run).await;
    assert_eq!(plain.finish(prompt).await.unwrap()["stopReason"], "end_turn");
}

#[tokio::test]
async fn a_cancel_withdraws_a_prompt_or_interrupts_its_run_and_a_failure_is_an_error() {
    let client = start_local().await;
    let mut editor = Editor::open(&client).await;
    let session = editor.new_session().await;
    let cancel = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } });
    let prompt = editor.prompt(&session, "Never taken").await;
    // Its answer shows that the prompt was submitted.
    editor.ok("session/list", json!({})).await;
    editor.send(cancel.clone()).await;
    assert_eq!(editor.finish(prompt).await.unwrap()["stopReason"], "cancelled");

    let prompt = editor.prompt(&session, "Work").await;
    let run = begin_turn(&client).await;
    say(&client, &run, &["Working"]).await;
    editor.next("session/update").await;
    editor.send(cancel).await;
    assert_eq!(claim(&client).await["control"], "interrupt");
    client.append(&run, &[fact("run.failed", json!({ "payload": { "error": { "message": "aborted" } } }))]).await;
    assert_eq!(editor.finish(prompt).await.unwrap()["stopReason"], "cancelled");

    let prompt = editor.prompt(&session, "Fail").await;
    let run = begin_turn(&client).await;
    client.append(&run, &[fact("run.failed", json!({ "payload": { "error": { "message": "It broke." } } }))]).await;
    let error = editor.finish(prompt).await.unwrap_err();
    assert_eq!(json!([error["code"], error["message"]]), json!([-32603, "It broke."]));
}

#[tokio::test]
async fn a_turn_is_found_by_its_start_where_its_worker_takes_no_run_id() {
    let client = start_local().await;
    let mut editor = Editor::open(&client).await;
    let session = editor.new_session().await;
    client.append("earlier", &[fact("run.started", json!({ "sessionId": session })), fact("run.finished", json!({}))]).await;
    let prompt = editor.prompt(&session, "Hello").await;
    claim(&client).await;
    client.append("own", &[fact("run.started", json!({ "sessionId": session })), fact("run.finished", json!({}))]).await;
    assert_eq!(editor.finish(prompt).await.unwrap()["_meta"]["proscenium"]["runId"], "own");
}

#[tokio::test]
async fn an_editor_that_is_killed_at_any_update_resumes_without_loss_or_doubles() {
    let client = start_local().await;
    let mut editor = Editor::open(&client).await;
    let session = editor.new_session().await;
    let prompt = editor.prompt(&session, "Count").await;
    let run = begin_turn(&client).await;
    let words = ["one ", "two ", "three ", "four ", "five ", "sechs – ", "seven"];
    for word in words {
        say(&client, &run, &[word]).await;
    }
    // Two texts of one envelope group, and a call between them.
    ask(&client, &run, "a").await;
    resolve(&client, &run, "a").await;
    say(&client, &run, &["!", "?"]).await;
    end_turn(&client, &run).await;
    editor.finish(prompt).await.unwrap();
    let whole = words.concat() + "!?";
    let shown = editor.updates();
    assert_eq!(texts(&shown, "agent_message_chunk"), whole);
    editor.kill();
    for (cut, params) in shown.iter().enumerate() {
        let cursor = &params["_meta"]["proscenium"]["cursor"];
        assert!(cursor.is_string(), "every update has a cursor: {params}");
        let mut again = Editor::open(&client).await;
        let resume = json!({ "sessionId": session, "cwd": "/", "_meta": { "proscenium": { "cursor": cursor } } });
        again.ok("session/resume", resume).await;
        let marker = again.prompt(&session, &format!("marker {cut}")).await;
        let run = begin_turn(&client).await;
        end_turn(&client, &run).await;
        again.finish(marker).await.unwrap();
        let more = again.updates();
        let all = texts(&shown[..=cut], "agent_message_chunk") + &texts(&more, "agent_message_chunk");
        assert_eq!(all, whole, "killed after update {cut}");
        again.kill();
    }
}

#[tokio::test]
async fn the_command_speaks_the_protocol_on_standard_streams() {
    let process = Process::start();
    let url = format!("http://{}", process.at);
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_proscenium"));
    command.args(["acp", "--url", &url, "--session", "mine", "--agent", "coder"]).current_dir(repository("."));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut lines = BufReader::new(output).lines();
    let requests = [
        json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": 1 } }),
        json!({ "jsonrpc": "2.0", "id": 1, "method": "session/new", "params": { "cwd": "/", "mcpServers": [] } }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "no/such" }),
    ];
    let mut results = Vec::new();
    for request in requests {
        input.write_all(format!("{request}\n\n").as_bytes()).await.unwrap();
        let line = with_timeout("a line", lines.next_line()).await.unwrap().expect("a line");
        results.push(serde_json::from_str::<Value>(&line).expect("a line is a message"));
    }
    assert_eq!(results[0]["result"]["agentInfo"]["name"], "proscenium");
    assert_eq!(results[1]["result"]["sessionId"], "mine");
    assert_eq!(results[2]["error"]["code"], -32601);
    drop(input);
    let ended = with_timeout("the end of the command", child.wait_with_output()).await.unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{}", String::from_utf8_lossy(&ended.stderr));

    let refused =
        tokio::process::Command::new(env!("CARGO_BIN_EXE_proscenium")).args(["acp", "--url", "http://127.0.0.1:9"]).output();
    let refused = with_timeout("a refusal", refused).await.unwrap();
    assert!(!refused.status.success() && refused.stdout.is_empty());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no server answers"), "{refused:?}");
}
