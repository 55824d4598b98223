//! Share links: what a person without a token may see, until when, and whether it may decide one action.
//!
//! ```text
//!   POST /v1/links ─▶ record in the server's own log ─▶ table on every node ─▶ tokens of 15 minutes (auth::links)
//! ```
//! The server keeps the hash of a link's secret and never the secret. A link leads to one run or one session, for the
//! audience `user`, and only to what its maker may read. It ends at its time, when it is revoked, when its maker's token
//! or key is revoked, and when what it leads to is erased.

use crate::audit::{AuditEntry, Deed};
use crate::auth::holder::TokenHolder;
use crate::auth::links::{LinkMoment, LinkTable, LinkTarget, LinkTerms};
use crate::environment::Environment;
use crate::ingest::Ingest;
use crate::log::commit::Logs;
use crate::log::server_state::{EntryChange, StateRecord};
use crate::log::{LogId, StoreError};
use crate::model::decided_by::{Decider, Via};
use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use parking_lot::Mutex;
use ring::hmac;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

/// The longest life of a link, in days.
pub const LINK_DAYS_MAX: u64 = 90;
/// Links of one server.
pub const LINKS_MAX: usize = 10_000;
/// Links of one maker, by the `sub` of its tokens.
pub const LINKS_PER_MAKER_MAX: usize = 256;
/// Exchanges of one link in one minute. A page exchanges the secret when it opens and each quarter of an hour.
pub const EXCHANGES_PER_MINUTE_MAX: u32 = 60;
/// Links past their end that one new link removes.
const SWEPT_MAX: usize = 256;
/// The id of the only key.
const KEY_ID: &str = "1";

/// A link, as the server keeps it. It holds ids and no text of what it leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkRecord {
    /// The SHA-256 of the secret, in hexadecimal digits.
    hash: Box<str>,
    pub target: LinkTarget,
    /// `None`: it was made on a server without authentication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maker: Option<TokenHolder>,
    /// In milliseconds since 1970.
    pub created_at: i64,
    /// In seconds since 1970.
    pub until: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<LinkMoment>,
    pub may_decide: bool,
    /// Exchanges of the secret.
    pub uses: u64,
    /// In milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at: Option<i64>,
    /// The decision that it made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<LinkDecision>,
}

/// The one decision of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkDecision {
    pub log: Box<str>,
    pub action_id: Box<str>,
    pub control_id: Box<str>,
}

/// The secret that signs the tokens of links, the same on all nodes.
#[derive(Serialize, Deserialize)]
struct LinkKey {
    secret: Box<str>,
}

impl StateRecord for LinkRecord {
    const TABLE: &'static str = "link";
}

impl StateRecord for LinkKey {
    const TABLE: &'static str = "link-key";
}

impl LinkTarget {
    /// The log that it leads to.
    #[must_use]
    pub fn log(&self) -> LogId {
        match self {
            Self::Run(run, _) => LogId::Run(run.clone()),
            Self::Session(session, _) => LogId::Session(session.clone()),
        }
    }
}

/// A link to make.
#[derive(Debug, Clone)]
pub struct NewLink {
    pub target: LinkTarget,
    pub maker: Option<TokenHolder>,
    /// In seconds since 1970.
    pub until: u64,
    pub at: Option<LinkMoment>,
    pub may_decide: bool,
}

/// A link that was just made: the only time that its secret is known.
pub struct MadeLink {
    pub id: String,
    pub secret: String,
}

/// Why a link is not made, or does nothing.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LinkError {
    #[error("{limit} links {of} are open, the limit. Revoke some, or wait until they end.")]
    TooMany { of: &'static str, limit: usize },
    #[error("The link was exchanged {EXCHANGES_PER_MINUTE_MAX} times in this minute, the limit. Retry in a minute.")]
    TooOften,
    #[error("No open link has this id or secret: it is unknown, revoked or past its end, or what it showed was erased.")]
    Unknown,
    #[error("The link has decided action {action} by control {control}; it decides once.")]
    Decided { action: Box<str>, control: Box<str> },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The links of one server.
pub struct Links {
    environment: Environment,
    logs: Arc<Logs>,
    ingest: Arc<Ingest>,
    /// Held from reading a record until its change is committed: only the leader changes records.
    changing: tokio::sync::Mutex<()>,
    exchanges: Mutex<Exchanges>,
}

/// The exchanges of the current minute.
#[derive(Default)]
struct Exchanges {
    minute: i64,
    counts: HashMap<String, u32>,
}

/// Holds back all other decisions of links until it is dropped.
pub struct DecisionTurn<'l> {
    links: &'l Links,
    id: Box<str>,
    is_repeated: bool,
    _held: tokio::sync::MutexGuard<'l, ()>,
}

