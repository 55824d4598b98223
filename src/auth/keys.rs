//! The keys that vouch for tokens: out of a file with one key, and out of a JSON Web Key Set (RFC 7517).
//!
//! What a key is says how it signs: a secret HS256, an Ed25519 key EdDSA, an RSA key RS256. The algorithm that a token claims
//! only chooses among the keys of that kind.

use super::Refusal;
use super::rights::{Claims, Said};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey, Header, Validation};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The shortest secret, in bytes: as long as the hash (RFC 7518, section 3.2).
pub const SECRET_BYTES_MIN: usize = 32;
/// An RSA modulus has at least 2048 bits; in bytes.
const MODULUS_BYTES_MIN: usize = 256;
/// An Ed25519 public key, in bytes.
const POINT_BYTES: usize = 32;
/// Keys of one set.
pub const KEYS_MAX: usize = 256;
/// The longest token, in bytes: it has to fit a request's head.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// A key that vouches for tokens.
pub(super) struct Key {
    name: Option<Box<str>>,
    algorithm: Algorithm,
    checks: DecodingKey,
    /// What tells this key from every other.
    print: [u8; 32],
}

/// What tells one key from another.
pub(super) type Print = [u8; 32];

impl Key {
    /// The key in a file: PEM of a public key, else a secret.
    pub fn of_file(bytes: &[u8]) -> Result<Self, String> {
        match kind_of(bytes)? {
            Kind::Secret(secret) => Self::new(None, DecodingKey::from_secret(secret)),
            Kind::Pem { is_private: true, .. } => {
                Err("it is a private key, which a server has no use for; give it the public one \
                     (openssl pkey -in PRIVATE -pubout)"
                    .into())
            }
            Kind::Pem { is_private: false, .. } => {
                let key = DecodingKey::from_ed_pem(bytes).or_else(|_| DecodingKey::from_rsa_pem(bytes));
                Self::new(None, key.map_err(|_| "it is PEM of neither an Ed25519 nor an RSA key".to_owned())?)
            }
        }
    }

    fn of_jwk(jwk: &Jwk) -> Result<Self, String> {
        let common = &jwk.common;
        let signs = common.public_key_use.as_ref().is_none_or(|of| *of == PublicKeyUse::Signature)
            && common.key_operations.as_ref().is_none_or(|of| of.contains(&KeyOperations::Verify));
        if !signs {
            return Err("it is not there to check signatures".into());
        }
        match &jwk.algorithm {
            AlgorithmParameters::RSA(_) | AlgorithmParameters::OctetKey(_) => {}
            AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {}
            _ => return Err("its kind is not taken; RSA, Ed25519 and oct are".into()),
        }
        let key = DecodingKey::from_jwk(jwk).map_err(|_| "its members are not those of its kind".to_owned())?;
        let key = Self::new(common.key_id.as_deref().map(Into::into), key)?;
        match common.key_algorithm {
            Some(algorithm) if algorithm != KeyAlgorithm::from(key.algorithm) => {
                Err(format!("its alg is not {:?}, which is what a key of its kind is for here", key.algorithm))
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
            _ => return Err("it is no key of a kind that is taken".into()),
        };
        if material.len() < min {
            let bytes = material.len();
            return Err(match algorithm {
                Algorithm::HS256 => {
                    format!("the secret has {bytes} bytes, and needs {min} or more; `proscenium token --generate` makes one")
                }
                _ => "the RSA key has less than 2048 bits".into(),
            });
        }
        let mut hash = Sha256::new();
        hash.update([u8::from(name.is_some()), algorithm as u8]);
        let exponent = if let DecodingKeyKind::RsaModulusExponent { e, .. } = key.kind() { e.as_slice() } else { &[] };
        for part in [name.as_deref().unwrap_or_default().as_bytes(), material, exponent] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let print = hash.finalize().into();
        Ok(Self { name, algorithm, checks: key, print })
    }

    pub const fn print(&self) -> &Print {
        &self.print
    }
}

/// The keys of a set, and why others of it are left out.
pub(super) fn of_set(bytes: &[u8]) -> Result<(Vec<Key>, Vec<String>), String> {
    let set: Value = serde_json::from_slice(bytes).map_err(|error| format!("it is not JSON: {error}"))?;
    let Some(Value::Array(listed)) = set.get("keys") else { return Err("it has no array of keys".into()) };
    if listed.len() > KEYS_MAX {
        return Err(format!("it has {} keys, and {KEYS_MAX} is the limit", listed.len()));
    }
    let (mut keys, mut left_out) = (Vec::new(), Vec::new());
    for (n, key) in listed.iter().enumerate() {
        let read = serde_json::from_value::<Jwk>(key.clone()).map_err(|_| "it is no key".to_owned());
        match read.and_then(|jwk| Key::of_jwk(&jwk)) {
            Ok(key) => keys.push(key),
            Err(why) => left_out.push(format!("key {n}: {why}")),
        }
    }
    // An empty set is how all keys are taken away.
    if keys.is_empty() && !left_out.is_empty() {
        return Err(format!("there is no key in it that is taken: {}", left_out.join("; ")));
    }
    Ok((keys, left_out))
}

/// What a file with one key holds.
enum Kind<'f> {
    Secret(&'f [u8]),
    Pem { is_private: bool },
}

fn kind_of(bytes: &[u8]) -> Result<Kind<'_>, String> {
    let text = bytes.trim_ascii();
    if let Some(rest) = text.strip_prefix(b"-----BEGIN ") {
        return match rest.split(|byte| *byte == b'-').next().unwrap_or_default() {
            b"PUBLIC KEY" | b"RSA PUBLIC KEY" => Ok(Kind::Pem { is_private: false }),
            b"PRIVATE KEY" | b"RSA PRIVATE KEY" => Ok(Kind::Pem { is_private: true }),
            other => Err(format!(
                "it is PEM of {}; a public or a private key is wanted, not encrypted",
                String::from_utf8_lossy(other)
            )),
        };
    }
    // Each of these is a key that others know. As a secret it would let anybody make tokens.
    let der = [&b"\x30\x82"[..], b"\x30\x81", b"\x30\x2a\x30\x05", b"\x30\x2e\x02\x01"];
    if text.starts_with(b"{") || text.starts_with(b"[") {
        return Err("it is JSON and no single key; give a JSON Web Key Set as --auth-jwks".into());
    }
    if text.starts_with(b"ssh-") || text.starts_with(b"ecdsa-") || der.iter().any(|der| bytes.starts_with(der)) {
        return Err("it is a key in another form; give it as PEM (openssl pkey)".into());
    }
    Ok(Kind::Secret(text))
}

