//! Who is asking: tokens, the keys that vouch for them, and what ends them before their time.
//!
//! A token is a JWT (RFC 7519) that one of the [`keys`] has signed. It becomes a [`Grant`]: [`rights`], and how long they last.
//! A grant ends by its expiry, by a line in the file of what is revoked, or by its key going out of the key set; whoever has
//! something open under it holds a [`Lease`], and is told. One clock does that for all of them: nobody has a timer of its own.
//!
//! Nothing here knows HTTP, runs or frames. What a right is good for is decided in `serve::access`.

mod crypto;
pub mod keys;
pub mod rights;
pub mod tickets;

use crate::ingest::World;
use keys::{Key, Print, of_set, vouched};
use parking_lot::{Mutex, RwLock};
use quick_cache::sync::Cache;
use rights::{CLOCK_SKEW, Claims, Rights};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};
use tickets::Tickets;
use tokio::sync::watch;

/// How often the clock looks: so much later than its expiry, at most, a stream ends, and so much later than a change of a file.
const TICK: Duration = Duration::from_millis(500);
/// Tokens that are remembered, so that a signature is computed once and not for each request.
const KNOWN_MAX: usize = 8192;
/// The largest file of keys, and the largest of what is revoked, in bytes.
const KEYS_BYTES_MAX: u64 = 1024 * 1024;
const REVOKED_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Grants that may be forgotten before that is done.
const STALE_MAX: usize = 1024;

/// Where the keys are, and what else is demanded of a token.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// One key: a secret, or PEM of a public key.
    pub key: Option<PathBuf>,
    /// A JSON Web Key Set.
    pub jwks: Option<PathBuf>,
    /// A `jti` or `sub` a line.
    pub revoked: Option<PathBuf>,
    /// Who we are to whoever makes tokens: what `aud` has to name, where a token has one.
    pub service: Box<str>,
    /// What `iss` has to be, if anything.
    pub issuer: Option<Box<str>>,
}

/// Why the files are not as they must be.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", file.display())]
pub struct SetupError {
    file: PathBuf,
    why: String,
}

/// Why a token is none. No refusal repeats anything of the token before its signature was found right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("there is no token; send `Authorization: Bearer …`")]
    Missing,
    #[error("the token has more than {} bytes, the limit", keys::TOKEN_BYTES_MAX)]
    TooLong,
    #[error("the token is no JWT that is signed with HS256, EdDSA or RS256")]
    NoToken,
    #[error("the token demands to be understood in a way that it is not here (crit)")]
    Critical,
    #[error("the token is signed with a key that is not known here")]
    NoKey,
    #[error("the token's signature is wrong")]
    Signature,
    #[error("the token is signed, and not as it must be: {0}")]
    Claim(String),
    #[error("the token was made for another service (aud)")]
    OtherService,
    #[error("the token is of another issuer (iss)")]
    OtherIssuer,
    #[error("the token is not valid yet (nbf)")]
    NotYet,
    #[error("the ticket is unknown, was used, has run out, or is for something else; make a new one")]
    Ticket,
    #[error("{0}")]
    Ended(End),
}

/// Why a grant is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Expired,
    Revoked,
    KeyGone,
    /// The ticket's stream was opened again.
    Resumed,
}

impl End {
    /// For programs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::KeyGone => "key_removed",
            Self::Resumed => "resumed_elsewhere",
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the token has expired; come back with a new one",
            Self::Revoked => "the token was revoked",
            Self::KeyGone => "the key that the token is signed with was taken away; come back with a new token",
            Self::Resumed => "the stream was opened again with the same ticket, and goes on there",
        })
    }
}

/// What somebody may, and for how long.
pub struct Grant {
    pub rights: Rights,
    pub subject: Box<str>,
    /// In seconds since 1970.
    pub expires: u64,
    id: Option<Box<str>>,
    key: Print,
    ended: watch::Sender<Option<End>>,
    /// How many tickets there are of it.
    tickets: AtomicUsize,
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("subject", &self.subject).field("expires", &self.expires).finish_non_exhaustive()
    }
}

