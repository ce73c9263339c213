//! Calls that arrive at about the same time go to the store together.

use super::slot::{Slot, Waiting, Wanted};
use crate::refusal::Refusal;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tallystone_model::Applied;
use tallystone_serving::{RoomPlace, WaitingRoom};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

/// A flush of this number of items leaves at once. It has more only if a single call has more.
const FULL: usize = 4_096;
/// When this number of calls waits, those whose callers have gone are removed.
const CALLS_SWEPT_FROM: usize = 1_024;

/// When a flush leaves.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    /// How long its first item waits for others.
    pub(super) wait: Duration,
    /// Flushes under way at once; meanwhile the next one gathers.
    pub(super) in_flight: usize,
}

/// A call that waits, and where its results go.
struct Call<I, R> {
    count: usize,
    slot: Arc<Slot<I>>,
    answer: oneshot::Sender<Vec<R>>,
}

/// Gathers items for a store that takes many at once; each call gets its own results.
pub(super) struct Gather<I, R>(mpsc::UnboundedSender<Call<I, R>>);

impl<I: Send + 'static, R: From<Refusal> + Send + 'static> Gather<I, R> {
    /// `store` takes items and returns a result for each.
    pub(super) fn start<F, Fut>(pace: Pace, room: WaitingRoom, store: F) -> Self
    where
        F: Fn(Vec<I>, Wanted<I>) -> Fut + Send + 'static,
        Fut: Future<Output = Vec<R>> + Send + 'static,
    {
        let (calls, receiver) = mpsc::unbounded_channel();
        tokio::spawn(run(pace, room, store, receiver));
        Gather(calls)
    }

    /// The results of these items, in their order. A caller that drops this future does not learn whether they were stored:
    /// what was not sent by then is not sent.
    pub(super) async fn call(&self, items: Vec<I>, place: &Arc<RoomPlace>) -> Vec<R> {
        let count = items.len();
        if count == 0 {
            // Nothing would leave, so nothing would come back.
            return Vec::new();
        }
        let (answer, answered) = oneshot::channel();
        let gone = |applied| {
            let why = "the server is stopping".to_owned();
            (0..count).map(|_| Refusal::Unavailable { applied, why: why.clone() }.into()).collect()
        };
        let waiting = Waiting::new(items, place.clone());
        if self.0.send(Call { count, slot: waiting.slot(), answer }).is_err() {
            return gone(Applied::No);
        }
        answered.await.unwrap_or_else(|_| gone(Applied::Unknown))
    }
}

/// How many results of a flush belong to one call, where they go, and the place that its items have until then.
type Part<R> = (usize, oneshot::Sender<Vec<R>>, Arc<RoomPlace>);

/// Calls that go to the store together.
struct Flush<I, R> {
    items: Vec<I>,
    wanted: Wanted<I>,
    parts: Vec<Part<R>>,
}

/// Calls in their order.
struct Calls<I, R> {
    waiting: VecDeque<Call<I, R>>,
    /// Of the calls that wait, those whose callers have gone included.
    items: usize,
    swept_from: usize,
}

impl<I, R> Calls<I, R> {
    fn push(&mut self, call: Call<I, R>) {
        if self.waiting.len() >= self.swept_from {
            self.waiting.retain(|call| !call.slot.is_left());
            self.items = self.waiting.iter().map(|call| call.count).sum();
            self.swept_from = (2 * self.waiting.len()).max(CALLS_SWEPT_FROM);
        }
        self.items += call.count;
        self.waiting.push_back(call);
    }

    /// The first calls whose callers still wait, as many as one flush may have.
    fn flush(&mut self) -> Flush<I, R> {
        let mut flush = Flush { items: Vec::new(), wanted: Wanted::none(), parts: Vec::new() };
        while let Some(call) = self.waiting.front() {
            if !flush.items.is_empty() && flush.items.len() + call.count > FULL {
                break;
            }
            let Some(Call { count, slot, answer }) = self.waiting.pop_front() else { break };
            self.items -= count;
            if let Some((mut items, place)) = slot.take() {
                flush.items.append(&mut items);
                flush.wanted.add(flush.items.len(), &slot);
                flush.parts.push((count, answer, place));
            }
        }
        flush
    }
}

