//! The stores of a server on Redis and on the oracle: each call goes to both, and their replies must be equal.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use tallystone_counters::log::{Unlogged, with_archived};
use tallystone_counters::namespace::SHARDS;
use tallystone_counters::oracle::OracleNamespace;
use tallystone_counters::redis::RedisNamespace;
use tallystone_counters::{
    Appended, Cache, Checkpoint, CheckpointUpdate, Checkpoints, Commit, CounterName, CrossingLists, Deletions, Due,
    Event, EventScan, Events, NewEvent, Pending, Recounted, Recounts, Refusal, RollupLog, RollupSchedule, Sealed,
    Settlement,
};
use tallystone_link::StreamId;
use tokio::sync::Mutex;

#[derive(Clone)]
pub(super) struct Compared {
    pub(super) redis: RedisNamespace,
    oracle: OracleNamespace,
    /// Held while a call is made on both: calls of tests that overlap reach both in the same order.
    order: Arc<Mutex<()>>,
}

impl Compared {
    pub(super) fn new(redis: RedisNamespace, oracle: OracleNamespace, order: Arc<Mutex<()>>) -> Compared {
        Compared { redis, oracle, order }
    }

    async fn both<T: PartialEq + Debug>(
        &self,
        call: impl Debug,
        redis: impl Future<Output = T>,
        oracle: impl Future<Output = T>,
    ) -> T {
        let _in_this_order = self.order.lock().await;
        let (redis, oracle) = (redis.await, oracle.await);
        assert_eq!(redis, oracle, "Redis (left) and the oracle (right) differ on {call:?}");
        redis
    }
}

/// The windows of a pending record have no order: here the latest is first.
fn sorted(shards: &mut [(u16, Pending)]) {
    shards.iter_mut().for_each(|(_, pending)| pending.windows.sort_by_key(|window| std::cmp::Reverse(window.number)));
}

impl Events for Compared {
    async fn append_while(
        &self,
        events: &[NewEvent],
        is_wanted: &(dyn Fn(usize) -> bool + Sync),
    ) -> Vec<Result<Appended, Unlogged>> {
        let _in_this_order = self.order.lock().await;
        let redis = self.redis.append_while(events, is_wanted).await;
        // The oracle knows the answers of the archive at once.
        let redis = with_archived(&self.redis, events, redis).await;
        let redis: Vec<_> = redis.into_iter().map(|result| result.map_err(Unlogged::from)).collect();
        let oracle = self.oracle.append_while(events, is_wanted).await;
        for (event, (redis, oracle)) in events.iter().zip(redis.iter().zip(&oracle)) {
            assert_eq!(redis, oracle, "Redis (left) and the oracle (right) differ on {event:?}");
        }
        redis
    }

    async fn find_archived(&self, late: &[NewEvent]) -> Vec<Result<Appended, Refusal>> {
        self.redis.find_archived(late).await
    }

    /// Redis may stop after any window: the oracle's events up to there are the same.
    async fn scan(&self, counter: &CounterName, windows: Range<u64>, enough: usize) -> Result<EventScan, Refusal> {
        let _in_this_order = self.order.lock().await;
        let found = self.redis.scan(counter, windows.clone(), enough).await?;
        let expected: Vec<Event> = self.oracle.scan(counter, windows.start..found.next_window, enough).await?.events;
        assert_eq!(found.events, expected, "Redis (left) and the oracle (right) differ on {counter} {windows:?}");
        Ok(found)
    }

    async fn tick(&self, until: &[(CounterName, u64)]) -> Result<Vec<u64>, Refusal> {
        self.both(("tick", until), self.redis.tick(until), self.oracle.tick(until)).await
    }

    async fn exact_to(&self, counter: &CounterName) -> Result<u64, Refusal> {
        self.both(("exact_to", counter), self.redis.exact_to(counter), self.oracle.exact_to(counter)).await
    }

    async fn prune(&self, shard: u16) -> Result<u64, Refusal> {
        self.both(("prune", shard), self.redis.prune(shard), self.oracle.prune(shard)).await
    }
}

impl RollupLog for Compared {
    async fn pending(&self, counters: &[CounterName]) -> Result<Vec<Vec<(u16, Pending)>>, Refusal> {
        let in_order = |mut counters: Vec<Vec<(u16, Pending)>>| {
            counters.iter_mut().for_each(|shards| {
                shards.sort_by_key(|(shard, _)| *shard);
                sorted(shards);
            });
            counters
        };
        let redis = async { self.redis.pending(counters).await.map(in_order) };
        let oracle = async { self.oracle.pending(counters).await.map(in_order) };
        self.both(("pending", counters), redis, oracle).await
    }

    async fn seal(&self, counters: &[CounterName]) -> Result<Vec<Sealed>, Refusal> {
        let in_order = |mut counters: Vec<Sealed>| {
            counters.iter_mut().for_each(|sealed| {
                sealed.pending.sort_by_key(|(shard, _)| *shard);
                sorted(&mut sealed.pending);
            });
            counters
        };
        let redis = async { self.redis.seal(counters).await.map(in_order) };
        let oracle = async { self.oracle.seal(counters).await.map(in_order) };
        self.both(("seal", counters), redis, oracle).await
    }

