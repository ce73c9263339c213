//! The bytes of requests over HTTP/2 that have arrived and that no call has read (S1).
//!
//! The transport holds as many of each connection as its window admits, and says nowhere how many. So they are counted around it:
//! what its DATA frames bring, less what calls take. Bytes of calls that have ended are taken by none; the transport gives
//! these back to the window of the connection, together with the others. The count is then corrected, and is too high until then.

use super::limits::Limits;
use super::metrics::{Closed, note_pause};
use super::unread::{Unread, UnreadOfAll, locked};
use crate::transport::CONNECTION_WINDOW_BYTES;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// The window with which each connection begins: the transport enlarges it at once.
const FIRST_WINDOW_BYTES: u64 = 65_535;
/// A connection with so few unread bytes is always read on: that it has none is not known for sure.
const FREE_BYTES: u64 = 8 * 1024;

/// What all connections of a process hold.
#[derive(Default)]
pub(super) struct ArrivedOfAll {
    bytes: AtomicU64,
    /// Those that wait until there are fewer.
    paused: Mutex<Vec<Weak<Unread>>>,
    has_paused: AtomicBool,
}

/// What one connection holds.
pub(super) struct Arrived {
    of_all_max: u64,
    time: Duration,
    counts: Mutex<Counts>,
}

/// Bytes since the begin of the connection.
#[derive(Default)]
struct Counts {
    arrived: u64,
    /// What calls have read.
    taken: u64,
    /// What the transport has added to the window.
    given_back: u64,
    /// What no call will take, as far as it is known.
    lost: u64,
    /// What is counted in those of all.
    unread: u64,
    paused_since: Option<Instant>,
    /// It is among the paused ones of all.
    is_listed: bool,
}

impl Arrived {
    pub(super) fn new(limits: &Limits) -> Arrived {
        Arrived { of_all_max: limits.unread_request_bytes_max, time: limits.request(), counts: Mutex::default() }
    }

    /// The end of the connection.
    pub(super) fn leave(&self, all: &ArrivedOfAll) {
        let freed = std::mem::take(&mut locked(&self.counts).unread);
        all.bytes.fetch_sub(freed, Ordering::Relaxed);
        all.wake_if_room(self.of_all_max);
    }
}

impl Counts {
    /// Counts again; returns by how much the bytes of all grow.
    fn unread(&mut self) -> u64 {
        let returned = self.given_back.saturating_sub(u64::from(CONNECTION_WINDOW_BYTES) - FIRST_WINDOW_BYTES);
        self.lost = self.lost.max(returned.saturating_sub(self.taken));
        self.arrived.saturating_sub(self.taken + self.lost)
    }
}

impl ArrivedOfAll {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Lets the connections that wait run again. Not before there is some room: each of them would read, and most would wait again.
    fn wake_if_room(&self, max: u64) {
        if self.has_paused.load(Ordering::Relaxed) && self.bytes() <= max / 4 * 3 {
            self.wake();
        }
    }

    fn wake(&self) {
        let paused = {
            let mut paused = locked(&self.paused);
            self.has_paused.store(false, Ordering::Relaxed);
            std::mem::take(&mut *paused)
        };
        for connection in paused.iter().filter_map(Weak::upgrade) {
            locked(&connection.arrived.counts).is_listed = false;
            connection.wake();
        }
    }
}

impl UnreadOfAll {
    /// Ends the connections that have not been read on for too long: they hold what others could use. Lets the others look again.
    pub(super) fn end_paused(&self) {
        let paused: Vec<Arc<Unread>> = locked(&self.arrived.paused).iter().filter_map(Weak::upgrade).collect();
        for connection in paused {
            let since = locked(&connection.arrived.counts).paused_since;
            if since.is_some_and(|since| since.elapsed() >= connection.arrived.time) {
                connection.end(Closed::RequestsUnread);
            }
        }
        self.arrived.wake();
    }
}

impl Unread {
    /// Bytes of DATA frames have come.
    pub(super) fn arrive(&self, bytes: u64) {
        self.count(|counts| counts.arrived += bytes);
    }

    /// A call has read bytes of its request.
    pub(super) fn take(&self, bytes: u64) {
        self.count(|counts| counts.taken += bytes);
    }

    /// The transport has enlarged the window.
    pub(super) fn give_back(&self, bytes: u64) {
        self.count(|counts| counts.given_back += bytes);
    }

