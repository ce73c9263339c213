//! The bound on what waits for the store: a store that hangs costs a known amount of memory, and calls beyond the
//! bound are refused at once, with the time after which to call again (O8).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Bounds of the time after which to call again.
const RETRY_MIN: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// The longest such time while the store hangs: when it continues, callers retry soon. Until then it needs no
/// processor, which refusals take.
const RETRY_STILL_MAX: Duration = Duration::from_millis(500);
/// A store that has answered no flush for so long hangs.
const STILL_AFTER: Duration = Duration::from_secs(1);
/// The time of one item, until it has been measured.
const FIRST_ITEM_TIME: Duration = Duration::from_micros(10);
/// A flush that took longer was not slow, the store hung.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(1);
/// The weight of the latest flush in the time of an item, and of the latest call in the items of a call.
const LATEST: f64 = 1.0 / 8.0;

/// How much may wait in a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingBounds {
    /// The items of calls, such as adds or messages.
    pub items_max: usize,
    /// The bytes of memory that they take.
    pub bytes_max: usize,
}

/// Too much waits already: nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overloaded {
    /// After which time there should be room for the call.
    pub retry_after: Duration,
}

/// The room for what waits. Its clones are the same room.
#[derive(Clone)]
pub struct WaitingRoom(Arc<Shared>);

struct Shared {
    bounds: WaitingBounds,
    /// Gets the items and the bytes that wait.
    measure: Box<dyn Fn(usize, usize) + Send + Sync>,
    taken: Mutex<Taken>,
}

struct Taken {
    items: usize,
    bytes: usize,
    /// The items and bytes of each holder that has some.
    holders: HashMap<Box<str>, (usize, usize)>,
    item_time: Duration,
    /// Of one call, on average.
    call_items: f64,
    /// When the last of the refused calls retries. Each is given its own time: otherwise all would come together, and
    /// most of them would be refused once more.
    last_return: Instant,
    /// When the store last answered a flush.
    answered_at: Instant,
}

/// The place of a call in a [`WaitingRoom`], until this is dropped.
pub struct RoomPlace {
    room: WaitingRoom,
    holder: Option<Box<str>>,
    items: usize,
    bytes: usize,
}

impl WaitingRoom {
    /// An empty one. `measure` is called with the items and the bytes that wait, whenever they change.
    pub fn new(bounds: WaitingBounds, measure: impl Fn(usize, usize) + Send + Sync + 'static) -> WaitingRoom {
        let (last_return, answered_at) = (Instant::now(), Instant::now());
        let (holders, item_time) = (HashMap::new(), FIRST_ITEM_TIME);
        let taken = Taken { items: 0, bytes: 0, holders, item_time, call_items: 1.0, last_return, answered_at };
        WaitingRoom(Arc::new(Shared { bounds, measure: Box::new(measure), taken: Mutex::new(taken) }))
    }

    /// A place for so many items, which take so many bytes of memory.
    ///
    /// # Errors
    /// [`Overloaded`]: too much waits already. A call that alone exceeds the bound of bytes gets a place where
    /// nothing else waits.
    pub fn take(&self, items: usize, bytes: usize) -> Result<RoomPlace, Overloaded> {
        self.take_as(None, items, bytes)
    }

    /// The same for one of several holders, such as a queue: it may hold as much as is free, so one holder gets half of the room, two get a
    /// third each, and there is always room for another one (S5).
    ///
    /// # Errors
    /// [`Overloaded`]
    pub fn take_for(&self, holder: &str, items: usize, bytes: usize) -> Result<RoomPlace, Overloaded> {
        self.take_as(Some(holder), items, bytes)
    }

    fn take_as(&self, holder: Option<&str>, items: usize, bytes: usize) -> Result<RoomPlace, Overloaded> {
        let WaitingBounds { items_max, bytes_max } = self.0.bounds;
        let mut taken = self.taken();
        taken.call_items += (items as f64 - taken.call_items) * LATEST;
        // A holder that has nothing yet may take all that is free.
        let (held_items, held_bytes) = holder.and_then(|holder| taken.holders.get(holder)).copied().unwrap_or_default();
        let fits = taken.items + held_items + items <= items_max && taken.bytes + held_bytes + bytes <= bytes_max;
        if taken.items > 0 && !fits {
            return Err(taken.refuse(items));
        }
        taken.items += items;
        taken.bytes += bytes;
        if let Some(holder) = holder {
            match taken.holders.get_mut(holder) {
                Some(held) => *held = (held.0 + items, held.1 + bytes),
                None => drop(taken.holders.insert(holder.into(), (items, bytes))),
            }
        }
        (self.0.measure)(taken.items, taken.bytes);
        Ok(RoomPlace { room: self.clone(), holder: holder.map(Into::into), items, bytes })
    }

    /// Whether a call that has not been read may get a place: it may not when a sixteenth of the room or less is free, so that
    /// calls of many items are refused unread too.
    ///
    /// # Errors
    /// [`Overloaded`]
    pub fn admits(&self) -> Result<(), Overloaded> {
        let WaitingBounds { items_max, bytes_max } = self.0.bounds;
        let mut taken = self.taken();
        if taken.items < items_max - items_max / 16 && taken.bytes < bytes_max - bytes_max / 16 {
            return Ok(());
        }
        let items = taken.call_items.ceil() as usize;
        Err(taken.refuse(items))
    }

