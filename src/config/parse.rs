//! Parses values of settings: sizes, names and URLs.

use super::{GIB, KIB, MIB};
use crate::model::Audience;

/// Parses a collector's URL. A binary without the feature `otlp` rejects it rather than ignore it.
pub(super) fn collector_url(text: &str, has_otlp: bool) -> Result<String, String> {
    if !has_otlp {
        return Err("this binary cannot send traces; build it with the feature `otlp`, which is in the default build".into());
    }
    let uri: http::Uri = text.parse().map_err(|error| format!("{error}; give a URL such as http://127.0.0.1:4318"))?;
    match uri.scheme_str() {
        Some("http" | "https") if uri.query().is_none() => Ok(text.trim_end_matches('/').to_owned()),
        _ => Err("it must be an http or https URL without a query, such as http://127.0.0.1:4318".into()),
    }
}

/// Parses the URL of a collector of runs.
pub(super) fn traces_url(text: &str, has_otlp: bool) -> Result<String, String> {
    let url = collector_url(text, has_otlp)?;
    let parsed = reqwest::Url::parse(&url).map_err(|error| format!("{error}; give a URL such as http://127.0.0.1:4318"))?;
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err("it has a user name or a password; put them into --genai-headers as authorization=Basic%20…".into());
    }
    match url.strip_suffix("/v1/traces") {
        Some(base) => Err(format!("the server adds /v1/traces itself; give {base}")),
        None => Ok(url),
    }
}

/// Parses the name of an audience.
pub(super) fn audience(text: &str) -> Result<Audience, String> {
    Audience::parse(text).ok_or_else(|| "it must be user, dashboard or internal".into())
}

/// Parses the URLs of NATS servers. A binary without the feature `cluster` rejects them rather than ignore them.
pub(super) fn cluster_urls(text: &str, has_cluster: bool) -> Result<String, String> {
    if !has_cluster {
        return Err("this binary cannot be a node of a cluster; build it with the feature `cluster`".into());
    }
    let is_url = |url: &str| {
        ["nats://", "tls://"].iter().any(|scheme| url.trim().strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()))
    };
    match text.split(',').all(is_url) {
        true => Ok(text.to_owned()),
        false => Err("give the URLs of the NATS servers, such as nats://10.0.0.1:4222,nats://10.0.0.2:4222".into()),
    }
}

pub(super) fn cluster_name(text: &str) -> Result<String, String> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    match (1..=32).contains(&text.len()) && is_plain {
        true => Ok(text.to_owned()),
        false => Err("a name has 1 to 32 letters, digits, `-` and `_`".into()),
    }
}

/// Parses the address of the page. A path ends with `/`, since links add to it.
pub(super) fn public_url(text: &str) -> Result<reqwest::Url, String> {
    let mut url: reqwest::Url =
        text.parse().map_err(|error| format!("{error}; give a URL such as https://agents.example.com/"))?;
    if !matches!(url.scheme(), "http" | "https") || url.query().is_some() || url.fragment().is_some() {
        return Err("it must be an http or https URL without a query, such as https://agents.example.com/".into());
    }
    if !url.path().ends_with('/') {
        url.set_path(&format!("{}/", url.path()));
    }
    Ok(url)
}

/// Parses the host of a push service.
pub(super) fn push_host(text: &str) -> Result<Box<str>, String> {
    let url = reqwest::Url::parse(&format!("https://{text}/")).ok().filter(|url| {
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        url.host_str().is_some_and(|host| format!("{host}{port}") == text)
    });
    url.map(|_| text.into()).ok_or_else(|| "give a host, such as push.example.com or 127.0.0.1:9000".into())
}

pub(super) fn advertised_url(text: &str) -> Result<String, String> {
    let uri: http::Uri = text.parse().map_err(|error| format!("{error}; give a URL such as http://10.0.0.5:8787"))?;
    match uri.scheme_str() {
        Some("http" | "https") if uri.query().is_none() && uri.path() == "/" => Ok(text.trim_end_matches('/').to_owned()),
        _ => Err("it must be an http or https URL without a path, such as http://10.0.0.5:8787".into()),
    }
}

/// The parameters of an authorization request that the page makes itself.
const OWN_PARAMETERS: [&str; 9] = [
    "client_id",
    "code_challenge",
    "code_challenge_method",
    "nonce",
    "redirect_uri",
    "response_mode",
    "response_type",
    "scope",
    "state",
];

/// Parses a parameter of the sign-in.
pub(super) fn sign_in_parameter(text: &str) -> Result<(Box<str>, Box<str>), String> {
    match text.split_once('=') {
        Some((name, _)) if OWN_PARAMETERS.contains(&name) => Err(format!("the page sets {name} itself")),
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err(format!("{text:?} is not NAME=VALUE, such as audience=https://agents.example")),
    }
}

/// Parses a size such as `65536`, `64KiB` or `64 kib`. Units are powers of 1024.
pub(super) fn size(text: &str, min: u64, max: u64) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match text[digits.len()..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => KIB,
        "m" | "mib" => MIB,
        "g" | "gib" => GIB,
        other => return Err(format!("{other:?} is not a unit of size; use bytes, KiB, MiB or GiB")),
    };
    let count: u64 =
        digits.trim().parse().map_err(|_| format!("{text:?} is not a size; use a whole number of bytes, KiB, MiB or GiB"))?;
    match count.checked_mul(unit) {
        Some(bytes) if (min..=max).contains(&bytes) => Ok(bytes),
        _ => Err(format!("{text} is out of range; it must be {} to {}", size_text(min), size_text(max))),
    }
}

fn size_text(bytes: u64) -> String {
    match bytes {
        GIB.. if bytes.is_multiple_of(GIB) => format!("{}GiB", bytes / GIB),
        MIB.. if bytes.is_multiple_of(MIB) => format!("{}MiB", bytes / MIB),
        KIB.. if bytes.is_multiple_of(KIB) => format!("{}KiB", bytes / KIB),
        _ => format!("{bytes} bytes"),
    }
}