/// The content of a token that one of the keys has signed, and which one.
pub(super) fn vouched<'k>(token: &str, keys: impl Iterator<Item = &'k Key>) -> Result<(Claims, Print), Refusal> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(Refusal::TooLong);
    }
    let header = jsonwebtoken::decode_header(token).map_err(|_| Refusal::NoToken)?;
    if header.crit.is_some() {
        return Err(Refusal::Critical);
    }
    let mut refusal = Refusal::NoKey;
    let is_its = |key: &&Key| {
        key.algorithm == header.alg
            && (key.name.is_none() || header.kid.is_none() || key.name.as_deref() == header.kid.as_deref())
    };
    for key in keys.filter(is_its) {
        let mut validation = Validation::new(key.algorithm);
        // All that is not the signature is looked at below, by our own clock.
        (validation.validate_exp, validation.validate_nbf, validation.validate_aud) = (false, false, false);
        validation.required_spec_claims.clear();
        match jsonwebtoken::decode::<Said>(token, &key.checks, &validation) {
            Ok(token) => return Ok((Claims::of(token.claims)?, key.print)),
            Err(error) => match error.kind() {
                // Only a signature that is right lets anybody look at what was signed.
                ErrorKind::Json(why) => return Err(Refusal::Claim(why.to_string())),
                _ => refusal = Refusal::Signature,
            },
        }
    }
    Err(refusal)
}

/// What makes tokens.
pub struct Signing {
    algorithm: Algorithm,
    key: EncodingKey,
}

impl Signing {
    /// The key in a file: PEM of a private key, else a secret.
    ///
    /// # Errors
    /// Why it is none.
    pub fn of_file(bytes: &[u8]) -> Result<Self, String> {
        super::crypto::install();
        match kind_of(bytes)? {
            Kind::Secret(secret) => {
                Key::of_file(bytes)?;
                Ok(Self { algorithm: Algorithm::HS256, key: EncodingKey::from_secret(secret) })
            }
            Kind::Pem { is_private: false } => Err("it is a public key, which signs nothing; give the private one".into()),
            Kind::Pem { is_private: true } => {
                let ed = EncodingKey::from_ed_pem(bytes).map(|key| Self { algorithm: Algorithm::EdDSA, key });
                let rsa = || EncodingKey::from_rsa_pem(bytes).map(|key| Self { algorithm: Algorithm::RS256, key });
                ed.or_else(|_| rsa()).map_err(|_| "it is PEM of neither an Ed25519 nor an RSA key".into())
            }
        }
    }

    /// A token with this content.
    ///
    /// # Errors
    /// Why the key does not sign.
    pub fn sign(&self, claims: &Value, key_name: Option<&str>) -> Result<String, String> {
        let header = Header { kid: key_name.map(str::to_owned), ..Header::new(self.algorithm) };
        jsonwebtoken::encode(&header, claims, &self.key).map_err(|error| format!("it does not sign: {error}"))
    }
}
