//! An identity provider: the addresses of its keys and of its sign-in, fetched and kept.
//!
//! The provider may be down. The server then keeps the keys that it has, and asks again.

use super::KEYS_BYTES_MAX;
use super::keys::{VerifyingKey, parse_key_set};
use crate::environment;
use parking_lot::RwLock;
use reqwest::{Client, Url, redirect};
use serde::Deserialize;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;
use std::{fmt, mem};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Interval at which keys are fetched again.
pub const REFRESH_INTERVAL: Duration = Duration::from_mins(10);
/// Minimum time between two fetches for tokens whose key is unknown.
pub const UNKNOWN_KEY_INTERVAL: Duration = Duration::from_mins(1);
/// Interval of attempts while the provider does not answer, with keys and without any.
const RETRY_INTERVAL: Duration = Duration::from_mins(1);
const FIRST_RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum time of one fetch, discovery included.
const FETCH_TIME_MAX: Duration = Duration::from_secs(10);
/// The most redirects of one request.
const REDIRECTS_MAX: usize = 3;
const DISCOVERY_PATH: &str = "/.well-known/openid-configuration";

/// An address of an identity provider: `https://`, or `http://` on this machine.
#[derive(Clone, PartialEq, Eq)]
pub struct ProviderUrl {
    /// As it was written: an issuer is compared byte by byte.
    text: Box<str>,
    url: Url,
}

impl ProviderUrl {
    /// The address as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The origin, such as `https://login.example`.
    #[must_use]
    pub fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }
}

impl fmt::Debug for ProviderUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for ProviderUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let url = Url::parse(text)
            .map_err(|error| format!("{text:?} is not a URL ({error}); use https://, such as https://login.example"))?;
        if !is_protected(&url) {
            return Err(format!("{text} is not protected by TLS; use https:// (http:// only for a loopback address)"));
        }
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return Err("the address has a user, a password or a fragment; remove it".into());
        }
        Ok(Self { text: text.into(), url })
    }
}

/// Returns whether answers from this address cannot be forged on their way.
fn is_protected(url: &Url) -> bool {
    url.scheme() == "https" && url.has_host() || is_loopback(url)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    url.scheme() == "http" && (host == "localhost" || address.is_ok_and(|address| address.is_loopback()))
}

/// What a server needs of an identity provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderConfig {
    /// The key set. `None`: the issuer's discovery document names it, unless [`Self::has_other_keys`].
    pub key_set: Option<ProviderUrl>,
    /// The issuer to discover. `None`: nothing is discovered.
    pub issuer: Option<ProviderUrl>,
    /// Whether files hold the keys. The provider then serves the sign-in only.
    pub has_other_keys: bool,
}

/// What a discovery document says (`OpenID` Connect Discovery 1.0, section 3).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Discovered {
    /// The issuer, as configured.
    pub issuer: String,
    jwks_uri: String,
    /// Where a page sends a person to sign in.
    pub authorization_endpoint: Option<String>,
    /// Where a page exchanges a code for tokens.
    pub token_endpoint: Option<String>,
    /// Where a page sends a person to sign out.
    pub end_session_endpoint: Option<String>,
}

impl Discovered {
    /// The origins of the issuer and of the token endpoint. Addresses without TLS have none.
    pub fn origins(&self) -> impl Iterator<Item = String> + use<'_> {
        let addresses = std::iter::once(&self.issuer).chain(&self.token_endpoint);
        addresses.filter_map(|address| address.parse::<ProviderUrl>().ok()).map(|address| address.origin())
    }
}

/// How the page signs a person in: by the authorization code flow with PKCE, as a public client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignIn {
    pub client_id: Box<str>,
    pub scope: Box<str>,
    pub token: SignInToken,
    /// Further parameters of the authorization request, such as `audience` of Auth0.
    pub parameters: Vec<(Box<str>, Box<str>)>,
}

/// Which of the provider's tokens the page sends to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SignInToken {
    Access,
    Id,
}

impl SignInToken {
    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Access => "access",
            Self::Id => "id",
        }
    }
}

/// An identity provider, as last fetched.
pub(super) struct Provider {
    config: ProviderConfig,
    client: Client,
    /// Held during a fetch, so that requests which need its result wait for it.
    pub fetching: Mutex<FetchState>,
    discovered: RwLock<Option<Discovered>>,
}

/// What is known of earlier fetches.
#[derive(Default)]
pub(super) struct FetchState {
    /// When a token with an unknown key last caused a fetch.
    asked_at: Option<Instant>,
    has_answered: bool,
    is_failing: bool,
    /// The keys that were not usable, to log each only once.
    rejected: Vec<String>,
}

impl FetchState {
    /// Returns whether a token with an unknown key may cause a fetch now.
    pub fn may_ask(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.asked_at.is_none_or(|at| now.duration_since(at) >= UNKNOWN_KEY_INTERVAL);
        if is_due {
            self.asked_at = Some(now);
        }
        is_due
    }

    /// The time until the next fetch.
    pub fn pause(&self) -> Duration {
        match (self.is_failing, self.has_answered) {
            (false, _) => REFRESH_INTERVAL,
            (true, true) => RETRY_INTERVAL,
            (true, false) => FIRST_RETRY_INTERVAL,
        }
    }
}

