//! Which connections a port admits. Where there is no room left, the oldest connection that has made no request yet makes
//! room: silent connections shut no caller out.

use super::arrived::{ARRIVED, Arrived};
use super::files::{FILE_PLACES, FilePlace};
use super::limits::{Limits, MESSAGE_BYTES_MAX};
use super::metrics::{Closed, Metrics, Refused, count_refused};
use super::open_connections::locked;
use super::unread::{UNREAD, Unread};
use crate::tls::ClientCertificate;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

/// The least time between two warnings of a port.
const WARN_EVERY: Duration = Duration::from_secs(10);
/// The most time between two checks for answers that are not read.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// The bits of an IPv6 address that are the same for all addresses of one site: who has one of them has the others.
const SITE_BITS: u128 = !0 << 64;

/// Ports that share the files of a process: silent connections of one make room for callers of another.
type Siblings = Arc<Mutex<Vec<Weak<Bounds>>>>;

/// Those of this process.
static SIBLINGS: LazyLock<Siblings> = LazyLock::new(Siblings::default);

/// The state of one port: what is open, and its limits.
pub(crate) struct Bounds {
    pub(super) limits: Limits,
    siblings: Siblings,
    open: Mutex<Open>,
    unfinished: AtomicU64,
    /// Requests that wait for bytes.
    waiting: AtomicU64,
    /// Streams of requests.
    streams: AtomicU64,
    warned_at: Mutex<Option<Instant>>,
    pub(super) metrics: Metrics,
}

#[derive(Default)]
struct Open {
    connections: u64,
    /// By their [sites](site_of).
    by_peer: HashMap<IpAddr, Peer>,
    /// Those that have made no request, from the oldest on.
    quiet: BTreeMap<u64, Quiet>,
    next_number: u64,
}

/// What one address has; with IPv6, one site.
#[derive(Default)]
struct Peer {
    connections: u64,
    shares: Arc<Shares>,
}

/// What the connections of one address have together.
#[derive(Default)]
struct Shares {
    /// Requests that wait for bytes.
    waiting: AtomicU64,
    /// Streams of requests.
    streams: AtomicU64,
    /// Bytes of requests that have not arrived in full.
    unfinished: AtomicU64,
}

struct Quiet {
    peer: IpAddr,
    since: Instant,
    evicted: Arc<AtomicBool>,
    /// Ends it.
    unread: Arc<Unread>,
}

impl Bounds {
    pub(crate) fn new(limits: Limits) -> Arc<Bounds> {
        Bounds::among(&SIBLINGS, limits)
    }

    /// One of these ports.
    fn among(siblings: &Siblings, limits: Limits) -> Arc<Bounds> {
        let bounds = Arc::new(Bounds {
            limits,
            siblings: siblings.clone(),
            open: Mutex::default(),
            unfinished: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            streams: AtomicU64::new(0),
            warned_at: Mutex::new(None),
            metrics: Metrics::new(),
        });
        let mut siblings = locked(siblings);
        siblings.retain(|port| port.strong_count() > 0);
        siblings.push(Arc::downgrade(&bounds));
        bounds
    }

