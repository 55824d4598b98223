//! Push addresses of tasks: where a client of the Agent2Agent protocol hears of one run.

use super::event::{EventKind, StatusEvent};
use super::settings::SettingsError;
use super::subscription::{PushServices, SUBSCRIPTION_DAYS};
use crate::auth::holder::TokenHolder;
use crate::encode::a2a::A2aVersion;
use crate::log::LogId;
use crate::log::server_state::StateRecord;
use crate::model::{Audience, OwnerId, RunId};
use data_encoding::HEXLOWER;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Push addresses of one task.
pub const TASK_PUSHES_PER_TASK_MAX: usize = 4;
/// Push addresses of one person, by the `sub` of the tokens.
pub const TASK_PUSHES_PER_PERSON_MAX: usize = 256;
/// Push addresses of tasks of one server.
pub const TASK_PUSHES_MAX: usize = 4096;
/// The longest id, token, scheme or credentials of a push address, in bytes.
pub const TASK_PUSH_TEXT_BYTES_MAX: usize = 4096;
/// The life of a push address whose task does not end, in milliseconds.
const LIFETIME_MS: i64 = SUBSCRIPTION_DAYS * 24 * 3_600_000;
/// The header of the token by which a receiver knows the server.
const TOKEN_HEADER: HeaderName = HeaderName::from_static("x-a2a-notification-token");

/// What a request to the address has as authorization.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPushAuthentication {
    pub scheme: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<String>,
}

/// A push address of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskPush {
    pub task: RunId,
    /// The client's id of it.
    pub config: String,
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<TaskPushAuthentication>,
    pub version: A2aVersion,
    pub audience: Audience,
    /// `None`: it was made on a server without authentication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<TokenHolder>,
    /// In milliseconds since 1970.
    pub created_at: i64,
}

impl StateRecord for TaskPush {
    const TABLE: &'static str = "task-push";
}

impl TaskPush {
    /// Its id among those of the server.
    #[must_use]
    pub fn id(&self) -> String {
        let of = self.holder.as_ref().map_or("", |holder| &holder.subject);
        let digest = Sha256::digest(serde_json::json!([self.task, of, self.config]).to_string());
        format!("task_{}", &HEXLOWER.encode(&digest)[..32])
    }

    /// Checks what a client gave.
    ///
    /// # Errors
    /// [`SettingsError`] for the first member that cannot be used.
    pub fn check(&self, services: &PushServices) -> Result<(), SettingsError> {
        services.any_endpoint(&self.url)?;
        let TaskPushAuthentication { scheme, credentials } =
            self.authentication.clone().unwrap_or(TaskPushAuthentication { scheme: String::new(), credentials: None });
        for (member, text) in [
            ("id", Some(&self.config)),
            ("token", self.token.as_ref()),
            ("authentication.scheme", Some(&scheme)),
            ("authentication.credentials", credentials.as_ref()),
        ] {
            let text = text.map_or("", String::as_str);
            if text.len() > TASK_PUSH_TEXT_BYTES_MAX {
                let what = format!("it has {} bytes; the limit is {TASK_PUSH_TEXT_BYTES_MAX}", text.len());
                return Err(SettingsError { member, what });
            }
            if HeaderValue::from_str(text).is_err() {
                return Err(SettingsError { member, what: "it has characters that no header can carry".into() });
            }
        }
        Ok(())
    }

    /// What the receiver knows the server by.
    #[must_use]
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let authorization =
            self.authentication.as_ref().and_then(|of| Some(format!("{} {}", of.scheme, of.credentials.as_ref()?)));
        for (name, text) in [(TOKEN_HEADER, self.token.as_ref()), (header::AUTHORIZATION, authorization.as_ref())] {
            headers.extend(text.and_then(|text| HeaderValue::from_str(text).ok()).map(|value| (name, value)));
        }
        headers
    }

    /// When it ends if its task does not, in milliseconds since 1970.
    #[must_use]
    pub const fn until(&self) -> i64 {
        self.created_at.saturating_add(LIFETIME_MS)
    }

    /// Whether a person has it, by the `sub` of the tokens.
    #[must_use]
    pub fn is_of(&self, subject: Option<&str>) -> bool {
        TokenHolder::is_of(self.holder.as_ref(), subject)
    }

    /// Whether it gets an event that these audiences see. `owner` is the owner of the event's log.
    #[must_use]
    pub fn takes(&self, event: &StatusEvent, audiences: [bool; 3], owner: Option<&OwnerId>) -> bool {
        let is_about = matches!(&event.log, LogId::Run(run) if *run == self.task);
        let wants = event.to.is_empty() && (event.kind == EventKind::RunWaiting || event.kind.ends_run());
        is_about && wants && audiences[self.audience.index()] && self.covers(event, owner)
    }

    /// Whether its person may read the log of an event.
    #[must_use]
    pub fn covers(&self, event: &StatusEvent, owner: Option<&OwnerId>) -> bool {
        event.is_covered_by(self.holder.as_ref(), owner)
    }
}
