//! Authentication: tokens, the keys that verify them, and early revocation.
//!
//! A token is a JWT (RFC 7519) signed by one of the [`keys`]. Verification turns it into a [`Grant`]: [`rights`] with
//! an expiry. A grant ends when it expires, when the revocation file lists it, or when its key leaves the key set. Code
//! that keeps a resource open under a grant holds a [`GrantWatch`], which reports the end. One periodic task serves all
//! grants; no grant has its own timer.
//!
//! Besides tokens, an authenticating [`proxy`] may name a user. The keys of an identity [`provider`] come over HTTP, and
//! [`claim_map`] turns its claims into rights. Otherwise this module knows nothing of HTTP, runs or frames. `serve::access` decides what a right permits.

pub mod claim_map;
pub(crate) mod crypto;
pub mod holder;
pub mod keys;
pub mod links;
pub mod provider;
pub mod proxy;
pub mod rights;
pub mod shared_tickets;
pub mod tickets;

use crate::environment::threads::spawn_blocking;
use crate::environment::{Environment, sabotage};
use claim_map::ClaimMap;
use http::HeaderMap;
use keys::{KeyThumbprint, VerifyingKey, claimed_key_name, parse_key_set, verify_signature};
use links::{LINK_TOKEN_SECS, LinkTable, OpenedLink};
use parking_lot::{Mutex, RwLock};
use provider::{Discovered, Provider, ProviderConfig, SignIn};
use proxy::{ProxyConfig, ProxySecret};
use quick_cache::sync::Cache;
use rights::{CLOCK_SKEW, Claims, Rights};
use sha2::{Digest, Sha256};
use shared_tickets::SharedTickets;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime};
use tickets::Tickets;
use tokio::sync::watch;

/// Interval of the expiry and file checks.
///
/// A stream outlives its token, or a changed file, by at most this.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Verified tokens in the cache, so that one signature check serves many requests.
const CACHED_TOKENS_MAX: usize = 8192;
/// Maximum size of a key file and of the revocation file, in bytes.
const KEYS_BYTES_MAX: u64 = 1024 * 1024;
const REVOKED_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Dropped grants that the index keeps before it removes them.
const DEAD_GRANTS_MAX: usize = 1024;

/// Key files and the claims that a token must carry.
#[derive(Debug, Clone, Default)]
pub struct AuthConfig {
    /// A file with one key: a secret, or a public key as PEM.
    pub key: Option<PathBuf>,
    /// A file with a JSON Web Key Set.
    pub jwks: Option<PathBuf>,
    /// The identity provider to fetch from.
    pub provider: Option<ProviderConfig>,
    /// How a page signs people in. It needs an issuer to discover.
    pub sign_in: Option<SignIn>,
    /// How claims become rights, besides the `proscenium` claim.
    pub mappings: ClaimMap,
    /// The authenticating proxy whose header names users.
    pub proxy: Option<ProxyConfig>,
    /// The revocation file: one `jti` or `sub` per line.
    pub revoked: Option<PathBuf>,
    /// The service name that `aud` must contain, if a token has `aud`.
    pub service: Box<str>,
    /// The required `iss`. `None`: any issuer.
    pub issuer: Option<Box<str>>,
}

impl AuthConfig {
    /// The files that are read again when they change.
    fn watched_files(&self) -> [Option<&Path>; 3] {
        [self.jwks.as_deref(), self.revoked.as_deref(), self.proxy.as_ref().map(|proxy| &*proxy.secret)]
    }
}

/// A file or an address cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {why}")]
pub struct AuthConfigError {
    /// The file or the flag.
    place: String,
    why: String,
}

impl AuthConfigError {
    /// The error of a flag's value.
    #[must_use]
    pub fn of_flag(flag: &str, why: impl Into<String>) -> Self {
        Self { place: flag.into(), why: why.into() }
    }

    fn of_file(file: &Path, why: impl Into<String>) -> Self {
        Self { place: file.display().to_string(), why: why.into() }
    }
}