async fn run<I, R, F, Fut>(pace: Pace, room: WaitingRoom, store: F, mut calls: mpsc::UnboundedReceiver<Call<I, R>>)
where
    F: Fn(Vec<I>, Wanted<I>) -> Fut,
    Fut: Future<Output = Vec<R>>,
{
    let mut in_flight = FuturesUnordered::new();
    let mut gathered = Calls { waiting: VecDeque::new(), items: 0, swept_from: CALLS_SWEPT_FROM };
    let mut leave_at = Instant::now();
    // When the store was given its last flush or returned one: since then it has worked on one flush.
    let mut busy_since = Instant::now();
    loop {
        let may_leave = !gathered.waiting.is_empty() && in_flight.len() < pace.in_flight;
        if may_leave && (gathered.items >= FULL || leave_at <= Instant::now()) {
            let Flush { items, wanted, parts } = gathered.flush();
            if items.is_empty() {
                continue;
            }
            if in_flight.is_empty() {
                busy_since = Instant::now();
            }
            let (count, stored) = (items.len(), store(items, wanted));
            in_flight.push(async move {
                answer(stored.await, parts);
                count
            });
        }
        tokio::select! {
            biased;
            Some(count) = in_flight.next() => {
                let now = Instant::now();
                room.note_answer();
                if 2 * count >= FULL {
                    room.note_flush(count, now - busy_since);
                }
                busy_since = now;
            }
            call = calls.recv() => {
                let Some(mut call) = call else { break };
                if gathered.waiting.is_empty() {
                    leave_at = Instant::now() + pace.wait;
                }
                loop {
                    gathered.push(call);
                    match calls.try_recv() {
                        Ok(next) => call = next,
                        Err(_) => break,
                    }
                }
            }
            () = sleep_until(leave_at), if !gathered.waiting.is_empty() && in_flight.len() < pace.in_flight => {}
        }
    }
    // No more calls can come; those that came get their results.
    while in_flight.next().await.is_some() {}
    while !gathered.waiting.is_empty() {
        let Flush { items, wanted, parts } = gathered.flush();
        // Boxed, so that the task of an idle namespace keeps no room for it.
        answer(Box::pin(store(items, wanted)).await, parts);
    }
}

