//! The answers that the transport has, and that their callers have not taken (S1).
//!
//! A caller that leaves HTTP/2 no room to send lets answers wait in memory. Such an answer is not polled any more, so nothing
//! in it can end it. Here each frame counts from the moment at which the transport gets it until its bytes are written or dropped,
//! wherever they are in between; what ends is the connection. Headers are such a frame, too: the owner of one of their values counts them.
//! A connection also ends when its other end has taken no bytes at all for too long, whatever waits: the transport then neither reads
//! nor closes it. HTTP/2 keeps something of each call that was reset while its answer waited for room, until the connection ends. So calls that were reset
//! count, too, unless there was room for all answers before and after.

use super::limits::Limits;
use super::metrics::{Closed, note_closed};
use super::open_connections::{OpenConnections, locked};
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue};
use futures::task::AtomicWaker;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// What a frame counts in addition to its bytes: the transport keeps its call, a task, a stream and the body of the answer.
const FRAME_BYTES: u64 = 4 * 1024;
/// What a call counts that was reset: HTTP/2 keeps about 600 bytes, in a table that doubles as it grows.
const RESET_BYTES: u64 = 1024;
/// The cost of frames counts after this time. A caller that reads may get thousands of answers at once, such as those of its waiting calls
/// when the store answers again, and takes them faster.
const YOUNG: Duration = Duration::from_millis(250);
/// The pause after a search for connections to end that has found none.
const PAUSE: Duration = Duration::from_millis(10);

/// That of this process.
pub(super) static UNREAD: LazyLock<Arc<UnreadOfAll>> = LazyLock::new(Arc::default);

/// What all connections of a process have not taken.
#[derive(Default)]
pub(super) struct UnreadOfAll {
    /// With [`FRAME_BYTES`] for each frame, and [`RESET_BYTES`] for each call that was reset.
    bytes: AtomicU64,
    /// Those of connections that have to end: they are free as soon as their tasks run.
    ending_bytes: AtomicU64,
    /// Until when no connection is searched that has to end.
    pause_until: Mutex<Option<Instant>>,
    connections: OpenConnections<Unread>,
}

/// What one connection has not taken.
pub(super) struct Unread {
    all: Arc<UnreadOfAll>,
    number: u64,
    /// The address by which it is counted.
    site: IpAddr,
    of_connection_max: u64,
    of_all_max: u64,
    time: Duration,
    frames: Mutex<Frames>,
    must_end: AtomicBool,
    /// Of the connection's task.
    waker: AtomicWaker,
}

/// The frames that have not been taken.
#[derive(Default)]
struct Frames {
    bytes: u64,
    next_number: u64,
    /// When the transport got them, from the oldest on.
    since: BTreeMap<u64, Instant>,
    /// Since when the other end has left no room for bytes.
    blocked_since: Option<Instant>,
    /// The calls that were reset and of which HTTP/2 may keep something.
    resets: u64,
    /// Those of them that came since the last flush.
    new_resets: u64,
    /// When the first of all was reset.
    reset_since: Option<Instant>,
}

impl UnreadOfAll {
    /// A new connection.
    pub(super) fn connection(self: &Arc<Self>, limits: &Limits, site: IpAddr) -> Arc<Unread> {
        self.connections.add(|number| Unread {
            all: self.clone(),
            number,
            site,
            of_connection_max: limits.connection_unread_bytes_max,
            of_all_max: limits.unread_bytes_max,
            time: limits.answer(),
            frames: Mutex::default(),
            must_end: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        })
    }

    /// All bytes that have not been taken, and what their frames count.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Ends the connections that have not taken a frame for too long, or no bytes at all.
    pub(super) fn end_late(&self) {
        for connection in self.connections.all() {
            let waits_since = locked(&connection.frames).wait_since();
            if waits_since.is_some_and(|since| since.elapsed() >= connection.time) {
                connection.end(Closed::UnreadTooLong);
            }
            // No further frame may come.
            self.keep_within(connection.of_all_max);
        }
    }

