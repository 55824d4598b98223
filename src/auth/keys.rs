//! Keys that verify tokens, from a single-key file or a JSON Web Key Set (RFC 7517).
//!
//! The key type fixes the algorithm: a secret uses HS256, an Ed25519 key EdDSA, an RSA key RS256, a P-256 key ES256. The
//! algorithm that a token claims only selects among the keys of that type.

use super::TokenError;
use super::claim_map::ClaimMap;
use super::rights::Claims;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey, Header, Validation};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tokio_rustls::rustls::pki_types::SubjectPublicKeyInfoDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

/// Minimum length of a secret, in bytes: the hash length (RFC 7518, section 3.2).
pub const SECRET_BYTES_MIN: usize = 32;
/// Minimum RSA modulus, in bytes: 2048 bits.
const MODULUS_BYTES_MIN: usize = 256;
/// Length of an Ed25519 public key, in bytes.
const POINT_BYTES: usize = 32;
/// Length of a P-256 public key as an uncompressed point, in bytes.
const P256_POINT_BYTES: usize = 65;
/// The DER of a public P-256 key before its point (RFC 5480). Keys of other curves begin otherwise.
const P256_KEY_HEAD: &[u8] =
    b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00";
/// Maximum number of keys in one set.
pub const KEYS_MAX: usize = 256;
/// Maximum length of a token, in bytes: it must fit in a request's head.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// A key that verifies tokens.
pub(super) struct VerifyingKey {
    name: Option<Box<str>>,
    algorithm: Algorithm,
    material: DecodingKey,
    thumbprint: [u8; 32],
}

/// The SHA-256 of a key's name, algorithm and material.
pub(super) type KeyThumbprint = [u8; 32];

impl VerifyingKey {
    /// Reads a public key as PEM, or a secret.
    pub fn from_file(bytes: &[u8]) -> Result<Self, String> {
        match key_file_kind(bytes)? {
            KeyFile::Secret(secret) => Self::new(None, DecodingKey::from_secret(secret)),
            KeyFile::Pem { is_private: true, .. } => Err("it is a private key; the server needs the public key \
                     (openssl pkey -in PRIVATE -pubout)"
                .into()),
            KeyFile::Pem { is_private: false, .. } => {
                let key = DecodingKey::from_ed_pem(bytes).or_else(|_| DecodingKey::from_rsa_pem(bytes));
                let key = key.ok().or_else(|| p256_from_pem(bytes));
                Self::new(None, key.ok_or_else(|| NO_KEY_IN_PEM.to_owned())?)
            }
        }
    }

    fn from_jwk(jwk: &Jwk) -> Result<Self, String> {
        let common = &jwk.common;
        let signs = common.public_key_use.as_ref().is_none_or(|of| *of == PublicKeyUse::Signature)
            && common.key_operations.as_ref().is_none_or(|of| of.contains(&KeyOperations::Verify));
        if !signs {
            return Err("its use or key_ops does not allow verifying signatures".into());
        }
        match &jwk.algorithm {
            AlgorithmParameters::RSA(_) | AlgorithmParameters::OctetKey(_) => {}
            AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {}
            AlgorithmParameters::EllipticCurve(point) if point.curve == EllipticCurve::P256 => {}
            _ => return Err("its kty or crv is not supported; use RSA, P-256, Ed25519 or oct".into()),
        }
        let key = DecodingKey::from_jwk(jwk).map_err(|_| "its members do not match its kty".to_owned())?;
        let key = Self::new(common.key_id.as_deref().map(Into::into), key)?;
        match common.key_algorithm {
            Some(algorithm) if algorithm != KeyAlgorithm::from(key.algorithm) => {
                Err(format!("its alg is not {:?}, the only algorithm for this kty", key.algorithm))
            }
            _ => Ok(key),
        }
    }