fn answer<R>(results: Vec<R>, parts: Vec<Part<R>>) {
    let mut results = results.into_iter();
    for (count, answer, _) in parts {
        // The caller may have gone away.
        let _ = answer.send(results.by_ref().take(count).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use std::sync::Mutex;
    use tallystone_serving::WaitingBounds;
    use tokio::sync::Notify;
    use tokio::time::timeout;

    const PACE: Pace = Pace { wait: Duration::from_millis(1), in_flight: 2 };

    const BOUNDS: WaitingBounds = WaitingBounds { items_max: 10_000, bytes_max: 1 << 20 };

    fn room() -> WaitingRoom {
        WaitingRoom::new(BOUNDS, |_, _| {})
    }

    fn place() -> Arc<RoomPlace> {
        room().uncounted()
    }

    #[derive(Debug, PartialEq)]
    struct Twice(u32);

    impl From<Refusal> for Twice {
        fn from(refusal: Refusal) -> Twice {
            panic!("{refusal}")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_of_one_millisecond_go_together_and_each_gets_its_own_results() {
        let flushes = Arc::new(Mutex::new(Vec::new()));
        let gather = Gather::start(PACE, room(), {
            let flushes = flushes.clone();
            move |items: Vec<u32>, _| {
                flushes.lock().unwrap().push(items.len());
                async move { items.into_iter().map(|item| Twice(item * 2)).collect() }
            }
        });
        let place = place();
        let calls = (0..10).map(|number| gather.call((0..number).map(|item| number * 100 + item).collect(), &place));
        for (number, results) in (0_u32..).zip(join_all(calls).await) {
            let expected: Vec<_> = (0..number).map(|item| Twice(2 * (number * 100 + item))).collect();
            assert_eq!(results, expected);
        }
        assert_eq!(*flushes.lock().unwrap(), [45]);
    }

    #[tokio::test(start_paused = true)]
    async fn n2_a_call_without_items_is_answered() {
        let gather =
            Gather::start(PACE, room(), |items: Vec<u32>, _| async move { items.into_iter().map(Twice).collect() });
        assert_eq!(gather.call(Vec::new(), &place()).await, []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_flush_does_not_wait() {
        let gather =
            Gather::start(PACE, room(), |items: Vec<u32>, _| async move { items.into_iter().map(Twice).collect() });
        let begin = Instant::now();
        assert_eq!(gather.call(vec![1; FULL], &place()).await.len(), FULL);
        assert_eq!(begin.elapsed(), Duration::ZERO);
        assert_eq!(gather.call(vec![1], &place()).await, [Twice(1)]);
        assert!(begin.elapsed() >= PACE.wait, "a single item waits for others");
    }

    #[tokio::test(start_paused = true)]
    async fn n4_without_a_wait_a_call_leaves_at_once_and_later_ones_gather_behind_two() {
        let (flushes, begin) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
        let gather = Gather::start(Pace { wait: Duration::ZERO, in_flight: 2 }, room(), {
            let flushes = flushes.clone();
            move |items: Vec<u32>, _| {
                flushes.lock().unwrap().push((items.len(), begin.elapsed().as_millis()));
                async move {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    items.into_iter().map(Twice).collect()
                }
            }
        });
        let call = async |number: u32| {
            tokio::time::sleep(Duration::from_millis(number.into())).await;
            assert_eq!(gather.call(vec![number], &place()).await, [Twice(number)]);
        };
        join_all((0..6).map(call)).await;
        assert_eq!(*flushes.lock().unwrap(), [(1, 0), (1, 1), (4, 10)]);
    }

    /// The items of each flush that was sent.
    type Flushes = Arc<Mutex<Vec<Vec<u32>>>>;

    /// A store that hangs until it is notified, and what it was sent: the numbers that it has taken, by flush.
    fn stopped() -> (Gather<u32, Twice>, Flushes, Arc<Notify>) {
        let (sent, goes_on) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
        let gather = Gather::start(PACE, room(), {
            let (sent, goes_on) = (sent.clone(), goes_on.clone());
            move |items: Vec<u32>, _| {
                sent.lock().unwrap().push(items.clone());
                let goes_on = goes_on.clone();
                async move {
                    goes_on.notified().await;
                    items.into_iter().map(Twice).collect()
                }
            }
        });
        (gather, sent, goes_on)
    }

    #[tokio::test(start_paused = true)]
    async fn o8_a_flush_has_an_upper_size() {
        let (gather, sent, goes_on) = stopped();
        let go_on = async {
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_millis(5)).await;
                goes_on.notify_waiters();
            }
        };
        let place = place();
        let calls = join_all((0..50).map(|number| gather.call(vec![number; 1_000], &place)));
        let (results, ()) = tokio::join!(calls, go_on);
        for (number, results) in (0..).zip(results) {
            assert!(results.len() == 1_000 && results.iter().all(|result| *result == Twice(number)));
        }
        let sizes: Vec<usize> = sent.lock().unwrap().iter().map(Vec::len).collect();
        assert!(sizes.iter().all(|size| *size <= FULL) && sizes.iter().sum::<usize>() == 50_000, "{sizes:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn o8_a_caller_that_goes_takes_back_what_was_not_sent() {
        let (gather, sent, goes_on) = stopped();
        let place = place();
        let within = async |number, ms| {
            let call = gather.call(vec![number], &place);
            timeout(Duration::from_millis(ms), call).await.ok()
        };
        let late = async |number, after_ms, ms| {
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            within(number, ms).await
        };
        let go_on = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            for _ in 0..10 {
                goes_on.notify_waiters();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        // Two flushes are under way; of those that wait behind them the third and the fifth have gone in time.
        let calls = tokio::join!(
            within(1, 50),
            late(2, 10, 500),
            late(3, 20, 30),
            late(4, 20, 500),
            late(5, 20, 79),
            late(6, 20, 500),
            go_on
        );
        assert!(calls.0.is_none() && calls.2.is_none() && calls.4.is_none());
        assert!(calls.1.is_some() && calls.3.is_some() && calls.5.is_some());
        assert_eq!(*sent.lock().unwrap(), [vec![1], vec![2], vec![4, 6]]);
    }

    #[tokio::test(start_paused = true)]
    async fn o8_the_place_of_a_caller_that_goes_is_free_at_once() {
        let (gather, _sent, _goes_on) = stopped();
        let place = place();
        let short = Duration::from_millis(5);
        for _ in 0..2 * CALLS_SWEPT_FROM {
            assert!(timeout(short, gather.call(vec![1], &place)).await.is_err());
        }
        // Only the two that were sent still have it, and this test.
        assert_eq!(Arc::strong_count(&place), 3);
    }
}