fn hash_of(secret: &str) -> [u8; 32] {
    Sha256::digest(secret).into()
}

/// The id of a link: the beginning of its secret's hash, from which none finds the 256 random bits of the secret.
fn id_of(hash: &[u8; 32]) -> String {
    HEXLOWER.encode(&hash[..12])
}

impl Links {
    /// The links that the logs of the server have.
    #[must_use]
    pub fn new(environment: Environment, logs: Arc<Logs>, ingest: Arc<Ingest>) -> Self {
        Self { environment, logs, ingest, changing: tokio::sync::Mutex::default(), exchanges: Mutex::default() }
    }

    fn random_secret(&self) -> String {
        let [high, low] = [(); 2].map(|()| (self.environment.random)().to_be_bytes());
        BASE64URL_NOPAD.encode(&[high, low].concat())
    }

    fn seconds_now(&self) -> u64 {
        u64::try_from((self.environment.now)().as_second()).unwrap_or(0)
    }

    async fn append(&self, entries: Vec<EntryChange>, audit: Option<AuditEntry>) -> Result<(), StoreError> {
        let drafts: Vec<_> = audit.iter().map(AuditEntry::draft).collect();
        self.ingest.append_to_server(&drafts, &entries).await
    }

    /// Makes a link, durably.
    ///
    /// # Errors
    /// [`LinkError::TooMany`], or from the store.
    pub async fn make(&self, new: NewLink, by: &Decider) -> Result<MadeLink, LinkError> {
        let _changing = self.changing.lock().await;
        let (state, now) = (self.logs.server_state(), self.seconds_now());
        let (open, past): (Vec<_>, Vec<_>) = state.all::<LinkRecord>("").into_iter().partition(|(_, record)| record.until > now);
        if open.len() >= LINKS_MAX {
            return Err(LinkError::TooMany { of: "of this server", limit: LINKS_MAX });
        }
        let subject = |record: &LinkRecord| record.maker.as_ref().map(|maker| maker.subject.clone());
        let own = new.maker.as_ref().map(|maker| maker.subject.clone());
        if own.is_some() && open.iter().filter(|(_, record)| subject(record) == own).count() >= LINKS_PER_MAKER_MAX {
            return Err(LinkError::TooMany { of: "of this maker", limit: LINKS_PER_MAKER_MAX });
        }
        let secret = self.random_secret();
        let hash = hash_of(&secret);
        let (id, log) = (id_of(&hash), new.target.log());
        let NewLink { target, maker, until, at, may_decide } = new;
        let record = LinkRecord {
            hash: HEXLOWER.encode(&hash).into(),
            target,
            maker,
            created_at: (self.environment.now)().as_millisecond(),
            until,
            at,
            may_decide,
            uses: 0,
            used_at: None,
            decided: None,
        };
        let mut entries = vec![EntryChange::set(&id, &record)];
        entries.extend(past.iter().take(SWEPT_MAX).map(|(id, _)| EntryChange::remove::<LinkRecord>(id)));
        if state.get::<LinkKey>(KEY_ID).is_none() {
            entries.push(EntryChange::set(KEY_ID, &LinkKey { secret: self.random_secret().into() }));
        }
        self.append(
            entries,
            Some(AuditEntry::new(Deed::LinkCreated, by.clone(), (self.environment.now)()).about(&log).with_id(&id)),
        )
        .await?;
        Ok(MadeLink { id, secret })
    }

    /// The links that are not past their end, the newest first.
    #[must_use]
    pub fn open(&self) -> Vec<(String, LinkRecord)> {
        let now = self.seconds_now();
        let mut open = self.logs.server_state().all::<LinkRecord>("");
        open.retain(|(_, record)| record.until > now);
        open.sort_by_key(|(id, record)| (Reverse(record.created_at), id.clone()));
        open
    }