    fn new(name: Option<Box<str>>, key: DecodingKey) -> Result<Self, String> {
        let (algorithm, material, min) = match (key.family(), key.kind()) {
            (AlgorithmFamily::Hmac, DecodingKeyKind::SecretOrDer(secret)) => (Algorithm::HS256, secret, SECRET_BYTES_MIN),
            (AlgorithmFamily::Ed, DecodingKeyKind::SecretOrDer(point)) if point.len() == POINT_BYTES => {
                (Algorithm::EdDSA, point, POINT_BYTES)
            }
            (AlgorithmFamily::Rsa, DecodingKeyKind::SecretOrDer(of) | DecodingKeyKind::RsaModulusExponent { n: of, .. }) => {
                (Algorithm::RS256, of, MODULUS_BYTES_MIN)
            }
            (AlgorithmFamily::Ec, DecodingKeyKind::SecretOrDer(point)) if point.len() == P256_POINT_BYTES => {
                (Algorithm::ES256, point, P256_POINT_BYTES)
            }
            _ => return Err("the key type is not supported; use RSA, P-256, Ed25519 or a secret".into()),
        };
        if material.len() < min {
            let bytes = material.len();
            return Err(match algorithm {
                Algorithm::HS256 => {
                    format!(
                        "the secret has {bytes} bytes; it must have at least {min}. `proscenium token --generate` creates one"
                    )
                }
                _ => "the RSA key has fewer than 2048 bits".into(),
            });
        }
        let mut hash = Sha256::new();
        hash.update([u8::from(name.is_some()), algorithm as u8]);
        let exponent = if let DecodingKeyKind::RsaModulusExponent { e, .. } = key.kind() { e.as_slice() } else { &[] };
        for part in [name.as_deref().unwrap_or_default().as_bytes(), material, exponent] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let thumbprint = hash.finalize().into();
        Ok(Self { name, algorithm, material: key, thumbprint })
    }

    /// Whether the key also signs.
    pub fn is_secret(&self) -> bool {
        self.algorithm == Algorithm::HS256
    }

    /// Whether it is the key of this name (`kid`).
    pub fn is_named(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name)
    }

    pub const fn thumbprint(&self) -> &KeyThumbprint {
        &self.thumbprint
    }
}

/// Parses a key set. Returns the usable keys, and why the other keys were rejected.
pub(super) fn parse_key_set(bytes: &[u8]) -> Result<(Vec<VerifyingKey>, Vec<String>), String> {
    let set: Value = serde_json::from_slice(bytes).map_err(|error| format!("it is not JSON: {error}"))?;
    let Some(Value::Array(listed)) = set.get("keys") else { return Err("it has no `keys` array".into()) };
    if listed.len() > KEYS_MAX {
        return Err(format!("it has {} keys; the limit is {KEYS_MAX}", listed.len()));
    }
    let (mut keys, mut rejected) = (Vec::new(), Vec::new());
    for (n, key) in listed.iter().enumerate() {
        let read = serde_json::from_value::<Jwk>(key.clone()).map_err(|_| "it is not a JWK".to_owned());
        match read.and_then(|jwk| VerifyingKey::from_jwk(&jwk)) {
            Ok(key) => keys.push(key),
            Err(why) => rejected.push(format!("key {n}: {why}")),
        }
    }
    // An operator removes all keys with an empty set, so an empty set is valid.
    if keys.is_empty() && !rejected.is_empty() {
        return Err(format!("none of its keys is usable: {}", rejected.join("; ")));
    }
    Ok((keys, rejected))
}

const NO_KEY_IN_PEM: &str = "the PEM is neither an Ed25519 nor an RSA nor a P-256 key";

/// Reads a public P-256 key. `None` for any other PEM, also for another curve.
fn p256_from_pem(bytes: &[u8]) -> Option<DecodingKey> {
    let key = SubjectPublicKeyInfoDer::from_pem_slice(bytes).ok()?;
    key.strip_prefix(P256_KEY_HEAD).map(DecodingKey::from_ec_der)
}

/// The content of a single-key file.
enum KeyFile<'f> {
    Secret(&'f [u8]),
    Pem { is_private: bool },
}

fn key_file_kind(bytes: &[u8]) -> Result<KeyFile<'_>, String> {
    let text = bytes.trim_ascii();
    if let Some(rest) = text.strip_prefix(b"-----BEGIN ") {
        return match rest.split(|byte| *byte == b'-').next().unwrap_or_default() {
            b"PUBLIC KEY" | b"RSA PUBLIC KEY" => Ok(KeyFile::Pem { is_private: false }),
            b"PRIVATE KEY" | b"RSA PRIVATE KEY" => Ok(KeyFile::Pem { is_private: true }),
            b"EC PRIVATE KEY" | b"EC PARAMETERS" => {
                Err("the PEM is an EC PRIVATE KEY; convert it (openssl pkcs8 -topk8 -nocrypt)".into())
            }
            other => Err(format!("the PEM is a {}; give an unencrypted public or private key", String::from_utf8_lossy(other))),
        };
    }
    // Each of these formats holds a public key. Accepted as a secret, it would let anyone who has it sign tokens.
    let der = [&b"\x30\x82"[..], b"\x30\x81", b"\x30\x2a\x30\x05", b"\x30\x2e\x02\x01"];
    if text.starts_with(b"{") || text.starts_with(b"[") {
        return Err("it is JSON, not a single key; give a JSON Web Key Set with --auth-jwks".into());
    }
    if text.starts_with(b"ssh-") || text.starts_with(b"ecdsa-") || der.iter().any(|der| bytes.starts_with(der)) {
        return Err("the key is not PEM; convert it (openssl pkey)".into());
    }
    Ok(KeyFile::Secret(text))
}

