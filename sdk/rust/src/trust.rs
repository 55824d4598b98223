//! The certificates that our HTTP clients trust over `https`.
//!
//! A client trusts either the system's certificates or only those of a private authority. For a plain `http` address it
//! loads no certificates.

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, Error, RootCertStore};
use std::sync::Arc;

/// Why the trusted certificates cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("the authority's certificates are not valid PEM: {0}; use text that begins with -----BEGIN CERTIFICATE-----")]
    NotPem(String),
    #[error("the authority has no certificate; give at least one as PEM (-----BEGIN CERTIFICATE-----)")]
    Empty,
    #[error("the authority's certificate cannot be used: {0}")]
    Bad(Error),
    #[error("the system's trusted certificates cannot be loaded: {0}; specify your own authority")]
    System(Error),
}

/// Returns a builder of an HTTP client for this address with its trusted certificates.
///
/// The client trusts `authority` (PEM), or the system's certificates for `None`. The client uses no proxy: a proxy's
/// address would come from the environment, which a library must not read.
///
/// # Errors
/// [`TrustError`]
pub fn client(url: &str, authority: Option<&[u8]>) -> Result<reqwest::ClientBuilder, TrustError> {
    let is_plain = url.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"));
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has the ciphers of TLS 1.2 and 1.3");
    let config = match authority {
        Some(authority) => builder.with_root_certificates(roots(authority)?).with_no_client_auth(),
        None if is_plain => builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth(),
        None => {
            use rustls_platform_verifier::BuilderVerifierExt;
            builder.with_platform_verifier().map_err(TrustError::System)?.with_no_client_auth()
        }
    };
    Ok(reqwest::Client::builder().no_proxy().tls_backend_preconfigured(config))
}

fn roots(authority: &[u8]) -> Result<RootCertStore, TrustError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority) {
        let certificate = certificate.map_err(|error| TrustError::NotPem(format!("{error:?}")))?;
        roots.add(certificate).map_err(TrustError::Bad)?;
    }
    if roots.is_empty() { Err(TrustError::Empty) } else { Ok(roots) }
}
