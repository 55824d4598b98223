//! The key with which the server signs what third parties keep: heads of logs, and exports.
//!
//! An Ed25519 key (RFC 8032), stored as PKCS#8 PEM, which OpenSSL reads and makes
//! (`openssl genpkey -algorithm ed25519`). Its name (`kid`) is its thumbprint (RFC 7638), so that a verifier finds it
//! among the keys of `GET /v1/keys`.

use crate::environment::Environment;
use crate::log::commit::Logs;
use crate::log::hash_chain::{ChainRecord, Hash};
use crate::log::{LogId, StoreError};
use crate::model::{Epoch, Sequence};
use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER};
use jsonwebtoken::EncodingKey;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};

/// The name of the key's file in the data directory.
pub const KEY_FILE: &str = "signing-key.pem";

/// The DER of a private Ed25519 key before its seed (RFC 8410, section 7).
const PRIVATE_KEY_HEAD: &[u8] = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
/// The DER of a public Ed25519 key before its point (RFC 8410, section 4).
const PUBLIC_KEY_HEAD: &[u8] = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";

/// The server's signing key.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    /// PKCS#8.
    der: Vec<u8>,
    kid: Box<str>,
}

impl SigningKey {
    /// Makes a key.
    ///
    /// # Panics
    /// Never: every seed is a key.
    #[must_use]
    pub fn generate(environment: Environment) -> Self {
        let mut der = PRIVATE_KEY_HEAD.to_vec();
        der.extend_from_slice(&(environment.random)().to_ne_bytes());
        der.extend_from_slice(&(environment.random)().to_ne_bytes());
        Self::from_der(der).expect("32 bytes are a seed")
    }

    fn from_der(der: Vec<u8>) -> Result<Self, String> {
        // OpenSSL writes no public key into the file, so there is none to check against.
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).map_err(|_| "it is not an Ed25519 key".to_owned())?;
        let kid = thumbprint(pair.public_key().as_ref()).into();
        Ok(Self { pair, der, kid })
    }

    /// Reads a private Ed25519 key as PKCS#8 PEM.
    ///
    /// # Errors
    /// Why the file cannot be used.
    pub fn from_pem(pem: &[u8]) -> Result<Self, String> {
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem)
            .map_err(|_| "it has no PKCS#8 private key as PEM; make one with `openssl genpkey -algorithm ed25519`".to_owned())?;
        Self::from_der(key.secret_pkcs8_der().to_vec())
    }

    /// Opens the key in a file.
    ///
    /// # Errors
    /// The file, and why it cannot be used.
    pub fn open(file: &Path) -> Result<Self, String> {
        let read = std::fs::read(file).map_err(|error| error.to_string()).and_then(|pem| Self::from_pem(&pem));
        read.map_err(|why| format!("the signing key {}: {why}", file.display()))
    }

    /// Opens the key in a file, and makes the file if it does not exist. Only its owner can read it.
    ///
    /// # Errors
    /// The file, and why it cannot be used.
    pub fn open_or_create(file: &Path, environment: Environment) -> Result<Self, String> {
        if file.exists() {
            return Self::open(file);
        }
        let made = Self::generate(environment);
        made.create(file).map_err(|error| format!("the signing key {}: it cannot be made: {error}", file.display()))?;
        Ok(made)
    }

    /// Writes the key under a temporary name first: a crash leaves no half of a key.
    fn create(&self, file: &Path) -> io::Result<()> {
        if let Some(directory) = file.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let mut part = file.as_os_str().to_owned();
        part.push(".part");
        let mut written = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
        written.write_all(self.to_pem().as_bytes())?;
        written.sync_all()?;
        std::fs::rename(part, file)
    }

    /// The private key as PKCS#8 PEM.
    #[must_use]
    pub fn to_pem(&self) -> String {
        format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", BASE64.encode(&self.der))
    }

    /// The key's name.
    #[must_use]
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// Signs a message.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.pair.sign(message).as_ref().try_into().expect("an Ed25519 signature has 64 bytes")
    }

    /// The key for tokens of the algorithm `EdDSA`.
    #[must_use]
    pub fn encoding_key(&self) -> EncodingKey {
        EncodingKey::from_ed_der(&self.der)
    }

    /// The public key.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        let point = self.pair.public_key().as_ref().try_into().expect("an Ed25519 point has 32 bytes");
        PublicKey { point, kid: self.kid.clone() }
    }
}