    /// Admits a connection, or says which limit it would exceed.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Result<Admission, Refused> {
        let address = peer.to_canonical();
        let peer = site_of(address);
        if FILE_PLACES.are_full_for(peer) && !self.evict_on_any_port(Some(peer), Duration::ZERO) {
            return Err(Refused::PeerConnections);
        }
        let mut open = self.open();
        if open.of_peer(peer) >= self.limits.peer_connections_max && !self.evict(&mut open, Some(peer), Duration::ZERO)
        {
            return Err(Refused::PeerConnections);
        }
        if open.connections >= self.limits.connections_max && !self.evict(&mut open, None, Duration::ZERO) {
            return Err(Refused::Connections);
        }
        // An evicted connection keeps its file until its task has run.
        let Some(file) = FILE_PLACES.take(peer) else {
            drop(open);
            self.make_room(Duration::ZERO);
            return Err(Refused::Files);
        };
        open.connections += 1;
        let of_peer = open.by_peer.entry(peer).or_default();
        of_peer.connections += 1;
        let of_peer = of_peer.shares.clone();
        let number = open.next_number;
        open.next_number += 1;
        let (evicted, unread) = (Arc::new(AtomicBool::new(false)), UNREAD.connection(&self.limits, peer));
        let quiet = Quiet { peer, since: Instant::now(), evicted: evicted.clone(), unread: unread.clone() };
        open.quiet.insert(number, quiet);
        drop(open);
        self.metrics.connections.increment(1.0);
        let caller = Arc::new(Caller {
            bounds: self.clone(),
            number,
            address,
            has_called: AtomicBool::new(false),
            unfinished: AtomicU64::new(0),
            of_peer,
            begun_calls: AtomicU64::new(0),
            open_calls: AtomicU64::new(0),
            arrived: ARRIVED.connection(&self.limits, unread.clone()),
            unread,
            certificate: OnceLock::new(),
        });
        Ok(Admission { caller, peer, evicted, _file: file })
    }

    /// Closes the oldest connection of this port that has made no request, or else one of another port, if it is at least so old.
    pub(super) fn make_room(&self, age_min: Duration) {
        self.evict_on_any_port(None, age_min);
    }

    fn evict_on_any_port(&self, of: Option<IpAddr>, age_min: Duration) -> bool {
        if self.evict(&mut self.open(), of, age_min) {
            return true;
        }
        let others: Vec<Arc<Bounds>> = locked(&self.siblings).iter().filter_map(Weak::upgrade).collect();
        // One lock at a time: another port may do the same.
        others.iter().any(|other| other.evict(&mut other.open(), of, age_min))
    }

    fn evict(&self, open: &mut Open, of: Option<IpAddr>, age_min: Duration) -> bool {
        let oldest = open.quiet.iter().find(|(_, quiet)| of.is_none_or(|peer| quiet.peer == peer));
        let oldest = oldest.filter(|(_, quiet)| quiet.since.elapsed() >= age_min);
        let Some(number) = oldest.map(|(number, _)| *number) else { return false };
        if let Some(quiet) = open.quiet.remove(&number) {
            open.leave(quiet.peer);
            quiet.evicted.store(true, Ordering::Relaxed);
            // It may have no room to write, and then the transport does not read it.
            quiet.unread.end(Closed::Evicted);
        }
        true
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        locked(&self.open)
    }

    /// Counts a connection that was not admitted, and warns now and then.
    pub(super) fn note_refused(&self, why: Refused) {
        count_refused(why);
        let mut warned_at = locked(&self.warned_at);
        if warned_at.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            *warned_at = Some(Instant::now());
            tracing::warn!(limit = why.name(), "new connections are closed at once: a limit is reached");
        }
    }

    /// Ends the connections that do not read their answers, and those whose requests no call reads, as long as it is polled.
    pub(crate) async fn watch(&self) -> Infallible {
        let pause = (self.limits.answer().min(self.limits.request()) / 4).min(CHECK_EVERY);
        loop {
            tokio::time::sleep(pause).await;
            UNREAD.end_late();
            ARRIVED.end_holders();
            self.metrics.unread.set(UNREAD.bytes() as f64);
            self.metrics.unread_requests.set(ARRIVED.bytes() as f64);
        }
    }
}

/// The address by which connections are counted.
fn site_of(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V4(_) => peer,
        IpAddr::V6(peer) => Ipv6Addr::from_bits(peer.to_bits() & SITE_BITS).into(),
    }
}

impl Open {
    fn of_peer(&self, peer: IpAddr) -> u64 {
        self.by_peer.get(&peer).map_or(0, |peer| peer.connections)
    }