    /// The link with this id, unless it is past its end.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<LinkRecord> {
        self.logs.server_state().get::<LinkRecord>(id).filter(|record| record.until > self.seconds_now())
    }

    /// Revokes a link, durably. `false`: it does not exist.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn revoke(&self, id: &str, by: &Decider) -> Result<bool, StoreError> {
        let _changing = self.changing.lock().await;
        let Some(record) = self.logs.server_state().get::<LinkRecord>(id) else { return Ok(false) };
        let entry =
            AuditEntry::new(Deed::LinkRevoked, by.clone(), (self.environment.now)()).about(&record.target.log()).with_id(id);
        self.append(vec![EntryChange::remove::<LinkRecord>(id)], Some(entry)).await?;
        Ok(true)
    }

    /// Removes the links to erased runs or sessions, durably.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn remove_of(&self, is_erased: impl Fn(&LogId) -> bool) -> Result<(), StoreError> {
        let _changing = self.changing.lock().await;
        let links = self.logs.server_state().all::<LinkRecord>("");
        let gone = links.into_iter().filter(|(_, record)| is_erased(&record.target.log()));
        let entries: Vec<_> = gone.map(|(id, _)| EntryChange::remove::<LinkRecord>(&id)).collect();
        if entries.is_empty() { Ok(()) } else { self.append(entries, None).await }
    }

    /// The link with this secret, in a time that does not depend on how much of it is right.
    ///
    /// # Errors
    /// [`LinkError::Unknown`].
    pub async fn find(&self, secret: &str) -> Result<(String, LinkRecord), LinkError> {
        let hash = hash_of(secret);
        let id = id_of(&hash);
        let record = self.get(&id).ok_or(LinkError::Unknown)?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, HEXLOWER.encode(&hash).as_bytes());
        let known = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, record.hash.as_bytes()), b"link");
        match hmac::verify(&key, b"link", known.as_ref()).is_ok() && self.is_there(&record.target).await? {
            true => Ok((id, record)),
            false => Err(LinkError::Unknown),
        }
    }

    /// Whether what a link leads to still exists.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn is_there(&self, target: &LinkTarget) -> Result<bool, StoreError> {
        Ok(match target {
            LinkTarget::Run(run, epoch) => {
                self.logs.log(&LogId::Run(run.clone())).await?.tail().epoch.is_some_and(|now| now.bits() == *epoch)
            }
            LinkTarget::Session(session, newest) => {
                self.logs.sessions().created_order(session).is_some_and(|created| created <= *newest)
            }
        })
    }

    /// Counts an exchange of a link's secret, durably.
    ///
    /// # Errors
    /// [`LinkError::TooOften`], [`LinkError::Unknown`] if it was revoked meanwhile, or from the store.
    pub async fn count_use(&self, id: &str) -> Result<(), LinkError> {
        let _changing = self.changing.lock().await;
        let now = (self.environment.now)();
        let mut record = self.get(id).ok_or(LinkError::Unknown)?;
        {
            let mut exchanges = self.exchanges.lock();
            let minute = now.as_second() / 60;
            if exchanges.minute != minute {
                *exchanges = Exchanges { minute, counts: HashMap::new() };
            }
            let count = exchanges.counts.entry(id.to_owned()).or_default();
            if *count >= EXCHANGES_PER_MINUTE_MAX {
                return Err(LinkError::TooOften);
            }
            *count += 1;
        }
        let by = Decider { sub: Some(format!("link:{id}").into()), ..Decider::anonymous(Via::Link) };
        let is_first = record.uses == 0;
        let entry = is_first.then(|| AuditEntry::new(Deed::LinkOpened, by, now).about(&record.target.log()).with_id(id));
        (record.uses, record.used_at) = (record.uses + 1, Some(now.as_millisecond()));
        self.append(vec![EntryChange::set(id, &record)], entry).await?;
        Ok(())
    }

    /// Reserves the one decision of a link, durably, and holds back the decisions of all others until it is over.
    ///
    /// So of two that race, the second one finds the first. After a crash between the two, the link has decided, and only
    /// the same decision may be repeated.
    ///
    /// # Errors
    /// [`LinkError::Decided`], [`LinkError::Unknown`], or from the store.
    pub async fn reserve_decision(&self, id: &str, decision: LinkDecision) -> Result<DecisionTurn<'_>, LinkError> {
        let held = self.changing.lock().await;
        let mut record = self.get(id).filter(|record| record.may_decide).ok_or(LinkError::Unknown)?;
        let is_repeated = match &record.decided {
            Some(first) if *first == decision => true,
            Some(first) => {
                return Err(LinkError::Decided { action: first.action_id.clone(), control: first.control_id.clone() });
            }
            None => {
                record.decided = Some(decision);
                self.append(vec![EntryChange::set(id, &record)], None).await?;
                false
            }
        };
        Ok(DecisionTurn { links: self, id: id.into(), is_repeated, _held: held })
    }
}

impl DecisionTurn<'_> {
    /// Gives the decision back, because the control was refused.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn give_back(self) -> Result<(), StoreError> {
        let Some(mut record) = self.links.get(&self.id).filter(|_| !self.is_repeated) else { return Ok(()) };
        record.decided = None;
        self.links.append(vec![EntryChange::set(&self.id, &record)], None).await
    }
}

impl LinkTable for Links {
    fn secret(&self) -> Option<Vec<u8>> {
        self.logs.server_state().get::<LinkKey>(KEY_ID).map(|key| key.secret.as_bytes().to_vec())
    }

    fn terms(&self, id: &str) -> Option<LinkTerms> {
        let LinkRecord { target, maker, until, at, may_decide, .. } = self.get(id)?;
        Some(LinkTerms { target, maker, until, at, may_decide })
    }
}
