//! The three signatures that tokens may have, computed by `ring`.
//!
//! `jsonwebtoken` reads the format and hands the bytes over. A key answers for one algorithm, so that nothing in a token decides
//! how it is checked. `ring` compares in constant time.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind, Result};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair};
use ring::signature::{RsaPublicKeyComponents, UnparsedPublicKey};
use signature::{Signer, Verifier};

static PROVIDER: CryptoProvider =
    CryptoProvider { signer_factory: signer, verifier_factory: verifier, key_utils: KeyUtils::new_unimplemented() };

/// Makes this what `jsonwebtoken` computes with, unless the program that links us has chosen something else already.
pub(super) fn install() {
    let _ = PROVIDER.install_default();
}

/// What signs.
enum Signing {
    Secret(hmac::Key),
    Ed(Ed25519KeyPair),
    Rsa(Box<RsaKeyPair>),
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "jsonwebtoken hands over a reference")]
fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    let bytes = key.as_bytes();
    Ok(Box::new(match (algorithm, key.family()) {
        (Algorithm::HS256, AlgorithmFamily::Hmac) => Signing::Secret(hmac::Key::new(hmac::HMAC_SHA256, bytes)),
        (Algorithm::EdDSA, AlgorithmFamily::Ed) => {
            // What OpenSSL writes has no public half to check against.
            let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(bytes);
            Signing::Ed(pair.map_err(|_| Error::from(ErrorKind::InvalidEddsaKey))?)
        }
        (Algorithm::RS256, AlgorithmFamily::Rsa) => {
            let pair = RsaKeyPair::from_der(bytes);
            Signing::Rsa(Box::new(pair.map_err(|why| Error::from(ErrorKind::InvalidRsaKey(why.to_string())))?))
        }
        _ => return Err(ErrorKind::InvalidAlgorithm.into()),
    }))
}

impl Signer<Vec<u8>> for Signing {
    fn try_sign(&self, message: &[u8]) -> std::result::Result<Vec<u8>, signature::Error> {
        match self {
            Self::Secret(key) => Ok(hmac::sign(key, message).as_ref().to_vec()),
            Self::Ed(pair) => Ok(pair.sign(message).as_ref().to_vec()),
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature)
                    .map_err(|_| signature::Error::new())?;
                Ok(signature)
            }
        }
    }
}

impl JwtSigner for Signing {
    fn algorithm(&self) -> Algorithm {
        match self {
            Self::Secret(_) => Algorithm::HS256,
            Self::Ed(_) => Algorithm::EdDSA,
            Self::Rsa(_) => Algorithm::RS256,
        }
    }
}

/// What checks a signature.
struct Checking {
    algorithm: Algorithm,
    key: DecodingKey,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "jsonwebtoken hands over a reference")]
fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    match (algorithm, key.family()) {
        (Algorithm::HS256, AlgorithmFamily::Hmac)
        | (Algorithm::EdDSA, AlgorithmFamily::Ed)
        | (Algorithm::RS256, AlgorithmFamily::Rsa) => Ok(Box::new(Checking { algorithm: *algorithm, key: key.clone() })),
        _ => Err(ErrorKind::InvalidAlgorithm.into()),
    }
}

impl Verifier<Vec<u8>> for Checking {
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
            _ => Err(ring::error::Unspecified),
        };
        is_right.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Checking {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