impl Grant {
    fn new(claims: Claims, key: Print) -> Self {
        let Claims { subject, id, expires, rights, .. } = claims;
        Self { rights, subject, expires, id, key, ended: watch::Sender::new(None), tickets: AtomicUsize::new(0) }
    }

    /// The same for as long, with these of its rights.
    fn narrowed(&self, rights: Rights) -> Self {
        debug_assert!(self.rights.cover(&rights), "a ticket adds nothing");
        let (subject, expires, id, key) = (self.subject.clone(), self.expires, self.id.clone(), self.key);
        Self { rights, subject, expires, id, key, ended: watch::Sender::new(None), tickets: AtomicUsize::new(0) }
    }

    fn end(&self, end: End) {
        self.ended.send_if_modified(|ended| ended.replace(end).is_none());
    }

    /// Whether it is over, by what is known and by this clock.
    fn stands(&self, now: u64) -> Result<(), Refusal> {
        match *self.ended.borrow() {
            Some(end) => Err(Refusal::Ended(end)),
            None if now >= self.expires => Err(Refusal::Ended(End::Expired)),
            None => Ok(()),
        }
    }

    /// For whoever has something open under it.
    #[must_use]
    pub fn lease(&self) -> Lease {
        Lease(self.ended.subscribe())
    }

    /// Whether it belongs to the same person or program as another.
    #[must_use]
    pub fn is_of(&self, other: &Self) -> bool {
        self.subject == other.subject
    }
}

/// Tells when a grant is over.
#[derive(Debug, Clone)]
pub struct Lease(watch::Receiver<Option<End>>);

impl Lease {
    /// Waits until the grant is over. Dropping the future loses nothing.
    pub async fn ended(&mut self) -> End {
        match self.0.wait_for(Option::is_some).await.map(|end| *end) {
            Ok(Some(end)) => end,
            // It fails only when the grant is gone, and whoever has a lease has the grant.
            _ => std::future::pending().await,
        }
    }

    /// Whether it is over.
    #[must_use]
    pub fn has_ended(&self) -> Option<End> {
        *self.0.borrow()
    }
}

/// The keys, what is revoked, and when the files were last looked at.
#[derive(Default)]
struct State {
    own: Option<Key>,
    set: Vec<Key>,
    revoked: HashSet<Box<str>>,
}

impl State {
    fn keys(&self) -> impl Iterator<Item = &Key> {
        self.own.iter().chain(&self.set)
    }

    /// Why a grant is over, if it is.
    fn ends(&self, grant: &Grant) -> Option<End> {
        let is_revoked = |name: &str| self.revoked.contains(name);
        if is_revoked(&grant.subject) || grant.id.as_deref().is_some_and(is_revoked) {
            return Some(End::Revoked);
        }
        (!self.keys().any(|key| *key.print() == grant.key)).then_some(End::KeyGone)
    }
}

/// The grants that somebody may have something open under, by their expiry.
#[derive(Default)]
struct Granted {
    by_expiry: BTreeMap<(u64, u64), Weak<Grant>>,
    /// Numbers those of one second.
    next: u64,
    /// How many there were after the last look for those that are gone.
    kept: usize,
}

impl Granted {
    fn put(&mut self, grant: &Arc<Grant>) {
        self.next += 1;
        self.by_expiry.insert((grant.expires, self.next), Arc::downgrade(grant));
    }

    fn each(&self, mut with: impl FnMut(&Grant)) {
        self.by_expiry.values().filter_map(Weak::upgrade).for_each(|grant| with(&grant));
    }
}

/// How a file looked: when it was changed, how long it is, and which it is.
type Look = Option<(SystemTime, u64, u64)>;

fn look(file: &Path) -> Look {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(file).ok()?;
    Some((meta.modified().ok()?, meta.len(), meta.ino()))
}

