//! Streams that a client of the AI SDK counts, as `WorkflowChatTransport` does.
//!
//! Wherever such a client is cut, the chunks that it asks for follow those that it has: none comes twice, none is
//! missing. The real library is in `tests/clients`.

use crate::ai_sdk_client::Reader;
use crate::harness::{Client, Response, environment, fact, part_of, recordings, serve_until, to_ndjson, with_timeout};
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::Storage;
use proscenium::serve::maintenance::compact::Compactor;
use proscenium::serve::{KeepAlive, Limits, Server};
use serde_json::{Value, json};
use std::time::Duration;

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

/// A ring so small that every reader which is not at the newest frame reads the log.
const TINY_RING: FeedConfig = FeedConfig { tick: Duration::from_millis(1), ring_bytes_max: 1, pages_bytes_max: 1 << 20 };

/// Starts a server in memory whose clock stands still, with a compactor that takes every ended run.
async fn start_with(sizes: FeedConfig) -> (Client, Compactor) {
    let now = || jiff::Timestamp::from_second(1_800_000_000).unwrap();
    let (limits, pulse) = (Limits::default(), KeepAlive::default());
    let server = Server::new(Storage::memory(), Policy::default(), sizes, limits, pulse, environment(now)).unwrap();
    let compactor = server.compactor(Duration::ZERO);
    (serve_until(server, std::future::pending()).await.0, compactor)
}

async fn start() -> Client {
    start_with(FeedConfig::default()).await.0
}

fn chat(chat: &str, messages: &[Value]) -> Value {
    json!({ "id": chat, "messages": messages, "trigger": "submit-message" })
}

fn question(text: &str) -> Value {
    json!({ "id": "u1", "role": "user", "parts": [{ "type": "text", "text": text }] })
}

