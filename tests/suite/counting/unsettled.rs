//! Counters that no rollup has settled for hours: what an add writes then, and what a rollup finds and settles (N5, N8, X5). Every
//! call goes to the oracle, too.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use tallystone_counters::log::WINDOW_MS;
use tallystone_counters::oracle::{Oracle, OracleNamespace};
use tallystone_counters::redis::{Namespace, RedisNamespace, RedisNamespaces};
use tallystone_counters::{
    Bounds, Change, Checkpoint, CheckpointUpdate, Checkpoints, Closed, Commit, CounterName, Events, Job, Labels,
    LeaseOrder, NamespaceConfig, NamespaceName, NewEvent, Pending, RolledUp, RollupLog, RollupSchedule, Settlement,
    Token, read, roll_up,
};
use tallystone_link::{Clock, ReplicaWait};
use tallystone_tests::TestRedis;

/// 2026-11-20, 12:00 UTC.
const NOON_MS: u64 = 1_795_176_000_000;
/// The most bytes that one add may change of what is pending: those of somewhat more than two chunks of 64 windows.
const WRITTEN_MAX: usize = 5_000;

type Fields = BTreeMap<Vec<u8>, Vec<u8>>;

struct Both {
    redis: Arc<TestRedis>,
    name: NamespaceName,
    store: RedisNamespace,
    oracle: OracleNamespace,
    clock_ms: Arc<AtomicU64>,
    events: u64,
}

impl Both {
    /// A namespace with all of a counter in one shard, which accepts events of this time.
    async fn new(test: &str, accept_limit_ms: u64) -> Both {
        let config = NamespaceConfig { buckets_per_id: 1, accept_limit_ms, ..NamespaceConfig::default() };
        let (redis, clock_ms) = (TestRedis::shared().await, Arc::new(AtomicU64::new(NOON_MS)));
        let name = NamespaceName::parse(format!("{test}-{:08x}", rand::random::<u32>())).expect("a name");
        let namespaces = RedisNamespaces::new(redis.source(), ReplicaWait::default(), Clock::Test(clock_ms.clone()));
        let oracle = Oracle::default().open(config.clone(), 1, clock_ms.clone()).expect("a namespace");
        let namespace = Namespace { name: name.clone(), config, revision: 1, incarnation: 0, kept_from_ms: 0 };
        let store = namespaces.open(&namespace).await.expect("its stores");
        Both { redis, name, store, oracle, clock_ms, events: 0 }
    }

    fn now_ms(&self) -> u64 {
        self.clock_ms.load(Ordering::SeqCst)
    }

