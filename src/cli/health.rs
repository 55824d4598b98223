//! `proscenium health`: checks whether a server is ready, for containers and service managers.

use super::{CliError, Endpoint};
use reqwest::StatusCode;
use std::io::Write;
use std::time::Duration;

/// The arguments of `health`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Health {
    #[command(flatten)]
    server: Endpoint,
}

const EXAMPLES: &str = "\
Examples:
  proscenium health
  proscenium health --url https://proscenium.example --ca authority.pem

The exit code is 0 if GET /readyz answers 200 within 5 s. Otherwise it is 1, and standard error has the reason.";

/// The time limit for the whole answer. A server that takes longer is not ready.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// Prints `ready` if the server accepts facts and readers.
///
/// # Errors
/// [`CliError`] if the server does not answer in time, or is not ready.
pub async fn run(args: Health) -> Result<(), CliError> {
    let Health { server } = args;
    let client = server.client_with(|client| client.timeout(ANSWER_TIME_MAX))?;
    let url = format!("{}/readyz", server.url.trim_end_matches('/'));
    let answer = client.get(url).send().await.map_err(|error| server.request_error(&error))?;
    if answer.status() == StatusCode::OK {
        return Ok(writeln!(std::io::stdout(), "ready")?);
    }
    Err(match server.read_rejection(answer).await.0 {
        CliError::Rejected { code, detail } => CliError::NotReady { url: server.url, code, detail },
        other => other,
    })
}