    /// Ends connections if all hold more than this.
    fn keep_within(&self, max: u64) {
        let ending = self.ending_bytes.load(Ordering::Relaxed);
        // Otherwise each frame would visit all connections until the first of them has ended.
        if self.bytes().saturating_sub(ending) <= max {
            return;
        }
        let mut pause_until = locked(&self.pause_until);
        if pause_until.is_none_or(|until| until <= Instant::now()) {
            let has_ended = self.make_room(max);
            *pause_until = (!has_ended).then(|| Instant::now() + PAUSE);
        }
    }

    /// Ends connections until the others are within the bound: first those of an address that has more than half of it, then
    /// any; of each, in their [`order`](Frames::order). An address that opens connections again and again and reads none of them so ends
    /// its own. Returns whether one has to end now.
    fn make_room(&self, max: u64) -> bool {
        let open = self.connections.all().into_iter().filter_map(|connection| {
            let (order, bytes) = {
                let frames = locked(&connection.frames);
                (frames.order(max)?, frames.cost_now())
            };
            (bytes > 0 && !connection.must_end.load(Ordering::Relaxed)).then_some((order, bytes, connection))
        });
        let mut open: Vec<_> = open.collect();
        open.sort_by_key(|(order, ..)| *order);
        let mut all: u64 = open.iter().map(|(_, bytes, _)| bytes).sum();
        let mut by_site: HashMap<IpAddr, u64> = HashMap::new();
        for (_, bytes, connection) in &open {
            *by_site.entry(connection.site).or_default() += bytes;
        }
        let mut has_ended = false;
        for is_first in [true, false] {
            for (_, bytes, connection) in &open {
                let of_site = by_site.entry(connection.site).or_default();
                if all <= max {
                    return has_ended;
                }
                if (!is_first || *of_site > max / 2) && connection.end(Closed::UnreadTooMuch) {
                    has_ended = true;
                    all -= bytes;
                    *of_site -= bytes;
                }
            }
        }
        has_ended
    }
}

impl Unread {
    /// The bytes of a frame, counted until they are dropped; `None`: the connection has too many. A frame is never too
    /// large by itself.
    pub(super) fn hand_out(self: &Arc<Self>, bytes: Bytes) -> Option<Bytes> {
        let length = bytes.len() as u64;
        let frames = locked(&self.frames);
        if frames.bytes > 0 && frames.bytes + length > self.of_connection_max {
            return None;
        }
        Some(self.count(frames, bytes, length))
    }

    /// Counts headers until they are written or dropped. They are never refused, because a refusal consists of headers, too.
    pub(super) fn hand_out_headers(self: &Arc<Self>, headers: &mut HeaderMap) {
        let Some(first) = headers.values_mut().next() else { return };
        let counted = self.count(locked(&self.frames), Bytes::copy_from_slice(first.as_bytes()), 0);
        if let Ok(mut value) = HeaderValue::from_maybe_shared(counted) {
            // HTTP/2 would keep it for later headers, which may be the same.
            value.set_sensitive(true);
            *first = value;
        }
    }

    /// The same for trailers. A caller that reads takes them together with the data before them, so these count for both.
    pub(super) fn hand_out_trailers(self: &Arc<Self>, trailers: &mut HeaderMap, are_behind_data: bool) {
        if !are_behind_data || locked(&self.frames).are_old() {
            self.hand_out_headers(trailers);
        }
    }

    /// Counts a frame, with this length, until these bytes are dropped.
    fn count(self: &Arc<Self>, mut frames: MutexGuard<'_, Frames>, bytes: Bytes, length: u64) -> Bytes {
        let (number, cost) = (frames.next_number, length + FRAME_BYTES);
        frames.next_number += 1;
        frames.bytes += length;
        frames.since.insert(number, Instant::now());
        if self.must_end.load(Ordering::Relaxed) {
            self.all.ending_bytes.fetch_add(cost, Ordering::Relaxed);
        }
        drop(frames);
        let counted = Bytes::from_owner(Counted { bytes, length, number, of: self.clone() });
        self.all.bytes.fetch_add(cost, Ordering::Relaxed);
        self.all.keep_within(self.of_all_max);
        counted
    }