    fn count(&self, add: impl FnOnce(&mut Counts)) {
        let all = &self.all.arrived;
        let mut counts = locked(&self.arrived.counts);
        add(&mut counts);
        let (before, now) = (counts.unread, counts.unread());
        counts.unread = now;
        let may_read = counts.paused_since.is_some() && now <= FREE_BYTES;
        // Under the lock: otherwise less could be added than another thread takes away.
        if now > before {
            all.bytes.fetch_add(now - before, Ordering::Relaxed);
        } else {
            all.bytes.fetch_sub(before - now, Ordering::Relaxed);
        }
        drop(counts);
        if now < before {
            all.wake_if_room(self.arrived.of_all_max);
        }
        if may_read {
            self.wake();
        }
    }

    /// Whether the connection must not be read now. Its task is woken when that may have changed.
    pub(super) fn must_pause(self: &Arc<Self>) -> bool {
        let all = &self.all.arrived;
        let mut counts = locked(&self.arrived.counts);
        let must_pause = counts.unread > FREE_BYTES && all.bytes() > self.arrived.of_all_max;
        if !must_pause {
            counts.paused_since = None;
            return false;
        }
        if counts.paused_since.is_none() {
            counts.paused_since = Some(Instant::now());
            note_pause();
        }
        let is_listed = std::mem::replace(&mut counts.is_listed, true);
        drop(counts);
        if !is_listed {
            let mut paused = locked(&all.paused);
            paused.push(Arc::downgrade(self));
            all.has_paused.store(true, Ordering::Relaxed);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};
    use std::task::{Context, Poll, Waker};

    const MAX: u64 = 100 * 1024;
    const SITE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn connections() -> (Arc<UnreadOfAll>, [Arc<Unread>; 3]) {
        let limits = Limits { unread_request_bytes_max: MAX, request_ms: 1_000, ..Limits::default() };
        let all = Arc::new(UnreadOfAll::default());
        let connections = [(); 3].map(|()| all.connection(&limits, SITE));
        (all, connections)
    }

    #[test]
    fn s1_connections_that_hold_bytes_pause_until_there_is_room_and_others_go_on() {
        let (all, [greedy, reading, free]) = connections();
        let pauses = || [&greedy, &reading, &free].map(Unread::must_pause);
        greedy.arrive(MAX);
        reading.arrive(FREE_BYTES + 1);
        free.arrive(FREE_BYTES);
        assert_eq!((all.arrived.bytes(), pauses()), (MAX + 2 * FREE_BYTES + 1, [true, true, false]));
        reading.take(1);
        assert_eq!(pauses(), [true, false, false], "it has so few that it is read on");
        free.take(FREE_BYTES);
        reading.take(FREE_BYTES);
        assert_eq!(pauses(), [false; 3], "the process has no more than it may");
        greedy.arrive(1);
        assert_eq!(pauses(), [true, false, false]);
        drop(greedy);
        assert_eq!(all.arrived.bytes(), 0);
    }

    #[test]
    fn s1_bytes_that_no_call_takes_count_until_the_transport_gives_them_back() {
        const ENLARGED: u64 = CONNECTION_WINDOW_BYTES as u64 - FIRST_WINDOW_BYTES;
        let (all, [connection, ..]) = connections();
        connection.give_back(ENLARGED);
        connection.arrive(1_000);
        connection.take(600);
        assert_eq!(all.arrived.bytes(), 400);
        // 900 bytes are read or dropped: 300 of the 400 belonged to calls that have ended.
        connection.give_back(900);
        assert_eq!(all.arrived.bytes(), 100);
        connection.arrive(50);
        connection.take(150);
        assert_eq!(all.arrived.bytes(), 0);
        // What is given back was taken already.
        connection.give_back(150);
        connection.arrive(70);
        assert_eq!(all.arrived.bytes(), 70);
    }

    #[tokio::test(start_paused = true)]
    async fn s1_a_connection_that_pauses_for_too_long_ends() {
        let (all, [greedy, silent, free]) = connections();
        let ends = || {
            let end = |connection: &Arc<Unread>| connection.poll_end(&mut Context::from_waker(Waker::noop()));
            [&greedy, &silent, &free].map(|connection| end(connection) == Poll::Ready(()))
        };
        greedy.arrive(2 * MAX);
        free.arrive(1);
        assert!(greedy.must_pause() && !silent.must_pause() && !free.must_pause());
        tokio::time::advance(Duration::from_millis(999)).await;
        all.end_paused();
        assert!(greedy.must_pause());
        assert_eq!(ends(), [false; 3]);
        tokio::time::advance(Duration::from_millis(1)).await;
        all.end_paused();
        assert_eq!(ends(), [true, false, false]);
    }
}
