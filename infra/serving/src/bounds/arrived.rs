//! The bytes of requests over HTTP/2 that have arrived and that no call has read (S1).
//!
//! The transport holds as many of each connection as its window admits, and says nowhere how many. So they are counted around it:
//! what its DATA frames bring, less what calls take. Bytes of calls that have ended are taken by none; the transport gives
//! these back to the window of the connection, together with the others. The count is then corrected, and is too high until then.

use super::limits::Limits;
use super::metrics::{Closed, note_closed, note_pause};
use super::unread::locked;
use futures::task::AtomicWaker;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// The window of each connection: the transport holds as much of its requests.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 2 * 1024 * 1024;
/// The window with which each connection begins: the transport enlarges it at once.
const FIRST_WINDOW_BYTES: u64 = 65_535;
/// A connection with so few unread bytes is always read on: that it has none is not known for sure.
const FREE_BYTES: u64 = 4 * 1024;

/// That of this process.
pub(super) static ARRIVED: LazyLock<Arc<ArrivedOfAll>> = LazyLock::new(Arc::default);

/// What all connections of a process hold.
#[derive(Default)]
pub(super) struct ArrivedOfAll {
    bytes: AtomicU64,
    /// Those that wait until there are fewer.
    paused: Mutex<Vec<Weak<Arrived>>>,
    has_paused: AtomicBool,
}

/// What one connection holds.
pub(super) struct Arrived {
    all: Arc<ArrivedOfAll>,
    of_all_max: u64,
    time: Duration,
    counts: Mutex<Counts>,
    must_end: AtomicBool,
    /// Of the connection's task.
    waker: AtomicWaker,
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

impl Counts {
    /// What the connection holds.
    fn count(&mut self) -> u64 {
        let returned = self.given_back.saturating_sub(u64::from(CONNECTION_WINDOW_BYTES) - FIRST_WINDOW_BYTES);
        self.lost = self.lost.max(returned.saturating_sub(self.taken));
        self.arrived.saturating_sub(self.taken + self.lost)
    }
}

impl ArrivedOfAll {
    /// A new connection.
    pub(super) fn connection(self: &Arc<Self>, limits: &Limits) -> Arc<Arrived> {
        Arc::new(Arrived {
            all: self.clone(),
            of_all_max: limits.unread_request_bytes_max,
            time: limits.request(),
            counts: Mutex::default(),
            must_end: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Ends the connections that have not been read on for too long: they hold what others could use. Lets the others check again.
    pub(super) fn end_paused(&self) {
        let paused: Vec<Arc<Arrived>> = locked(&self.paused).iter().filter_map(Weak::upgrade).collect();
        for connection in paused {
            let since = locked(&connection.counts).paused_since;
            if since.is_some_and(|since| since.elapsed() >= connection.time)
                && !connection.must_end.swap(true, Ordering::AcqRel)
            {
                note_closed(Closed::RequestsUnread);
            }
        }
        self.wake();
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
            locked(&connection.counts).is_listed = false;
            connection.waker.wake();
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
        let may_read = counts.paused_since.is_some() && now <= FREE_BYTES;
        // Under the lock: otherwise less could be added than another thread takes away.
        if now > before {
            self.all.bytes.fetch_add(now - before, Ordering::Relaxed);
        } else {
            self.all.bytes.fetch_sub(before - now, Ordering::Relaxed);
        }
        drop(counts);
        if now < before {
            self.all.wake_if_room(self.of_all_max);
        }
        if may_read {
            self.waker.wake();
        }
    }

    /// Ready when the connection may be read on; an error when it has to end.
    pub(super) fn poll_room(self: &Arc<Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.waker.register(cx.waker());
        if self.must_end.load(Ordering::Acquire) {
            return Poll::Ready(Err(std::io::Error::other("no call reads its requests")));
        }
        let mut counts = locked(&self.counts);
        if counts.unread <= FREE_BYTES || self.all.bytes() <= self.of_all_max {
            counts.paused_since = None;
            return Poll::Ready(Ok(()));
        }
        if counts.paused_since.is_none() {
            counts.paused_since = Some(Instant::now());
            note_pause();
        }
        let is_listed = std::mem::replace(&mut counts.is_listed, true);
        drop(counts);
        if !is_listed {
            locked(&self.all.paused).push(Arc::downgrade(self));
            self.all.has_paused.store(true, Ordering::Relaxed);
        }
        Poll::Pending
    }
}

impl Drop for Arrived {
    fn drop(&mut self) {
        let freed = locked(&self.counts).unread;
        self.all.bytes.fetch_sub(freed, Ordering::Relaxed);
        self.all.wake_if_room(self.of_all_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    const MAX: u64 = 100 * 1024;

    fn connections() -> (Arc<ArrivedOfAll>, [Arc<Arrived>; 3]) {
        let limits = Limits { unread_request_bytes_max: MAX, request_ms: 1_000, ..Limits::default() };
        let all = Arc::new(ArrivedOfAll::default());
        let connections = [(); 3].map(|()| all.connection(&limits));
        (all, connections)
    }

    /// `None`: it pauses. `Some(false)`: it has to end.
    fn may_read(connection: &Arc<Arrived>) -> Option<bool> {
        match connection.poll_room(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(room) => Some(room.is_ok()),
            Poll::Pending => None,
        }
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
    async fn s1_a_connection_that_pauses_for_too_long_ends() {
        let (all, [greedy, silent, free]) = connections();
        greedy.arrive(2 * MAX);
        free.arrive(1);
        let rooms = || [&greedy, &silent, &free].map(may_read);
        assert_eq!(rooms(), [None, Some(true), Some(true)]);
        tokio::time::advance(Duration::from_millis(999)).await;
        all.end_paused();
        assert_eq!(rooms(), [None, Some(true), Some(true)]);
        tokio::time::advance(Duration::from_millis(1)).await;
        all.end_paused();
        assert_eq!(rooms(), [Some(false), Some(true), Some(true)]);
    }
}
