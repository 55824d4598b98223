//! Which network addresses the server calls for others.
//!
//! A person who may name a webhook or a push service must not reach what the server's own network hides: the cloud's
//! metadata, databases, this server. So each attempt resolves the name again and checks every address that it has, and
//! the connection goes to one of those.

use crate::environment;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, ClientBuilder, Url, redirect};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Time to open a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// Time for one attempt.
pub const ATTEMPT_TIME_MAX: Duration = Duration::from_secs(20);

/// Why an address cannot be a destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("it is not an absolute URL: {0}")]
    NoUrl(String),
    #[error("its scheme is {0}; use https, or http")]
    Scheme(String),
    #[error("it has a user name or a password; put what the receiver checks into the secret")]
    UserInfo,
    #[error("it names no host")]
    NoHost,
    #[error("{0} is not a public address; only the configuration file can allow private ones, with allow-private = true")]
    Private(IpAddr),
}

/// Checks the text of an address. What its name resolves to is checked at each attempt.
///
/// # Errors
/// [`AddressError`].
pub fn parse(text: &str, allow_private: bool) -> Result<Url, AddressError> {
    let url = Url::parse(text).map_err(|error| AddressError::NoUrl(error.to_string()))?;
    if !matches!(url.scheme(), "https" | "http") {
        return Err(AddressError::Scheme(url.scheme().into()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(AddressError::UserInfo);
    }
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or(AddressError::NoHost)?;
    match literal(host) {
        Some(address) if !allow_private && !is_public(address) => Err(AddressError::Private(address)),
        _ => Ok(url),
    }
}

/// The address that a host spells, which no resolver sees. The parser of URLs has read other spellings of IPv4.
fn literal(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Whether an address means the same host everywhere on the internet.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

const fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = matches!(
        (a, b, c),
        // This network, and reserved; shared address space; protocol assignments; 6to4 relays; benchmarks.
        (0 | 240..=255, _, _) | (100, 64..=127, _) | (192, 0, 0) | (192, 88, 99) | (198, 18 | 19, _)
    );
    !(is_special
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation())
}

/// Only global unicast, and none of the forms that carry an IPv4 address or that a gateway translates.
const fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    let is_global_unicast = a & 0xe000 == 0x2000;
    let is_special = matches!((a, b), (0x2001, 0..=0x01ff | 0x0db8) | (0x2002, _) | (0x3fff, 0..=0x0fff));
    is_global_unicast && !is_special
}

/// A resolver that refuses a name with an address that is not public.
struct PublicResolver;

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            if let Some(private) = found.iter().map(SocketAddr::ip).find(|address| !is_public(*address)) {
                return Err(AddressError::Private(private).into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// A client for calls to destinations: no proxy, no redirects, and a new connection for each attempt.
///
/// # Errors
/// Why no client can be built, such as missing certificates of the system.
pub fn client(allow_private: bool) -> Result<Client, String> {
    let builder = builder().pool_max_idle_per_host(0);
    let builder = if allow_private { builder } else { builder.dns_resolver(Arc::new(PublicResolver)) };
    builder.build().map_err(|error| error.to_string())
}

/// A builder of clients for calls to others: no proxy, no redirects, and a limit of time.
pub(crate) fn builder() -> ClientBuilder {
    environment::install_crypto_provider();
    let builder = Client::builder().no_proxy().redirect(redirect::Policy::none());
    builder.connect_timeout(CONNECT_TIME_MAX).timeout(ATTEMPT_TIME_MAX).user_agent("Proscenium")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_refused_in_every_spelling() {
        let refused = [
            "127.0.0.1",
            "127.1",
            "0x7f.1",
            "2130706433",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "192.0.0.8",
            "[::1]",
            "[::]",
            "[fe80::1]",
            "[fc00::1]",
            "[fd12::1]",
            "[ff02::1]",
            "[::ffff:10.0.0.1]",
            "[::ffff:8.8.8.8]",
            "[::8.8.8.8]",
            "[64:ff9b::a00:1]",
            "[64:ff9b:1::1]",
            "[2002:a00:1::]",
            "[2001::1]",
            "[2001:db8::1]",
            "[100::1]",
            "[fec0::1]",
        ];
        for host in refused {
            let found = parse(&format!("https://{host}/hook"), false);
            assert!(matches!(found, Err(AddressError::Private(_))), "{host}: {found:?}");
            assert!(parse(&format!("https://{host}/hook"), true).is_ok(), "{host}");
        }
        for host in ["8.8.8.8", "[2606:4700::1111]", "example.com"] {
            assert!(parse(&format!("https://{host}/hook"), false).is_ok(), "{host}");
        }
    }

    #[test]
    fn an_address_is_an_http_url_without_credentials() {
        assert!(matches!(parse("hook", false), Err(AddressError::NoUrl(_))));
        assert_eq!(parse("ftp://example.com", false), Err(AddressError::Scheme("ftp".into())));
        assert_eq!(parse("https://u:p@example.com", false), Err(AddressError::UserInfo));
        assert_eq!(parse("https://u@example.com", false), Err(AddressError::UserInfo));
    }

    #[tokio::test]
    async fn a_name_that_resolves_to_a_private_address_is_refused() {
        let Err(error) = PublicResolver.resolve("localhost".parse().unwrap()).await else { panic!("localhost is private") };
        assert!(error.to_string().contains("is not a public address"), "{error}");
    }
}