    /// Counts calls that the caller has reset.
    pub(super) fn note_resets(&self, resets: u64) {
        let (mut frames, cost) = (locked(&self.frames), resets * RESET_BYTES);
        frames.resets += resets;
        frames.new_resets += resets;
        frames.reset_since.get_or_insert_with(Instant::now);
        if self.must_end.load(Ordering::Relaxed) {
            self.all.ending_bytes.fetch_add(cost, Ordering::Relaxed);
        }
        drop(frames);
        self.all.bytes.fetch_add(cost, Ordering::Relaxed);
        self.all.keep_within(self.of_all_max);
    }

    /// Whether fewer bytes wait than this window has room for.
    pub(super) fn has_room(&self, window: u64) -> bool {
        window > locked(&self.frames).bytes
    }

    /// Notes a flush: all is written that HTTP/2 has given out, and it may send so many bytes more. Returns whether there is room: fewer bytes
    /// wait, so no answer lacks room. If there was room at the last flush, too, the calls that were reset since then had no
    /// answers that waited, and count no more. The others count until the connection ends.
    pub(super) fn note_flush(&self, window: u64, had_room: bool) -> bool {
        let mut frames = locked(&self.frames);
        let has_room = window > frames.bytes;
        let new_resets = std::mem::take(&mut frames.new_resets);
        if had_room && has_room && new_resets > 0 {
            self.free_resets(&mut frames, new_resets);
        }
        has_room
    }

