//! The server as a runtime meets it: facts in, controls out. Its public HTTP API, and nothing else of it.

use crate::cli::{Chunks, CliError, Server as Address};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;

/// How long a claim waits for something to come, in seconds.
const CLAIM_WAIT_SECS: u64 = 30;
/// From one try to the next, where the server could not be asked.
const RETRY: Duration = Duration::from_millis(300);

/// A server, by its address.
pub struct Api {
    address: Address,
    client: reqwest::Client,
    uploading: reqwest::Client,
}

impl Api {
    pub fn new(address: Address) -> Self {
        let plain = "a plain address needs no certificate";
        let (client, uploading) = (address.client().expect(plain), address.uploading_client().expect(plain));
        Self { address, client, uploading }
    }

    /// The server's address, for whoever brings a client of his own.
    pub fn url(&self) -> &str {
        &self.address.url
    }

    async fn ask(&self, request: RequestBuilder) -> Result<Response, CliError> {
        let answer = request.send().await.map_err(|error| self.address.failed(&error))?;
        self.address.accepted(answer).await
    }

    async fn json(&self, method: Method, url: String, body: Option<&Value>) -> Result<Value, CliError> {
        let request = self.client.request(method, url);
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        self.ask(request).await?.json().await.map_err(|error| self.address.failed(&error))
    }

    /// How a run stands.
    pub async fn run(&self, run: &str) -> Result<Value, CliError> {
        self.json(Method::GET, self.address.run(run, ""), None).await
    }

    /// What there is to see of a run.
    pub async fn activities(&self, run: &str) -> Result<Value, CliError> {
        self.json(Method::GET, self.address.run(run, "activities"), None).await
    }

    /// A session's shell, and what in it needs attention.
    pub async fn session(&self, session: &str) -> Result<Value, CliError> {
        self.json(Method::GET, self.address.of("sessions", session, ""), None).await
    }

    /// Ends a run that nobody will end any more.
    pub async fn settle(&self, run: &str) -> Result<Value, CliError> {
        self.json(Method::POST, self.address.run(run, "settle"), None).await
    }

    /// Asks for something, as the page does.
    pub async fn control(&self, run: &str, control: &Value) -> Result<Value, CliError> {
        self.json(Method::POST, self.address.run(run, "controls"), Some(control)).await
    }

    /// What was asked of an agent, as soon as there is something; empty if nothing came.
    pub async fn claim(&self, agent: &str) -> Result<Vec<Value>, CliError> {
        let url = self.address.of("agents", agent, &format!("controls/claim?wait={CLAIM_WAIT_SECS}&max=4"));
        let mut claimed = self.json(Method::POST, url, None).await?;
        Ok(claimed["controls"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Answers a control that was claimed: taken.
    pub async fn ack(&self, control: &Value) {
        self.answer(control, "ack", &json!({ "lease": control["lease"] })).await;
    }

    /// Answers a control that was claimed: not taken, and why.
    pub async fn nack(&self, control: &Value, reason: &str) {
        self.answer(control, "nack", &json!({ "lease": control["lease"], "reason": reason })).await;
    }

    async fn answer(&self, control: &Value, how: &str, body: &Value) {
        let url = self.address.of("controls", control["controlId"].as_str().unwrap_or_default(), how);
        // An answer may be lost: the lease ends, and the control comes again.
        if let Err(error) = self.json(Method::POST, url, Some(body)).await {
            tracing::warn!(%error, how, "a control was not answered");
        }
    }

    /// A producer of a run's facts.
    pub fn producer(&self, run: &str, ids: &[(&str, &str)]) -> Producer {
        Producer::new(self, &self.address.run(run, "facts"), ids)
    }

    /// A producer of a session's own facts, which are of no run.
    pub fn session_producer(&self, session: &str) -> Producer {
        Producer::new(self, &self.address.of("sessions", session, "facts"), &[])
    }

    /// Sends a run's facts as one streamed body, a fact a line.
    pub async fn stream(&self, run: &str, ids: &[(&str, &str)], lines: impl Chunks) -> Result<(), CliError> {
        let request = self.uploading.post(with(&self.address.run(run, "facts"), ids));
        let answer = self.address.upload(request.header("content-type", "application/x-ndjson"), lines).await?;
        self.address.accepted(answer).await.map(drop)
    }
}

/// An address with a query.
fn with(url: &str, query: &[(&str, &str)]) -> Url {
    let mut url = Url::parse(url).expect("the demo's own address");
    url.query_pairs_mut().extend_pairs(query);
    url
}

/// One producer of one log: its facts arrive once and in order, however often the server has to be asked.
pub struct Producer {
    client: reqwest::Client,
    address: Address,
    /// Where its facts go, with the ids that they have where they do not say otherwise.
    url: Url,
    /// Who it is, and how many facts it has sent: sent twice under the same number, they are taken once.
    id: String,
    sent: usize,
}

impl Producer {
    fn new(api: &Api, url: &str, ids: &[(&str, &str)]) -> Self {
        let (client, address) = (api.client.clone(), api.address.clone());
        Self { client, address, url: with(url, ids), id: Uuid::now_v7().to_string(), sent: 0 }
    }

    /// Sends facts, all of them or none, and returns when they are durable.
    ///
    /// # Errors
    /// The server will never take them.
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
                    return self.address.accepted(answer).await.map(drop);
                }
                // Perhaps they arrived, perhaps not: the same again, under the same numbers.
                Ok(_) | Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
    }
}
