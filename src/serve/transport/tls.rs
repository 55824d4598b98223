//! Server TLS: the certificate, the key, and their renewal at run time.
//!
//! The server reads both files at start, and reports a fault with the file's name. It reads them again every few
//! seconds, and at once on request. A mismatched pair is never used: a renewal writes the two files one after the
//! other, so the previous pair stays in use. Open connections keep the certificate that they started with.

use parking_lot::{Mutex, RwLock};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{Error, InconsistentKeys, ServerConfig};

/// The ALPN protocols, preferred first (RFC 7301).
pub const H2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";
/// Interval of the file checks.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Maximum size of a certificate or key file, in bytes. Whole chains have a few thousand.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The files cannot be used for TLS.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    #[error("{}: cannot be read: {why}; use a file that this user may read", file.display())]
    Unreadable { file: PathBuf, why: String },
    #[error("{}: is larger than {FILE_BYTES_MAX} bytes, the limit for a certificate or a key", file.display())]
    TooLarge { file: PathBuf },
    #[error("{}: is not PEM: {why}; use a text file that begins with -----BEGIN", file.display())]
    NotPem { file: PathBuf, why: String },
    #[error("{}: has no certificate; use a PEM chain (-----BEGIN CERTIFICATE-----), the server's own first", file.display())]
    NoCertificate { file: PathBuf },
    #[error("{}: the certificate cannot be used: {why}; put the server's own certificate first", file.display())]
    BadCertificate { file: PathBuf, why: String },
    #[error("{}: has no private key, or an encrypted one; use unencrypted PEM (openssl pkey -in FILE)", file.display())]
    NoKey { file: PathBuf },
    #[error("{}: the key cannot be used: {why}; use an RSA (at least 2048 bits), ECDSA (P-256, P-384) or Ed25519 key", file.display())]
    BadKey { file: PathBuf, why: String },
    #[error("{}: the key does not match the certificate in {}; use a matching pair", key.display(), cert.display())]
    Mismatch { cert: PathBuf, key: PathBuf },
}

/// The certificate and key files.
#[derive(Debug, Clone)]
pub struct Files {
    /// The certificate chain, the server's own first.
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// The TLS configuration of a server.
pub struct Tls {
    files: Files,
    current: Arc<Current>,
    acceptor: TlsAcceptor,
    /// The last error, so that it is logged once.
    wrong: Mutex<Option<TlsError>>,
}

/// The certificate of new connections.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().clone())
    }
}

impl Tls {
    /// Loads the certificate and the key.
    ///
    /// # Errors
    /// [`TlsError`], which names the file.
    pub fn load(files: Files) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let current = Arc::new(Current(RwLock::new(Arc::new(read(&files, &provider)?))));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has the ciphers of TLS 1.2 and 1.3")
            .with_no_client_auth()
            .with_cert_resolver(current.clone());
        config.alpn_protocols = vec![H2.to_vec(), HTTP_1_1.to_vec()];
        Ok(Self { files, current, acceptor: TlsAcceptor::from(Arc::new(config)), wrong: Mutex::new(None) })
    }

    /// Performs the handshakes.
    pub(super) const fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }

    /// Reloads the files. Returns whether new connections get another certificate.
    ///
    /// # Errors
    /// [`TlsError`]. The previous certificate stays in use.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let read = read(&self.files, &ring::default_provider())?;
        // An unchanged certificate has an unchanged key.
        let is_new = self.current.0.read().cert != read.cert;
        if is_new {
            *self.current.0.write() = Arc::new(read);
        }
        Ok(is_new)
    }

    /// Reloads the files and logs the outcome, each error once.
    pub fn renew(&self) {
        match self.reload() {
            Ok(is_new) => {
                *self.wrong.lock() = None;
                if is_new {
                    tracing::info!(file = %self.files.cert.display(), "reloaded the certificate for new connections");
                }
            }
            Err(error) => {
                let mut wrong = self.wrong.lock();
                if wrong.as_ref() != Some(&error) {
                    tracing::error!(%error, "cannot reload the certificate; the previous one stays in use");
                    *wrong = Some(error);
                }
            }
        }
    }

    /// Reloads the files periodically until the task is aborted.
    pub(in crate::serve) async fn run(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let tls = self.clone();
            // The files may be on a slow disk.
            let renewing = tokio::task::spawn_blocking(move || tls.renew());
            renewing.await.expect("the certificate reload panicked");
        }
    }
}