fn thumbprint(point: &[u8]) -> String {
    let x = BASE64URL_NOPAD.encode(point);
    BASE64URL_NOPAD.encode(&Sha256::digest(format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#)))
}

/// A public key that verifies what a server signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    point: [u8; 32],
    kid: Box<str>,
}

impl PublicKey {
    fn from_point(point: &[u8]) -> Option<Self> {
        Some(Self { point: point.try_into().ok()?, kid: thumbprint(point).into() })
    }

    /// Reads the Ed25519 keys of a JSON Web Key Set, of one JSON Web Key, or a public key as PEM. Skips other keys.
    ///
    /// # Errors
    /// When it has no such key.
    pub fn read_all(bytes: &[u8]) -> Result<Vec<Self>, String> {
        let no_key = || "it has no public Ed25519 key, neither as JSON Web Key Set nor as PEM".to_owned();
        if let Ok(der) = SubjectPublicKeyInfoDer::from_pem_slice(bytes) {
            let key = der.strip_prefix(PUBLIC_KEY_HEAD).and_then(Self::from_point);
            return Ok(vec![key.ok_or_else(no_key)?]);
        }
        let set: Value = serde_json::from_slice(bytes).map_err(|_| no_key())?;
        let listed = match &set["keys"] {
            Value::Array(keys) => keys.as_slice(),
            _ => std::slice::from_ref(&set),
        };
        let read = |key: &Value| {
            let x = key["x"].as_str().filter(|_| key["crv"] == "Ed25519")?;
            Self::from_point(&BASE64URL_NOPAD.decode(x.as_bytes()).ok()?)
        };
        let keys: Vec<_> = listed.iter().filter_map(read).collect();
        if keys.is_empty() { Err(no_key()) } else { Ok(keys) }
    }

    /// The key as a JSON Web Key (RFC 8037).
    #[must_use]
    pub fn to_jwk(&self) -> Value {
        let x = BASE64URL_NOPAD.encode(&self.point);
        json!({ "kid": self.kid, "kty": "OKP", "crv": "Ed25519", "x": x, "alg": "EdDSA", "use": "sig" })
    }

    /// The key's name.
    #[must_use]
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// Whether the key's owner signed the message.
    #[must_use]
    pub fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.point).verify(message, signature).is_ok()
    }
}

/// The head of a log's hash chain, signed by the server: a third party that keeps it can show later that the rows up to
/// it are the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SignedHead {
    /// The run of the log; exactly one of the two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<Box<str>>,
    /// The session of the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<Box<str>>,
    pub epoch: Box<str>,
    /// The last row of the chain.
    pub sequence: u64,
    /// The chain's value at that row, in hexadecimal digits.
    pub chain: Box<str>,
    /// When it was signed.
    pub at: Box<str>,
    pub kid: Box<str>,
    /// In hexadecimal digits.
    pub signature: Box<str>,
}

impl SignedHead {
    /// Signs the head of a log.
    #[must_use]
    pub fn sign(key: &SigningKey, log: &LogId, epoch: Epoch, head: (Sequence, &Hash), at: jiff::Timestamp) -> Self {
        let (run_id, session_id) = names_of(log);
        let mut signed = Self {
            run_id,
            session_id,
            epoch: epoch.to_string().into(),
            sequence: head.0.0,
            chain: HEXLOWER.encode(head.1).into(),
            at: format!("{at:.3}").into(),
            kid: key.kid().into(),
            signature: Box::default(),
        };
        signed.signature = HEXLOWER.encode(&key.sign(signed.text().as_bytes())).into();
        signed
    }