    fn leave(&mut self, peer: IpAddr) {
        self.connections -= 1;
        if let Some(of_peer) = self.by_peer.get_mut(&peer) {
            of_peer.connections -= 1;
            if of_peer.connections == 0 {
                self.by_peer.remove(&peer);
            }
        }
    }
}

/// The place of one open connection; dropped with it.
pub(super) struct Admission {
    pub(super) caller: Arc<Caller>,
    peer: IpAddr,
    /// Another connection has taken the place. Written and read under the lock of [`Open`].
    evicted: Arc<AtomicBool>,
    _file: FilePlace,
}

impl Admission {
    fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::Relaxed)
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let bounds = &self.caller.bounds;
        let mut open = bounds.open();
        if !self.is_evicted() {
            open.quiet.remove(&self.caller.number);
            open.leave(self.peer);
        }
        drop(open);
        bounds.metrics.connections.decrement(1.0);
    }
}

/// The other end of a connection, as its requests know it.
pub(crate) struct Caller {
    bounds: Arc<Bounds>,
    number: u64,
    address: IpAddr,
    has_called: AtomicBool,
    /// Bytes of its requests that have not arrived in full.
    unfinished: AtomicU64,
    /// What its address has.
    of_peer: Arc<Shares>,
    /// The calls that have begun, and those of them that have not ended.
    begun_calls: AtomicU64,
    open_calls: AtomicU64,
    /// What it has not taken of its answers.
    unread: Arc<Unread>,
    /// What no call has read of its requests.
    arrived: Arc<Arrived>,
    certificate: OnceLock<ClientCertificate>,
}

impl Caller {
    pub(super) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Notes a request of a caller that is known: from now on the connection keeps its place.
    pub(crate) fn calls(&self) {
        if !self.has_called.load(Ordering::Relaxed) && !self.has_called.swap(true, Ordering::Relaxed) {
            self.bounds.open().quiet.remove(&self.number);
        }
    }

    /// Its address.
    pub(crate) fn peer(&self) -> IpAddr {
        self.address
    }

    /// The address by which it is counted.
    pub(super) fn site(&self) -> IpAddr {
        site_of(self.address)
    }

    pub(super) fn unread(&self) -> &Arc<Unread> {
        &self.unread
    }

    pub(super) fn arrived(&self) -> &Arc<Arrived> {
        &self.arrived
    }

    /// The certificate that the connection has shown.
    pub(crate) fn certificate(&self) -> Option<&ClientCertificate> {
        self.certificate.get()
    }

    pub(super) fn shows(&self, certificate: ClientCertificate) {
        let _ = self.certificate.set(certificate);
    }

    pub(super) fn has_called(&self) -> bool {
        self.has_called.load(Ordering::Relaxed)
    }

    /// Adds bytes of an unfinished request. `false`: that would be too many, of this connection, of this address or of all callers, and
    /// none are added.
    pub(super) fn hold(&self, bytes: u64) -> bool {
        let limits = &self.bounds.limits;
        let of_connection = self.unfinished.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let of_peer = self.of_peer.unfinished.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let of_port = self.bounds.unfinished.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.bounds.metrics.unfinished.increment(bytes as f64);
        let peer_max = (limits.unfinished_bytes_max / 2).max(MESSAGE_BYTES_MAX as u64 + 1_024);
        let fits = of_connection <= limits.connection_unfinished_bytes_max
            && of_peer <= peer_max
            && of_port <= limits.unfinished_bytes_max;
        if !fits {
            self.release(bytes);
        }
        fits
    }

    /// Counts a request that waits for bytes. `false`: too many wait, of all callers or of this address, and it is not counted.
    pub(super) fn begin_waiting(&self) -> bool {
        take(&self.bounds.waiting, &self.of_peer.waiting, self.bounds.limits.unfinished_requests_max)
    }

    pub(super) fn end_waiting(&self) {
        free(&self.bounds.waiting, &self.of_peer.waiting);
    }