/// The name of the key that a token says it is signed with. It is not verified.
pub(super) fn claimed_key_name(token: &str) -> Option<String> {
    jsonwebtoken::decode_header(token).ok()?.kid
}

/// Verifies a token's signature. Returns its claims, with the rights by the mappings, and the thumbprint of the key that
/// signed it.
pub(super) fn verify_signature<'k>(
    token: &str,
    keys: impl Iterator<Item = &'k VerifyingKey>,
    mappings: &ClaimMap,
) -> Result<(Claims, KeyThumbprint), TokenError> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(TokenError::TooLong);
    }
    let header = jsonwebtoken::decode_header(token).map_err(|_| TokenError::Malformed)?;
    if header.crit.is_some() {
        return Err(TokenError::UnsupportedCritical);
    }
    let mut refusal = TokenError::UnknownKey;
    let is_candidate = |key: &&VerifyingKey| {
        key.algorithm == header.alg
            && (key.name.is_none() || header.kid.is_none() || key.name.as_deref() == header.kid.as_deref())
    };
    for key in keys.filter(is_candidate) {
        let mut validation = Validation::new(key.algorithm);
        // Only the signature is checked here. The authenticator checks the claims against the server's clock.
        (validation.validate_exp, validation.validate_nbf, validation.validate_aud) = (false, false, false);
        validation.required_spec_claims.clear();
        match jsonwebtoken::decode::<Box<RawValue>>(token, &key.material, &validation) {
            Ok(token) => return Ok((mappings.read(token.claims.get())?, key.thumbprint)),
            Err(error) => match error.kind() {
                // The JSON is parsed only after the signature verified, so this message may describe it.
                ErrorKind::Json(why) => return Err(TokenError::Claim(why.to_string())),
                _ => refusal = TokenError::BadSignature,
            },
        }
    }
    Err(refusal)
}

/// Signs tokens.
pub struct TokenSigner {
    algorithm: Algorithm,
    key: EncodingKey,
}

impl TokenSigner {
    /// Reads a private key as PEM, or a secret.
    ///
    /// # Errors
    /// Why the file cannot be used.
    pub fn from_file(bytes: &[u8]) -> Result<Self, String> {
        super::crypto::install();
        match key_file_kind(bytes)? {
            KeyFile::Secret(secret) => {
                VerifyingKey::from_file(bytes)?;
                Ok(Self { algorithm: Algorithm::HS256, key: EncodingKey::from_secret(secret) })
            }
            KeyFile::Pem { is_private: false } => Err("it is a public key, which cannot sign; give the private key".into()),
            KeyFile::Pem { is_private: true } => {
                let ed = EncodingKey::from_ed_pem(bytes).map(|key| Self { algorithm: Algorithm::EdDSA, key });
                let rsa = || EncodingKey::from_rsa_pem(bytes).map(|key| Self { algorithm: Algorithm::RS256, key });
                let ec = || EncodingKey::from_ec_pem(bytes).map(|key| Self { algorithm: Algorithm::ES256, key });
                ed.or_else(|_| rsa()).or_else(|_| ec()).map_err(|_| NO_KEY_IN_PEM.into())
            }
        }
    }

    /// Signs a token with these claims.
    ///
    /// # Errors
    /// Why the key cannot sign.
    pub fn sign(&self, claims: &Value, key_name: Option<&str>) -> Result<String, String> {
        let header = Header { kid: key_name.map(str::to_owned), ..Header::new(self.algorithm) };
        jsonwebtoken::encode(&header, claims, &self.key).map_err(|error| match error.kind() {
            ErrorKind::InvalidEcdsaKey => "cannot sign the token: the elliptic key is not of the curve P-256".into(),
            _ => format!("cannot sign the token: {error}"),
        })
    }
}