    async fn sum_after(&self, counter: &CounterName, shard: u16, window: u64, after_ms: u64) -> Result<i64, Refusal> {
        let redis = self.redis.sum_after(counter, shard, window, after_ms);
        let oracle = self.oracle.sum_after(counter, shard, window, after_ms);
        self.both(("sum_after", counter, shard, window, after_ms), redis, oracle).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<(), Refusal> {
        self.both(("settle", settlements), self.redis.settle(settlements), self.oracle.settle(settlements)).await
    }

    async fn close(&self, closing: &Settlement) -> Result<(), Refusal> {
        self.both(("close", closing), self.redis.close(closing), self.oracle.close(closing)).await
    }
}

impl RollupSchedule for Compared {
    async fn due(&self, shard: u16, limit: usize, hold_ms: u64) -> Result<Due, Refusal> {
        let (redis, oracle) = (self.redis.due(shard, limit, hold_ms), self.oracle.due(shard, limit, hold_ms));
        self.both(("due", shard, limit, hold_ms), redis, oracle).await
    }

    async fn defer(&self, shard: u16, counters: &[CounterName], delay_ms: u64) -> Result<(), Refusal> {
        let redis = self.redis.defer(shard, counters, delay_ms);
        self.both(("defer", shard, counters, delay_ms), redis, self.oracle.defer(shard, counters, delay_ms)).await
    }

    async fn touch(&self, touched: &[(CounterName, bool)]) -> Result<bool, Refusal> {
        self.both(("touch", touched), self.redis.touch(touched), self.oracle.touch(touched)).await
    }
}

impl Checkpoints for Compared {
    async fn read(&self, counters: &[CounterName]) -> Result<Vec<Checkpoint>, Refusal> {
        self.both(("read", counters), self.redis.read(counters), self.oracle.read(counters)).await
    }

    async fn commit(&self, updates: &[CheckpointUpdate]) -> Result<Vec<Commit>, Refusal> {
        self.both(("commit", updates), self.redis.commit(updates), self.oracle.commit(updates)).await
    }
}

impl Recounts for Compared {
    async fn recounts(&self, counter: &CounterName) -> Result<Vec<Recounted>, Refusal> {
        self.both(("recounts", counter), self.redis.recounts(counter), self.oracle.recounts(counter)).await
    }

    async fn replace(
        &self,
        counter: &CounterName,
        before: &Checkpoint,
        after: &Checkpoint,
        recounts: &[Recounted],
    ) -> Result<Commit, Refusal> {
        let redis = self.redis.replace(counter, before, after, recounts);
        let oracle = self.oracle.replace(counter, before, after, recounts);
        self.both(("replace", counter, before, after), redis, oracle).await
    }

    async fn follow(&self, counter: &CounterName, before: &Checkpoint, after: &Checkpoint) -> Result<Commit, Refusal> {
        let redis = self.redis.follow(counter, before, after);
        let oracle = self.oracle.follow(counter, before, after);
        self.both(("follow", counter, before, after), redis, oracle).await
    }

    fn time_ms(&self) -> u64 {
        self.oracle.time_ms()
    }
}

impl Compared {
    /// Both list the same crossings: not their ids, which are by different clocks.
    pub(super) async fn check_crossings(&self) {
        let _in_this_order = self.order.lock().await;
        let first = StreamId::default();
        for shard in 0..SHARDS {
            let mut redis = self.redis.entries(shard, first, usize::MAX >> 1).await.expect("entries");
            let mut oracle = self.oracle.entries(shard, first, usize::MAX).await.expect("entries");
            let mut before = first;
            for entry in &redis {
                assert_eq!(entry.before, before, "nothing is gone");
                before = entry.id;
            }
            redis.iter_mut().chain(&mut oracle).for_each(|entry| (entry.id, entry.before) = (first, first));
            assert_eq!(redis, oracle, "Redis (left) and the oracle (right) differ on the crossings of shard {shard}");
        }
    }
}

impl Deletions for Compared {
    async fn delete(&self, counter: &CounterName, cleared_ms: u64) -> Result<(), Refusal> {
        let (redis, oracle) = (self.redis.delete(counter, cleared_ms), self.oracle.delete(counter, cleared_ms));
        self.both(("delete", counter, cleared_ms), redis, oracle).await
    }

    async fn deleted_to(&self, counter: &CounterName) -> Result<Option<u64>, Refusal> {
        let (redis, oracle) = (self.redis.deleted_to(counter), self.oracle.deleted_to(counter));
        self.both(("deleted_to", counter), redis, oracle).await
    }
}

impl Cache for Compared {
    async fn cache_add(&self, adds: &[(CounterName, i64)]) -> Vec<Result<(), Refusal>> {
        self.both(("cache_add", adds), self.redis.cache_add(adds), self.oracle.cache_add(adds)).await
    }

    async fn cache_get(&self, counters: &[CounterName]) -> Result<Vec<i64>, Refusal> {
        self.both(("cache_get", counters), self.redis.cache_get(counters), self.oracle.cache_get(counters)).await
    }

    async fn cache_clear(&self, counters: &[CounterName]) -> Vec<Result<(), Refusal>> {
        self.both(("cache_clear", counters), self.redis.cache_clear(counters), self.oracle.cache_clear(counters)).await
    }
}