    fn pass(&self, ms: u64) {
        self.clock_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Events at these times, in their order.
    fn events(&mut self, events: impl IntoIterator<Item = (u64, Change)>) -> Vec<NewEvent> {
        let event = |(time_ms, change)| {
            self.events += 1;
            let token = Token::parse(self.events.to_string()).expect("a token");
            let (bounds, labels) = (Bounds::default(), Labels::default());
            NewEvent { counter: counter(), token, time_ms: Some(time_ms), change, bounds, labels }
        };
        events.into_iter().map(event).collect()
    }

    async fn append(&mut self, events: impl IntoIterator<Item = (u64, Change)>) {
        let new = self.events(events);
        assert_eq!(self.store.append(&new).await, self.oracle.append(&new).await);
    }

    /// An add to each of this number of windows, one call for each.
    async fn add_to_windows(&mut self, windows: u64) {
        for _ in 0..windows {
            self.append([(self.now_ms(), Change::Add(1))]).await;
            self.pass(WINDOW_MS);
        }
    }

    async fn settle(&self, settlement: Settlement) {
        let settlements = [settlement];
        assert_eq!(self.store.settle(&settlements).await, self.oracle.settle(&settlements).await);
    }

    async fn roll_up(&self) {
        let lease = LeaseOrder { leased_at_ms: self.now_ms(), fencing_token: 1 };
        let jobs = [Job { counter: counter(), lease }];
        let results = roll_up(&self.store, &self.store, &jobs).await;
        assert!(matches!(results[..], [Ok(RolledUp::Committed { .. })]), "{results:?}");
        assert_eq!(results, roll_up(&self.oracle, &self.oracle, &jobs).await);
    }

    /// What is pending and what is counted with it are those of the oracle.
    async fn check(&self) {
        let names = [counter()];
        let redis = self.store.pending(&names).await.expect("what is pending");
        assert_eq!(in_order(redis), in_order(self.oracle.pending(&names).await.expect("what is pending")));
        let redis = read::accurate(&self.store, &self.store, &names).await;
        assert_eq!(redis, read::accurate(&self.oracle, &self.oracle, &names).await);
    }

    async fn count(&self) -> i64 {
        read::accurate(&self.store, &self.store, &[counter()]).await.expect("a count")[0].0
    }

    /// Windows that are pending and end at this time or before.
    async fn windows_to(&self, to_ms: u64) -> usize {
        let pending = self.store.pending(&[counter()]).await.expect("what is pending").remove(0).remove(0).1;
        pending.windows.iter().filter(|window| window.begin_ms() + WINDOW_MS <= to_ms).count()
    }

    async fn key(&self, name: &str) -> String {
        let home = self.store.pending(&[counter()]).await.expect("what is pending")[0][0].0;
        format!("tc:{{{}/{home}}}:{name}", self.name)
    }

    /// What is pending, as Redis has it.
    async fn fields(&self) -> Fields {
        let (key, mut connection) = (self.key("pending").await, self.redis.connection().await);
        redis::cmd("HGETALL").arg(key).query_async(&mut connection).await.expect("fields")
    }

    /// As an earlier version has stored it: all older windows are in one field.
    async fn store_as_before(&self) {
        let (key, mut connection) = (self.key("pending").await, self.redis.connection().await);
        let mut fields = self.fields().await;
        let older = fields.remove(&b"\x01c"[..]).expect("older windows");
        let number =
            |field: &[u8]| String::from_utf8_lossy(&field[1..field.len() - 2]).parse::<u64>().expect("a number");
        let is_chunk = |(field, _): &(Vec<u8>, Vec<u8>)| field.len() > 1;
        let mut chunks: Vec<(Vec<u8>, Vec<u8>)> = fields.into_iter().filter(is_chunk).collect();
        chunks.sort_by_key(|(field, _)| std::cmp::Reverse(number(field)));
        assert!(chunks.len() > 5, "{} chunks", chunks.len());
        // Without the numbers of the chunks.
        let mut all = older[..older.len() - 8].to_vec();
        let mut command = redis::cmd("HDEL");
        command.arg(&key);
        for (field, entries) in chunks {
            command.arg(field);
            all.extend(entries);
        }
        command.exec_async(&mut connection).await.expect("no chunk");
        redis::cmd("HSET").arg(&key).arg("\u{1}c").arg(all).exec_async(&mut connection).await.expect("one field");
    }
}

fn counter() -> CounterName {
    CounterName::parse("c").expect("a counter")
}

/// The latest window first.
fn in_order(mut counters: Vec<Vec<(u16, Pending)>>) -> Vec<Vec<(u16, Pending)>> {
    for (_, pending) in counters.iter_mut().flatten() {
        pending.windows.sort_by_key(|window| std::cmp::Reverse(window.number));
    }
    counters
}

/// The settlement of a checkpoint that is exact to this time.
fn settlement(to_ms: u64) -> Settlement {
    let (closed, last_write_ms, is_deleted) = (Closed::No, to_ms, false);
    Settlement { counter: counter(), to_ms, closed, last_write_ms, is_deleted, idle_shards: Vec::new() }
}

/// The bytes of the fields that have changed.
fn written(before: &Fields, after: &Fields) -> usize {
    after.iter().filter(|(field, value)| before.get(*field) != Some(*value)).map(|(_, value)| value.len()).sum()
}

/// Drops a future after this number of steps, between two replies of a store, as a process that dies. `None`: it had not ended.
async fn die_after<T>(steps: u64, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut left) = (pin!(future), steps);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

#[tokio::test]
async fn x5_an_add_writes_as_much_after_many_windows_without_a_rollup_as_before() {
    let mut ns = Both::new("written", 3_600_000).await;
    let mut before = ns.fields().await;
    for number in 0..1_000 {
        ns.add_to_windows(1).await;
        let after = ns.fields().await;
        let bytes = written(&before, &after);
        assert!(bytes <= WRITTEN_MAX, "{bytes} bytes by an add to window {number}");
        before = after;
    }
    // Also an add to an earlier window, and one that is too large for the short way of `append`.
    for (number, late_ms) in [200_000, 400_000, 499_500, 1_000, 0, 0].into_iter().enumerate() {
        let delta = if number < 4 { 1 } else { 1 << 53 };
        ns.append([(ns.now_ms() - late_ms, Change::Add(delta))]).await;
        let after = ns.fields().await;
        let bytes = written(&before, &after);
        assert!((1..=WRITTEN_MAX).contains(&bytes), "{bytes} bytes by an add of {late_ms} ms ago");
        before = after;
    }
    ns.check().await;
    ns.pass(3_700_000);
    ns.roll_up().await;
    ns.check().await;
    assert_eq!(ns.count().await, 1_004 + (2 << 53));
    assert!(ns.fields().await.is_empty(), "nothing is left of it");
}

#[tokio::test]
async fn n5_windows_in_the_one_field_of_an_earlier_version_are_counted_and_settled() {
    let mut ns = Both::new("earlier", 3_600_000).await;
    ns.add_to_windows(600).await;
    ns.store_as_before().await;
    ns.check().await;
    // The one field becomes a chunk, larger than others, and an add to a window in it is counted there.
    ns.add_to_windows(200).await;
    ns.check().await;
    assert!(ns.fields().await.len() > 3);
    ns.append([(NOON_MS + 100_003, Change::Add(5)), (NOON_MS + 100_007, Change::Clear)]).await;
    ns.check().await;
    // In the middle of it, and of what follows.
    for to_ms in [NOON_MS + 200_000, NOON_MS + 390_000] {
        ns.settle(settlement(to_ms)).await;
        ns.check().await;
    }
    ns.pass(3_700_000);
    ns.roll_up().await;
    assert!(ns.fields().await.is_empty(), "nothing is left of it");
}

#[tokio::test]
async fn n11_a_read_sees_all_windows_at_one_moment() {
    const WINDOWS: u64 = 200;
    let mut ns = Both::new("moment", 120_000).await;
    ns.add_to_windows(WINDOWS).await;
    for _ in 0..20 {
        // What the latest window gets, one in a chunk gives.
        let now_ms = ns.now_ms();
        let events = ns.events([(now_ms, Change::Add(5)), (now_ms - 80_000, Change::Add(-5))]);
        let names = [counter()];
        let read = read::accurate(&ns.store, &ns.store, &names);
        let (count, results) = futures::join!(read, ns.store.append(&events));
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        assert_eq!(count.expect("a count")[0].0, WINDOWS as i64);
    }
}

#[tokio::test]
async fn n8_a_settle_of_very_many_windows_takes_several_calls_and_may_die_between_them() {
    let mut ns = Both::new("dying", 60_000).await;
    for _ in 0..300 {
        let from_ms = ns.now_ms();
        ns.append((0..100).map(|number| (from_ms - 50_000 + number * WINDOW_MS, Change::Add(1)))).await;
        ns.pass(100 * WINDOW_MS);
    }
    // A rollup commits, and dies before it settles.
    let names = [counter()];
    let sealed = ns.store.seal(&names).await.expect("sealed").remove(0);
    assert_eq!(sealed.sealed_to_ms, ns.oracle.seal(&names).await.expect("sealed")[0].sealed_to_ms);
    let (to_ms, count) = (sealed.sealed_to_ms, ns.count().await);
    let all = ns.windows_to(to_ms).await;
    let after = Checkpoint { count: all as i64, exact_to_ms: to_ms, last_write_ms: to_ms, ..Checkpoint::default() };
    let update = [CheckpointUpdate { counter: counter(), before: Checkpoint::default(), after }];
    assert_eq!(ns.store.commit(&update).await, Ok(vec![Commit::Done]));
    assert_eq!(ns.oracle.commit(&update).await, Ok(vec![Commit::Done]));

    let (mut steps, mut in_part) = (0, 0);
    let (dirty, mut connection) = (ns.key("dirty").await, ns.redis.connection().await);
    while die_after(steps, ns.store.settle(&[settlement(to_ms)])).await.is_none() {
        steps += 1;
        let left = ns.windows_to(to_ms).await;
        in_part += usize::from((1..all).contains(&left));
        assert_eq!(ns.count().await, count, "with {left} windows left of {all}");
        let since: Option<f64> =
            redis::cmd("ZSCORE").arg(&dirty).arg("c").query_async(&mut connection).await.expect("a mark");
        assert!(since.is_some(), "the next rollup comes");
        // Adds continue.
        ns.append([(ns.now_ms(), Change::Add(1)), (ns.now_ms(), Change::Add(-1))]).await;
    }
    assert!(in_part > 0, "of {all} windows none or all were left after each of {steps} deaths");
    assert_eq!(ns.oracle.settle(&[settlement(to_ms)]).await, Ok(()));
    ns.check().await;
    ns.pass(120_000);
    ns.roll_up().await;
    ns.check().await;
    assert!(ns.fields().await.is_empty(), "nothing is left of it");
}

#[tokio::test]
async fn n5_chunks_of_windows_have_what_the_oracle_has() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut ns = Both::new("chunks", 3_600_000).await;
    let mut chunks = 0;
    for step in 0..150 {
        ns.pass(random.random_range(0..60_000));
        let now_ms = ns.now_ms();
        match random.random_range(0..10) {
            0 => ns.settle(settlement((now_ms - random.random_range(0..1_500_000_u64)) / WINDOW_MS * WINDOW_MS)).await,
            1 => {
                let touched = [(counter(), random.random::<bool>())];
                assert_eq!(ns.store.touch(&touched).await, ns.oracle.touch(&touched).await);
                let home = ns.store.pending(&[counter()]).await.expect("what is pending")[0][0].0;
                assert_eq!(ns.store.due(home, 10, 1_000).await, ns.oracle.due(home, 10, 1_000).await);
            }
            _ => {
                let far_ms: u64 = if random.random_range(0..4) == 0 { 3_500_000 } else { 30_000 };
                let number = random.random_range(1..90);
                let mut times: Vec<u64> = (0..number).map(|_| now_ms - random.random_range(0..far_ms)).collect();
                if random.random() {
                    times.sort_unstable();
                }
                let change = |random: &mut StdRng| match random.random_range(0..60) {
                    0 => Change::Clear,
                    1 => Change::Add(-(1 << 54)),
                    _ => Change::Add(random.random_range(-3..=9)),
                };
                ns.append(times.into_iter().map(|time_ms| (time_ms, change(&mut random)))).await;
            }
        }
        if step % 5 == 0 {
            ns.check().await;
            chunks = chunks.max(ns.fields().await.len());
        }
    }
    ns.check().await;
    assert!(chunks > 4, "at most {chunks} fields");
    ns.pass(3_700_000);
    ns.roll_up().await;
    ns.check().await;
    assert!(ns.fields().await.is_empty(), "nothing is left of it");
}
