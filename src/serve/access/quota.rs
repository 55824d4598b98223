//! Quotas and rate limits.
//!
//! They bound the connections per client, the open resources per token subject, and the facts per second of a producer.
//! The key is the most that is known of the other side: its address until a token names its subject. An entry is
//! removed when its quota is unused again.

use crate::ingest::QuotaExceeded;
use crate::model::OwnerId;
use crate::serve::http::problem::Problem;
use dashmap::DashMap;
use http::StatusCode;
use parking_lot::Mutex;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// A limit on concurrently open resources per key.
#[derive(Debug)]
pub struct ConnectionQuota<K: Eq + Hash> {
    total: AtomicUsize,
    by_key: DashMap<K, usize>,
    limit: usize,
    /// Builds the 429 of a key at its limit.
    limit_problem: fn(usize) -> Problem,
}

impl ConnectionQuota<Client> {
    /// A limit on the connections of each client.
    #[must_use]
    pub fn per_client(limit: usize) -> Arc<Self> {
        Self::new(limit, |limit| {
            let detail = format!(
                "This client has {limit} connections open, its limit. Close some, or raise --connections-per-client-max."
            );
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_connections_of_client", detail)
        })
    }
}

impl ConnectionQuota<Box<str>> {
    /// A limit on the open resources of each `sub`, over all its tokens and addresses.
    #[must_use]
    pub fn per_subject(limit: usize) -> Arc<Self> {
        Self::new(limit, |limit| {
            let detail = format!(
                "This token's sub has {limit} streams, sockets, streamed bodies and claims open, its limit. Close some, \
                 or raise --connections-per-token-max."
            );
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_connections_of_token", detail)
        })
    }
}

impl<K: Eq + Hash + Clone> ConnectionQuota<K> {
    fn new(limit: usize, limit_problem: fn(usize) -> Problem) -> Arc<Self> {
        Arc::new(Self { total: AtomicUsize::new(0), by_key: DashMap::new(), limit, limit_problem })
    }

    /// The number of open resources over all keys.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Counts one more resource of this key until the value is dropped.
    ///
    /// # Errors
    /// 429 if the key is at its limit.
    pub fn acquire(self: &Arc<Self>, key: K) -> Result<QuotaSlot<K>, Problem> {
        let mut count = self.by_key.entry(key.clone()).or_default();
        if *count >= self.limit {
            return Err((self.limit_problem)(self.limit).with("limit", self.limit).with_retry_after(2));
        }
        *count += 1;
        self.total.fetch_add(1, Ordering::Relaxed);
        Ok(QuotaSlot { quota: self.clone(), key })
    }
}

/// A connection's slot in the connection limits.
///
/// Every request on hyper carries it, so that a handler that takes over the connection keeps the slot.
#[derive(Debug, Clone)]
pub struct ConnectionPermit {
    _held: Arc<(OwnedSemaphorePermit, QuotaSlot<Client>)>,
}

impl ConnectionPermit {
    /// Holds a slot of the server's limit, and of the client's.
    #[must_use]
    pub fn new(held: (OwnedSemaphorePermit, QuotaSlot<Client>)) -> Self {
        Self { _held: Arc::new(held) }
    }
}

/// One counted resource.
#[derive(Debug)]
pub struct QuotaSlot<K: Eq + Hash> {
    quota: Arc<ConnectionQuota<K>>,
    key: K,
}

impl<K: Eq + Hash> Drop for QuotaSlot<K> {
    fn drop(&mut self) {
        self.quota.total.fetch_sub(1, Ordering::Relaxed);
        if let Some(mut count) = self.quota.by_key.get_mut(&self.key) {
            *count -= 1;
        }
        self.quota.by_key.remove_if(&self.key, |_, count| *count == 0);
    }
}

/// Builds the 429 of an owner that has used up a quota.
#[must_use]
pub fn quota_exceeded(exceeded: &QuotaExceeded) -> Problem {
    let detail = format!("Nothing was accepted: {exceeded}.");
    let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "quota_exceeded", detail);
    problem.with("quota", exceeded.quota.as_str()).with("limit", exceeded.limit)
}

/// The client behind an address. An IPv6 client is its /64 network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Client(IpAddr);

impl Client {
    /// The client of this address.
    #[must_use]
    pub fn from_address(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
            address @ IpAddr::V4(_) => address,
        })
    }
}

/// The rate limit of one producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Facts per second.
    pub facts: u32,
    /// Facts at once, after a pause.
    pub burst: u32,
}

/// The limits on publish rates, of producers and of owners.
#[derive(Debug)]
pub struct PublishLimits {
    producers: Option<RateLimiter>,
    owners: Option<RateLimiter>,
}

/// Facts came faster than a limit allows.
#[derive(Debug, Clone, Copy)]
pub struct TooFast {
    limit: RateLimit,
    of_owner: bool,
    pub wait: Duration,
}

impl PublishLimits {
    /// Limits each producer and each owner.
    #[must_use]
    pub fn new(producers: Option<RateLimit>, owners: Option<RateLimit>) -> Self {
        Self { producers: producers.map(RateLimiter::new), owners: owners.map(RateLimiter::new) }
    }