    /// A place for what the bound does not count.
    pub fn uncounted(&self) -> Arc<RoomPlace> {
        Arc::new(RoomPlace { room: self.clone(), holder: None, items: 0, bytes: 0 })
    }

    /// Notes that the store has answered a flush.
    pub fn note_answer(&self) {
        self.taken().answered_at = Instant::now();
    }

    /// Notes how long the store took for a full flush.
    pub fn note_flush(&self, items: usize, took: Duration) {
        let latest = took.min(FLUSH_TIME_MAX).div_f64(items.max(1) as f64);
        let mut taken = self.taken();
        taken.item_time = taken.item_time.mul_f64(1.0 - LATEST) + latest.mul_f64(LATEST);
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// The refusal of so many items: they may retry when those that were refused before have retried, and the store has
    /// had the time for as many.
    fn refuse(&mut self, items: usize) -> Overloaded {
        let now = Instant::now();
        let next_return = self.last_return.max(now) + self.item_time.mul_f64(items as f64);
        let is_still = now.duration_since(self.answered_at) > STILL_AFTER;
        let longest = if is_still { RETRY_STILL_MAX } else { RETRY_MAX };
        let retry_after = next_return.duration_since(now).clamp(RETRY_MIN, longest);
        self.last_return = now + retry_after;
        Overloaded { retry_after }
    }
}

impl Drop for RoomPlace {
    fn drop(&mut self) {
        let mut taken = self.room.taken();
        taken.items -= self.items;
        taken.bytes -= self.bytes;
        if let Some(holder) = &self.holder
            && let Some((items, bytes)) = taken.holders.get_mut(holder)
        {
            (*items, *bytes) = (*items - self.items, *bytes - self.bytes);
            if (*items, *bytes) == (0, 0) {
                taken.holders.remove(holder);
            }
        }
        (self.room.0.measure)(taken.items, taken.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: WaitingBounds = WaitingBounds { items_max: 100, bytes_max: 35_000 };

    fn retry_after_ms(refused: Result<RoomPlace, Overloaded>) -> u64 {
        refused.err().expect("no room").retry_after.as_millis() as u64
    }

    #[tokio::test(start_paused = true)]
    async fn o8_what_waits_is_bounded_in_items_and_in_bytes() {
        let room = WaitingRoom::new(BOUNDS, |_, _| {});
        let first = room.take(60, 6000).unwrap();
        retry_after_ms(room.take(41, 4100));
        let second = room.take(40, 4000).unwrap();
        retry_after_ms(room.take(1, 100));
        drop(first);
        room.take(60, 6000).unwrap();
        drop(second);

        let place = room.take(10, 30_000).unwrap();
        retry_after_ms(room.take(1, 5_001));
        drop(place);
        // It could never be taken otherwise.
        room.take(1, 35_001).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn s5_a_holder_that_floods_leaves_room_for_the_others() {
        let room = WaitingRoom::new(BOUNDS, |_, _| {});
        let flood = |holder: &str| std::iter::from_fn(|| room.take_for(holder, 1, 1).ok()).collect::<Vec<_>>();
        for _ in 0..3 {
            let first = flood("first");
            assert_eq!(first.len(), 50);
            let second = flood("second");
            assert_eq!(second.len(), 25);
            // One that has nothing yet has all that is left; bytes count as well.
            drop(room.take_for("third", 25, 1).unwrap());
            let _held = room.take_for("third", 1, 30_000).unwrap();
            retry_after_ms(room.take_for("third", 1, 6_000));
            drop((first, second));
        }
        assert!(room.taken().holders.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn o8_calls_are_refused_unread_when_little_room_is_free() {
        let room = WaitingRoom::new(BOUNDS, |_, _| {});
        let most = room.take(93, 100).unwrap();
        room.admits().unwrap();
        let one = room.take(1, 100).unwrap();
        assert!(room.admits().is_err_and(|refused| refused.retry_after >= RETRY_MIN));
        drop((most, one));
        let _bytes = room.take(1, 33_000).unwrap();
        assert!(room.admits().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn o8_refused_calls_retry_one_after_the_other_at_the_rate_of_the_store() {
        let room = WaitingRoom::new(BOUNDS, |_, _| {});
        for _ in 0..100 {
            room.note_flush(4_000, Duration::from_millis(4_000));
        }
        let _all = room.take(100, 10000).unwrap();
        let after: Vec<u64> = (0..4).map(|_| retry_after_ms(room.take(80, 8000))).collect();
        // A flush counts with a second at most: 0.25 ms an item.
        let is_about = |ms: u64, expected_ms: u64| ms.abs_diff(expected_ms) <= 2;
        assert!(after.iter().zip([20, 40, 60, 80]).all(|(ms, expected_ms)| is_about(*ms, expected_ms)), "{after:?}");
        tokio::time::advance(Duration::from_millis(70)).await;
        assert!(is_about(retry_after_ms(room.take(80, 8000)), 30));
        let latest_ms = |room: &WaitingRoom| (0..1_000).map(|_| retry_after_ms(room.take(100, 10_000))).max();
        assert_eq!(latest_ms(&room), Some(5_000));
        // The store hangs: calls retry soon after it continues.
        tokio::time::advance(Duration::from_millis(5_000)).await;
        assert_eq!(latest_ms(&room), Some(500));
        room.note_answer();
        assert_eq!(latest_ms(&room), Some(5_000));
    }
}
