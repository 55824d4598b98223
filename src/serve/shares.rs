//! Whose share is used up: connections of one client, what is open under one name, facts a second of one producer.
//!
//! Each is kept by a key, which is what is known of the other side: an address, until a token says who it is. What has no more
//! than its share left is forgotten.

use super::problem::Problem;
use dashmap::DashMap;
use http::StatusCode;
use parking_lot::Mutex;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// What is open, and how much of it each has.
#[derive(Debug)]
pub struct Shares<K: Eq + Hash> {
    open: AtomicUsize,
    by_key: DashMap<K, usize>,
    limit: usize,
    /// 429 for whoever has as many as that.
    full: fn(usize) -> Problem,
}

impl Shares<Client> {
    /// Connections: so many for each client.
    #[must_use]
    pub fn of_clients(limit: usize) -> Arc<Self> {
        Self::new(limit, |limit| {
            let detail =
                format!("this client has {limit} connections open, its limit; close some, or raise --connections-per-client-max");
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_connections_of_client", detail)
        })
    }
}

impl Shares<Box<str>> {
    /// What is open under tokens: so much for each `sub`, however many tokens it has, and wherever they are sent from.
    #[must_use]
    pub fn of_subjects(limit: usize) -> Arc<Self> {
        Self::new(limit, |limit| {
            let detail = format!(
                "{limit} streams, sockets, streamed bodies and claims are open under tokens of this sub, its limit; close some, \
                 or raise --connections-per-token-max"
            );
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_connections_of_token", detail)
        })
    }
}

impl<K: Eq + Hash + Clone> Shares<K> {
    fn new(limit: usize, full: fn(usize) -> Problem) -> Arc<Self> {
        Arc::new(Self { open: AtomicUsize::new(0), by_key: DashMap::new(), limit, full })
    }

    /// How many are open.
    #[must_use]
    pub fn all(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// One more of whoever this is, for as long as the value is held.
    ///
    /// # Errors
    /// 429 for who has as many as he may.
    pub fn take(self: &Arc<Self>, key: K) -> Result<Share<K>, Problem> {
        let mut count = self.by_key.entry(key.clone()).or_default();
        if *count >= self.limit {
            return Err((self.full)(self.limit).with("limit", self.limit).retry_after(2));
        }
        *count += 1;
        self.open.fetch_add(1, Ordering::Relaxed);
        Ok(Share { of: self.clone(), key })
    }
}

/// One of what somebody has open.
#[derive(Debug)]
pub struct Share<K: Eq + Hash> {
    of: Arc<Shares<K>>,
    key: K,
}

impl<K: Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        self.of.open.fetch_sub(1, Ordering::Relaxed);
        if let Some(mut count) = self.of.by_key.get_mut(&self.key) {
            *count -= 1;
        }
        self.of.by_key.remove_if(&self.key, |_, count| *count == 0);
    }
}

/// Who is behind an address: of IPv6 everybody has 64 bits of his own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Client(IpAddr);

impl Client {
    /// Whoever connects from there.
    #[must_use]
    pub fn at(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
            address @ IpAddr::V4(_) => address,
        })
    }
}

/// How fast one producer may publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Facts a second.
    pub facts: u32,
    /// Facts at once, after a pause.
    pub burst: u32,
}

/// Producers that are told apart at once; those beyond share one rate.
const PRODUCERS_MAX: usize = 65_536;

/// How fast each producer publishes: a bucket of facts that fills again as time goes by.
#[derive(Debug)]
pub struct Rates {
    rate: Rate,
    by_producer: DashMap<Box<str>, Mutex<Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    /// What may come now. A body larger than the burst is taken from a full bucket, and paid for afterwards.
    left: f64,
    at: Instant,
}

impl Rates {
    /// This rate for each.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self { rate, by_producer: DashMap::new() }
    }

    /// Takes so many facts of this producer; or how long it is until it may bring as many.
    ///
    /// # Errors
    /// That time.
    pub fn take(&self, producer: &str, facts: usize, now: Instant) -> Result<(), Duration> {
        let (fills, burst, facts) = (f64::from(self.rate.facts), f64::from(self.rate.burst), facts as f64);
        let full = || Mutex::new(Bucket { left: burst, at: now });
        let bucket = match self.by_producer.get(producer) {
            Some(bucket) => bucket,
            None => {
                let key = if self.by_producer.len() < PRODUCERS_MAX { producer } else { "" };
                self.by_producer.entry(key.into()).or_insert_with(full).downgrade()
            }
        };
        let mut bucket = bucket.lock();
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.left = (bucket.left + passed * fills).min(burst);
        bucket.at = now;
        let missing = facts.min(burst) - bucket.left;
        if missing > 0.0 {
            return Err(Duration::from_secs_f64(missing / fills));
        }
        bucket.left -= facts;
        Ok(())
    }

    /// 429 for a producer that has to wait so long.
    #[must_use]
    pub fn refused(&self, wait: Duration) -> Problem {
        let Rate { facts, burst } = self.rate;
        let detail = format!(
            "this producer publishes faster than {facts} facts a second (at once {burst}), its limit; nothing of this was taken, \
             send it again in {wait:.1?}"
        );
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "publish_rate", detail).with("limit", facts);
        problem.retry_after(wait.as_secs_f64().ceil() as u64)
    }

    /// Forgets producers whose buckets are full again.
    pub fn sweep(&self, now: Instant) {
        let (fills, burst) = (f64::from(self.rate.facts), f64::from(self.rate.burst));
        self.by_producer.retain(|_, bucket| {
            let bucket = bucket.get_mut();
            bucket.left + now.saturating_duration_since(bucket.at).as_secs_f64() * fills < burst
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_its_share_and_gets_it_back() {
        let shares = Shares::of_clients(2);
        let at = |text: &str| Client::at(text.parse().unwrap());
        let (one, two) = (shares.take(at("2001:db8::1")).unwrap(), shares.take(at("2001:db8::2")).unwrap());
        let refused = shares.take(at("2001:db8::3")).unwrap_err();
        assert_eq!((refused.code, refused.members["limit"].as_u64()), ("too_many_connections_of_client", Some(2)));
        let other = shares.take(at("2001:db8:0:1::1")).unwrap();
        assert_eq!(shares.all(), 3);
        drop(one);
        let three = shares.take(at("2001:db8::3")).unwrap();
        drop((two, three, other));
        assert_eq!((shares.all(), shares.by_key.len()), (0, 0));
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
    }

    #[test]
    fn a_producer_has_its_burst_at_once_and_then_its_rate_and_no_other_pays_for_it() {
        let rates = Rates::new(Rate { facts: 10, burst: 20 });
        let begun = Instant::now();
        let at = |millis: u64| begun + Duration::from_millis(millis);
        assert_eq!(rates.take("a", 15, at(0)), Ok(()));
        assert_eq!(rates.take("a", 6, at(0)), Err(Duration::from_millis(100)));
        assert_eq!(rates.take("b", 20, at(0)), Ok(()));
        assert_eq!(rates.take("a", 6, at(100)), Ok(()));
        // More than can ever be there at once: from a full bucket, and then the producer owes.
        assert_eq!(rates.take("a", 50, at(100)), Err(Duration::from_secs(2)));
        assert_eq!(rates.take("a", 50, at(2100)), Ok(()));
        assert_eq!(rates.take("a", 1, at(2100)), Err(Duration::from_millis(3100)));
        assert_eq!(rates.take("a", 1, at(5200)), Ok(()));
        rates.sweep(at(5200));
        assert_eq!(rates.by_producer.len(), 1, "b owes nothing any more");
    }
}