/// All of a file, if it is not larger than that.
fn read(file: &Path, bytes_max: u64) -> Result<Vec<u8>, SetupError> {
    let failed = |why: String| SetupError { file: file.to_owned(), why };
    let bytes = std::fs::metadata(file).map_err(|error| failed(error.to_string()))?.len();
    if bytes > bytes_max {
        return Err(failed(format!("it has {bytes} bytes, and {bytes_max} is the limit")));
    }
    std::fs::read(file).map_err(|error| failed(error.to_string()))
}

fn read_set(file: &Path) -> Result<Vec<Key>, SetupError> {
    let (keys, left_out) = of_set(&read(file, KEYS_BYTES_MAX)?).map_err(|why| SetupError { file: file.to_owned(), why })?;
    for why in left_out {
        tracing::warn!(file = %file.display(), why, "a key of the set is left out");
    }
    Ok(keys)
}

/// A `jti` or a `sub` a line. Blank lines, and those that begin with `#`, say nothing.
fn read_revoked(file: &Path) -> Result<HashSet<Box<str>>, SetupError> {
    let bytes = read(file, REVOKED_BYTES_MAX)?;
    let text = String::from_utf8(bytes).map_err(|_| SetupError { file: file.to_owned(), why: "it is not UTF-8".into() })?;
    let lines = text.lines().map(str::trim);
    Ok(lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(Into::into).collect())
}

/// Says who is who.
pub struct Authority {
    setup: Setup,
    world: World,
    state: RwLock<State>,
    looks: Mutex<[Look; 2]>,
    /// By the token's hash.
    known: Cache<[u8; 32], Arc<Grant>>,
    granted: Mutex<Granted>,
    tickets: Mutex<Tickets>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("setup", &self.setup).finish_non_exhaustive()
    }
}

impl Authority {
    /// Reads the keys; `None` where there are none to read: then nobody is asked who they are.
    ///
    /// # Errors
    /// [`SetupError`] for a file that is not as it must be.
    pub fn open(setup: Setup, world: World) -> Result<Option<Arc<Self>>, SetupError> {
        if setup.key.is_none() && setup.jwks.is_none() {
            return Ok(None);
        }
        crypto::install();
        let own = setup
            .key
            .as_deref()
            .map(|file| Key::of_file(&read(file, KEYS_BYTES_MAX)?).map_err(|why| SetupError { file: file.to_owned(), why }));
        // Before they are read: what changes in between is found at the first look.
        let looks = Mutex::new([&setup.jwks, &setup.revoked].map(|file| file.as_deref().and_then(look)));
        let state = State {
            own: own.transpose()?,
            set: setup.jwks.as_deref().map(read_set).transpose()?.unwrap_or_default(),
            revoked: setup.revoked.as_deref().map(read_revoked).transpose()?.unwrap_or_default(),
        };
        Ok(Some(Arc::new(Self {
            setup,
            world,
            state: RwLock::new(state),
            looks,
            known: Cache::new(KNOWN_MAX),
            granted: Mutex::default(),
            tickets: Mutex::default(),
        })))
    }

    /// In seconds since 1970.
    fn now(&self) -> u64 {
        u64::try_from((self.world.now)().as_second()).unwrap_or(0)
    }

