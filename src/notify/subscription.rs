//! Push subscriptions: the devices of people, as their browsers subscribe them for the page (RFC 8030).

use super::address;
use super::event::{EventKind, StatusEvent};
use super::settings::SettingsError;
use crate::auth::holder::TokenHolder;
use crate::log::server_state::StateRecord;
use crate::model::{AgentId, Audience, OwnerId, SessionId};
use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use reqwest::Url;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use web_push_native::{Auth, p256};

/// Push subscriptions of one server.
pub const SUBSCRIPTIONS_MAX: usize = 10_000;
/// Push subscriptions of one person, by the `sub` of the tokens.
pub const SUBSCRIPTIONS_PER_PERSON_MAX: usize = 16;
/// The life of a subscription that the page does not renew, in milliseconds.
const LIFETIME_MS: i64 = SUBSCRIPTION_DAYS * 24 * 3_600_000;
/// The same in days.
pub const SUBSCRIPTION_DAYS: i64 = 30;
/// The sessions, and the agents, that one subscription mutes.
pub const MUTED_MAX: usize = 256;
/// The longest address of a subscription, in bytes.
const ENDPOINT_BYTES_MAX: usize = 2048;
/// The bytes of the secret that a browser shares.
const AUTH_BYTES: usize = 16;
/// What receivers in the rules of the configuration call all subscriptions.
pub const SUBSCRIPTIONS_RECEIVER: &str = "push";
/// The domains of the push services of Chromium, Firefox, Safari and Edge.
const SERVICES: [&str; 4] = ["fcm.googleapis.com", "push.services.mozilla.com", "push.apple.com", "notify.windows.com"];
/// What a subscription can be about.
pub const EVENTS: [EventKind; 5] =
    [EventKind::RunWaiting, EventKind::RunCompleted, EventKind::RunFailed, EventKind::RunCancelled, EventKind::ControlExpired];

/// The push services that messages may go to.
#[derive(Debug, Clone, Default)]
pub struct PushServices {
    /// Hosts of the operator, `host` or `host:port`. They may be private, and need no TLS on this machine.
    added: Vec<Box<str>>,
}

/// Where a push service takes messages for one subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushEndpoint {
    pub url: Url,
    pub allow_private: bool,
}

impl PushServices {
    /// The known services, and these hosts.
    #[must_use]
    pub const fn with(added: Vec<Box<str>>) -> Self {
        Self { added }
    }

    /// Reads the address of a subscription.
    ///
    /// # Errors
    /// [`SettingsError`] for another address than one of a push service.
    pub fn endpoint(&self, text: &str) -> Result<PushEndpoint, SettingsError> {
        let refused = |what: String| SettingsError { member: "endpoint", what };
        let endpoint = self.read(text).map_err(refused)?;
        let (host, url) = (endpoint.url.host_str().unwrap_or_default(), &endpoint.url);
        let is_known = |service: &str| host.strip_suffix(service).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        if !endpoint.allow_private && !SERVICES.iter().any(|service| is_known(service)) {
            return Err(refused(format!("{host} is no known push service; --push-host adds one")));
        }
        if !endpoint.allow_private && (url.scheme() != "https" || url.port().is_some()) {
            return Err(refused("it must be https, on its usual port".into()));
        }
        Ok(endpoint)
    }

    /// Reads the address of any receiver: a public one, or one of a host of the operator.
    ///
    /// # Errors
    /// [`SettingsError`] for a private address, or one without TLS.
    pub fn any_endpoint(&self, text: &str) -> Result<PushEndpoint, SettingsError> {
        let refused = |what: String| SettingsError { member: "url", what };
        let endpoint = self.read(text).map_err(refused)?;
        if !endpoint.allow_private {
            if endpoint.url.scheme() != "https" {
                return Err(refused(format!("its scheme is {}; use https", endpoint.url.scheme())));
            }
            address::parse(text, false).map_err(|_| refused("it is not public; --push-host allows a private host".into()))?;
        }
        Ok(endpoint)
    }