/// Why a token was rejected.
///
/// No message repeats token content before the signature is verified.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("The request has no token. Send `Authorization: Bearer …`.")]
    Missing,
    #[error("The token is longer than the limit of {} bytes.", keys::TOKEN_BYTES_MAX)]
    TooLong,
    #[error("The token is not a JWT signed with HS256, EdDSA, RS256 or ES256.")]
    Malformed,
    #[error("The token requires a JWT extension that this server does not support (crit).")]
    UnsupportedCritical,
    #[error("The server does not know the key that signed the token.")]
    UnknownKey,
    #[error(
        "The server has no keys of the identity provider yet, which did not answer. The server tries again; its log says why."
    )]
    NoKeys,
    #[error("The request names a user in the proxy's header, but {} is missing or wrong.", proxy::SECRET_HEADER)]
    ProxySecret,
    #[error("The proxy's header does not name one user: it must be one text of 1 to {} bytes.", proxy::USER_BYTES_MAX)]
    ProxyUser,
    #[error("The token's signature is wrong.")]
    BadSignature,
    #[error("The token has an invalid claim: {0}.")]
    Claim(String),
    #[error("The token was issued for another service (aud).")]
    WrongAudience,
    #[error("The token is from another issuer (iss).")]
    WrongIssuer,
    #[error("The token is not valid yet (nbf).")]
    NotYetValid,
    #[error("The ticket is unknown, used, expired or for another purpose. Request a new one.")]
    Ticket,
    #[error("The cluster does not answer, so the ticket cannot be checked. Send the request again.")]
    Unrecorded,
    #[error("{0}")]
    Ended(EndReason),
}

/// Why a grant ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    Expired,
    Revoked,
    KeyRemoved,
    /// The client opened the ticket's stream again.
    ResumedElsewhere,
    /// The share link of the token has ended, or its maker's rights have.
    LinkEnded,
}

impl EndReason {
    /// The stable code on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::KeyRemoved => "key_removed",
            Self::ResumedElsewhere => "resumed_elsewhere",
            Self::LinkEnded => "link_ended",
        }
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "The token has expired. Reconnect with a new one.",
            Self::Revoked => "The token was revoked.",
            Self::KeyRemoved => "The key that signed the token was removed. Reconnect with a new token.",
            Self::ResumedElsewhere => "The same ticket opened the stream again. The new connection continues it.",
            Self::LinkEnded => "The share link has ended: it was revoked, its time is over, or its maker lost the right to it.",
        })
    }
}

/// The rights of one token holder, and their expiry.
pub struct Grant {
    pub rights: Rights,
    pub subject: Box<str>,
    /// The person's name, if the token has one.
    pub name: Option<Box<str>>,
    /// In seconds since 1970.
    pub expires: u64,
    id: Option<Box<str>>,
    key: KeyThumbprint,
    /// The share link that the grant is of.
    link: Option<Arc<OpenedLink>>,
    ended: watch::Sender<Option<EndReason>>,
    /// Outstanding tickets of this grant.
    tickets: AtomicUsize,
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("subject", &self.subject).field("expires", &self.expires).finish_non_exhaustive()
    }
}

impl Grant {
    fn new(claims: Claims, key: KeyThumbprint) -> Self {
        let Claims { subject, name, id, expires, rights, .. } = claims;
        Self { name, id, ..Self::of(rights, subject, expires, key) }
    }

    fn of(rights: Rights, subject: Box<str>, expires: u64, key: KeyThumbprint) -> Self {
        Self {
            rights,
            subject,
            name: None,
            expires,
            id: None,
            key,
            link: None,
            ended: watch::Sender::new(None),
            tickets: AtomicUsize::new(0),
        }
    }

    /// Creates a grant with the same expiry and fewer rights.
    fn restricted_to(&self, rights: Rights) -> Self {
        debug_assert!(self.rights.covers(&rights), "a ticket must not add rights");
        let grant = Self::of(rights, self.subject.clone(), self.expires, self.key);
        Self { id: self.id.clone(), name: self.name.clone(), link: self.link.clone(), ..grant }
    }

    fn end(&self, end: EndReason) {
        self.ended.send_if_modified(|ended| ended.replace(end).is_none());
    }

    /// Whether the grant ended as expired because the clock was ahead. Its token is then verified again.
    fn ended_early(&self, now: u64) -> bool {
        *self.ended.borrow() == Some(EndReason::Expired) && now < self.expires
    }

    /// Fails if the grant has ended or has expired at `now`.
    fn ensure_valid(&self, now: u64) -> Result<(), TokenError> {
        match *self.ended.borrow() {
            Some(end) => Err(TokenError::Ended(end)),
            None if now >= self.expires => Err(TokenError::Ended(EndReason::Expired)),
            None => Ok(()),
        }
    }