    /// Takes so many facts from the buckets of a producer and of an owner.
    ///
    /// # Errors
    /// [`TooFast`].
    pub fn try_take(
        &self,
        producer: &str,
        owner: impl FnOnce() -> Option<OwnerId>,
        facts: usize,
        now: Instant,
    ) -> Result<(), TooFast> {
        if let Some(owners) = &self.owners
            && let Some(owner) = owner()
        {
            let too_fast = |wait| TooFast { limit: owners.rate, of_owner: true, wait };
            owners.try_take(owner.as_str(), facts, now).map_err(too_fast)?;
        }
        let Some(producers) = &self.producers else { return Ok(()) };
        producers.try_take(producer, facts, now).map_err(|wait| TooFast { limit: producers.rate, of_owner: false, wait })
    }

    /// Removes the buckets that are full again.
    pub fn sweep(&self, now: Instant) {
        self.producers.iter().chain(&self.owners).for_each(|limiter| limiter.sweep(now));
    }
}

impl TooFast {
    /// The 429.
    #[must_use]
    pub fn to_problem(self) -> Problem {
        let Self { limit: RateLimit { facts, burst }, of_owner, wait } = self;
        let who = if of_owner { "owner" } else { "producer" };
        let detail = format!(
            "This {who} exceeds its limit of {facts} facts per second (burst {burst}). Nothing was accepted. \
             Retry after {wait:.1?}."
        );
        let problem = match of_owner {
            true => Problem::new(StatusCode::TOO_MANY_REQUESTS, "quota_exceeded", detail).with("quota", "facts"),
            false => Problem::new(StatusCode::TOO_MANY_REQUESTS, "publish_rate", detail),
        };
        problem.with("limit", facts).with_retry_after(wait.as_secs_f64().ceil() as u64)
    }
}

/// Maximum producers with their own bucket. All others share one.
const PRODUCERS_MAX: usize = 65_536;

/// A token bucket of facts per producer.
#[derive(Debug)]
pub struct RateLimiter {
    rate: RateLimit,
    by_producer: DashMap<Box<str>, Mutex<TokenBucket>>,
}

#[derive(Debug)]
struct TokenBucket {
    /// Facts that may come now. A body larger than the burst needs a full bucket, and drives it negative.
    tokens: f64,
    at: Instant,
}

impl RateLimiter {
    /// Applies this limit to each producer.
    #[must_use]
    pub fn new(rate: RateLimit) -> Self {
        Self { rate, by_producer: DashMap::new() }
    }

    /// Takes so many facts from the producer's bucket.
    ///
    /// # Errors
    /// The time until the bucket holds them.
    pub fn try_take(&self, producer: &str, facts: usize, now: Instant) -> Result<(), Duration> {
        let (per_second, burst, facts) = (f64::from(self.rate.facts), f64::from(self.rate.burst), facts as f64);
        let full_bucket = || Mutex::new(TokenBucket { tokens: burst, at: now });
        let bucket = match self.by_producer.get(producer) {
            Some(bucket) => bucket,
            None => {
                let key = if self.by_producer.len() < PRODUCERS_MAX { producer } else { "" };
                self.by_producer.entry(key.into()).or_insert_with(full_bucket).downgrade()
            }
        };
        let mut bucket = bucket.lock();
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.tokens = (bucket.tokens + passed * per_second).min(burst);
        bucket.at = now;
        let missing = facts.min(burst) - bucket.tokens;
        if missing > 0.0 {
            return Err(Duration::from_secs_f64(missing / per_second));
        }
        bucket.tokens -= facts;
        Ok(())
    }

    /// Removes producers whose buckets are full again.
    pub fn sweep(&self, now: Instant) {
        let (per_second, burst) = (f64::from(self.rate.facts), f64::from(self.rate.burst));
        self.by_producer.retain(|_, bucket| {
            let bucket = bucket.get_mut();
            bucket.tokens + now.saturating_duration_since(bucket.at).as_secs_f64() * per_second < burst
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_a_quota_and_regains_it() {
        let quota = ConnectionQuota::per_client(2);
        let at = |text: &str| Client::from_address(text.parse().unwrap());
        let (one, two) = (quota.acquire(at("2001:db8::1")).unwrap(), quota.acquire(at("2001:db8::2")).unwrap());
        let refused = quota.acquire(at("2001:db8::3")).unwrap_err();
        assert_eq!((refused.code, refused.members["limit"].as_u64()), ("too_many_connections_of_client", Some(2)));
        let other = quota.acquire(at("2001:db8:0:1::1")).unwrap();
        assert_eq!(quota.total(), 3);
        drop(one);
        let three = quota.acquire(at("2001:db8::3")).unwrap();
        drop((two, three, other));
        assert_eq!((quota.total(), quota.by_key.len()), (0, 0));
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
    }

    #[test]
    fn a_producer_has_a_burst_then_its_rate_and_affects_no_other() {
        let limiter = RateLimiter::new(RateLimit { facts: 10, burst: 20 });
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        assert_eq!(limiter.try_take("a", 15, at(0)), Ok(()));
        assert_eq!(limiter.try_take("a", 6, at(0)), Err(Duration::from_millis(100)));
        assert_eq!(limiter.try_take("b", 20, at(0)), Ok(()));
        assert_eq!(limiter.try_take("a", 6, at(100)), Ok(()));
        // More than the burst needs a full bucket, and leaves a debt.
        assert_eq!(limiter.try_take("a", 50, at(100)), Err(Duration::from_secs(2)));
        assert_eq!(limiter.try_take("a", 50, at(2100)), Ok(()));
        assert_eq!(limiter.try_take("a", 1, at(2100)), Err(Duration::from_millis(3100)));
        assert_eq!(limiter.try_take("a", 1, at(5200)), Ok(()));
        limiter.sweep(at(5200));
        assert_eq!(limiter.by_producer.len(), 1, "b's bucket is full again");
    }
}
