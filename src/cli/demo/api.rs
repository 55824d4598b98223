//! A runtime's client of the public HTTP API: it sends facts and claims controls.

use crate::cli::{Chunks, CliError, Endpoint};
use proscenium::environment;
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;

/// The long-poll time of a claim, in seconds.
const CLAIM_WAIT_SECS: u64 = 30;
/// The delay before the next attempt after a failed request.
const RETRY_INTERVAL: Duration = Duration::from_millis(300);

/// A client of one server.
pub struct Api {
    endpoint: Endpoint,
    client: reqwest::Client,
    uploading: reqwest::Client,
}

impl Api {
    pub fn new(endpoint: Endpoint) -> Self {
        let reason = "an http endpoint needs no certificate";
        let (client, uploading) = (endpoint.client().expect(reason), endpoint.uploading_client().expect(reason));
        Self { endpoint, client, uploading }
    }

    /// Returns the server's URL, for other clients such as the reporter.
    pub fn url(&self) -> &str {
        &self.endpoint.url
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, CliError> {
        let answer = request.send().await.map_err(|error| self.endpoint.request_error(&error))?;
        self.endpoint.require_success(answer).await
    }

    async fn json(&self, method: Method, url: String, body: Option<&Value>) -> Result<Value, CliError> {
        let request = self.client.request(method, url);
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        self.send(request).await?.json().await.map_err(|error| self.endpoint.request_error(&error))
    }

    /// Reads the summary of a run.
    pub async fn run(&self, run: &str) -> Result<Value, CliError> {
        self.json(Method::GET, self.endpoint.run_url(run, ""), None).await
    }

    /// Reads the activities of a run.
    pub async fn activities(&self, run: &str) -> Result<Value, CliError> {
        self.json(Method::GET, self.endpoint.run_url(run, "activities"), None).await
    }

    /// Reads one event of a run; null if the reader may not see it.
    pub async fn event(&self, run: &str, sequence: u64) -> Result<Value, CliError> {
        let query = format!("events?after={}&before={}", sequence.saturating_sub(1), sequence + 1);
        Ok(self.json(Method::GET, self.endpoint.run_url(run, &query), None).await?["events"][0].take())
    }

    /// Reads a session with its pending actions.
    pub async fn session(&self, session: &str) -> Result<Value, CliError> {
        self.json(Method::GET, self.endpoint.resource_url("sessions", session, ""), None).await
    }

    /// Ends a run whose producer has stopped.
    pub async fn settle(&self, run: &str) -> Result<Value, CliError> {
        self.json(Method::POST, self.endpoint.run_url(run, "settle"), None).await
    }

    /// Submits a control, as the page does.
    pub async fn control(&self, run: &str, control: &Value) -> Result<Value, CliError> {
        self.json(Method::POST, self.endpoint.run_url(run, "controls"), Some(control)).await
    }

    /// Claims the controls of an agent; waits up to [`CLAIM_WAIT_SECS`] for the first one.
    pub async fn claim(&self, agent: &str) -> Result<Vec<Value>, CliError> {
        let url = self.endpoint.resource_url("agents", agent, &format!("controls/claim?wait={CLAIM_WAIT_SECS}&max=4"));
        let mut claimed = self.json(Method::POST, url, None).await?;
        Ok(claimed["controls"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Acknowledges a claimed control.
    pub async fn ack(&self, control: &Value) {
        self.complete(control, "ack", &json!({ "lease": control["lease"] })).await;
    }

    /// Rejects a claimed control with a reason.
    pub async fn nack(&self, control: &Value, reason: &str) {
        self.complete(control, "nack", &json!({ "lease": control["lease"], "reason": reason })).await;
    }

    async fn complete(&self, control: &Value, operation: &str, body: &Value) {
        let url = self.endpoint.resource_url("controls", control["controlId"].as_str().unwrap_or_default(), operation);
        // If this request is lost, the lease expires and the server delivers the control again.
        if let Err(error) = self.json(Method::POST, url, Some(body)).await {
            tracing::warn!(%error, operation, "cannot complete a control");
        }
    }

    /// Creates a producer of a run's facts.
    pub fn producer(&self, run: &str, ids: &[(&str, &str)]) -> Producer {
        Producer::new(self, &self.endpoint.run_url(run, "facts"), ids)
    }

    /// Creates a producer of a session's own facts, which belong to no run.
    pub fn session_producer(&self, session: &str) -> Producer {
        Producer::new(self, &self.endpoint.resource_url("sessions", session, "facts"), &[])
    }

    /// Sends a run's facts as one streamed body with one fact per line.
    pub async fn stream(&self, run: &str, ids: &[(&str, &str)], lines: impl Chunks) -> Result<(), CliError> {
        let request = self.uploading.post(url_with_query(&self.endpoint.run_url(run, "facts"), ids));
        let answer = self.endpoint.upload(request.header("content-type", "application/x-ndjson"), lines).await?;
        self.endpoint.require_success(answer).await.map(drop)
    }
}

/// Adds query parameters to a URL.
fn url_with_query(url: &str, query: &[(&str, &str)]) -> Url {
    let mut url = Url::parse(url).expect("the demo's URL is valid");
    url.query_pairs_mut().extend_pairs(query);
    url
}

/// A producer of one log. Its facts arrive once and in order, also if it has to repeat requests.
pub struct Producer {
    client: reqwest::Client,
    endpoint: Endpoint,
    /// The ingest URL, with the default ids of the facts.
    url: Url,
    /// The producer id. The server accepts each sequence number of a producer once.
    id: String,
    /// The number of sent facts, which is the next sequence number.
    sent: usize,
}

impl Producer {
    fn new(api: &Api, url: &str, ids: &[(&str, &str)]) -> Self {
        let (client, endpoint) = (api.client.clone(), api.endpoint.clone());
        Self { client, endpoint, url: url_with_query(url, ids), id: Uuid::from_u128(environment::random()).to_string(), sent: 0 }
    }

    /// Sends facts, all or none, and returns when they are durable.
    ///
    /// Repeats the request until the server answers.
    ///
    /// # Errors
    /// [`CliError`] if the server rejects the facts.
    pub async fn publish(&mut self, facts: &[Value]) -> Result<(), CliError> {
        loop {
            let request = self.client.post(self.url.clone()).json(facts);
            let request = request.header("producer-id", &self.id).header("producer-epoch", "0");
            match request.header("producer-seq", self.sent.to_string()).send().await {
                Ok(answer) if answer.status().is_success() => {
                    self.sent += facts.len();
                    return Ok(());
                }
                Ok(answer) if answer.status().is_client_error() && answer.status() != StatusCode::TOO_MANY_REQUESTS => {
                    return self.endpoint.require_success(answer).await.map(drop);
                }
                // The facts may have arrived. Repeat the request with the same numbers, so that the server drops
                // duplicates.
                Ok(_) | Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
            }
        }
    }
}