    /// Subscribes to the end of this grant.
    #[must_use]
    pub fn watch(&self) -> GrantWatch {
        GrantWatch(self.ended.subscribe())
    }

    /// The share link that the grant is of.
    #[must_use]
    pub fn link(&self) -> Option<&OpenedLink> {
        self.link.as_deref()
    }

    /// Returns whether both grants have the same subject.
    #[must_use]
    pub fn has_same_subject(&self, other: &Self) -> bool {
        self.subject == other.subject
    }
}

/// Reports the end of a grant.
#[derive(Debug, Clone)]
pub struct GrantWatch(watch::Receiver<Option<EndReason>>);

impl GrantWatch {
    /// Waits until the grant ends. Cancel safe.
    pub async fn ended(&mut self) -> EndReason {
        match self.0.wait_for(Option::is_some).await.map(|end| *end) {
            Ok(Some(end)) => end,
            // `wait_for` fails only when the grant is dropped, and the holder of a watch also holds the grant.
            _ => std::future::pending().await,
        }
    }

    /// Returns why the grant ended, or `None` while it is valid.
    #[must_use]
    pub fn end_reason(&self) -> Option<EndReason> {
        *self.0.borrow()
    }
}

/// The keys and the revoked names, as last read.
#[derive(Default)]
struct KnownKeys {
    own: Option<VerifyingKey>,
    set: Vec<VerifyingKey>,
    /// The provider's keys have not been fetched yet.
    awaits_keys: bool,
    proxy: Option<ProxySecret>,
    revoked: HashSet<Box<str>>,
}

impl KnownKeys {
    fn keys(&self) -> impl Iterator<Item = &VerifyingKey> {
        self.own.iter().chain(&self.set)
    }

    /// Returns why the grant has ended by the current keys and revocations.
    fn end_reason(&self, grant: &Grant) -> Option<EndReason> {
        let maker = grant.link().and_then(|link| link.terms.maker.as_ref());
        match maker {
            Some(maker) if self.revoked.contains(&maker.subject) => Some(EndReason::Revoked),
            _ => self.end_reason_of(&grant.subject, grant.id.as_deref(), &grant.key),
        }
    }

    /// Returns why the rights of a subject have ended, by its token's id and key.
    fn end_reason_of(&self, subject: &str, token_id: Option<&str>, key: &KeyThumbprint) -> Option<EndReason> {
        let is_revoked = |name: &str| self.revoked.contains(name);
        if is_revoked(subject) || token_id.is_some_and(is_revoked) {
            return Some(EndReason::Revoked);
        }
        let proxy = self.proxy.as_ref().map(ProxySecret::thumbprint);
        let mut known = self.keys().map(VerifyingKey::thumbprint).chain(proxy);
        (!known.any(|known| known == key)).then_some(EndReason::KeyRemoved)
    }
}

/// Grants that may be in use, ordered by expiry.
#[derive(Default)]
struct GrantIndex {
    by_expiry: BTreeMap<(u64, u64), Weak<Grant>>,
    /// Makes keys unique within one second of expiry.
    next: u64,
    /// Size after the last removal of dropped grants.
    live_count: usize,
}

impl GrantIndex {
    fn insert(&mut self, grant: &Arc<Grant>) {
        self.next += 1;
        self.by_expiry.insert((grant.expires, self.next), Arc::downgrade(grant));
    }

    fn for_each_live(&self, mut with: impl FnMut(&Grant)) {
        self.by_expiry.values().filter_map(Weak::upgrade).for_each(|grant| with(&grant));
    }
}

/// A file's modification time, length and inode. `None`: unreadable.
type FileStamp = Option<(SystemTime, u64, u64)>;

fn file_stamp(file: &Path) -> FileStamp {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(file).ok()?;
    Some((meta.modified().ok()?, meta.len(), meta.ino()))
}

/// Reads a file of at most `bytes_max` bytes.
fn read(file: &Path, bytes_max: u64) -> Result<Vec<u8>, AuthConfigError> {
    let failed = |why: String| AuthConfigError::of_file(file, why);
    let bytes = std::fs::metadata(file).map_err(|error| failed(error.to_string()))?.len();
    if bytes > bytes_max {
        return Err(failed(format!("it has {bytes} bytes; the limit is {bytes_max}")));
    }
    std::fs::read(file).map_err(|error| failed(error.to_string()))
}

