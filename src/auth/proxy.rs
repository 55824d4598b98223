//! Users that an authenticating proxy names in a header.
//!
//! The proxy proves itself by a secret. A request with its header and without the secret is refused: anyone who reaches the
//! server past the proxy could write the header.

use super::TokenError;
use super::keys::{KeyThumbprint, SECRET_BYTES_MIN};
use super::rights::EXPIRES_MAX;
use http::{HeaderMap, HeaderName, header};
use ring::hmac;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::str::FromStr;

/// The header in which the proxy sends its secret.
pub const SECRET_HEADER: HeaderName = HeaderName::from_static("x-proscenium-proxy-secret");
/// Maximum length of a user's name, in bytes.
pub const USER_BYTES_MAX: usize = 1024;
/// The claims that the server makes itself.
const OWN_CLAIMS: [&str; 3] = ["sub", "exp", "proscenium"];

/// The proxy's headers and its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyConfig {
    /// The header that names the user: the `sub`.
    pub header: HeaderName,
    /// A file with the secret.
    pub secret: PathBuf,
    /// Further headers, as claims for the mappings.
    pub claims: Vec<ProxyClaim>,
}

/// A header of the proxy that becomes a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyClaim {
    name: Box<str>,
    header: HeaderName,
}

impl ProxyClaim {
    /// The headers of common proxies, where no others are configured.
    #[must_use]
    pub fn defaults() -> Vec<Self> {
        let common = ["groups", "email", "preferred_username"];
        let header = |name: &str| HeaderName::from_str(&format!("x-forwarded-{}", name.replace('_', "-")));
        common.iter().filter_map(|name| Some(Self { name: (*name).into(), header: header(name).ok()? })).collect()
    }
}

impl FromStr for ProxyClaim {
    type Err = String;

    /// Parses `CLAIM=HEADER`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, header) = text
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| format!("{text:?} is not CLAIM=HEADER, such as groups=x-auth-request-groups"))?;
        if OWN_CLAIMS.contains(&name) {
            return Err(format!("the claim {name} cannot come from a header"));
        }
        Ok(Self { name: name.into(), header: parse_header(header)? })
    }
}

/// Parses the name of a header that a proxy sends.
///
/// # Errors
/// Why it cannot carry a user or a claim.
pub fn parse_header(name: &str) -> Result<HeaderName, String> {
    let header = HeaderName::from_str(name).map_err(|_| format!("{name:?} is not the name of a header"))?;
    let taken = [header::AUTHORIZATION, header::COOKIE, header::HOST, header::ORIGIN, SECRET_HEADER];
    match taken.contains(&header) {
        true => Err(format!("the header {header} has another meaning; use the header in which the proxy names the user")),
        false => Ok(header),
    }
}

impl ProxyConfig {
    /// The claims of a request, as the JSON of a token.
    ///
    /// # Errors
    /// [`TokenError::ProxyUser`] if the header does not name one user.
    pub(super) fn claims(&self, headers: &HeaderMap) -> Result<String, TokenError> {
        let mut subjects = headers.get_all(&self.header).iter();
        let subject = match (subjects.next(), subjects.next()) {
            (Some(one), None) => std::str::from_utf8(one.as_bytes()).ok(),
            // A client's own header beside that of the proxy.
            _ => None,
        };
        let subject = subject.map(str::trim).filter(|subject| (1..=USER_BYTES_MAX).contains(&subject.len()));
        let mut claims = Map::new();
        for ProxyClaim { name, header } in &self.claims {
            let lines = headers.get_all(header).iter().filter_map(|value| std::str::from_utf8(value.as_bytes()).ok());
            let mut values: Vec<Value> = lines
                .flat_map(|line| line.split(','))
                .map(str::trim)
                .filter(|value| !value.is_empty())
                .map(Value::from)
                .collect();
            match values.len() {
                0 => {}
                1 => drop(claims.insert(name.to_string(), values.remove(0))),
                _ => drop(claims.insert(name.to_string(), values.into())),
            }
        }
        if let Some(name) = claims.get("preferred_username").filter(|_| !claims.contains_key("name")).cloned() {
            claims.insert("name".into(), name);
        }
        claims.insert("sub".into(), subject.ok_or(TokenError::ProxyUser)?.into());
        claims.insert("exp".into(), EXPIRES_MAX.into());
        Ok(Value::Object(claims).to_string())
    }
}

/// The secret that a proxy shares with the server.
pub(super) struct ProxySecret {
    key: hmac::Key,
    thumbprint: KeyThumbprint,
}

impl ProxySecret {
    /// Reads a secret; white space around it does not count.
    pub fn new(bytes: &[u8]) -> Result<Self, String> {
        let secret = bytes.trim_ascii();
        if secret.len() < SECRET_BYTES_MIN {
            let bytes = secret.len();
            return Err(format!("the proxy's secret has {bytes} bytes; it must have at least {SECRET_BYTES_MIN}"));
        }
        if !secret.iter().all(|byte| (b' '..=b'~').contains(byte)) {
            return Err("the proxy's secret cannot be sent in a header; use printable ASCII".into());
        }
        let thumbprint = Sha256::new().chain_update(b"proxy\0").chain_update(secret).finalize().into();
        Ok(Self { key: hmac::Key::new(hmac::HMAC_SHA256, secret), thumbprint })
    }

    pub const fn thumbprint(&self) -> &KeyThumbprint {
        &self.thumbprint
    }

    /// Returns whether a request has the secret, in a time that does not depend on it.
    pub fn is_in(&self, headers: &HeaderMap) -> bool {
        let mut given = headers.get_all(SECRET_HEADER).iter();
        let (Some(given), None) = (given.next(), given.next()) else { return false };
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, given.as_bytes()), b"proxy");
        hmac::verify(&self.key, b"proxy", tag.as_ref()).is_ok()
    }
}
