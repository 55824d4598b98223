//! TLS at the server's end: the certificate, the key, and their renewal while the server runs.
//!
//! Both are read at the start, where anything wrong with them is told by the file's name, and again while the server runs: every
//! few seconds, and at once when it is asked to. A pair that does not fit is never taken: the one before it stays in use, for a
//! renewal writes two files, one after the other. Connections that are open keep the certificate with which they began.

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

/// The protocols that a client may choose from, the preferred first (RFC 7301).
pub const H2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";
/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The largest file that is read as a certificate or a key, in bytes: whole chains have a few thousand.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Why there is no TLS with these files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    #[error("{}: cannot be read: {why}; give a file that this user may read", file.display())]
    Unreadable { file: PathBuf, why: String },
    #[error("{}: is larger than {FILE_BYTES_MAX} bytes, so it is no certificate and no key", file.display())]
    TooLarge { file: PathBuf },
    #[error("{}: is not PEM: {why}; give the text that begins with -----BEGIN", file.display())]
    NotPem { file: PathBuf, why: String },
    #[error("{}: holds no certificate; give the chain as PEM (-----BEGIN CERTIFICATE-----), the server's own first", file.display())]
    NoCertificate { file: PathBuf },
    #[error("{}: the certificate cannot be used: {why}; give the server's own certificate first", file.display())]
    BadCertificate { file: PathBuf, why: String },
    #[error("{}: holds no private key, or an encrypted one; give it as PEM, decrypted (openssl pkey -in FILE)", file.display())]
    NoKey { file: PathBuf },
    #[error("{}: the key cannot be used: {why}; give an RSA (2048 bits or more), ECDSA (P-256, P-384) or Ed25519 key", file.display())]
    BadKey { file: PathBuf, why: String },
    #[error("{}: the key is not that of the certificate in {}; give the two that belong together", key.display(), cert.display())]
    Mismatch { cert: PathBuf, key: PathBuf },
}

/// The two files.
#[derive(Debug, Clone)]
pub struct Files {
    /// The chain, the server's own certificate first.
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// What a server needs to speak TLS.
pub struct Tls {
    files: Files,
    current: Arc<Current>,
    acceptor: TlsAcceptor,
    /// What was last found to be wrong with the files, so that it is told once.
    wrong: Mutex<Option<TlsError>>,
}

/// The certificate that new connections get.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().clone())
    }
}

impl Tls {
    /// TLS with the certificate and the key in these files.
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

    /// What takes a connection through its handshake.
    pub(super) const fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }

    /// Reads the files again; whether they hold another certificate, which new connections then get.
    ///
    /// # Errors
    /// [`TlsError`]; then everything stays as it was.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let read = read(&self.files, &ring::default_provider())?;
        // Of the same certificate there is only one key that fits.
        let is_new = self.current.0.read().cert != read.cert;
        if is_new {
            *self.current.0.write() = Arc::new(read);
        }
        Ok(is_new)
    }

    /// Reads the files again, and tells the log what came of it: each fault once, not at every look.
    pub fn renew(&self) {
        match self.reload() {
            Ok(is_new) => {
                *self.wrong.lock() = None;
                if is_new {
                    tracing::info!(file = %self.files.cert.display(), "new connections get another certificate");
                }
            }
            Err(error) => {
                let mut wrong = self.wrong.lock();
                if wrong.as_ref() != Some(&error) {
                    tracing::error!(%error, "the certificate is not renewed; the one before stays in use");
                    *wrong = Some(error);
                }
            }
        }
    }

    /// Looks at the files now and then, until it is aborted.
    pub(super) async fn keep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let tls = self.clone();
            // They may lie on a disk that is slow to answer.
            let renewing = tokio::task::spawn_blocking(move || tls.renew());
            renewing.await.expect("nobody aborts it, and a panic in it is one here");
        }
    }
}

/// The certificate and its key, known to belong together.
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

    /// What is wrong with files of these texts.
    fn wrong(cert: &[u8], key: &[u8]) -> TlsError {
        let dir = tempfile::tempdir().unwrap();
        let files = Files { cert: dir.path().join("c.pem"), key: dir.path().join("k.pem") };
        std::fs::write(&files.cert, cert).unwrap();
        std::fs::write(&files.key, key).unwrap();
        let error = Tls::load(files.clone()).err().expect("something is wrong");
        let told = error.to_string();
        let names = |file: &Path| told.contains(file.to_str().unwrap());
        assert!(names(&files.cert) || names(&files.key), "{told}");
        error
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told_by_its_name() {
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
    fn a_renewal_that_is_half_written_changes_nothing() {
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
