//! Tokens of share links: what an opened link permits.
//!
//! ```text
//!   secret of a link ──exchange──▶ token of 15 minutes ──each use──▶ the link's terms, as the table has them now
//! ```
//! The token names the link and nothing else. Its rights are those of its maker, reduced to reading one run or session,
//! so each end of the link, or of its maker's rights, ends every token of it.

use super::holder::TokenHolder;
use super::keys::TOKEN_BYTES_MAX;
use super::rights::Rights;
use super::{Grant, TokenError};
use crate::model::{Audience, RunId, Sequence, SessionId};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};

/// The lifetime of a token of a link, in seconds.
pub const LINK_TOKEN_SECS: u64 = 15 * 60;
/// The `kid` of these tokens: no key of the configuration verifies them.
pub(super) const LINK_KEY_NAME: &str = "proscenium-links";

/// What a link leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LinkTarget {
    /// A run, and the bits of its epoch: a run that is erased and written again is another one.
    Run(RunId, u64),
    /// A session, and the place of its newest log in the order of creation. Once all logs up to it are erased, another
    /// session may have its id.
    Session(SessionId, u64),
}

/// The terms of a link that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkTerms {
    pub target: LinkTarget,
    /// `None`: it was made on a server without authentication.
    pub maker: Option<TokenHolder>,
    /// In seconds since 1970.
    pub until: u64,
    /// Nothing after this sequence of the run may be read. `None`: the present.
    pub at: Option<LinkMoment>,
    /// Whether it may decide one action, once.
    pub may_decide: bool,
}

/// The moment that a link shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkMoment {
    pub sequence: Sequence,
    /// The envelopes up to it that users see.
    pub events: u64,
}

/// A link that a grant is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedLink {
    pub id: Box<str>,
    pub terms: LinkTerms,
}

/// The links of a server, as its authenticator needs them.
pub trait LinkTable: Send + Sync {
    /// The secret that signs the tokens of links. `None`: no link was ever made.
    fn secret(&self) -> Option<Vec<u8>>;

    /// The terms of a link that exists and is not past its end.
    fn terms(&self, id: &str) -> Option<LinkTerms>;
}

/// What a token of a link states.
#[derive(Serialize, Deserialize)]
struct Statement {
    link: Box<str>,
    /// In seconds since 1970.
    exp: u64,
}

/// Signs a token of a link.
pub(super) fn sign(secret: &[u8], link: &str, expires: u64) -> String {
    let header = Header { kid: Some(LINK_KEY_NAME.into()), ..Header::new(Algorithm::HS256) };
    let statement = Statement { link: link.into(), exp: expires };
    jsonwebtoken::encode(&header, &statement, &EncodingKey::from_secret(secret)).expect("a statement is JSON, and HMAC signs")
}

/// Whether a token says that it is of a link. It is not verified.
pub(super) fn is_of_link(token: &str) -> bool {
    token.len() <= TOKEN_BYTES_MAX
        && jsonwebtoken::decode_header(token).is_ok_and(|header| header.kid.as_deref() == Some(LINK_KEY_NAME))
}

/// Verifies a token of a link. Returns the link's id, and when the token ends.
pub(super) fn verify(secret: &[u8], token: &str) -> Result<(Box<str>, u64), TokenError> {
    let mut validation = Validation::new(Algorithm::HS256);
    // Only the signature is checked here. The authenticator checks the time against the server's clock.
    (validation.validate_exp, validation.validate_nbf, validation.validate_aud) = (false, false, false);
    validation.required_spec_claims.clear();
    let read = jsonwebtoken::decode::<Statement>(token, &DecodingKey::from_secret(secret), &validation);
    read.map(|token| (token.claims.link, token.claims.exp)).map_err(|_| TokenError::BadSignature)
}

/// The rights of an opened link.
fn rights_of(maker: &TokenHolder, target: &LinkTarget) -> Rights {
    let rights = maker.rights.clone().read_only().for_audience(Audience::User);
    match target {
        LinkTarget::Run(run, _) => rights.restricted_to_run(run.clone()),
        LinkTarget::Session(session, _) => rights.restricted_to_session(session),
    }
}

impl Grant {
    /// The grant of an opened link. `None` without a maker, who then has no rights here.
    pub(super) fn of_link(id: &str, terms: LinkTerms, expires: u64) -> Option<Self> {
        let maker = terms.maker.as_ref()?;
        let grant = Self::of(rights_of(maker, &terms.target), format!("link:{id}").into(), expires, maker.key);
        let token_id = maker.token_id.clone();
        Some(Self { id: token_id, link: Some(OpenedLink { id: id.into(), terms }.into()), ..grant })
    }
}
