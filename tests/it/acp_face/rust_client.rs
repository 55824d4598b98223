//! The face with the published Rust crate of the protocol as the editor, on the standard streams of `proscenium acp`.

use super::editor::{ask, begin_turn, claim, end_turn, resolve, say};
use crate::harness::{Client, Process, with_timeout};
use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema::{
    ContentBlock, InitializeRequest, LoadSessionRequest, NewSessionRequest, PromptRequest, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse, ResumeSessionRequest, SelectedPermissionOutcome, SessionId,
    SessionNotification, SessionUpdate, StopReason, TextContent,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Client as AcpClient, ConnectTo, Error, Lines};
use futures_util::{sink, stream};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Child;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A request for a permission, and its answer.
type Asked = (RequestPermissionRequest, Responder<RequestPermissionResponse>);

/// An editor that is connected.
struct RustEditor {
    connection: ConnectionTo<Agent>,
    updates: UnboundedReceiver<SessionUpdate>,
    asked: UnboundedReceiver<Asked>,
}

impl RustEditor {
    /// Runs `work` with an editor whose agent is the command.
    async fn with<R>(server: &Process, work: impl AsyncFnOnce(Self) -> R) -> R {
        let (updates_to, updates) = unbounded_channel();
        let (asked_to, asked): (UnboundedSender<Asked>, _) = unbounded_channel();
        let (_child, streams) = command(server);
        let client = AcpClient
            .v1()
            .on_receive_notification(
                async move |notification: SessionNotification, _: ConnectionTo<Agent>| {
                    updates_to.send(notification.update).map_err(Error::into_internal_error)
                },
                agent_client_protocol::on_receive_notification!(),
            )
            .on_receive_request(
                async move |request: RequestPermissionRequest,
                            responder: Responder<RequestPermissionResponse>,
                            _: ConnectionTo<Agent>| {
                    asked_to.send((request, responder)).map_err(Error::into_internal_error)
                },
                agent_client_protocol::on_receive_request!(),
            );
        let work = async |connection: ConnectionTo<Agent>| {
            let answer = connection.send_request(InitializeRequest::new(ProtocolVersion::V1)).block_task().await?;
            assert!(answer.agent_capabilities.load_session);
            Ok(work(Self { connection, updates, asked }).await)
        };
        with_timeout("the editor's end", client.connect_with(streams, work)).await.unwrap()
    }

    /// The text of the agent's messages, once it has this length.
    async fn text(&mut self, length: usize) -> String {
        let mut text = String::new();
        while text.len() < length {
            let update = with_timeout("an update", self.updates.recv()).await.expect("the connection is open");
            if let SessionUpdate::AgentMessageChunk(chunk) = update
                && let ContentBlock::Text(content) = chunk.content
            {
                text += &content.text;
            }
        }
        text
    }

    async fn asked(&mut self) -> Asked {
        with_timeout("a request", self.asked.recv()).await.expect("the connection is open")
    }
}

/// Starts the command. It ends with the first value.
fn command(server: &Process) -> (Child, impl ConnectTo<AcpClient> + 'static) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_proscenium"));
    command.args(["acp", "--url", &format!("http://{}", server.at)]).kill_on_drop(true);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let outgoing = sink::unfold(input, async |mut input, line: String| {
        input.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(input)
    });
    let incoming = stream::unfold(BufReader::new(output).lines(), async |mut lines| {
        lines.next_line().await.transpose().map(|line| (line, lines))
    });
    (child, Lines::new(outgoing, incoming))
}

#[tokio::test]
async fn two_editors_of_the_rust_crate_share_a_session_and_its_decision() {
    const SAID: &str = "It is done.";
    let server = Process::start();
    let client = Client::new(server.at);
    let session = RustEditor::with(&server, async |mut one| {
        let session = one.connection.send_request(NewSessionRequest::new("/srv/demo")).block_task().await.unwrap().session_id;
        RustEditor::with(&server, async |mut two| {
            two.connection.send_request(ResumeSessionRequest::new(session.clone(), "/srv/demo")).block_task().await.unwrap();
            decide_together(&client, &session, &mut one, &mut two, SAID).await;
        })
        .await;
        session
    })
    .await;
    let loaded = RustEditor::with(&server, async |mut editor| {
        editor.connection.send_request(LoadSessionRequest::new(session, "/srv/demo")).block_task().await.unwrap();
        editor.text(SAID.len()).await
    })
    .await;
    assert_eq!(loaded, SAID, "a third one loads what they saw");
}

/// A turn that one editor begins, and in which the other one decides.
async fn decide_together(client: &Client, session: &SessionId, one: &mut RustEditor, two: &mut RustEditor, said: &str) {
    let words = vec![ContentBlock::Text(TextContent::new("Delete it"))];
    let prompt = one.connection.send_request(PromptRequest::new(session.clone(), words)).block_task();
    let turn = async {
        let run = begin_turn(client).await;
        ask(client, &run, "a").await;
        let ((_, first), (request, second)) = (one.asked().await, two.asked().await);
        assert_eq!(request.options.len(), 3, "{request:?}");
        let outcome = RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(request.options[0].option_id.clone()));
        second.respond(RequestPermissionResponse::new(outcome)).unwrap();
        let decided = claim(client).await;
        assert_eq!((&decided["control"], &decided["decidedBy"]["via"]), (&"approve".into(), &"acp".into()), "{decided}");
        with_timeout("the withdrawal of the other request", first.cancellation().cancelled()).await;
        first.respond(RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled)).unwrap();
        resolve(client, &run, "a").await;
        say(client, &run, &[said]).await;
        end_turn(client, &run).await;
    };
    let (ended, ()) = tokio::join!(prompt, turn);
    assert_eq!(ended.unwrap().stop_reason, StopReason::EndTurn);
    assert_eq!((one.text(said.len()).await, two.text(said.len()).await), (said.to_owned(), said.to_owned()));
}
