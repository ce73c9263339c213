//! The bytes of requests over HTTP/2 that have arrived and that no call has read (S1).
//!
//! The transport holds as many of each connection as its window admits, and does not report how many. So they are counted outside of
//! it: the bytes that DATA frames bring, less those that calls read. No call reads the bytes of calls that have ended. The transport
//! gives them back to the window of the connection, together with the others. This corrects the count; until then it is too high.

use super::limits::Limits;
use super::metrics::{Closed, note_pause};
use super::open_connections::{OpenConnections, locked};
use super::unread::Unread;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;

/// The window of each connection: the transport holds at most as much of its requests.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 2 * 1024 * 1024;
/// The window with which each connection begins, in both directions. The transport enlarges its own at once.
pub(super) const FIRST_WINDOW_BYTES: u64 = 65_535;
/// A connection with so few unread bytes is read also beyond the bound: the count may be too high.
const FREE_BYTES: u64 = 4 * 1024;

/// The count of this process.
pub(super) static ARRIVED: LazyLock<Arc<ArrivedOfAll>> = LazyLock::new(Arc::default);

/// What all connections of a process hold.
#[derive(Default)]
pub(super) struct ArrivedOfAll {
    bytes: AtomicU64,
    connections: OpenConnections<Arrived>,
    /// The connections that wait until the process holds fewer bytes.
    paused: Mutex<Vec<Weak<Arrived>>>,
    has_paused: AtomicBool,
    /// Since when the process has held more than the bound.
    over_since: Mutex<Option<Instant>>,
}

/// What one connection holds.
pub(super) struct Arrived {
    all: Arc<ArrivedOfAll>,
    number: u64,
    of_all_max: u64,
    time: Duration,
    counts: Mutex<Counts>,
    /// The answers of the connection, which end it and wake its task.
    answers: Arc<Unread>,
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
    /// The part of the bytes of all connections that belongs to this one.
    unread: u64,
    /// Since when it holds more than [`FREE_BYTES`], and no call has read any of them.
    held_since: Option<Instant>,
    is_paused: bool,
    /// It is in the list of paused connections.
    is_listed: bool,
}

impl Counts {
    /// What the connection holds.
    fn count(&mut self) -> u64 {
        let returned = self.given_back.saturating_sub(u64::from(CONNECTION_WINDOW_BYTES) - FIRST_WINDOW_BYTES);
        // The transport may give back what a call has read and has not counted yet, so this may decrease again.
        self.lost = self.lost.max(returned.saturating_sub(self.taken)).min(self.arrived.saturating_sub(self.taken));
        self.arrived.saturating_sub(self.taken + self.lost)
    }
}

