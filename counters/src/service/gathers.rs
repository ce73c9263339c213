//! A [`Gather`] for each partition of the store: one that hangs holds up no items of the others.

use super::gather::Gather;
use crate::redis::in_order;
use crate::refusal::Refusal;
use futures::future::join_all;
use std::sync::{Arc, OnceLock};
use tallystone_serving::RoomPlace;

/// Sends each item to the [`Gather`] of its partition.
pub(super) struct Gathers<I, R> {
    partition_of: Box<dyn Fn(&I) -> usize + Send + Sync>,
    start: Box<dyn Fn() -> Gather<I, R> + Send + Sync>,
    /// Each starts with its first items: a partition without calls costs no task.
    each: Box<[OnceLock<Gather<I, R>>]>,
}

impl<I: Send + 'static, R: From<Refusal> + Send + 'static> Gathers<I, R> {
    /// `partition_of` is below `partitions`.
    pub(super) fn new(
        partitions: usize,
        partition_of: impl Fn(&I) -> usize + Send + Sync + 'static,
        start: impl Fn() -> Gather<I, R> + Send + Sync + 'static,
    ) -> Gathers<I, R> {
        let each = (0..partitions).map(|_| OnceLock::new()).collect();
        Gathers { partition_of: Box::new(partition_of), start: Box::new(start), each }
    }

    /// As [`Gather::call`]. It waits for all partitions that get items.
    pub(super) async fn call(&self, items: Vec<I>, place: &Arc<RoomPlace>) -> Vec<R> {
        if self.each.len() == 1 {
            return self.of(0).call(items, place).await;
        }
        let count = items.len();
        let mut parts: Vec<(Vec<usize>, Vec<I>)> = self.each.iter().map(|_| Default::default()).collect();
        for (index, item) in items.into_iter().enumerate() {
            let (indices, items) = &mut parts[(self.partition_of)(&item)];
            indices.push(index);
            items.push(item);
        }
        let call = async |(partition, (indices, items)): (usize, (Vec<usize>, Vec<I>))| {
            (indices, self.of(partition).call(items, place).await)
        };
        let called = parts.into_iter().enumerate().filter(|(_, (indices, _))| !indices.is_empty()).map(call);
        in_order(count, join_all(called).await)
            .unwrap_or_else(|defect| (0..count).map(|_| defect.clone().into()).collect())
    }

    fn of(&self, partition: usize) -> &Gather<I, R> {
        self.each[partition].get_or_init(|| (self.start)())
    }
}

#[cfg(test)]
mod tests {
    use super::super::gather::Pace;
    use super::*;
    use std::future::pending;
    use std::time::Duration;
    use tallystone_serving::{WaitingBounds, WaitingRoom};
    use tokio::time::timeout;

    const PACE: Pace = Pace { wait: Duration::from_millis(1), in_flight: 2 };

    /// A partition and a number. Partition 0 hangs.
    type Item = (usize, u32);

    #[derive(Debug, PartialEq)]
    struct Taken(Vec<Item>, Item);

    impl From<Refusal> for Taken {
        fn from(refusal: Refusal) -> Taken {
            panic!("{refusal}")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn x3_a_partition_that_hangs_holds_up_no_others_and_results_stay_in_order() {
        let room = WaitingRoom::new(WaitingBounds { items_max: 10_000, bytes_max: 1 << 20 }, |_, _| {});
        let place = room.uncounted();
        let start = move || {
            Gather::start(PACE, room.clone(), |items: Vec<Item>, _| async move {
                if items.iter().any(|(partition, _)| *partition == 0) {
                    pending::<()>().await;
                }
                items.iter().map(|item| Taken(items.clone(), *item)).collect()
            })
        };
        let gathers = Gathers::new(3, |(partition, _): &Item| *partition, start);
        let patience = Duration::from_secs(1);
        for _ in 0..2 * PACE.in_flight {
            assert!(timeout(patience, gathers.call(vec![(1, 0), (0, 0)], &place)).await.is_err(), "it waits for all");
        }
        let (of_1, of_2) = (vec![(1, 5), (1, 3)], vec![(2, 9), (2, 1)]);
        let called = timeout(patience, gathers.call(vec![(1, 5), (2, 9), (2, 1), (1, 3)], &place)).await;
        let taken = |items: &Vec<Item>, number: usize| Taken(items.clone(), items[number]);
        let expected = vec![taken(&of_1, 0), taken(&of_2, 0), taken(&of_2, 1), taken(&of_1, 1)];
        assert_eq!(called, Ok(expected));
    }
}
