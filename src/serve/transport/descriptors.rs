//! File descriptors: connections leave some to the store.
//!
//! Each connection takes a descriptor. A store that cannot open its next file has failed for good, so clients must not
//! take the last ones.

use crate::serve::http::problem::Problem;
use http::StatusCode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::AsRawFd;

/// Descriptors that connections leave free, but at most half of all: for files of the store, of which it keeps 256 open,
/// for refusals, and for connections to agents and nodes.
const RESERVED_DESCRIPTORS: u64 = 384;

/// Raises the process's limit of open files as far as the system allows.
///
/// Many systems set it to 1,024 for programs that do not ask for more.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%error, limit = limit.current, "cannot raise the limit of open files");
    }
}

/// The limit of open files, and how many of them may be open when a connection is accepted.
#[derive(Debug, Clone, Copy)]
pub struct DescriptorLimit {
    limit: u64,
    admitted: u64,
}

impl DescriptorLimit {
    /// The limit of this process now.
    #[must_use]
    pub fn current() -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self { limit, admitted: limit - RESERVED_DESCRIPTORS.min(limit / 2) }
    }

    /// The most descriptors that may be open when a connection is accepted.
    #[must_use]
    pub const fn admitted(&self) -> u64 {
        self.admitted
    }

    /// Checks that a new connection leaves the reserve free.
    ///
    /// The system gives a connection the lowest free descriptor, so all below it are in use.
    ///
    /// # Errors
    /// 503 for a connection that takes a descriptor of the reserve.
    pub fn check(&self, connection: &impl AsRawFd) -> Result<(), Problem> {
        let Self { limit, admitted } = *self;
        if u64::try_from(connection.as_raw_fd()).is_ok_and(|descriptor| descriptor < admitted) {
            return Ok(());
        }
        let detail = format!(
            "The server has {admitted} of {limit} files and connections open; the others are for its store. Retry later, or \
             raise the system's hard limit of open files."
        );
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", detail);
        Err(problem.with("limit", admitted).with_retry_after(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::RawFd;

    struct Connection(RawFd);

    impl AsRawFd for Connection {
        fn as_raw_fd(&self) -> RawFd {
            self.0
        }
    }

    #[test]
    fn a_connection_is_refused_once_only_the_reserve_is_left() {
        let limit = DescriptorLimit { limit: 1024, admitted: 640 };
        assert!(limit.check(&Connection(639)).is_ok());
        let problem = limit.check(&Connection(640)).unwrap_err();
        assert_eq!((problem.status, problem.code), (StatusCode::SERVICE_UNAVAILABLE, "too_many_connections"));
        let here = DescriptorLimit::current();
        assert!(here.admitted >= here.limit / 2 && here.admitted < here.limit);
    }
}