fn read_set(file: &Path) -> Result<Vec<VerifyingKey>, AuthConfigError> {
    let (keys, rejected) = parse_key_set(&read(file, KEYS_BYTES_MAX)?).map_err(|why| AuthConfigError::of_file(file, why))?;
    for why in rejected {
        tracing::warn!(file = %file.display(), why, "ignoring a key of the key set");
    }
    Ok(keys)
}

/// Reads one `jti` or `sub` per line. Blank lines and lines that begin with `#` are ignored.
fn read_revoked(file: &Path) -> Result<HashSet<Box<str>>, AuthConfigError> {
    let bytes = read(file, REVOKED_BYTES_MAX)?;
    let text = String::from_utf8(bytes).map_err(|_| AuthConfigError::of_file(file, "it is not UTF-8"))?;
    let lines = text.lines().map(str::trim);
    Ok(lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(Into::into).collect())
}

fn read_proxy_secret(file: &Path) -> Result<ProxySecret, AuthConfigError> {
    ProxySecret::new(&read(file, KEYS_BYTES_MAX)?).map_err(|why| AuthConfigError::of_file(file, why))
}

/// Verifies tokens, and issues and redeems tickets.
pub struct Authenticator {
    config: AuthConfig,
    environment: Environment,
    state: RwLock<KnownKeys>,
    stamps: Mutex<[FileStamp; 3]>,
    provider: Option<Provider>,
    /// Keyed by the SHA-256 of the token.
    cached_grants: Cache<[u8; 32], Arc<Grant>>,
    grants: Mutex<GrantIndex>,
    tickets: Mutex<Tickets>,
    /// The tickets of the cluster that the server belongs to.
    shared_tickets: OnceLock<SharedTickets>,
    /// The share links of the server.
    links: OnceLock<Arc<dyn LinkTable>>,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Authenticator {
    /// Reads the keys. `None` if neither keys nor a proxy are configured: the server then accepts every request.
    ///
    /// The keys of an identity provider come with [`Self::fetch_keys`].
    ///
    /// # Errors
    /// [`AuthConfigError`] for a file that cannot be used.
    pub fn open(config: AuthConfig, environment: Environment) -> Result<Option<Arc<Self>>, AuthConfigError> {
        if config.key.is_none() && config.jwks.is_none() && config.provider.is_none() && config.proxy.is_none() {
            return Ok(None);
        }
        crypto::install();
        let own = config
            .key
            .as_deref()
            .map(|file| VerifyingKey::from_file(&read(file, KEYS_BYTES_MAX)?).map_err(|why| AuthConfigError::of_file(file, why)));
        // Taken before the files are read, so that the first check finds a change in between.
        let stamps = Mutex::new(config.watched_files().map(|file| file.and_then(file_stamp)));
        let provider = config.provider.clone().map(Provider::new).transpose();
        let provider = provider.map_err(|why| AuthConfigError::of_flag("cannot call the identity provider", why))?;
        let state = KnownKeys {
            own: own.transpose()?,
            set: config.jwks.as_deref().map(read_set).transpose()?.unwrap_or_default(),
            awaits_keys: provider.as_ref().is_some_and(Provider::has_keys),
            proxy: config.proxy.as_ref().map(|proxy| read_proxy_secret(&proxy.secret)).transpose()?,
            revoked: config.revoked.as_deref().map(read_revoked).transpose()?.unwrap_or_default(),
        };
        Ok(Some(Arc::new(Self {
            config,
            environment,
            state: RwLock::new(state),
            stamps,
            provider,
            cached_grants: Cache::new(CACHED_TOKENS_MAX),
            grants: Mutex::default(),
            tickets: Mutex::default(),
            shared_tickets: OnceLock::new(),
            links: OnceLock::new(),
        })))
    }

    /// In seconds since 1970.
    fn now(&self) -> u64 {
        u64::try_from((self.environment.now)().as_second()).unwrap_or(0)
    }

    /// Verifies a token and returns its grant. It waits for the provider's keys where the token's key is unknown.
    ///
    /// # Errors
    /// [`TokenError`].
    pub async fn authenticate(self: &Arc<Self>, token: &str) -> Result<Arc<Grant>, TokenError> {
        let is_unknown = |error: &TokenError| matches!(error, TokenError::UnknownKey | TokenError::BadSignature);
        let refusal = match self.verify(token) {
            Err(error) if is_unknown(&error) && self.provider.is_some() => error,
            verified => return verified,
        };
        let name = claimed_key_name(token);
        if !self.may_be_of_new_key(name.as_deref()) {
            return Err(refusal);
        }
        let this = self.clone();
        // A client that goes away must not end a fetch for which others wait.
        let fetching = tokio::spawn(async move {
            let Some(provider) = &this.provider else { return };
            let mut state = provider.fetching.lock().await;
            if this.may_be_of_new_key(name.as_deref()) && state.may_ask() {
                this.install_fetched(provider.fetch(&mut state).await);
            }
        });
        fetching.await.expect("the task that fetches keys panicked");
        match self.verify(token) {
            Err(error) if is_unknown(&error) && self.state.read().awaits_keys => Err(TokenError::NoKeys),
            verified => verified,
        }
    }

    /// Returns whether a key of this name may be one that the provider has and the server does not.
    fn may_be_of_new_key(&self, name: Option<&str>) -> bool {
        let state = self.state.read();
        state.awaits_keys || name.is_some_and(|name| !state.set.iter().any(|key| key.is_named(name)))
    }

    /// Fetches the keys of the identity provider, if one is configured. A failure is logged.
    pub async fn fetch_keys(&self) {
        let Some(provider) = &self.provider else { return };
        let mut state = provider.fetching.lock().await;
        self.install_fetched(provider.fetch(&mut state).await);
    }

    fn install_fetched(&self, fetched: Option<Vec<VerifyingKey>>) {
        let has_keys = self.provider.as_ref().is_some_and(Provider::has_keys);
        let Some(set) = fetched.filter(|_| has_keys) else { return };
        let mut state = self.state.write();
        let is_same = set.iter().map(VerifyingKey::thumbprint).eq(state.set.iter().map(VerifyingKey::thumbprint));
        if is_same && !state.awaits_keys {
            return;
        }
        tracing::info!(keys = set.len(), "fetched the keys of the identity provider");
        (state.set, state.awaits_keys) = (set, false);
        self.end_revoked(&state);
    }

    /// How a page signs people in. `None`: not at all.
    #[must_use]
    pub const fn sign_in(&self) -> Option<&SignIn> {
        self.config.sign_in.as_ref()
    }

    /// The addresses at which a page signs in. `None` while the provider has not answered, or without one.
    #[must_use]
    pub fn discovered(&self) -> Option<Discovered> {
        self.provider.as_ref()?.discovered()
    }

    /// Returns whether a request names a user in the proxy's header.
    #[must_use]
    pub fn is_proxied(&self, headers: &HeaderMap) -> bool {
        self.config.proxy.as_ref().is_some_and(|proxy| headers.contains_key(&proxy.header))
    }

    /// Returns the grant of the user that the proxy's header names, for one request. `None`: it names none.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn proxied(&self, headers: &HeaderMap) -> Option<Result<Arc<Grant>, TokenError>> {
        let proxy = self.config.proxy.as_ref().filter(|_| self.is_proxied(headers))?;
        Some(self.verify_proxied(proxy, headers))
    }