    /// What the holder of this token may.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn verify(&self, token: &str) -> Result<Arc<Grant>, Refusal> {
        let (digest, now) = (digest(token), self.now());
        if let Some(known) = self.known.get(&digest) {
            return known.stands(now).map(|()| known);
        }
        // Held until the grant can be found: or the file could change in between, and nobody would tell it.
        let state = self.state.read();
        let (claims, key) = vouched(token, state.keys())?;
        claims.are_for(&self.setup.service, self.setup.issuer.as_deref())?;
        if claims.not_before > now + CLOCK_SKEW {
            return Err(Refusal::NotYet);
        }
        let grant = Arc::new(Grant::new(claims, key));
        if let Some(end) = state.ends(&grant) {
            return Err(Refusal::Ended(end));
        }
        grant.stands(now)?;
        self.granted.lock().put(&grant);
        self.known.insert(digest, grant.clone());
        Ok(grant)
    }

    /// Whether a grant is still good.
    ///
    /// # Errors
    /// [`Refusal::Ended`].
    pub fn stands(&self, grant: &Grant) -> Result<(), Refusal> {
        grant.stands(self.now())
    }

    /// Makes a ticket: good once, for this long, in seconds, and for nothing else than this. Returns it, and until when it is
    /// good, in seconds since 1970.
    ///
    /// # Errors
    /// [`tickets::TooMany`].
    pub fn ticket(
        &self,
        of: &Arc<Grant>,
        purpose: tickets::Purpose,
        only: Option<tickets::Only>,
        seconds: u64,
    ) -> Result<(String, u64), tickets::TooMany> {
        let text = format!("{:032x}{:032x}", (self.world.random)(), (self.world.random)());
        let until = (self.now() + seconds).min(of.expires);
        self.tickets.lock().put(digest(&text), of.clone(), purpose, only, until)?;
        Ok((text, until))
    }

    /// What whoever has this ticket may. With `resumes` it is one who says where its stream was cut off.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn redeem(&self, ticket: &str, purpose: tickets::Purpose, resumes: bool) -> Result<Arc<Grant>, Refusal> {
        let (state, now) = (self.state.read(), self.now());
        let grant = self.tickets.lock().take(&digest(ticket), purpose, resumes, now)?;
        if let Some(end) = state.ends(&grant) {
            return Err(Refusal::Ended(end));
        }
        self.granted.lock().put(&grant);
        Ok(grant)
    }

    /// The clock, until it is aborted.
    pub async fn keep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(TICK).await;
            let this = self.clone();
            // A file may be on a disk that takes its time.
            let looking = tokio::task::spawn_blocking(move || this.look_again());
            looking.await.expect("nobody aborts it, and a panic in it is one here");
            self.tick();
        }
    }

    /// Ends what has expired, and lets go of what nobody holds.
    fn tick(&self) {
        let now = self.now();
        let mut granted = self.granted.lock();
        let later = granted.by_expiry.split_off(&(now + 1, 0));
        for grant in std::mem::replace(&mut granted.by_expiry, later).into_values().filter_map(|grant| grant.upgrade()) {
            grant.end(End::Expired);
        }
        if granted.by_expiry.len() > 2 * granted.kept + STALE_MAX {
            granted.by_expiry.retain(|_, grant| grant.strong_count() > 0);
            granted.kept = granted.by_expiry.len();
        }
        drop(granted);
        self.tickets.lock().sweep(now);
    }

    /// Reads the files that have changed. One that cannot be read leaves everything as it was, and that is said once.
    pub fn look_again(&self) {
        let files = [&self.setup.jwks, &self.setup.revoked];
        let now = files.map(|file| file.as_deref().and_then(look));
        let before = std::mem::replace(&mut *self.looks.lock(), now);
        let changed = |n: usize| files[n].as_deref().filter(|_| now[n] != before[n]);
        let told = |error: &SetupError| tracing::error!(%error, "the file is not taken; what it said before still counts");
        let set = changed(0).and_then(|file| read_set(file).inspect_err(told).ok());
        let revoked = changed(1).and_then(|file| read_revoked(file).inspect_err(told).ok());
        if set.is_none() && revoked.is_none() {
            return;
        }
        let mut state = self.state.write();
        if let Some(set) = set {
            tracing::info!(keys = set.len(), "the key set was read again");
            state.set = set;
        }
        if let Some(revoked) = revoked {
            tracing::info!(names = revoked.len(), "what is revoked was read again");
            state.revoked = revoked;
        }
        // What was found good by what the files said before.
        self.known.clear();
        self.granted.lock().each(|grant| {
            if let Some(end) = state.ends(grant) {
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