/// The chunks of a whole body, which must be complete.
fn chunks(body: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(body).unwrap();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// The chunks from an index on, up to the end of the answer.
async fn rest(client: &Client, name: &str, start: &str, more: &str) -> Response {
    client.get(&format!("/ai-sdk/helper/{name}/stream?startIndex={start}{more}")).await
}

async fn chunks_from(client: &Client, name: &str, start: impl std::fmt::Display) -> Vec<Value> {
    let answer = with_timeout("the rest of a stream", rest(client, name, &start.to_string(), "")).await;
    assert_eq!(answer.status, 200, "{start}: {answer:?}");
    chunks(&answer.body)
}

fn name_of(answer: &reqwest::Response) -> String {
    answer.headers()["x-workflow-run-id"].to_str().unwrap().to_owned()
}

/// Posts a chat, and returns the answer, whose body follows.
async fn ask(client: &Client, query: &str, body: &Value) -> reqwest::Response {
    let url = format!("http://{}/ai-sdk/helper{query}", client.at);
    let request = reqwest::Client::new().post(url).header("content-type", "application/json").body(body.to_string());
    let answer = with_timeout("an answer", request.send()).await.unwrap();
    assert_eq!(answer.status(), 200);
    answer
}

async fn read_to_end(answer: reqwest::Response) -> Vec<Value> {
    chunks(&with_timeout("the end of an answer", answer.bytes()).await.unwrap())
}

/// Claims the only control of the agent.
async fn claim(client: &Client) -> Value {
    client.post("/v1/agents/helper/controls/claim?wait=30", &[], "").await.ok()["controls"][0].clone()
}

/// Claims the request of a chat, acknowledges it, and returns the run that it asks for.
async fn accept(client: &Client) -> String {
    let control = claim(client).await;
    let path = format!("/v1/controls/{}/ack", control["controlId"].as_str().unwrap());
    client.post(&path, &[], json!({ "lease": control["lease"] }).to_string()).await.ok();
    control["value"]["runId"].as_str().unwrap_or_default().to_owned()
}

async fn publish(client: &Client, chat: &str, run: &str, source: &str, facts: &[Value]) {
    let path = format!("/v1/runs/{run}/facts?sessionId={chat}&agentId=helper&source={source}");
    client.post_lines(&path, to_ndjson(facts)).await.ok();
}

fn delta(text: &str) -> Value {
    fact("text.delta", json!({ "messageId": "a", "payload": { "text": text } }))
}

fn ended() -> [Value; 2] {
    [fact("text.final", json!({ "messageId": "a" })), fact("run.finished", json!({}))]
}

fn text_of(chunks: &[Value]) -> String {
    chunks.iter().filter(|chunk| chunk["type"] == "text-delta").filter_map(|chunk| chunk["delta"].as_str()).collect()
}

/// Writes a run of this text, one fact per word, and returns the name of its stream and its chunks.
async fn written(client: &Client, of: &str, text: &str) -> (String, String, Vec<Value>) {
    let answer = ask(client, "", &chat(of, &[question("Hello")])).await;
    let (name, run) = (name_of(&answer), accept(client).await);
    publish(client, of, &run, "agentui", &[fact("run.started", json!({}))]).await;
    for word in text.split_inclusive(' ') {
        publish(client, of, &run, "agentui", &[delta(word)]).await;
    }
    publish(client, of, &run, "agentui", &ended()).await;
    (name, run, read_to_end(answer).await)
}

#[tokio::test]
async fn a_client_that_is_cut_at_any_chunk_of_a_recording_gets_exactly_the_rest() {
    for (sizes, parts) in [(FeedConfig::default(), 24), (TINY_RING, 48)] {
        let (client, _) = start_with(sizes).await;
        for (n, (source, name, facts)) in
            part_of(recordings(), parts).into_iter().filter(|(.., facts)| facts.len() < 80).enumerate()
        {
            for version in [5, 7] {
                let of = format!("c{n}-{version}");
                let answer = ask(&client, &format!("?version={version}"), &chat(&of, &[question("Hello")])).await;
                let (stream, run) = (name_of(&answer), accept(&client).await);
                assert_eq!(stream, format!("{run}~{version}~user"));
                // Some facts come alone, some together.
                for some in facts.chunks(1 + n % 3) {
                    publish(&client, &of, &run, source, some).await;
                }
                publish(&client, &of, &run, "agentui", &[fact("run.finished", json!({}))]).await;
                let all = read_to_end(answer).await;
                // The response ended at the first pause: what follows belongs to the next one.
                let whole = chunks_from(&client, &stream, 0).await;
                let shared = all.len() - 1;
                assert_eq!(all[..shared], whole[..shared], "{name}, version {version}");
                for cut in 0..whole.len() {
                    let rest = chunks_from(&client, &stream, cut).await;
                    assert_eq!(rest, whole[cut..], "{name}, version {version}, cut at {cut}");
                    let mut reader = Reader::read(version, &whole[..cut]);
                    for chunk in &rest {
                        reader.apply(chunk);
                    }
                    assert_eq!(reader.message, Reader::read(version, &whole).message, "{name}, cut at {cut}");
                }
                assert_eq!(chunks_from(&client, &stream, whole.len()).await, [json!({ "type": "finish" })]);
                rest(&client, &stream, &(whole.len() + 1).to_string(), "").await.problem(400, "bad_query");
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_is_cut_while_the_run_is_at_work_goes_on_live() {
    for sizes in [FeedConfig::default(), TINY_RING] {
        let (client, _) = start_with(sizes).await;
        let answer = ask(&client, "", &chat("c", &[question("Hello")])).await;
        let (stream, run) = (name_of(&answer), accept(&client).await);
        publish(&client, "c", &run, "agentui", &[fact("run.started", json!({}))]).await;
        let words: Vec<String> = (0..40).map(|n| format!("word{n} ")).collect();
        let mut resumed = Vec::new();
        for (n, word) in words.iter().enumerate() {
            publish(&client, "c", &run, "agentui", &[delta(word)]).await;
            // start, start-step, message-metadata, text-start: then one chunk for each word.
            let (client, stream) = (client.clone(), stream.clone());
            resumed.push(tokio::spawn(async move { chunks_from(&client, &stream, 4 + n).await }));
        }
        publish(&client, "c", &run, "agentui", &ended()).await;
        let all = read_to_end(answer).await;
        assert_eq!(text_of(&all), words.concat());
        for (n, rest) in resumed.into_iter().enumerate() {
            assert_eq!(rest.await.unwrap(), all[4 + n..], "cut before word {n}");
        }
    }
}

#[tokio::test]
async fn a_negative_index_counts_from_the_end_and_states_the_last_index() {
    let client = start().await;
    let (name, run, all) = written(&client, "c", "One two three").await;
    assert_eq!(name, run, "the run's id means the same stream");
    for (back, from) in [(1, all.len() - 1), (3, all.len() - 3), (all.len(), 0), (999, 0)] {
        let answer = rest(&client, &name, &format!("-{back}"), "").await;
        assert_eq!(answer.headers["x-workflow-stream-tail-index"], (all.len() - 1).to_string().as_str());
        assert_eq!(chunks(&answer.body), all[from..], "-{back}");
    }
    assert!(rest(&client, &name, "0", "").await.headers.get("x-workflow-stream-tail-index").is_none());
}

#[tokio::test]
async fn an_index_that_is_none_or_beyond_the_end_and_an_unknown_run_are_refused() {
    let client = start().await;
    let (name, _, all) = written(&client, "c", "One two").await;
    for start in ["", "x", "1.5", "99999999999999999999", "0x1"] {
        let problem = rest(&client, &name, start, "").await.problem(400, "bad_query");
        assert_eq!(problem["member"], "startIndex", "{start}");
    }
    let problem = rest(&client, &name, &(all.len() + 1).to_string(), "").await.problem(400, "bad_query");
    assert_eq!(json!([problem["member"], problem["limit"]]), json!(["startIndex", all.len()]));
    rest(&client, "never~7~user", "0", "").await.problem(404, "no_such_run");
    rest(&client, "c", "0", "&version=4").await.problem(400, "bad_query");
    // The id of a chat or run that does not exist yet is a chat at rest.
    assert_eq!(chunks(&rest(&client, "never", "0", "").await.body), [json!({ "type": "finish" })]);
    rest(&client, "never", "1", "").await.problem(404, "no_such_run");
}

#[tokio::test]
async fn a_chat_names_its_active_run_and_one_at_rest_gets_a_finish() {
    let client = start().await;
    let answer = ask(&client, "", &chat("c", &[question("Hello")])).await;
    // The run is requested: the stream waits for it.
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { chunks_from(&client, "c", 0).await }
    });
    rest(&client, "c", "1", "").await.problem(400, "bad_query");
    let run = accept(&client).await;
    publish(&client, "c", &run, "agentui", &[fact("run.started", json!({})), delta("Hi")]).await;
    let reloaded = tokio::spawn({
        let client = client.clone();
        async move { chunks_from(&client, "c", 0).await }
    });
    let tail = client.get_head("/ai-sdk/helper/c/stream?startIndex=-2", &[]).await;
    assert_eq!((tail.status, &tail.headers["x-workflow-stream-tail-index"]), (200, &"4".parse().unwrap()));
    publish(&client, "c", &run, "agentui", &ended()).await;
    let all = read_to_end(answer).await;
    assert_eq!((waiting.await.unwrap(), reloaded.await.unwrap()), (all.clone(), all.clone()));
    // A page that begins has loaded the chat. One that has chunks misses the others.
    assert_eq!(chunks_from(&client, "c", 0).await, [json!({ "type": "finish" })]);
    assert_eq!(chunks_from(&client, "c", -3).await, [json!({ "type": "finish" })]);
    assert_eq!(chunks_from(&client, "c", 3).await, all[3..]);
}

#[tokio::test]
async fn the_answer_to_a_decision_is_counted_from_its_pause() {
    let client = start().await;
    let call = |id: &str| fact("tool.started", json!({ "toolCallId": id, "payload": { "toolName": "rm", "input": {} } }));
    let asks = |id: &str| {
        let payload = json!({ "kind": "tool_approval", "message": "May I?" });
        fact("action.required", json!({ "actionId": format!("ask-{id}"), "toolCallId": id, "payload": payload }))
    };
    let begins = ask(&client, "?version=7", &chat("c", &[question("Delete")])).await;
    let (first, run) = (name_of(&begins), accept(&client).await);
    publish(&client, "c", &run, "agentui", &[fact("run.started", json!({})), delta("First"), call("x"), asks("x")]).await;
    let before = read_to_end(begins).await;
    assert_eq!(before.last().unwrap()["finishReason"], "tool-calls");

    let part = json!({ "type": "dynamic-tool", "toolName": "rm", "toolCallId": "x", "state": "approval-responded", "input": {},
        "approval": { "id": "ask-x", "approved": true } });
    let message = json!({ "id": run, "role": "assistant", "parts": [part] });
    let continues = ask(&client, "?version=7", &chat("c", &[question("Delete"), message])).await;
    let second = name_of(&continues);
    assert!(second.starts_with(&format!("{run}~7~user~")), "{second}");
    accept(&client).await;
    let resolved = fact("action.resolved", json!({ "actionId": "ask-x", "payload": { "outcome": "approved" } }));
    let result = fact("tool.result", json!({ "toolCallId": "x", "audience": "user", "payload": { "output": "gone" } }));
    let more = fact("text.final", json!({ "messageId": "b", "payload": { "text": "Second" } }));
    publish(&client, "c", &run, "agentui", &[resolved, result, more]).await;
    publish(&client, "c", &run, "agentui", &[fact("run.finished", json!({}))]).await;
    let after = read_to_end(continues).await;
    assert_eq!((text_of(&before).as_str(), text_of(&after).as_str()), ("First", "Second"));
    for cut in 0..after.len() {
        assert_eq!(chunks_from(&client, &second, cut).await, after[cut..], "cut at {cut}");
    }
    // The first stream goes on over the pause for a client that was cut before it.
    for cut in 0..before.len() {
        let rest = chunks_from(&client, &first, cut).await;
        let shared = before.len() - 1 - cut;
        assert_eq!(rest[..shared], before[cut..before.len() - 1], "cut at {cut}");
        assert_eq!(text_of(&rest[shared..]), "Second", "cut at {cut}");
    }
}

#[tokio::test]
async fn a_text_that_is_taken_back_is_counted_alike_by_all() {
    let client = start().await;
    let answer = ask(&client, "?version=7", &chat("c", &[question("Hello")])).await;
    let (stream, run) = (name_of(&answer), accept(&client).await);
    publish(&client, "c", &run, "agentui", &[fact("run.started", json!({})), delta("Wrong"), delta(" words")]).await;
    let repaired = fact("text.final", json!({ "messageId": "a", "payload": { "text": "Right words" } }));
    publish(&client, "c", &run, "agentui", &[repaired]).await;
    let more = fact("text.final", json!({ "messageId": "b", "payload": { "text": "More" } }));
    publish(&client, "c", &run, "agentui", &[more, fact("run.finished", json!({}))]).await;
    let all = read_to_end(answer).await;
    assert!(all.iter().any(|chunk| chunk["type"] == "reset-step"), "{all:#?}");
    for cut in 0..all.len() {
        assert_eq!(chunks_from(&client, &stream, cut).await, all[cut..], "cut at {cut}");
    }
    let message = Reader::read(7, &all).message;
    let texts: Vec<_> = message["parts"].as_array().unwrap().iter().filter_map(|part| part["text"].as_str()).collect();
    assert_eq!(texts, ["Right words", "More"]);
}

#[tokio::test]
async fn a_cancelled_run_ends_with_a_finish_for_the_client_that_asks_on() {
    let client = start().await;
    let answer = ask(&client, "", &chat("c", &[question("Hello")])).await;
    let (stream, run) = (name_of(&answer), accept(&client).await);
    let cancelled = fact("run.finished", json!({ "payload": { "status": "cancelled" } }));
    publish(&client, "c", &run, "agentui", &[fact("run.started", json!({})), delta("Hi"), cancelled]).await;
    let all = read_to_end(answer).await;
    assert_eq!(all.last().unwrap()["type"], "abort");
    assert_eq!(chunks_from(&client, &stream, all.len()).await, [json!({ "type": "finish" })]);
}

#[tokio::test]
async fn a_compacted_run_cannot_be_counted_and_its_chat_loads() {
    let (client, compactor) = start_with(FeedConfig::default()).await;
    let answer = ask(&client, "", &chat("c", &[question("Hello")])).await;
    let (name, run) = (name_of(&answer), accept(&client).await);
    publish(&client, "c", &run, "agentui", &[fact("run.started", json!({})), delta("One two")]).await;
    for n in 0..20 {
        let progress = json!({ "toolCallId": "call", "payload": { "message": format!("batch {n}") } });
        publish(&client, "c", &run, "agentui", &[fact("tool.progress", progress)]).await;
    }
    publish(&client, "c", &run, "agentui", &ended()).await;
    let all = read_to_end(answer).await;
    assert!(compactor.run_once().await.unwrap().rows > 0);
    for start in ["0", "3", "-1"] {
        let problem = rest(&client, &name, start, "").await.problem(410, "compacted");
        assert_eq!(problem["runId"], run.as_str());
    }
    let loaded = client.get("/ai-sdk/helper/c").await.ok();
    assert_eq!(loaded["messages"].as_array().unwrap().last().unwrap()["id"], run.as_str());
    // The same request again gets the state, as before.
    let again = read_to_end(ask(&client, "", &chat("c", &[question("Hello")])).await).await;
    assert_eq!((text_of(&again), again.last()), ("One two".into(), all.last()));
}

#[tokio::test]
async fn an_erased_run_is_gone_and_a_rewritten_one_is_of_another_epoch() {
    let client = start().await;
    let (name, run, _) = written(&client, "c", "One").await;
    assert_eq!(client.delete("/v1/sessions/c").await.status, 204);
    rest(&client, &name, "1", "").await.problem(410, "erased");
    rest(&client, &format!("{run}~7~user"), "1", "").await.problem(410, "erased");
    publish(&client, "d", "other", "agentui", &[fact("run.started", json!({}))]).await;
    rest(&client, "other~7~user~000000000000feed:4", "0", "").await.problem(410, "epoch_changed");
}

#[tokio::test]
async fn an_agents_chats_are_listed_with_the_newest_activity_first() {
    let client = start().await;
    let agent_of = async |chat: &str, run: &str, agent: &str| {
        let path = format!("/v1/runs/{run}/facts?sessionId={chat}&agentId={agent}");
        let asked =
            fact("text.final", json!({ "messageId": "u", "payload": { "role": "user", "text": format!("About {chat}") } }));
        client.post(&path, &JSON, json!([fact("run.started", json!({})), asked]).to_string()).await.ok();
    };
    for (chat, run, agent) in
        [("one", "r1", "helper"), ("two", "r2", "helper"), ("other", "r3", "clerk"), ("old", "r4", "helper")]
    {
        agent_of(chat, run, agent).await;
    }
    client.patch("/v1/sessions/two", &json!({ "title": "Mine" })).await.ok();
    client.patch("/v1/sessions/old", &json!({ "archived": true })).await.ok();
    let page = client.get("/ai-sdk/helper?limit=1").await.ok();
    assert_eq!(json!([page["chats"][0]["id"], page["chats"][0]["title"]]), json!(["two", "Mine"]));
    assert_eq!(page["chats"][0]["updatedAt"], "2027-01-15T08:00:00.000Z");
    let next = page["nextCursor"].as_str().unwrap();
    let page = client.get(&format!("/ai-sdk/helper?limit=1&cursor={next}")).await.ok();
    assert_eq!(json!([page["chats"][0]["id"], page["chats"][0]["title"], page["nextCursor"]]), json!(["one", "About one", null]));
    assert_eq!(client.get("/ai-sdk/unknown").await.ok(), json!({ "chats": [], "nextCursor": null }));
    client.get("/ai-sdk/helper?cursor=x").await.problem(400, "bad_query");
    client.get("/ai-sdk/helper?limit=x").await.problem(400, "bad_query");
    client.get("/ai-sdk/helper?audience=all").await.problem(400, "bad_audience");
}
