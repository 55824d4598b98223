//! Webhooks: their settings, and one request of the Standard Webhooks specification.

use super::address::{self, AddressError};
use super::event::{EventKind, StatusEvent};
use super::settings::SettingsError;
use crate::auth::rights::Scope;
use crate::environment::Environment;
use crate::log::LogId;
use crate::log::server_state::StateRecord;
use crate::model::{AgentId, Audience, SessionId};
use data_encoding::BASE64;
use reqwest::Url;
use ring::hmac;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a secret begins with.
const SECRET_PREFIX: &str = "whsec_";
/// The bytes of a secret, at least and at most.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// The secrets of one webhook: the newest, and those that its receiver may still check.
const SECRETS_MAX: usize = 4;
/// The entries of each list of a webhook.
const LIST_MAX: usize = 256;

fn refused(member: &'static str, what: impl fmt::Display) -> SettingsError {
    SettingsError { member, what: what.to_string() }
}

/// A secret that signs, `whsec_` and base64.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    /// A secret as it was stated. [`Webhook::new`] checks it.
    #[must_use]
    pub const fn unchecked(text: String) -> Self {
        Self(text)
    }

    /// What is wrong with it, without its text.
    fn check(&self) -> Result<(), String> {
        let expected = format!("`{SECRET_PREFIX}` and the base64 of {} to {} bytes", SECRET_BYTES.start(), SECRET_BYTES.end());
        let encoded = self.0.strip_prefix(SECRET_PREFIX).ok_or_else(|| format!("a secret must be {expected}"))?;
        let bytes = BASE64.decode(encoded.as_bytes()).map_err(|_| format!("a secret must be {expected}; this is no base64"))?;
        match SECRET_BYTES.contains(&bytes.len()) {
            true => Ok(()),
            false => Err(format!("a secret must be {expected}; this one has {} bytes", bytes.len())),
        }
    }

    /// A new secret of 32 bytes.
    #[must_use]
    pub fn generate(environment: Environment) -> Self {
        let bytes = [(environment.random)().to_ne_bytes(), (environment.random)().to_ne_bytes()].concat();
        Self(format!("{SECRET_PREFIX}{}", BASE64.encode(&bytes)))
    }

    /// The text, for its receiver.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The signature `v1` of a message.
    fn sign(&self, id: &str, seconds: i64, body: &[u8]) -> String {
        let key = BASE64.decode(&self.0.as_bytes()[SECRET_PREFIX.len()..]).unwrap_or_default();
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &key));
        context.update(format!("{id}.{seconds}.").as_bytes());
        context.update(body);
        format!("v1,{}", BASE64.encode(context.sign().as_ref()))
    }
}

/// The settings of a webhook, as a request or the configuration file states them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookSettings {
    /// The address that gets the messages.
    pub url: String,
    /// The secrets that sign each message, the newest first.
    #[serde(default)]
    pub secrets: Vec<Secret>,
    /// The kinds of events; empty for all but `log.head`.
    #[serde(default)]
    pub events: Vec<EventKind>,
    /// The audience whose view of a run the messages have.
    #[serde(default = "default_audience")]
    pub audience: Audience,
    /// Ids of sessions, or beginnings of ids with a `*` at the end; without it, all.
    #[serde(default)]
    pub sessions: Option<Vec<Box<str>>>,
    /// The same of agents.
    #[serde(default)]
    pub agents: Option<Vec<Box<str>>>,
    /// `activity` adds the activity to each message.
    #[serde(default)]
    pub include: Option<Include>,
    /// Whether private addresses are allowed; only in the configuration file.
    #[serde(default, rename = "allow-private", skip_serializing_if = "std::ops::Not::not")]
    pub allow_private: bool,
}

const fn default_audience() -> Audience {
    Audience::Internal
}

/// What a message has besides ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Include {
    /// The activity of the event, as the audience sees it.
    Activity,
}

