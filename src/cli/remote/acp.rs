//! `proscenium acp`: the Agent Client Protocol on standard streams, for editors. It passes on what `/acp` says.

use crate::cli::{CliError, Endpoint};
use futures_util::{SinkExt, StreamExt};
use reqwest::{StatusCode, header};
use std::io;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};
use tokio_tungstenite::tungstenite::{self, Message};

/// The arguments of `acp`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  proscenium acp --url https://agents.example --agent coder
  proscenium acp --session my-session              work on in a session that exists

In an editor's settings, this is the command of an agent. The token is the variable PROSCENIUM_TOKEN. Messages are on standard input and output, and nothing else is.")]
pub struct Acp {
    /// The agent of new sessions. By default the server's default agent.
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// The session to work in. By default the editor begins new ones.
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Whose content the editor shows.
    #[arg(long, value_enum, default_value = "user")]
    audience: crate::cli::Audience,
    #[command(flatten)]
    server: Endpoint,
}

/// The longest line that an editor may send, in bytes: the server takes no longer messages.
const LINE_BYTES_MAX: u64 = 64 * 1024 * 1024;

type Socket = WebSocketStream<reqwest::Upgraded>;

/// Passes on messages until the editor closes standard input.
///
/// # Errors
/// [`CliError`] if the server does not answer, refuses, or ends the connection.
pub async fn run(args: Acp) -> Result<(), CliError> {
    let socket = connect(&args).await?;
    let (mut to_server, mut from_server) = socket.split();
    let up = async {
        let mut input = BufReader::new(tokio::io::stdin());
        while let Some(line) = next_line(&mut input).await? {
            to_server.send(Message::text(line)).await.map_err(|error| disconnected(&args.server, &error))?;
        }
        // The last messages may still be answered, until the server has closed, too.
        to_server.send(Message::Close(None)).await.map_err(|error| disconnected(&args.server, &error))
    };
    let down = async {
        let mut output = tokio::io::stdout();
        while let Some(message) = from_server.next().await {
            match message {
                Ok(Message::Text(text)) => write_line(&mut output, &text).await?,
                Ok(Message::Close(close)) => return closed(&args.server, close),
                Ok(_) => {}
                Err(error) => return Err(disconnected(&args.server, &error)),
            }
        }
        Ok(())
    };
    let (mut up, mut down) = (std::pin::pin!(up), std::pin::pin!(down));
    tokio::select! {
        sent = &mut up => sent?,
        received = &mut down => return received,
    }
    match down.await {
        // The editor has gone: how the connection ends then is no news to it.
        Err(CliError::Disconnected { .. }) => Ok(()),
        ended => ended,
    }
}

async fn connect(args: &Acp) -> Result<Socket, CliError> {
    let server = &args.server;
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("audience", args.audience.as_str());
    for (name, value) in [("agentId", &args.agent), ("sessionId", &args.session)] {
        query.extend_pairs(value.iter().map(|value| (name, value)));
    }
    let url = format!("{}/acp?{}", server.url.trim_end_matches('/'), query.finish());
    let client = server.client_with(reqwest::ClientBuilder::http1_only)?;
    let request = client
        .get(&url)
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_VERSION, "13")
        .header(header::SEC_WEBSOCKET_KEY, generate_key());
    let answer = request.send().await.map_err(|error| server.request_error(&error))?;
    let status = answer.status();
    if status != StatusCode::SWITCHING_PROTOCOLS {
        server.require_success(answer).await?;
        return Err(CliError::UnexpectedResponse { url, status, body: String::new() });
    }
    let upgraded = answer.upgrade().await.map_err(|error| server.request_error(&error))?;
    Ok(WebSocketStream::from_raw_socket(upgraded, Role::Client, None).await)
}

/// The next line that is not blank, without its end; `None` at the end of the input.
async fn next_line(input: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<String>, CliError> {
    loop {
        let mut line = Vec::new();
        let read = tokio::io::AsyncReadExt::take(&mut *input, LINE_BYTES_MAX).read_until(b'\n', &mut line).await?;
        if read == 0 {
            return Ok(None);
        }
        if !line.ends_with(b"\n") && read as u64 == LINE_BYTES_MAX {
            return Err(CliError::Usage(format!("a line of standard input is longer than {LINE_BYTES_MAX} bytes")));
        }
        let line = String::from_utf8(line).map_err(|_| CliError::Usage("a line of standard input is not UTF-8".into()))?;
        if !line.trim().is_empty() {
            return Ok(Some(line.trim().to_owned()));
        }
    }
}

async fn write_line(output: &mut (impl AsyncWrite + Unpin), text: &str) -> io::Result<()> {
    output.write_all(text.as_bytes()).await?;
    output.write_all(b"\n").await?;
    output.flush().await
}

/// The end of the connection: of the editor's own, or of the server's.
fn closed(server: &Endpoint, close: Option<CloseFrame>) -> Result<(), CliError> {
    match close {
        None => Ok(()),
        Some(close) if matches!(close.code, CloseCode::Normal | CloseCode::Status) => Ok(()),
        Some(close) => Err(CliError::Disconnected { url: server.url.clone(), reason: close.reason.to_string() }),
    }
}

fn disconnected(server: &Endpoint, error: &tungstenite::Error) -> CliError {
    CliError::Disconnected { url: server.url.clone(), reason: error.to_string() }
}