    fn verify_proxied(&self, proxy: &ProxyConfig, headers: &HeaderMap) -> Result<Arc<Grant>, TokenError> {
        // The read lock is held until the grant is indexed. Otherwise a reload in between would not end it.
        let state = self.state.read();
        let secret = state.proxy.as_ref().filter(|secret| secret.is_in(headers)).ok_or(TokenError::ProxySecret)?;
        let claims = self.config.mappings.read(&proxy.claims(headers)?)?;
        let grant = Arc::new(Grant::new(claims, *secret.thumbprint()));
        if let Some(end) = state.end_reason(&grant) {
            return Err(TokenError::Ended(end));
        }
        self.grants.lock().insert(&grant);
        Ok(grant)
    }

    /// Verifies a token and returns its grant, by the keys that the server has.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn verify(&self, token: &str) -> Result<Arc<Grant>, TokenError> {
        let (digest, now) = (digest(token), self.now());
        if let Some(known) = self.cached_grants.get(&digest).filter(|known| !known.ended_early(now)) {
            return self.ensure_valid(&known).map(|()| known);
        }
        // The read lock is held until the grant is indexed. Otherwise a reload in between would not end it.
        let state = self.state.read();
        let grant = match links::is_of_link(token) {
            true => self.verify_link(token)?,
            false => {
                let (claims, key) = verify_signature(token, state.keys(), &self.config.mappings)?;
                claims.ensure_addressed_to(&self.config.service, self.config.issuer.as_deref())?;
                if claims.not_before > now + CLOCK_SKEW {
                    return Err(TokenError::NotYetValid);
                }
                Grant::new(claims, key)
            }
        };
        let grant = Arc::new(grant);
        if let Some(end) = state.end_reason(&grant) {
            return Err(TokenError::Ended(end));
        }
        grant.ensure_valid(now)?;
        self.grants.lock().insert(&grant);
        self.cached_grants.insert(digest, grant.clone());
        Ok(grant)
    }

    /// Fails if the grant has ended.
    ///
    /// # Errors
    /// [`TokenError::Ended`].
    pub fn ensure_valid(&self, grant: &Grant) -> Result<(), TokenError> {
        self.end_of_ended_link(grant);
        grant.ensure_valid(self.now())
    }

    /// Makes the server verify the tokens of these share links, from the start on.
    pub fn use_links(&self, links: Arc<dyn LinkTable>) {
        // Only the first call counts.
        let _ = self.links.set(links);
    }

    /// Signs a token of a share link. Returns it with its end, in seconds since 1970.
    ///
    /// # Errors
    /// [`TokenError`] for a link that has ended, or whose maker has lost the right to it.
    pub fn open_link(&self, id: &str) -> Result<(String, u64), TokenError> {
        let ended = || TokenError::Ended(EndReason::LinkEnded);
        let links = self.links.get().ok_or_else(ended)?;
        let (terms, secret) = (links.terms(id).ok_or_else(ended)?, links.secret().ok_or_else(ended)?);
        let expires = terms.until.min(self.now() + LINK_TOKEN_SECS);
        let grant = Grant::of_link(id, terms, expires).ok_or_else(ended)?;
        match self.state.read().end_reason(&grant) {
            Some(end) => Err(TokenError::Ended(end)),
            None => Ok((links::sign(&secret, id, expires), expires)),
        }
    }

    fn verify_link(&self, token: &str) -> Result<Grant, TokenError> {
        let links = self.links.get().ok_or(TokenError::UnknownKey)?;
        let (id, expires) = links::verify(&links.secret().ok_or(TokenError::UnknownKey)?, token)?;
        self.grant_of_link(&id, expires).ok_or(TokenError::Ended(EndReason::LinkEnded))
    }

    fn grant_of_link(&self, id: &str, expires: u64) -> Option<Grant> {
        Grant::of_link(id, self.links.get()?.terms(id)?, expires)
    }

    /// Ends a grant whose share link has ended.
    fn end_of_ended_link(&self, grant: &Grant) {
        let has_ended = |link: &OpenedLink| self.links.get().is_none_or(|links| links.terms(&link.id).is_none());
        if grant.link().is_some_and(has_ended) {
            grant.end(EndReason::LinkEnded);
        }
    }

    /// Makes the server issue and redeem the tickets of its cluster, from the start on.
    pub fn share_tickets(&self, shared: SharedTickets) {
        // Only the first call counts.
        let _ = self.shared_tickets.set(shared);
    }

    /// Issues a single-use ticket for one purpose and scope. `seconds` is its lifetime.
    ///
    /// Returns the ticket and its expiry, in seconds since 1970. The ticket never outlives its token.
    ///
    /// # Errors
    /// [`tickets::TooManyTickets`].
    pub fn ticket(
        &self,
        of: &Arc<Grant>,
        purpose: tickets::Purpose,
        scope: Option<tickets::TicketScope>,
        seconds: u64,
    ) -> Result<(String, u64), tickets::TooManyTickets> {
        let text = format!("{:032x}{:032x}", (self.environment.random)(), (self.environment.random)());
        let until = (self.now() + seconds).min(of.expires);
        if let Some(shared) = self.shared_tickets.get() {
            return Ok((shared.issue(&text, of, purpose, scope.as_ref(), until), until));
        }
        self.tickets.lock().insert(digest(&text), of.clone(), purpose, scope, until)?;
        Ok((text, until))
    }

    /// Redeems a ticket. `resumes`: the client sends its last event id.
    ///
    /// # Errors
    /// [`TokenError`].
    pub async fn redeem(&self, ticket: &str, purpose: tickets::Purpose, resumes: bool) -> Result<Arc<Grant>, TokenError> {
        let grant = match self.shared_tickets.get() {
            Some(shared) => shared.redeem(ticket, purpose, resumes, self.now(), self.links.get()).await?,
            None => self.tickets.lock().redeem(&digest(ticket), purpose, resumes, self.now())?,
        };
        self.ensure_valid(&grant)?;
        // The read lock is held until the grant is indexed. Otherwise a reload in between would not end it.
        let state = self.state.read();
        if let Some(end) = state.end_reason(&grant) {
            return Err(TokenError::Ended(end));
        }
        self.grants.lock().insert(&grant);
        Ok(grant)
    }

    /// Runs the periodic checks of expiry, files and the provider's keys until the task is aborted.
    pub async fn run(self: Arc<Self>) {
        tokio::join!(self.clone().check_files(), self.renew_keys());
    }

    /// Fetches the provider's keys again and again.
    async fn renew_keys(&self) {
        let Some(provider) = &self.provider else { return };
        loop {
            let pause = provider.fetching.lock().await.pause();
            tokio::time::sleep(pause).await;
            self.fetch_keys().await;
        }
    }

    async fn check_files(self: Arc<Self>) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let this = self.clone();
            // The file may be on a slow disk.
            let reloading = spawn_blocking(move || this.reload_if_changed());
            reloading.await.expect("the reload task panicked");
            self.expire_due();
            self.end_ended_links();
            if let Some(shared) = self.shared_tickets.get() {
                shared.refresh(self.now()).await;
            }
        }
    }

    /// Ends the grants of share links that have ended, for what they hold open.
    fn end_ended_links(&self) {
        let mut of_links = Vec::new();
        self.grants.lock().by_expiry.values().filter_map(Weak::upgrade).for_each(|grant| {
            if grant.link.is_some() {
                of_links.push(grant);
            }
        });
        for grant in &of_links {
            self.end_of_ended_link(grant);
        }
    }

    /// Ends expired grants, and removes dropped grants and stale tickets.
    fn expire_due(&self) {
        if sabotage::is(54) {
            return;
        }
        let now = self.now();
        let mut grants = self.grants.lock();
        let later = grants.by_expiry.split_off(&(now + 1, 0));
        for grant in std::mem::replace(&mut grants.by_expiry, later).into_values().filter_map(|grant| grant.upgrade()) {
            grant.end(EndReason::Expired);
        }
        if grants.by_expiry.len() > 2 * grants.live_count + DEAD_GRANTS_MAX {
            grants.by_expiry.retain(|_, grant| grant.strong_count() > 0);
            grants.live_count = grants.by_expiry.len();
        }
        drop(grants);
        self.tickets.lock().sweep(now);
    }

    /// Reloads the files that changed.
    ///
    /// An unreadable file is logged once and leaves the old content in force.
    pub fn reload_if_changed(&self) {
        let files = self.config.watched_files();
        let now = files.map(|file| file.and_then(file_stamp));
        let before = std::mem::replace(&mut *self.stamps.lock(), now);
        let changed = |n: usize| files[n].filter(|_| now[n] != before[n]);
        let log_error =
            |error: &AuthConfigError| tracing::error!(%error, "cannot reload the file; its previous content stays in force");
        let set = changed(0).and_then(|file| read_set(file).inspect_err(log_error).ok());
        let revoked = changed(1).and_then(|file| read_revoked(file).inspect_err(log_error).ok());
        let proxy = changed(2).and_then(|file| read_proxy_secret(file).inspect_err(log_error).ok());
        if set.is_none() && revoked.is_none() && proxy.is_none() {
            return;
        }
        let mut state = self.state.write();
        if let Some(set) = set {
            tracing::info!(keys = set.len(), "reloaded the key set");
            state.set = set;
        }
        if let Some(revoked) = revoked {
            tracing::info!(names = revoked.len(), "reloaded the revocation file");
            state.revoked = revoked;
        }
        if proxy.is_some() {
            tracing::info!("reloaded the proxy's secret");
            state.proxy = proxy;
        }
        self.end_revoked(&state);
    }

    /// Ends the grants that the new keys and revocations do not allow.
    fn end_revoked(&self, state: &KnownKeys) {
        // The cached grants were verified against the previous state.
        self.cached_grants.clear();
        self.grants.lock().for_each_live(|grant| {
            if let Some(end) = state.end_reason(grant) {
                grant.end(end);
            }
        });
    }
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

#[cfg(test)]
mod tests;