    pub(super) fn begin_call(&self) {
        self.begun_calls.fetch_add(1, Ordering::Relaxed);
        let open = self.open_calls.fetch_add(1, Ordering::Relaxed) + 1;
        if open == u64::from(self.bounds.limits.connection_streams_max) {
            self.bounds.metrics.full.increment(1);
        }
        self.bounds.metrics.calls.increment(1.0);
    }

    pub(super) fn end_call(&self) {
        self.open_calls.fetch_sub(1, Ordering::Relaxed);
        self.bounds.metrics.calls.decrement(1.0);
    }

    /// How many calls have begun so far, and whether one of them has not ended.
    pub(super) fn calls_so_far(&self) -> (u64, bool) {
        (self.begun_calls.load(Ordering::Relaxed), self.open_calls.load(Ordering::Relaxed) > 0)
    }

    /// Counts a stream of requests. `false`: too many are open, of all callers or of this address, and it is not counted.
    pub(super) fn begin_stream(&self) -> bool {
        let fits = take(&self.bounds.streams, &self.of_peer.streams, self.bounds.limits.streams_max);
        if fits {
            self.bounds.metrics.streams.increment(1.0);
        }
        fits
    }

    pub(super) fn end_stream(&self) {
        free(&self.bounds.streams, &self.of_peer.streams);
        self.bounds.metrics.streams.decrement(1.0);
    }

    pub(super) fn release(&self, bytes: u64) {
        self.unfinished.fetch_sub(bytes, Ordering::Relaxed);
        self.of_peer.unfinished.fetch_sub(bytes, Ordering::Relaxed);
        self.bounds.unfinished.fetch_sub(bytes, Ordering::Relaxed);
        self.bounds.metrics.unfinished.decrement(bytes as f64);
    }
}

/// Counts one more of a port and of an address, which may have half of the port's. `false`: it is one too many, and not counted.
fn take(of_port: &AtomicU64, of_peer: &AtomicU64, max: u64) -> bool {
    let (before, before_of_peer) = (of_port.fetch_add(1, Ordering::Relaxed), of_peer.fetch_add(1, Ordering::Relaxed));
    let fits = before < max && before_of_peer < max.div_ceil(2);
    if !fits {
        free(of_port, of_peer);
    }
    fits
}