/// A webhook that requests made.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookRecord {
    pub settings: WebhookSettings,
    /// In milliseconds since 1970.
    pub created_at: i64,
}

impl StateRecord for WebhookRecord {
    const TABLE: &'static str = "webhook";
}

/// A webhook whose receiver answered 410, by the webhook's id.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Disabled {
    /// In milliseconds since 1970.
    pub at: i64,
}

impl StateRecord for Disabled {
    const TABLE: &'static str = "webhook-disabled";
}

/// A webhook.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// The name in the configuration file, or a generated id.
    pub id: Box<str>,
    pub url: Url,
    pub settings: WebhookSettings,
    sessions: Scope,
    agents: Scope,
    /// Whether it comes from the configuration file.
    pub is_configured: bool,
}

impl Webhook {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`SettingsError`] with the first member that cannot be used.
    pub fn new(id: &str, settings: WebhookSettings, is_configured: bool) -> Result<Self, SettingsError> {
        let url = address::parse(&settings.url, settings.allow_private).map_err(|error: AddressError| refused("url", error))?;
        if settings.secrets.is_empty() || settings.secrets.len() > SECRETS_MAX {
            return Err(refused("secrets", format_args!("it must have 1 to {SECRETS_MAX} secrets, the newest first")));
        }
        settings.secrets.iter().try_for_each(Secret::check).map_err(|what| refused("secrets", what))?;
        let scope = |member: &'static str, ids: &Option<Vec<Box<str>>>| {
            let ids = ids.clone().unwrap_or_else(|| vec!["*".into()]);
            match ids.len() {
                1..=LIST_MAX => Scope::parse(member, ids).map_err(|error| refused(member, error)),
                _ => Err(refused(member, format_args!("it must have 1 to {LIST_MAX} entries, or be absent for all"))),
            }
        };
        Ok(Self {
            id: id.into(),
            url,
            sessions: scope("sessions", &settings.sessions)?,
            agents: scope("agents", &settings.agents)?,
            settings,
            is_configured,
        })
    }

    /// Whether it gets an event that these audiences see.
    #[must_use]
    pub fn takes(&self, event: &StatusEvent, audiences: [bool; 3]) -> bool {
        let events = &self.settings.events;
        // A rule names its receivers, whichever events they get otherwise.
        let wants = if !event.to.is_empty() {
            event.to.contains(&self.id)
        } else if events.is_empty() {
            event.kind != EventKind::LogHead
        } else {
            events.contains(&event.kind)
        };
        let session = match &event.log {
            LogId::Session(session) => Some(session.as_str()),
            LogId::Run(_) => event.session.as_ref().map(SessionId::as_str),
        };
        let covers = |scope: &Scope, id: Option<&str>| scope.names_all() || id.is_some_and(|id| scope.contains(id));
        wants
            && audiences[self.settings.audience.index()]
            && covers(&self.sessions, session)
            && covers(&self.agents, event.agent.as_ref().map(AgentId::as_str))
    }

    /// The header `webhook-signature` of a message: a signature by each secret.
    #[must_use]
    pub fn signatures(&self, id: &str, seconds: i64, body: &[u8]) -> String {
        self.settings.secrets.iter().map(|secret| secret.sign(id, seconds, body)).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_signed_as_the_specification_s_example_is() {
        // From the test vectors of the Standard Webhooks libraries.
        let secret = Secret::unchecked("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".into());
        assert_eq!(secret.check(), Ok(()));
        let signature = secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_that_is_short_or_no_base64_is_refused_without_its_text() {
        for text in ["whsec_c2hvcnQ=", "c2VjcmV0", "whsec_not base64 at all, but long enough"] {
            let error = Secret::unchecked(text.into()).check().unwrap_err();
            assert!(error.contains("24 to 64 bytes") && !error.contains(text), "{error}");
        }
        let generated = Secret::generate(Environment::SYSTEM);
        assert_eq!(generated.check(), Ok(()));
        assert_eq!(format!("{generated:?}"), "Secret(…)");
    }
}