impl Provider {
    /// # Errors
    /// Why no client can be built, such as missing certificates of the system.
    pub fn new(config: ProviderConfig) -> Result<Self, String> {
        environment::install_crypto_provider();
        let redirects = redirect::Policy::custom(|attempt| {
            let from = attempt.previous().last().map_or("", |from| from.scheme());
            match attempt.previous().len() <= REDIRECTS_MAX && attempt.url().scheme() == from && is_protected(attempt.url()) {
                true => attempt.follow(),
                false => attempt.stop(),
            }
        });
        let mut client = Client::builder().timeout(FETCH_TIME_MAX).redirect(redirects);
        if [&config.key_set, &config.issuer].into_iter().flatten().any(|address| is_loopback(&address.url)) {
            client = client.no_proxy();
        }
        let client = client.build().map_err(|error| innermost(&error))?;
        Ok(Self { config, client, fetching: Mutex::default(), discovered: RwLock::default() })
    }

    /// Whether the provider's keys verify tokens.
    pub const fn has_keys(&self) -> bool {
        !self.config.has_other_keys
    }

    /// The discovery document, as last fetched.
    pub fn discovered(&self) -> Option<Discovered> {
        self.discovered.read().clone()
    }

    /// Fetches everything again. Returns the keys, unless others verify tokens; `None` if the provider does not answer.
    pub async fn fetch(&self, state: &mut FetchState) -> Option<Vec<VerifyingKey>> {
        let fetched = tokio::time::timeout(FETCH_TIME_MAX, self.try_fetch());
        match fetched.await.unwrap_or_else(|_| Err(format!("no answer within {} s", FETCH_TIME_MAX.as_secs()))) {
            Ok((keys, rejected)) => {
                if mem::take(&mut state.is_failing) {
                    tracing::info!("the identity provider answers again");
                }
                state.has_answered = true;
                for why in rejected.iter().filter(|why| !state.rejected.contains(why)) {
                    tracing::warn!(why, "ignoring a key of the identity provider");
                }
                state.rejected = rejected;
                Some(keys)
            }
            Err(why) => {
                if !mem::replace(&mut state.is_failing, true) {
                    match state.has_answered {
                        true => tracing::error!(why, "cannot fetch from the identity provider; its previous keys stay in force"),
                        false => tracing::error!(
                            why,
                            "cannot fetch from the identity provider; until it answers, its tokens get 503 keys_unavailable"
                        ),
                    }
                }
                None
            }
        }
    }

    async fn try_fetch(&self) -> Result<(Vec<VerifyingKey>, Vec<String>), String> {
        let discovered = match &self.config.issuer {
            Some(issuer) => Some(self.discover(issuer).await?),
            None => None,
        };
        let listed = discovered.as_ref().map(|discovered| discovered.jwks_uri.parse::<ProviderUrl>());
        *self.discovered.write() = discovered;
        if self.config.has_other_keys {
            return Ok(Default::default());
        }
        let address = match (&self.config.key_set, listed) {
            (Some(address), _) => address.clone(),
            (None, Some(listed)) => listed.map_err(|why| format!("jwks_uri of the discovery document: {why}"))?,
            (None, None) => return Err("neither a key set nor an issuer is configured".into()),
        };
        let bytes = self.get(&address.url).await?;
        let (keys, rejected) = parse_key_set(&bytes).map_err(|why| format!("{address:?}: {why}"))?;
        // A client that reads a published secret could sign with it.
        let (keys, secrets): (Vec<_>, Vec<_>) = keys.into_iter().partition(|key| !key.is_secret());
        let published = secrets.iter().map(|_| "a secret (kty oct) at an address is no secret".to_owned());
        Ok((keys, rejected.into_iter().chain(published).collect()))
    }

    async fn discover(&self, issuer: &ProviderUrl) -> Result<Discovered, String> {
        let address = format!("{}{DISCOVERY_PATH}", issuer.as_str().trim_end_matches('/'));
        let url = Url::parse(&address).map_err(|error| format!("{address}: {error}"))?;
        let bytes = self.get(&url).await?;
        let found: Discovered = serde_json::from_slice(&bytes)
            .map_err(|error| format!("{address} is not the discovery document of an identity provider: {error}"))?;
        if found.issuer != issuer.as_str() {
            let (found, issuer) = (found.issuer, issuer.as_str());
            return Err(format!("{address} is of the issuer {found:?}; give exactly that as --auth-issuer, not {issuer:?}"));
        }
        Ok(found)
    }

    async fn get(&self, url: &Url) -> Result<Vec<u8>, String> {
        let failed = |error: reqwest::Error| format!("{url} does not answer: {}", innermost(&error));
        let mut response = self.client.get(url.clone()).send().await.map_err(failed)?;
        if response.status().is_redirection() {
            return Err(format!("{url} redirects to an address that is not followed; name the final address"));
        }
        if !response.status().is_success() {
            return Err(format!("{url} answers {}", response.status()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            body.extend_from_slice(&chunk);
            if body.len() as u64 > KEYS_BYTES_MAX {
                return Err(format!("the answer of {url} is larger than the limit of {KEYS_BYTES_MAX} bytes"));
            }
        }
        Ok(body)
    }
}

/// The root cause of an error: "Connection refused" rather than "error sending request".
fn innermost(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).last().map_or_else(String::new, ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_provider_is_protected_by_tls_or_on_this_machine() {
        for text in ["https://login.example/realms/a", "http://localhost:1/keys", "http://127.0.0.9:1", "http://[::1]:1/keys"] {
            assert_eq!(text.parse::<ProviderUrl>().map(|url| url.as_str().to_owned()), Ok(text.to_owned()));
        }
        for (text, why) in [
            ("http://login.example/keys", "not protected by TLS"),
            ("http://localhost.evil.example", "not protected by TLS"),
            ("http://10.0.0.1/keys", "not protected by TLS"),
            ("ftp://login.example", "not protected by TLS"),
            ("file:///etc/keys", "not protected by TLS"),
            ("https://user:pass@login.example", "a user"),
            ("https://login.example/#x", "a fragment"),
            ("login.example", "not a URL"),
        ] {
            let error = text.parse::<ProviderUrl>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