/// Reads the certificate and its key, and checks that they match.
fn read(files: &Files, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let Files { cert, key } = files;
    let not_pem = |file: &Path, error: pem::Error| TlsError::NotPem { file: file.to_owned(), why: format!("{error:?}") };
    let text = bytes_of(cert)?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&text).collect::<Result<_, _>>().map_err(|error| not_pem(cert, error))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { file: cert.clone() });
    }
    let private = PrivateKeyDer::from_pem_slice(&bytes_of(key)?).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsError::NoKey { file: key.clone() },
        error => not_pem(key, error),
    })?;
    CertifiedKey::from_der(chain, private, provider).map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsError::Mismatch { cert: cert.clone(), key: key.clone() },
        Error::InvalidCertificate(why) => TlsError::BadCertificate { file: cert.clone(), why: why.to_string() },
        error => TlsError::BadKey { file: key.clone(), why: error.to_string() },
    })
}

fn bytes_of(file: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |error: io::Error| TlsError::Unreadable { file: file.to_owned(), why: error.to_string() };
    let bytes = std::fs::metadata(file).map_err(unreadable)?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(TlsError::TooLarge { file: file.to_owned() });
    }
    std::fs::read(file).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertifiedKey, generate_simple_self_signed};

    fn pair() -> (String, String) {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (cert.pem(), signing_key.serialize_pem())
    }

    /// The error of a certificate and key file with this content.
    fn wrong(cert: &[u8], key: &[u8]) -> TlsError {
        let dir = tempfile::tempdir().unwrap();
        let files = Files { cert: dir.path().join("c.pem"), key: dir.path().join("k.pem") };
        std::fs::write(&files.cert, cert).unwrap();
        std::fs::write(&files.key, key).unwrap();
        let error = Tls::load(files.clone()).err().expect("one of the files is invalid");
        let message = error.to_string();
        let names = |file: &Path| message.contains(file.to_str().unwrap());
        assert!(names(&files.cert) || names(&files.key), "{message}");
        error
    }

    #[test]
    fn errors_name_the_file() {
        let ((cert, key), (other, _)) = (pair(), pair());
        let (cert, key) = (cert.as_bytes(), key.as_bytes());
        assert!(matches!(wrong(b"", key), TlsError::NoCertificate { .. }));
        assert!(matches!(wrong(key, key), TlsError::NoCertificate { .. }));
        assert!(matches!(wrong(cert, b""), TlsError::NoKey { .. }));
        assert!(matches!(wrong(cert, cert), TlsError::NoKey { .. }));
        assert!(matches!(wrong(other.as_bytes(), key), TlsError::Mismatch { .. }));
        assert!(matches!(wrong(b"-----BEGIN CERTIFICATE-----\nAAAA\n", key), TlsError::NotPem { .. }));
        let nothing = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(wrong(nothing, key), TlsError::BadCertificate { .. }));
        let nothing = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        assert!(matches!(wrong(cert, nothing), TlsError::BadKey { .. }));
        assert!(matches!(wrong(cert, &vec![b'x'; 1 + 1024 * 1024]), TlsError::TooLarge { .. }));
        let files = Files { cert: "/nowhere/c.pem".into(), key: "/nowhere/k.pem".into() };
        assert!(matches!(Tls::load(files), Err(TlsError::Unreadable { .. })));
    }

    #[test]
    fn a_half_written_renewal_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files { cert: dir.path().join("c.pem"), key: dir.path().join("k.pem") };
        let write = |(cert, key): &(String, String)| {
            std::fs::write(&files.cert, cert).unwrap();
            std::fs::write(&files.key, key).unwrap();
        };
        let (first, second) = (pair(), pair());
        write(&first);
        let tls = Tls::load(files.clone()).unwrap();
        let serving = || tls.current.0.read().cert[0].clone();
        let before = serving();
        assert_eq!(tls.reload(), Ok(false));
        std::fs::write(&files.cert, &second.0).unwrap();
        assert!(matches!(tls.reload(), Err(TlsError::Mismatch { .. })));
        assert_eq!(serving(), before);
        write(&second);
        assert_eq!(tls.reload(), Ok(true));
        assert_ne!(serving(), before);
    }
}
