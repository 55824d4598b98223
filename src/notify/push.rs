//! Web Push: one encrypted message to a device (RFC 8030, 8188 and 8291), signed by the server's key (RFC 8292).

use super::subscription::{PushEndpoint, PushSubscription, SubscriptionKeys};
use crate::auth::crypto;
use crate::environment;
use crate::log::server_state::StateRecord;
use data_encoding::{BASE64, BASE64URL_NOPAD};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use reqwest::Url;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The largest text of a message, in bytes: encrypted, it fits the 4096 bytes that push services take.
pub(super) const PUSH_TEXT_BYTES_MAX: usize = 3800;
/// How long a push service keeps a message for a device that is off, in seconds.
const TTL_SECS: &str = "86400";
/// How long the signature of a request holds, in seconds. Push services allow a day.
const SIGNATURE_SECS: i64 = 12 * 3600;
/// Who a push service may write to, on a server that does not know its address.
const NO_CONTACT: &str = "mailto:proscenium@localhost";
/// The characters of a topic.
const TOPIC_CHARS: usize = 32;

/// The server's key for push services, the same on all nodes.
#[derive(Serialize, Deserialize)]
pub struct VapidKey {
    /// PKCS#8, in base64.
    pkcs8: Box<str>,
}

impl StateRecord for VapidKey {
    const TABLE: &'static str = "push-key";
}

/// The id of its only entry.
pub const VAPID_KEY_ID: &str = "1";

impl VapidKey {
    /// Makes a key.
    ///
    /// # Panics
    /// Without a source of randomness.
    #[must_use]
    pub fn generate() -> Self {
        let random = environment::key_randomness();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("the machine has randomness");
        Self { pkcs8: BASE64.encode(pkcs8.as_ref()).into() }
    }

    fn der(&self) -> Vec<u8> {
        BASE64.decode(self.pkcs8.as_bytes()).unwrap_or_default()
    }

    /// The public key, as browsers take it: the base64url of its point. `None`: the entry is no key.
    #[must_use]
    pub fn public_key(&self) -> Option<String> {
        let random = environment::key_randomness();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &self.der(), &random).ok()?;
        Some(BASE64URL_NOPAD.encode(pair.public_key().as_ref()))
    }

    /// The header `authorization` of a request to this service.
    fn authorization(&self, endpoint: &Url, contact: &str, now: Timestamp) -> Option<String> {
        #[derive(Serialize)]
        struct Claims<'c> {
            aud: String,
            exp: i64,
            sub: &'c str,
        }
        let claims = Claims { aud: endpoint.origin().ascii_serialization(), exp: now.as_second() + SIGNATURE_SECS, sub: contact };
        crypto::install();
        let key = EncodingKey::from_ec_der(&self.der());
        let token = jsonwebtoken::encode(&Header::new(Algorithm::ES256), &claims, &key).ok()?;
        Some(format!("vapid t={token}, k={}", self.public_key()?))
    }
}

/// How soon a device shows a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    Normal,
    High,
}

/// A message to a device, before it is encrypted.
pub(super) struct PushMessage {
    pub text: Vec<u8>,
    /// A later message about the same replaces it, at the service and on the device.
    pub about: String,
    pub urgency: Urgency,
}

/// A request to a push service.
pub(super) struct PushRequest {
    pub endpoint: PushEndpoint,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// Encrypts and signs a message. `None`: the subscription or the key is none, which was checked when it was stored.
pub(super) fn request(
    subscription: &PushSubscription,
    endpoint: PushEndpoint,
    key: &VapidKey,
    public_url: Option<&Url>,
    message: PushMessage,
    now: Timestamp,
) -> Option<PushRequest> {
    let contact = public_url.filter(|url| url.scheme() == "https").map_or(NO_CONTACT, Url::as_str);
    let (point, auth) = SubscriptionKeys::parse(&subscription.keys).ok()?;
    let topic = &BASE64URL_NOPAD.encode(&Sha256::digest(&message.about))[..TOPIC_CHARS];
    let urgency = match message.urgency {
        Urgency::Normal => "normal",
        Urgency::High => "high",
    };
    let authorization = key.authorization(&endpoint.url, contact, now)?;
    let body = web_push_native::encrypt(message.text, &point, &auth).ok()?;
    let fields = [
        (header::AUTHORIZATION, &*authorization),
        (header::CONTENT_ENCODING, "aes128gcm"),
        (header::CONTENT_TYPE, "application/octet-stream"),
        (HeaderName::from_static("ttl"), TTL_SECS),
        (HeaderName::from_static("urgency"), urgency),
        (HeaderName::from_static("topic"), topic),
    ];
    let headers = fields.into_iter().map(|(name, value)| Some((name, HeaderValue::from_str(value).ok()?)));
    Some(PushRequest { endpoint, headers: headers.collect::<Option<_>>()?, body })
}