fn free(of_port: &AtomicU64, of_peer: &AtomicU64) {
    of_port.fetch_sub(1, Ordering::Relaxed);
    of_peer.fetch_sub(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn peer(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    #[test]
    fn s1_silent_connections_make_room_and_callers_keep_their_place() {
        let bounds = Bounds::new(Limits { connections_max: 3, peer_connections_max: 2, ..Limits::default() });
        let [first, second] = [bounds.admit(peer(1)).unwrap(), bounds.admit(peer(1)).unwrap()];
        first.caller.calls();
        // The address has its two: the silent one makes room, the other one does not.
        let third = bounds.admit(peer(1)).unwrap();
        assert_eq!((first.is_evicted(), second.is_evicted()), (false, true));
        third.caller.calls();
        assert_eq!(bounds.admit(peer(1)).err(), Some(Refused::PeerConnections));
        // An evicted connection has left already, so its end frees nothing twice.
        drop(second);
        assert_eq!(bounds.admit(peer(1)).err(), Some(Refused::PeerConnections));
        let fourth = bounds.admit(peer(2)).unwrap();
        let fifth = bounds.admit(peer(3)).unwrap();
        assert!(fourth.is_evicted() && !fifth.is_evicted());
        fifth.caller.calls();
        assert_eq!(bounds.admit(peer(2)).err(), Some(Refused::Connections));
        drop(first);
        assert!(bounds.admit(peer(2)).is_ok());
    }

    #[test]
    fn s1_all_addresses_of_an_ipv6_site_count_as_one() {
        let bounds = Bounds::new(Limits { peer_connections_max: 2, ..Limits::default() });
        let admit = |address: &str| bounds.admit(address.parse().unwrap());
        let [first, second] = ["2001:db8:0:1::1", "2001:db8:0:1:ffff::2"].map(|address| admit(address).unwrap());
        [&first, &second].iter().for_each(|admission| admission.caller.calls());
        assert_eq!(second.caller.peer().to_string(), "2001:db8:0:1:ffff::2");
        assert_eq!(admit("2001:db8:0:1::3").err(), Some(Refused::PeerConnections));
        assert!(admit("2001:db8:0:2::3").is_ok());
        // An IPv4 address is its own site, however it is written.
        let _ipv4 = ["::ffff:10.0.0.1", "::ffff:10.0.0.2", "10.0.0.3"].map(|address| admit(address).unwrap());
    }

    #[test]
    fn s1_unfinished_bytes_are_bounded_by_connection_and_by_port() {
        let limits = Limits { connection_unfinished_bytes_max: 10, unfinished_bytes_max: 15, ..Limits::default() };
        let bounds = Bounds::new(limits);
        let [one, two] = [bounds.admit(peer(1)).unwrap(), bounds.admit(peer(1)).unwrap()];
        assert!(one.caller.hold(10) && !one.caller.hold(1));
        assert!(two.caller.hold(5) && !two.caller.hold(1));
        one.caller.release(10);
        assert!(two.caller.hold(5) && !two.caller.hold(1) && one.caller.hold(5));
    }

    #[test]
    fn s1_one_address_has_half_of_the_unfinished_bytes_of_a_port() {
        const MIB: u64 = 1024 * 1024;
        let limits = Limits { unfinished_bytes_max: 40 * MIB, ..Limits::default() };
        let bounds = Bounds::new(limits);
        let [one, same, other] = [1, 1, 2].map(|last| bounds.admit(peer(last)).unwrap());
        assert!(one.caller.hold(15 * MIB) && same.caller.hold(5 * MIB) && !same.caller.hold(1));
        assert!(other.caller.hold(20 * MIB) && !other.caller.hold(1));
        one.caller.release(15 * MIB);
        assert!(!other.caller.hold(1) && same.caller.hold(15 * MIB));
    }

    #[test]
    fn s1_one_address_has_half_of_the_requests_that_wait_for_bytes() {
        let bounds = Bounds::new(Limits { unfinished_requests_max: 6, ..Limits::default() });
        let [one, same, other] = [1, 1, 2].map(|last| bounds.admit(peer(last)).unwrap());
        assert!(one.caller.begin_waiting() && same.caller.begin_waiting() && one.caller.begin_waiting());
        assert!(!same.caller.begin_waiting() && other.caller.begin_waiting());
        one.caller.end_waiting();
        assert!(same.caller.begin_waiting() && !one.caller.begin_waiting());
    }

    #[test]
    fn s1_one_address_has_half_of_the_streams_of_a_port() {
        let bounds = Bounds::new(Limits { streams_max: 3, ..Limits::default() });
        let [one, same, other] = [1, 1, 2].map(|last| bounds.admit(peer(last)).unwrap());
        assert!(one.caller.begin_stream() && same.caller.begin_stream() && !one.caller.begin_stream());
        assert!(other.caller.begin_stream() && !other.caller.begin_stream());
        one.caller.end_stream();
        assert!(same.caller.begin_stream() && !other.caller.begin_stream());
    }

    #[test]
    fn s1_a_silent_connection_of_another_port_makes_room() {
        let ports = Siblings::default();
        let [port, other] = [(); 2].map(|()| Bounds::among(&ports, Limits::default()));
        let silent = other.admit(peer(1)).unwrap();
        let called = port.admit(peer(2)).unwrap();
        called.caller.calls();
        port.make_room(Duration::ZERO);
        assert!(silent.is_evicted() && !called.is_evicted());
    }
}