    fn free_resets(&self, frames: &mut Frames, resets: u64) {
        let cost = resets * RESET_BYTES;
        frames.resets -= resets;
        if frames.resets == 0 {
            frames.reset_since = None;
        }
        if self.must_end.load(Ordering::Relaxed) {
            self.all.ending_bytes.fetch_sub(cost, Ordering::Relaxed);
        }
        self.all.bytes.fetch_sub(cost, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn resets(&self) -> u64 {
        locked(&self.frames).resets
    }

    /// Notes whether the other end has left no room for bytes. It has some again as soon as it takes one.
    pub(super) fn set_blocked(&self, is_blocked: bool) {
        locked(&self.frames).blocked_since = is_blocked.then(Instant::now);
    }

    #[cfg(test)]
    pub(super) fn is_blocked(&self) -> bool {
        locked(&self.frames).blocked_since.is_some()
    }

    /// Ready when the connection has to end.
    pub(super) fn poll_end(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.waker.register(cx.waker());
        if self.must_end.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Wakes the connection's task.
    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// `false`: it has to end already.
    pub(super) fn end(&self, why: Closed) -> bool {
        let frames = locked(&self.frames);
        let is_new = !self.must_end.swap(true, Ordering::AcqRel);
        if is_new {
            self.all.ending_bytes.fetch_add(frames.cost(), Ordering::Relaxed);
        }
        drop(frames);
        if is_new {
            note_closed(why);
            self.waker.wake();
        }
        is_new
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.all.connections.remove(self.number);
        let mut frames = locked(&self.frames);
        let resets = frames.resets;
        self.free_resets(&mut frames, resets);
    }
}

impl Frames {
    fn oldest(&self) -> Option<Instant> {
        self.since.first_key_value().map(|(_, since)| *since)
    }

    /// The order in which connections make room: by the age of their oldest frame, or of their first call that was reset if such calls have
    /// a share in the bound that is worth it. Last those that have a few of these calls and nothing else: each connection may get some.
    fn order(&self, max: u64) -> Option<(bool, Instant)> {
        let resets = self.reset_since.filter(|_| self.resets * RESET_BYTES > max / 64);
        let begin = self.oldest().into_iter().chain(resets).min();
        begin.map(|begin| (false, begin)).or(self.reset_since.map(|since| (true, since)))
    }

    /// Since when the connection lets a frame or all bytes wait.
    fn wait_since(&self) -> Option<Instant> {
        self.oldest().into_iter().chain(self.blocked_since).min()
    }

    /// Whether the connection takes none, or has not for a while.
    fn are_old(&self) -> bool {
        self.blocked_since.is_some() || self.oldest().is_some_and(|since| since.elapsed() >= YOUNG)
    }

    /// What they count in the bound of the process.
    fn cost(&self) -> u64 {
        self.bytes + self.since.len() as u64 * FRAME_BYTES + self.resets * RESET_BYTES
    }

    /// The same, without what may not count in a moment.
    fn cost_now(&self) -> u64 {
        let frames = if self.are_old() { self.since.len() as u64 } else { 0 };
        // Without room for bytes there is no flush.
        let resets = if self.blocked_since.is_some() { self.resets } else { self.resets - self.new_resets };
        self.bytes + frames * FRAME_BYTES + resets * RESET_BYTES
    }
}

/// The bytes of a frame, or of a value of its headers.
struct Counted {
    bytes: Bytes,
    /// What the frame counts for its connection.
    length: u64,
    number: u64,
    of: Arc<Unread>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let cost = self.length + FRAME_BYTES;
        let mut frames = locked(&self.of.frames);
        frames.bytes -= self.length;
        frames.since.remove(&self.number);
        if self.of.must_end.load(Ordering::Relaxed) {
            self.of.all.ending_bytes.fetch_sub(cost, Ordering::Relaxed);
        }
        drop(frames);
        self.of.all.bytes.fetch_sub(cost, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::header::CONTENT_TYPE;

    /// Of a connection 10 bytes, of all connections 15 in so many frames.
    fn limits(frames: u64) -> Limits {
        let unread_bytes_max = 15 + frames * FRAME_BYTES;
        Limits { connection_unread_bytes_max: 10, unread_bytes_max, answer_ms: 1_000, ..Limits::default() }
    }

    fn site(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn frame(length: usize) -> Bytes {
        vec![1; length].into()
    }

    fn must_end(connection: &Unread) -> bool {
        connection.poll_end(&mut Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[tokio::test]
    async fn s1_a_frame_counts_until_its_last_part_is_dropped() {
        let all = Arc::new(UnreadOfAll::default());
        let connection = all.connection(&limits(3), site(1));
        let mut first = connection.hand_out(frame(10)).unwrap();
        assert!(connection.hand_out(frame(1)).is_none());
        // HTTP/2 sends it in parts.
        let sent = first.split_to(9);
        drop(sent);
        assert!(connection.hand_out(frame(1)).is_none() && all.bytes() == 10 + FRAME_BYTES);
        drop(first);
        assert_eq!(all.bytes(), 0);
        assert!(connection.hand_out(frame(1_000)).is_some(), "a frame is never too large by itself");
        drop(connection);
        assert!(all.connections.all().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn s1_connections_with_a_few_reset_calls_make_room_last() {
        const MAX: u64 = 256 * RESET_BYTES;
        let all = Arc::new(UnreadOfAll::default());
        let limits =
            Limits { connection_unread_bytes_max: MAX, unread_bytes_max: MAX, answer_ms: 1_000, ..Limits::default() };
        let [honest, unread, resetting] = [(); 3].map(|()| all.connection(&limits, site(1)));
        let ends = || [&honest, &unread, &resetting].map(|connection| must_end(connection));
        honest.note_resets(1);
        assert!(!honest.note_flush(0, true));
        tokio::time::advance(Duration::from_mins(1)).await;
        let _large = unread.hand_out(frame(MAX as usize)).unwrap();
        assert_eq!(ends(), [false, true, false], "the older one holds little");
        resetting.note_resets(MAX / RESET_BYTES);
        assert_eq!(ends(), [false, true, false], "these may be free in a moment");
        assert!(!resetting.note_flush(0, true));
        tokio::time::advance(PAUSE).await;
        resetting.note_resets(1);
        assert_eq!(ends(), [false, true, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn s1_the_connection_that_has_not_read_for_the_longest_time_makes_room() {
        let all = Arc::new(UnreadOfAll::default());
        let [first, second, third] = [(); 3].map(|()| all.connection(&limits(3), site(1)));
        let ends = || [&first, &second, &third].map(|connection| must_end(connection));
        let _small = second.hand_out(frame(1)).unwrap();
        tokio::time::advance(Duration::from_millis(1)).await;
        let _large = first.hand_out(frame(9)).unwrap();
        let _of_third = third.hand_out(frame(5)).unwrap();
        tokio::time::advance(YOUNG).await;
        assert_eq!(ends(), [false, false, false]);
        let _more = third.hand_out(frame(1)).unwrap();
        assert_eq!(ends(), [false, true, false], "the oldest frame, though it is small");
        // Without that of the second one, there is room for three frames, but not for four.
        let _another = third.hand_out(frame(1)).unwrap();
        assert_eq!(ends(), [true, true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn s1_frames_that_are_not_taken_end_their_connection_and_silence_does_not() {
        let all = Arc::new(UnreadOfAll::default());
        let [parked, reading] = [(); 2].map(|()| all.connection(&limits(3), site(1)));
        let (_kept, mut taken) = (parked.hand_out(frame(1)).unwrap(), reading.hand_out(frame(1)).unwrap());
        for round in 0..5 {
            tokio::time::advance(Duration::from_millis(300)).await;
            // Before it lets go of one, it gets the next one.
            taken = reading.hand_out(frame(1)).unwrap();
            all.end_late();
            assert_eq!((must_end(&parked), must_end(&reading)), (round >= 3, false), "{round}");
        }
        drop(taken);
        tokio::time::advance(Duration::from_secs(3_600)).await;
        all.end_late();
        assert!(!must_end(&reading));
    }

    #[tokio::test(start_paused = true)]
    async fn s1_an_address_that_opens_connections_and_reads_none_ends_its_own() {
        let all = Arc::new(UnreadOfAll::default());
        let slow = all.connection(&limits(3), site(1));
        let _oldest = slow.hand_out(frame(5)).unwrap();
        let mut kept = Vec::new();
        for round in 0..5 {
            tokio::time::advance(YOUNG).await;
            let greedy = all.connection(&limits(3), site(2));
            kept.push((greedy.hand_out(frame(8)).unwrap(), greedy));
            assert!(!must_end(&slow), "{round}");
        }
        let ends: Vec<bool> = kept.iter().map(|(_, greedy)| must_end(greedy)).collect();
        assert_eq!(ends, [true, true, true, false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn s1_frames_of_connections_that_end_make_no_room_again() {
        let all = Arc::new(UnreadOfAll::default());
        let [first, second] = [1, 2].map(|last| all.connection(&limits(2), site(last)));
        let of_first = first.hand_out(frame(9)).unwrap();
        tokio::time::advance(Duration::from_millis(1)).await;
        let kept = [of_first, second.hand_out(frame(7)).unwrap()];
        assert!(!must_end(&first), "a caller that reads takes them at once");
        tokio::time::advance(YOUNG).await;
        all.end_late();
        assert!(must_end(&first) && !must_end(&second));
        // The bytes of the first one are not free yet, and count no more.
        let (both, one) = (16 + 2 * FRAME_BYTES, 9 + FRAME_BYTES);
        assert_eq!((all.bytes(), all.ending_bytes.load(Ordering::Relaxed)), (both, one));
        let more = second.hand_out(frame(2)).unwrap();
        assert!(!must_end(&second));
        drop((kept, more));
        assert_eq!((all.bytes(), all.ending_bytes.load(Ordering::Relaxed)), (0, 0));
    }

    fn headers() -> HeaderMap {
        HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/grpc"))])
    }

    #[tokio::test(start_paused = true)]
    async fn s1_many_small_frames_end_their_connection() {
        let all = Arc::new(UnreadOfAll::default());
        let [greedy, other] = [1, 2].map(|last| all.connection(&limits(4), site(last)));
        let mut kept: Vec<_> = (0..4).map(|_| greedy.hand_out(frame(1)).unwrap()).collect();
        tokio::time::advance(YOUNG).await;
        assert!(!must_end(&greedy));
        kept.push(greedy.hand_out(frame(1)).unwrap());
        assert!(must_end(&greedy) && !must_end(&other));
        drop(kept);
        assert_eq!(all.bytes(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn s1_headers_count_until_they_are_dropped_and_stay_as_they_are() {
        let all = Arc::new(UnreadOfAll::default());
        let connection = all.connection(&limits(4), site(1));
        let mut kept: Vec<HeaderMap> = (0..4).map(|_| headers()).collect();
        kept.iter_mut().for_each(|headers| connection.hand_out_headers(headers));
        assert_eq!(kept, [(); 4].map(|()| headers()));
        // HTTP/2 keeps no value of theirs.
        assert!(kept.iter().all(|headers| headers[CONTENT_TYPE].is_sensitive()));
        assert!(all.bytes() == 4 * FRAME_BYTES && !must_end(&connection));
        // They take nothing of the connection's bytes.
        tokio::time::advance(YOUNG).await;
        let frame = connection.hand_out(frame(10)).unwrap();
        assert!(must_end(&connection), "the oldest");
        drop((kept, frame));
        assert_eq!((all.bytes(), all.ending_bytes.load(Ordering::Relaxed)), (0, 0));
        connection.hand_out_headers(&mut HeaderMap::new());
        assert_eq!(all.bytes(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn s1_trailers_behind_data_count_if_the_data_waits() {
        let all = Arc::new(UnreadOfAll::default());
        let connection = all.connection(&Limits::default(), site(1));
        let is_counted = |are_behind_data| {
            let mut trailers = headers();
            connection.hand_out_trailers(&mut trailers, are_behind_data);
            trailers[CONTENT_TYPE].is_sensitive()
        };
        assert!(is_counted(false) && !is_counted(true));
        let kept: Vec<_> = (0..1_000).map(|_| connection.hand_out(frame(1)).unwrap()).collect();
        assert!(!is_counted(true));
        tokio::time::advance(YOUNG).await;
        assert!(is_counted(true));
        drop(kept);
        assert!(!is_counted(true));
    }

    #[tokio::test(start_paused = true)]
    async fn s1_a_connection_whose_other_end_takes_nothing_ends_and_one_that_takes_a_little_does_not() {
        let all = Arc::new(UnreadOfAll::default());
        let [blocked, slow] = [(); 2].map(|()| all.connection(&limits(3), site(1)));
        blocked.set_blocked(true);
        for round in 0..5 {
            slow.set_blocked(true);
            tokio::time::advance(Duration::from_millis(300)).await;
            all.end_late();
            assert_eq!((must_end(&blocked), must_end(&slow)), (round >= 3, false), "{round}");
            slow.set_blocked(false);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn s1_calls_that_are_reset_without_room_for_their_answers_end_their_connection() {
        let all = Arc::new(UnreadOfAll::default());
        let [greedy, other] = [1, 2].map(|last| all.connection(&limits(2), site(last)));
        let counts = || (all.bytes(), all.ending_bytes.load(Ordering::Relaxed));
        let waiting = greedy.hand_out(frame(5)).unwrap();
        greedy.note_resets(2);
        assert!(!greedy.note_flush(5, true), "what waits takes all of the room");
        greedy.note_resets(2);
        // Room now does not change what HTTP/2 has kept before.
        assert!(greedy.note_flush(6, false));
        tokio::time::advance(YOUNG).await;
        all.end_late();
        assert_eq!((counts(), must_end(&greedy)), ((5 + FRAME_BYTES + 4 * RESET_BYTES, 0), false));
        greedy.note_resets(1);
        assert!(!must_end(&greedy), "before a flush it may be none");
        assert!(!greedy.note_flush(5, true));
        tokio::time::advance(PAUSE).await;
        all.end_late();
        assert!(must_end(&greedy) && !must_end(&other));
        greedy.note_resets(1);
        let resets = 6 * RESET_BYTES;
        assert_eq!(counts(), (5 + FRAME_BYTES + resets, 5 + FRAME_BYTES + resets));
        drop(waiting);
        assert_eq!(counts(), (resets, resets));
        drop(greedy);
        assert_eq!(counts(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn s1_calls_that_are_reset_with_room_for_their_answers_leave_nothing() {
        let all = Arc::new(UnreadOfAll::default());
        let connection = all.connection(&limits(2), site(1));
        let _waiting = connection.hand_out(frame(5)).unwrap();
        for round in 0..5 {
            connection.note_resets(1_000);
            assert!(!must_end(&connection), "{round}: all callers of a client may stop at once");
            assert!(connection.note_flush(6, true));
            assert_eq!(all.bytes(), 5 + FRAME_BYTES, "{round}");
            tokio::time::advance(YOUNG / 2).await;
        }
        assert!(!must_end(&connection));
    }

    #[tokio::test(start_paused = true)]
    async fn s1_calls_that_are_reset_count_at_once_where_no_bytes_are_taken() {
        let all = Arc::new(UnreadOfAll::default());
        let connection = all.connection(&limits(2), site(1));
        connection.set_blocked(true);
        connection.note_resets(8);
        assert!(!must_end(&connection));
        connection.note_resets(1);
        assert!(must_end(&connection));
    }
}