    /// Reads an address. `allow_private`: it is of a host of the operator.
    fn read(&self, text: &str) -> Result<PushEndpoint, String> {
        if text.len() > ENDPOINT_BYTES_MAX {
            return Err(format!("it has {} bytes; the limit is {ENDPOINT_BYTES_MAX}", text.len()));
        }
        let url = Url::parse(text).map_err(|error| format!("it is not an absolute URL: {error}"))?;
        let host = url.host_str().unwrap_or_default();
        if !url.username().is_empty() || url.password().is_some() {
            return Err("it has a user name or a password".into());
        }
        let named = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let allow_private = self.added.iter().any(|added| **added == *host || **added == *named);
        let is_here = matches!(host, "localhost" | "127.0.0.1" | "[::1]");
        if allow_private && url.scheme() != "https" && !(url.scheme() == "http" && is_here) {
            return Err(format!("its scheme is {}; use https", url.scheme()));
        }
        Ok(PushEndpoint { url, allow_private })
    }
}

/// The keys of a subscription, as base64url.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionKeys {
    /// The public key of the browser, a point of P-256.
    pub p256dh: String,
    /// The secret that the browser shares.
    pub auth: String,
}

impl SubscriptionKeys {
    /// Reads the keys.
    ///
    /// # Errors
    /// [`SettingsError`] for keys that encrypt nothing.
    pub fn parse(&self) -> Result<(p256::PublicKey, Auth), SettingsError> {
        let refused = |member, what: &str| SettingsError { member, what: what.into() };
        let decode = |text: &str| BASE64URL_NOPAD.decode(text.trim_end_matches('=').as_bytes()).ok();
        let point = decode(&self.p256dh).and_then(|bytes| p256::PublicKey::from_sec1_bytes(&bytes).ok());
        let point = point.ok_or_else(|| refused("keys.p256dh", "it must be the base64url of a point of P-256"))?;
        let auth = decode(&self.auth).filter(|bytes| bytes.len() == AUTH_BYTES);
        let auth = auth.ok_or_else(|| refused("keys.auth", "it must be the base64url of 16 bytes"))?;
        Ok((point, Auth::clone_from_slice(&auth)))
    }
}

/// What a person does not want to hear of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Muted {
    pub sessions: Vec<SessionId>,
    pub agents: Vec<AgentId>,
}

/// A subscription, as a page sends it: what the browser says of it, and what the person wants.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubscriptionWanted {
    pub endpoint: String,
    pub keys: SubscriptionKeys,
    /// What the browser knows of its end. The push service tells when it is there.
    #[serde(default, rename = "expirationTime")]
    _expiration_time: Option<serde_json::Value>,
    pub audience: Option<Audience>,
    pub events: Option<Vec<EventKind>>,
    pub muted: Option<Muted>,
}

/// A subscription, as the server keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushSubscription {
    pub endpoint: String,
    pub keys: SubscriptionKeys,
    pub audience: Audience,
    pub events: Vec<EventKind>,
    pub muted: Muted,
    /// `None`: it was made on a server without authentication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<TokenHolder>,
    /// In milliseconds since 1970.
    pub created_at: i64,
    /// In milliseconds since 1970.
    pub renewed_at: i64,
}

impl StateRecord for PushSubscription {
    const TABLE: &'static str = "push-subscription";
}