    /// The text that is signed: one member a line, the id last.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { run_id, session_id, epoch, sequence, chain, at, .. } = self;
        let (kind, id) = match (run_id, session_id) {
            (Some(run), _) => ("run", run.as_ref()),
            (None, session) => ("session", session.as_deref().unwrap_or_default()),
        };
        format!("proscenium-head-v1\n{epoch}\n{sequence}\n{chain}\n{at}\n{kind}\n{id}")
    }

    /// Whether one of the keys has signed it.
    #[must_use]
    pub fn is_signed_by(&self, keys: &[PublicKey]) -> bool {
        is_signed(keys, &self.kid, self.text().as_bytes(), &self.signature)
    }
}

/// The name of a log among runs, or among sessions.
pub(super) fn names_of(log: &LogId) -> (Option<Box<str>>, Option<Box<str>>) {
    match log {
        LogId::Run(run) => (Some(run.as_str().into()), None),
        LogId::Session(session) => (None, Some(session.as_str().into())),
    }
}

/// Whether the key of this name has signed the message.
#[must_use]
pub fn is_signed(keys: &[PublicKey], kid: &str, message: &[u8], signature: &str) -> bool {
    let Ok(signature) = HEXLOWER.decode(signature.as_bytes()) else { return false };
    keys.iter().any(|key| key.kid() == kid && key.has_signed(message, &signature))
}

/// The head of a log's hash chain, signed now; `None` for a log without a chain.
///
/// # Errors
/// [`StoreError`] from the store.
pub async fn signed_head(
    logs: &Logs,
    key: &SigningKey,
    log: &LogId,
    now: jiff::Timestamp,
) -> Result<Option<SignedHead>, StoreError> {
    let Some(loaded) = logs.load(log).await? else { return Ok(None) };
    let record = ChainRecord::read(log, &loaded.state)?;
    Ok(record.map(|record| {
        let (sequence, value) = &record.head;
        SignedHead::sign(key, log, record.epoch_of(loaded.epoch), (*sequence, value), now)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::RunId;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_made_once_and_only_its_owner_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("data").join(KEY_FILE);
        let made = SigningKey::open_or_create(&file, Environment::SYSTEM).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let read = SigningKey::open_or_create(&file, Environment::SYSTEM).unwrap();
        assert_eq!(read.public_key(), made.public_key());
        std::fs::write(&file, "-----BEGIN PRIVATE KEY-----\n").unwrap();
        let error = SigningKey::open_or_create(&file, Environment::SYSTEM).err().unwrap();
        assert!(error.contains(KEY_FILE) && error.contains("openssl genpkey"), "{error}");
    }

    #[test]
    fn the_thumbprint_is_that_of_rfc_8037() {
        let key = json!({"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"});
        let keys = PublicKey::read_all(key.to_string().as_bytes()).unwrap();
        assert_eq!(keys[0].kid(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    }

    #[test]
    fn a_head_is_signed_with_each_of_its_members() {
        let (key, other) = (SigningKey::generate(Environment::SYSTEM), SigningKey::generate(Environment::SYSTEM));
        let log = LogId::Run(RunId::new("r").unwrap());
        let head = SignedHead::sign(&key, &log, Epoch::from_random(1), (Sequence(7), &[1; 32]), jiff::Timestamp::UNIX_EPOCH);
        assert!(head.is_signed_by(&[other.public_key(), key.public_key()]));
        assert!(!head.is_signed_by(&[other.public_key()]));
        let changes: [fn(&mut SignedHead); 6] = [
            |head| head.run_id = Some("s".into()),
            |head| (head.session_id, head.run_id) = (head.run_id.clone(), None),
            |head| head.epoch = "0".into(),
            |head| head.sequence = 8,
            |head| head.chain = "00".into(),
            |head| head.at = "1970-01-01T00:00:00.001Z".into(),
        ];
        for (n, change) in changes.iter().enumerate() {
            let mut changed = head.clone();
            change(&mut changed);
            assert!(!changed.is_signed_by(&[key.public_key()]), "{n}");
        }
    }
}
