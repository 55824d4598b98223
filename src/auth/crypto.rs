//! The four signature algorithms of tokens, computed by `ring`.
//!
//! `jsonwebtoken` parses the format and passes the bytes on. Each key supports one algorithm, so a token cannot choose
//! how it is checked. `ring` compares in constant time.

use crate::environment;
use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind, Result};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::hmac;
use ring::signature::{ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ED25519, EcdsaKeyPair, Ed25519KeyPair};
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, RsaPublicKeyComponents, UnparsedPublicKey};
use signature::{Signer, Verifier};

static PROVIDER: CryptoProvider =
    CryptoProvider { signer_factory: signer, verifier_factory: verifier, key_utils: KeyUtils::new_unimplemented() };

/// Installs this provider for `jsonwebtoken`, unless the embedding program has installed another.
pub(crate) fn install() {
    let _ = PROVIDER.install_default();
}

/// A private key that signs.
enum PrivateKey {
    Secret(hmac::Key),
    Ed(Ed25519KeyPair),
    Rsa(Box<RsaKeyPair>),
    P256(EcdsaKeyPair),
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "jsonwebtoken hands over a reference")]
fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    let bytes = key.as_bytes();
    Ok(Box::new(match (algorithm, key.family()) {
        (Algorithm::HS256, AlgorithmFamily::Hmac) => PrivateKey::Secret(hmac::Key::new(hmac::HMAC_SHA256, bytes)),
        (Algorithm::EdDSA, AlgorithmFamily::Ed) => {
            // OpenSSL writes no public key into the file, so there is none to check against.
            let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(bytes);
            PrivateKey::Ed(pair.map_err(|_| Error::from(ErrorKind::InvalidEddsaKey))?)
        }
        (Algorithm::RS256, AlgorithmFamily::Rsa) => {
            let pair = RsaKeyPair::from_der(bytes);
            PrivateKey::Rsa(Box::new(pair.map_err(|why| Error::from(ErrorKind::InvalidRsaKey(why.to_string())))?))
        }
        (Algorithm::ES256, AlgorithmFamily::Ec) => {
            let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, bytes, &environment::key_randomness());
            PrivateKey::P256(pair.map_err(|_| Error::from(ErrorKind::InvalidEcdsaKey))?)
        }
        _ => return Err(ErrorKind::InvalidAlgorithm.into()),
    }))
}

impl Signer<Vec<u8>> for PrivateKey {
    fn try_sign(&self, message: &[u8]) -> std::result::Result<Vec<u8>, signature::Error> {
        match self {
            Self::Secret(key) => Ok(hmac::sign(key, message).as_ref().to_vec()),
            Self::Ed(pair) => Ok(pair.sign(message).as_ref().to_vec()),
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &environment::key_randomness(), message, &mut signature)
                    .map_err(|_| signature::Error::new())?;
                Ok(signature)
            }
            Self::P256(pair) => {
                let signature = pair.sign(&environment::key_randomness(), message).map_err(|_| signature::Error::new())?;
                Ok(signature.as_ref().to_vec())
            }
        }
    }
}

impl JwtSigner for PrivateKey {
    fn algorithm(&self) -> Algorithm {
        match self {
            Self::Secret(_) => Algorithm::HS256,
            Self::Ed(_) => Algorithm::EdDSA,
            Self::Rsa(_) => Algorithm::RS256,
            Self::P256(_) => Algorithm::ES256,
        }
    }
}

/// Verifies signatures with one key.
struct SignatureVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "jsonwebtoken hands over a reference")]
fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    match (algorithm, key.family()) {
        (Algorithm::HS256, AlgorithmFamily::Hmac)
        | (Algorithm::EdDSA, AlgorithmFamily::Ed)
        | (Algorithm::RS256, AlgorithmFamily::Rsa)
        | (Algorithm::ES256, AlgorithmFamily::Ec) => Ok(Box::new(SignatureVerifier { algorithm: *algorithm, key: key.clone() })),
        _ => Err(ErrorKind::InvalidAlgorithm.into()),
    }
}

impl Verifier<Vec<u8>> for SignatureVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), signature::Error> {
        let is_right = match (self.algorithm, self.key.kind()) {
            (Algorithm::HS256, DecodingKeyKind::SecretOrDer(secret)) => {
                hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, secret), message, signature)
            }
            (Algorithm::EdDSA, DecodingKeyKind::SecretOrDer(point)) => {
                UnparsedPublicKey::new(&ED25519, point).verify(message, signature)
            }
            (Algorithm::RS256, DecodingKeyKind::SecretOrDer(der)) => {
                UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, der).verify(message, signature)
            }
            (Algorithm::RS256, DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            (Algorithm::ES256, DecodingKeyKind::SecretOrDer(point)) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            _ => Err(ring::error::Unspecified),
        };
        is_right.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for SignatureVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
