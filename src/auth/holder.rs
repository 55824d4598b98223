//! The holder of a token, as what outlives the token keeps it: a share link, or a push subscription.

use super::keys::KeyThumbprint;
use super::rights::Rights;
use super::{Authenticator, EndReason, Grant};
use serde::{Deserialize, Serialize};

/// Who held a token, and what it permitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenHolder {
    pub subject: Box<str>,
    pub rights: Rights,
    /// The `jti` of the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) token_id: Option<Box<str>>,
    /// The key that signed the token.
    pub(super) key: KeyThumbprint,
}

impl TokenHolder {
    /// Whether what has this holder is of a person, by the `sub` of the tokens. Without authentication it has no holder.
    #[must_use]
    pub fn is_of(holder: Option<&Self>, subject: Option<&str>) -> bool {
        holder.map(|holder| &*holder.subject) == subject
    }
}

impl Grant {
    /// The holder of this grant.
    #[must_use]
    pub fn holder(&self) -> TokenHolder {
        let Self { subject, rights, id, key, .. } = self;
        TokenHolder { subject: subject.clone(), rights: rights.clone(), token_id: id.clone(), key: *key }
    }
}

impl Authenticator {
    /// Why the rights of a holder have ended, by the current keys and revocations. That its token is past its end does not
    /// count.
    #[must_use]
    pub fn end_of(&self, holder: &TokenHolder) -> Option<EndReason> {
        self.state.read().end_reason_of(&holder.subject, holder.token_id.as_deref(), &holder.key)
    }
}
