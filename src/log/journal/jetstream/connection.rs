//! The connection to the NATS servers, and the runtime that serves it.

use crate::log::StoreError;
use async_nats::ConnectOptions;
use async_nats::jetstream::context::{Context, ContextBuilder};
use percent_encoding::percent_decode_str;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;
use tokio::runtime::Runtime;
use url::Url;

/// The time to connect, and to answer a request.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);
const REQUEST_TIME_MAX: Duration = Duration::from_secs(2);
/// A server that leaves pings unanswered is left for another one.
const PING_INTERVAL: Duration = Duration::from_millis(500);
const RECONNECT_DELAY_MAX: Duration = Duration::from_millis(250);
/// Attempts to connect at start, one second apart.
const CONNECT_ATTEMPTS_MAX: usize = 30;

/// How to reach the NATS servers.
#[derive(Debug, Clone, Default)]
pub struct StreamConnection {
    /// Their URLs, comma-separated. One may name a user with a password: `nats://user:password@host`.
    pub urls: String,
    /// A file with the credentials of a NATS user.
    pub credentials: Option<PathBuf>,
}

/// A connection, with the runtime that serves it.
pub struct StreamClient {
    pub runtime: JournalRuntime,
    pub context: Context,
}

/// A runtime with one thread, which ends with the value. It may be dropped inside another runtime.
pub struct JournalRuntime(Option<Runtime>);

impl Deref for JournalRuntime {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("only dropping the value takes it")
    }
}

impl Drop for JournalRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl JournalRuntime {
    fn new() -> Result<Self, StoreError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).thread_name("cluster").enable_all().build();
        runtime.map(|runtime| Self(Some(runtime))).map_err(|e| StoreError::failed("starting the cluster's thread", &e))
    }

    /// Runs work to its end, blocking a caller in any thread.
    ///
    /// # Errors
    /// `Failed` if the work panicked.
    pub fn run<T: Send>(&self, work: impl Future<Output = T> + Send) -> Result<T, StoreError> {
        // The caller may be a thread of another runtime, in which blocking on a runtime panics.
        let ended = std::thread::scope(|scope| scope.spawn(|| self.block_on(work)).join());
        ended.map_err(|_| StoreError::Failed { doing: "using the cluster's connection", why: "it panicked".into() })
    }
}

impl StreamConnection {
    /// Connects to one of the servers.
    ///
    /// # Errors
    /// `Failed` when no server can be reached, or refuses the credentials.
    pub fn connect(&self) -> Result<StreamClient, StoreError> {
        let runtime = JournalRuntime::new()?;
        let context = runtime.run(self.connect_inside())??;
        Ok(StreamClient { runtime, context })
    }

    async fn connect_inside(&self) -> Result<Context, StoreError> {
        let named = without_passwords(&self.urls);
        let failed = |error: &dyn std::fmt::Display| StoreError::failed("connecting to NATS", &format_args!("{named}: {error}"));
        let servers: Vec<_> = self.urls.split(',').map(str::trim).filter(|url| !url.is_empty()).collect();
        let mut attempts = 0;
        loop {
            let options = ConnectOptions::new()
                .name("proscenium")
                .connection_timeout(CONNECT_TIME_MAX)
                .request_timeout(Some(REQUEST_TIME_MAX))
                .ping_interval(PING_INTERVAL)
                .reconnect_delay_callback(|attempts| RECONNECT_DELAY_MAX.min(Duration::from_millis(25 * attempts as u64)));
            let options = match (&self.credentials, user_and_password(&self.urls)) {
                (Some(file), _) => options.credentials_file(file).await.map_err(|e| failed(&e))?,
                (None, Some((user, password))) => options.user_and_password(user, password),
                (None, None) => options,
            };
            attempts += 1;
            match options.connect(&servers[..]).await {
                Ok(client) => return Ok(ContextBuilder::new().timeout(REQUEST_TIME_MAX).build(client)),
                Err(error) if attempts >= CONNECT_ATTEMPTS_MAX => return Err(failed(&error)),
                Err(error) => {
                    tracing::warn!(%error, "cannot connect to NATS; trying again");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }
}

/// The user and the password of the first URL that names them, as in `nats://user:password@host`.
///
/// The library of the client reads neither from a URL.
fn user_and_password(urls: &str) -> Option<(String, String)> {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let mut parsed = urls.split(',').filter_map(|url| Url::parse(url.trim()).ok());
    let named = parsed.find(|url| !url.username().is_empty());
    named.map(|url| (decoded(url.username()), decoded(url.password().unwrap_or_default())))
}

/// The URLs as a log may have them, without passwords.
fn without_passwords(urls: &str) -> String {
    let shown = |url: &str| match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    };
    urls.split(',').map(|url| shown(url.trim())).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::{user_and_password, without_passwords};

    #[test]
    fn an_error_names_the_servers_and_no_password() {
        let urls = "nats://proscenium:p@ss@n1:4222, tls://n2:4222";
        assert_eq!(without_passwords(urls), "nats://n1:4222,tls://n2:4222");
    }

    #[test]
    fn a_url_names_a_user_with_a_password() {
        let named = user_and_password("nats://n1:4222, nats://pro%20scenium:p%40ss@n2:4222,nats://other:x@n3:4222");
        assert_eq!(named, Some(("pro scenium".into(), "p@ss".into())));
        assert_eq!(user_and_password("nats://n1:4222"), None);
    }
}
