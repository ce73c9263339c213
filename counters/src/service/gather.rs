//! Calls that arrive at about the same time go to the store together.

use crate::refusal::Refusal;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::time::Duration;
use tallystone_model::Applied;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

/// A flush of so many items leaves at once.
const FULL: usize = 4_096;

/// When a flush leaves.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    /// How long its first item waits for others.
    pub(super) wait: Duration,
    /// Flushes under way at once; meanwhile the next one gathers.
    pub(super) in_flight: usize,
}

/// Items, and where their results go.
struct Call<I, R> {
    items: Vec<I>,
    answer: oneshot::Sender<Vec<R>>,
}

/// Gathers items for a store that takes many at once; each call gets its own results.
pub(super) struct Gather<I, R>(mpsc::UnboundedSender<Call<I, R>>);

impl<I: Send + 'static, R: From<Refusal> + Send + 'static> Gather<I, R> {
    /// `store` takes items and returns a result for each.
    pub(super) fn start<F, Fut>(pace: Pace, store: F) -> Self
    where
        F: Fn(Vec<I>) -> Fut + Send + 'static,
        Fut: Future<Output = Vec<R>> + Send + 'static,
    {
        let (calls, receiver) = mpsc::unbounded_channel();
        tokio::spawn(run(pace, store, receiver));
        Gather(calls)
    }

    /// The results of these items, in their order. A caller that drops this future does not learn whether they were stored.
    pub(super) async fn call(&self, items: Vec<I>) -> Vec<R> {
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
        if self.0.send(Call { items, answer }).is_err() {
            return gone(Applied::No);
        }
        answered.await.unwrap_or_else(|_| gone(Applied::Unknown))
    }
}

/// How many results of a flush belong to one call, and where they go.
type Part<R> = (usize, oneshot::Sender<Vec<R>>);

async fn run<I, R, F, Fut>(pace: Pace, store: F, mut calls: mpsc::UnboundedReceiver<Call<I, R>>)
where
    F: Fn(Vec<I>) -> Fut,
    Fut: Future<Output = Vec<R>>,
{
    let mut in_flight = FuturesUnordered::new();
    let (mut items, mut parts): (Vec<I>, Vec<Part<R>>) = (Vec::new(), Vec::new());
    let mut leave_at = Instant::now();
    loop {
        let may_leave = !items.is_empty() && in_flight.len() < pace.in_flight;
        if may_leave && (items.len() >= FULL || leave_at <= Instant::now()) {
            let parts = std::mem::take(&mut parts);
            let stored = store(std::mem::take(&mut items));
            in_flight.push(async {
                let mut results = stored.await.into_iter();
                for (count, answer) in parts {
                    // The caller may have gone away.
                    let _ = answer.send(results.by_ref().take(count).collect());
                }
            });
        }
        tokio::select! {
            biased;
            Some(()) = in_flight.next() => {}
            call = calls.recv() => {
                let Some(mut call) = call else { break };
                if items.is_empty() {
                    leave_at = Instant::now() + pace.wait;
                }
                loop {
                    parts.push((call.items.len(), call.answer));
                    items.append(&mut call.items);
                    match calls.try_recv() {
                        Ok(next) => call = next,
                        Err(_) => break,
                    }
                }
            }
            () = sleep_until(leave_at), if !items.is_empty() && in_flight.len() < pace.in_flight => {}
        }
    }
    // No more calls can come; those that came get their results.
    while in_flight.next().await.is_some() {}
    let mut results = store(items).await.into_iter();
    for (count, answer) in parts {
        let _ = answer.send(results.by_ref().take(count).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use std::sync::{Arc, Mutex};

    const PACE: Pace = Pace { wait: Duration::from_millis(1), in_flight: 2 };

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
        let gather = Gather::start(PACE, {
            let flushes = flushes.clone();
            move |items: Vec<u32>| {
                flushes.lock().unwrap().push(items.len());
                async move { items.into_iter().map(|item| Twice(item * 2)).collect() }
            }
        });
        let calls = (0..10).map(|number| gather.call((0..number).map(|item| number * 100 + item).collect()));
        for (number, results) in (0_u32..).zip(join_all(calls).await) {
            let expected: Vec<_> = (0..number).map(|item| Twice(2 * (number * 100 + item))).collect();
            assert_eq!(results, expected);
        }
        assert_eq!(*flushes.lock().unwrap(), [45]);
    }

    #[tokio::test(start_paused = true)]
    async fn n2_a_call_without_items_is_answered() {
        let gather = Gather::start(PACE, |items: Vec<u32>| async move { items.into_iter().map(Twice).collect() });
        assert_eq!(gather.call(Vec::new()).await, []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_flush_does_not_wait() {
        let gather = Gather::start(PACE, |items: Vec<u32>| async move { items.into_iter().map(Twice).collect() });
        let begin = Instant::now();
        assert_eq!(gather.call(vec![1; FULL]).await.len(), FULL);
        assert_eq!(begin.elapsed(), Duration::ZERO);
        assert_eq!(gather.call(vec![1]).await, [Twice(1)]);
        assert!(begin.elapsed() >= PACE.wait, "a single item waits for others");
    }

    #[tokio::test(start_paused = true)]
    async fn n4_without_a_wait_a_call_leaves_at_once_and_later_ones_gather_behind_two() {
        let (flushes, begin) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
        let gather = Gather::start(Pace { wait: Duration::ZERO, in_flight: 2 }, {
            let flushes = flushes.clone();
            move |items: Vec<u32>| {
                flushes.lock().unwrap().push((items.len(), begin.elapsed().as_millis()));
                async move {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    items.into_iter().map(Twice).collect()
                }
            }
        });
        let call = async |number: u32| {
            tokio::time::sleep(Duration::from_millis(number.into())).await;
            assert_eq!(gather.call(vec![number]).await, [Twice(number)]);
        };
        join_all((0..6).map(call)).await;
        assert_eq!(*flushes.lock().unwrap(), [(1, 0), (1, 1), (4, 10)]);
    }
}