impl ArrivedOfAll {
    /// A new connection.
    pub(super) fn connection(self: &Arc<Self>, limits: &Limits, answers: Arc<Unread>) -> Arc<Arrived> {
        self.connections.add(|number| Arrived {
            all: self.clone(),
            number,
            of_all_max: limits.unread_request_bytes_max,
            time: limits.request(),
            counts: Mutex::default(),
            answers,
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }

    /// Ends connections that hold bytes, those with the most first. While the process holds more than half of the bound, it ends those
    /// of which no call has read anything for `time`. If the process has held more than the bound for `time`, it ends others, too: a
    /// call may wait for the next bytes of a paused connection, and only the end of another one lets it continue. Wakes the
    /// others, which check again.
    pub(super) fn end_holders(&self) {
        let connections = self.connections.all();
        let Some(first) = connections.first() else { return };
        let (max, time) = (first.of_all_max, first.time);
        let mut left = self.bytes();
        let is_over_long = {
            let mut over_since = locked(&self.over_since);
            let since = (left > max).then(|| over_since.unwrap_or_else(Instant::now));
            let is_over_long = since.is_some_and(|since| since.elapsed() >= time);
            *over_since = since.filter(|_| !is_over_long);
            is_over_long
        };
        if left > max / 2 {
            let held = |connection: &Arc<Arrived>| {
                let counts = locked(&connection.counts);
                let is_idle = counts.held_since?.elapsed() >= time;
                Some((counts.unread, is_idle, connection.clone()))
            };
            let mut holders: Vec<(u64, bool, Arc<Arrived>)> = connections.iter().filter_map(held).collect();
            holders.sort_unstable_by_key(|(unread, ..)| std::cmp::Reverse(*unread));
            for (unread, is_idle, connection) in holders {
                if (is_idle && left > max / 2 || is_over_long && left > max / 4 * 3)
                    && connection.answers.end(Closed::RequestsUnread)
                {
                    left = left.saturating_sub(unread);
                }
            }
        }
        self.wake();
    }

    /// Lets the connections that wait run again. Not before there is some room: each of them would read, and most would wait again.
    fn wake_if_room(&self, max: u64) {
        if self.has_paused.load(Ordering::SeqCst) && self.bytes() <= max / 4 * 3 {
            self.wake();
        }
    }

    fn wake(&self) {
        let paused = {
            let mut paused = locked(&self.paused);
            self.has_paused.store(false, Ordering::SeqCst);
            std::mem::take(&mut *paused)
        };
        for connection in paused.iter().filter_map(Weak::upgrade) {
            locked(&connection.counts).is_listed = false;
            connection.answers.wake();
        }
    }
}

impl Arrived {
    /// DATA frames of so many bytes have come.
    pub(super) fn arrive(&self, bytes: u64) {
        self.change(|counts| counts.arrived += bytes);
    }

    /// A call has read bytes of its request.
    pub(super) fn take(&self, bytes: u64) {
        self.change(|counts| counts.taken += bytes);
    }

    /// The transport has enlarged the window.
    pub(super) fn give_back(&self, bytes: u64) {
        self.change(|counts| counts.given_back += bytes);
    }

    fn change(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = locked(&self.counts);
        change(&mut counts);
        let (before, now) = (counts.unread, counts.count());
        counts.unread = now;
        if now <= FREE_BYTES {
            counts.held_since = None;
        } else if now < before || counts.held_since.is_none() {
            counts.held_since = Some(Instant::now());
        }
        let may_read = counts.is_paused && now <= FREE_BYTES;
        // Under the lock: otherwise less could be added than another thread takes away.
        if now > before {
            self.all.bytes.fetch_add(now - before, Ordering::SeqCst);
        } else {
            self.all.bytes.fetch_sub(before - now, Ordering::SeqCst);
        }
        drop(counts);
        if now < before {
            self.all.wake_if_room(self.of_all_max);
        }
        if may_read {
            self.answers.wake();
        }
    }

    /// Ready when the connection may be read on. Call [`Unread::poll_end`] before: it registers the task that is woken then.
    pub(super) fn poll_room(self: &Arc<Self>) -> Poll<()> {
        let mut counts = locked(&self.counts);
        if counts.unread <= FREE_BYTES || self.all.bytes() <= self.of_all_max {
            counts.is_paused = false;
            return Poll::Ready(());
        }
        if !std::mem::replace(&mut counts.is_paused, true) {
            note_pause();
        }
        let is_listed = std::mem::replace(&mut counts.is_listed, true);
        drop(counts);
        if !is_listed {
            locked(&self.all.paused).push(Arc::downgrade(self));
            self.all.has_paused.store(true, Ordering::SeqCst);
            // There may be room since the check above, when this connection was not listed.
            self.all.wake_if_room(self.of_all_max);
        }
        Poll::Pending
    }
}

impl Drop for Arrived {
    fn drop(&mut self) {
        self.all.connections.remove(self.number);
        let freed = locked(&self.counts).unread;
        self.all.bytes.fetch_sub(freed, Ordering::SeqCst);
        self.all.wake_if_room(self.of_all_max);
    }
}

#[cfg(test)]
mod tests {
    use super::super::unread::UnreadOfAll;
    use super::*;
    use std::net::IpAddr;
    use std::task::{Context, Waker};

    const MAX: u64 = 100 * 1024;

    fn connections() -> (Arc<ArrivedOfAll>, [Arc<Arrived>; 3]) {
        let limits = Limits { unread_request_bytes_max: MAX, request_ms: 1_000, ..Limits::default() };
        let (all, answers) = (Arc::new(ArrivedOfAll::default()), Arc::new(UnreadOfAll::default()));
        let site = IpAddr::from([10, 0, 0, 1]);
        let connections = [(); 3].map(|()| all.connection(&limits, answers.connection(&limits, site)));
        (all, connections)
    }

    /// `None`: it pauses. `Some(false)`: it has to end.
    fn may_read(connection: &Arc<Arrived>) -> Option<bool> {
        if connection.answers.poll_end(&mut Context::from_waker(Waker::noop())).is_ready() {
            return Some(false);
        }
        connection.poll_room().is_ready().then_some(true)
    }

    #[test]
    fn s1_connections_that_hold_bytes_pause_until_there_is_room_and_others_go_on() {
        let (all, [greedy, reading, free]) = connections();
        let rooms = |greedy: &Arc<Arrived>| [greedy, &reading, &free].map(may_read);
        greedy.arrive(MAX);
        reading.arrive(FREE_BYTES + 1);
        free.arrive(FREE_BYTES);
        assert_eq!((all.bytes(), rooms(&greedy)), (MAX + 2 * FREE_BYTES + 1, [None, None, Some(true)]));
        reading.take(1);
        assert_eq!(rooms(&greedy), [None, Some(true), Some(true)], "it has so few that it is read on");
        free.take(FREE_BYTES);
        reading.take(FREE_BYTES);
        assert_eq!(rooms(&greedy), [Some(true); 3], "the process has no more than it may");
        greedy.arrive(1);
        assert_eq!(rooms(&greedy), [None, Some(true), Some(true)]);
        drop(greedy);
        assert_eq!(all.bytes(), 0);
    }

    #[test]
    fn s1_bytes_that_no_call_takes_count_until_the_transport_gives_them_back() {
        const ENLARGED: u64 = CONNECTION_WINDOW_BYTES as u64 - FIRST_WINDOW_BYTES;
        let (all, [connection, ..]) = connections();
        connection.give_back(ENLARGED);
        connection.arrive(1_000);
        connection.take(600);
        assert_eq!(all.bytes(), 400);
        // 900 bytes are read or dropped: 300 of the 400 belonged to calls that have ended.
        connection.give_back(900);
        assert_eq!(all.bytes(), 100);
        connection.arrive(50);
        connection.take(150);
        assert_eq!(all.bytes(), 0);
        // What is given back was taken already.
        connection.give_back(150);
        connection.arrive(70);
        assert_eq!(all.bytes(), 70);
    }

    #[tokio::test(start_paused = true)]
    async fn s1_a_connection_of_which_no_call_reads_for_too_long_ends() {
        let (all, [greedy, silent, free]) = connections();
        greedy.arrive(MAX / 2 + 1);
        free.arrive(1);
        let rooms = || [&greedy, &silent, &free].map(may_read);
        tokio::time::advance(Duration::from_millis(999)).await;
        all.end_holders();
        assert_eq!(rooms(), [Some(true); 3]);
        tokio::time::advance(Duration::from_millis(1)).await;
        all.end_holders();
        assert_eq!(rooms(), [Some(false), Some(true), Some(true)]);
    }

    #[tokio::test(start_paused = true)]
    async fn s1_the_largest_holders_end_if_there_are_too_many_bytes_for_too_long() {
        let (all, [largest, large, small]) = connections();
        largest.arrive(MAX);
        large.arrive(MAX / 2);
        small.arrive(MAX / 4);
        let rooms = || [&largest, &large, &small].map(may_read);
        // Calls read of all of them, slowly.
        for _ in 0..4 {
            all.end_holders();
            assert_eq!(rooms(), [None; 3]);
            tokio::time::advance(Duration::from_millis(250)).await;
            for connection in [&largest, &large, &small] {
                connection.take(1);
            }
        }
        all.end_holders();
        assert_eq!(rooms(), [Some(false), None, None], "the rest is three quarters of the bound");
        drop(largest);
        assert_eq!([&large, &small].map(may_read), [Some(true); 2]);
    }
}