impl PushSubscription {
    /// Makes or renews a subscription. `known` is the one of the same device and person.
    ///
    /// # Errors
    /// [`SettingsError`] for the first member that cannot be used.
    pub fn renewed(
        wanted: SubscriptionWanted,
        known: Option<Self>,
        holder: Option<TokenHolder>,
        services: &PushServices,
        now: i64,
    ) -> Result<Self, SettingsError> {
        services.endpoint(&wanted.endpoint)?;
        wanted.keys.parse()?;
        let refused = |member, what: String| Err(SettingsError { member, what });
        let widest = holder.as_ref().map_or(Audience::Internal, |holder| holder.rights.audience);
        let (created_at, kept) = known.map_or((now, None), |known| (known.created_at, Some(known)));
        let (audience, events, muted) =
            kept.map_or_else(|| (widest, vec![EventKind::RunWaiting], Muted::default()), |it| (it.audience, it.events, it.muted));
        let SubscriptionWanted { endpoint, keys, .. } = wanted;
        let (events, muted) = (wanted.events.unwrap_or(events), wanted.muted.unwrap_or(muted));
        if let Some(other) = events.iter().find(|event| !EVENTS.contains(event)) {
            return refused("events", format!("{} is not sent to devices", other.as_str()));
        }
        if events.len() > EVENTS.len() {
            return refused("events", format!("it has {} entries; the limit is {}", events.len(), EVENTS.len()));
        }
        for (member, entries) in [("muted.sessions", muted.sessions.len()), ("muted.agents", muted.agents.len())] {
            if entries > MUTED_MAX {
                return refused(member, format!("it has {entries} entries; the limit is {MUTED_MAX}"));
            }
        }
        let audience = match wanted.audience {
            Some(asked) if asked > widest => {
                return refused("audience", format!("the token shows what {} see, and no more", widest.as_str()));
            }
            asked => asked.unwrap_or(audience).min(widest),
        };
        Ok(Self { endpoint, keys, audience, events, muted, holder, created_at, renewed_at: now })
    }

    /// The id of the subscription of a device. It tells nothing of the address, which is a secret.
    #[must_use]
    pub fn id_of(endpoint: &str) -> String {
        format!("push_{}", &HEXLOWER.encode(&Sha256::digest(endpoint))[..32])
    }

    /// When it ends without renewal, in milliseconds since 1970.
    #[must_use]
    pub const fn until(&self) -> i64 {
        self.renewed_at.saturating_add(LIFETIME_MS)
    }

    /// Whether a person has it, by the `sub` of the tokens.
    #[must_use]
    pub fn is_of(&self, subject: Option<&str>) -> bool {
        TokenHolder::is_of(self.holder.as_ref(), subject)
    }

    /// Whether its device gets an event that these audiences see. `owner` is the owner of the event's log.
    #[must_use]
    pub fn takes(&self, event: &StatusEvent, audiences: [bool; 3], owner: Option<&OwnerId>) -> bool {
        let wants = match event.to.is_empty() {
            true => self.events.contains(&event.kind),
            false => event.to.iter().any(|name| **name == *SUBSCRIPTIONS_RECEIVER),
        };
        wants && audiences[self.audience.index()] && !self.mutes(event) && self.covers(event, owner)
    }

    fn mutes(&self, event: &StatusEvent) -> bool {
        event.session.as_ref().is_some_and(|session| self.muted.sessions.contains(session))
            || event.agent.as_ref().is_some_and(|agent| self.muted.agents.contains(agent))
    }

    /// Whether its person may read the log of an event.
    #[must_use]
    pub fn covers(&self, event: &StatusEvent, owner: Option<&OwnerId>) -> bool {
        event.is_covered_by(self.holder.as_ref(), owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_of_a_known_push_service_or_of_one_that_the_operator_added() {
        let services = PushServices::with(vec!["push.example".into(), "127.0.0.1:9".into()]);
        let public = [
            "https://fcm.googleapis.com/fcm/send/x",
            "https://updates.push.services.mozilla.com/wpush/v2/x",
            "https://web.push.apple.com/x",
            "https://wns2-by3p.notify.windows.com/w/?token=x",
        ];
        for address in public {
            assert!(!services.endpoint(address).unwrap().allow_private, "{address}");
        }
        for address in ["https://push.example/x", "https://push.example:8443/x", "http://127.0.0.1:9/x"] {
            assert!(services.endpoint(address).unwrap().allow_private, "{address}");
        }
        let refused = [
            "x",
            "http://fcm.googleapis.com/x",
            "https://fcm.googleapis.com:8443/x",
            "https://u:p@fcm.googleapis.com/x",
            "https://evilfcm.googleapis.com.example/x",
            "https://notfcm.googleapis.com.evil/x",
            "https://xpush.apple.com/x",
            "http://push.example/x",
            "http://127.0.0.1:10/x",
            "https://169.254.169.254/x",
        ];
        for address in refused {
            assert_eq!(services.endpoint(address).unwrap_err().member, "endpoint", "{address}");
        }
    }
}
