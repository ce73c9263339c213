//! Accurate reads next to rollups and clears: each is answered after a bounded number of calls, and no answer holds what
//! was before a clear together with what came after it (N11).

use super::*;
use std::sync::atomic::AtomicUsize;
use tallystone_counters::read::accurate;
use tallystone_counters::{CheckpointUpdate, Commit, Deletions, Sealed, Settlement};

/// The stores of a server, with something that happens at each read of what is pending.
struct Busy<F> {
    store: Compared,
    calls: AtomicUsize,
    meanwhile: F,
}

/// The store, which call of `pending` this is, and its counters.
impl<F, Fut> Busy<F>
where
    F: Fn(Compared, usize, Vec<CounterName>) -> Fut + Sync,
    Fut: Future<Output = Vec<Vec<(u16, Pending)>>> + Send,
{
    fn new(ns: &TestNamespace, meanwhile: F) -> Self {
        Busy { store: ns.store.clone(), calls: AtomicUsize::new(0), meanwhile }
    }
}

impl<F, Fut> RollupLog for Busy<F>
where
    F: Fn(Compared, usize, Vec<CounterName>) -> Fut + Send + Sync,
    Fut: Future<Output = Vec<Vec<(u16, Pending)>>> + Send,
{
    async fn pending(&self, counters: &[CounterName]) -> Result<Vec<Vec<(u16, Pending)>>, Refusal> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        assert!(call < 200, "a read of {} counters does not come to an end", counters.len());
        Ok((self.meanwhile)(self.store.clone(), call, counters.to_vec()).await)
    }

    async fn seal(&self, counters: &[CounterName]) -> Result<Vec<Sealed>, Refusal> {
        self.store.seal(counters).await
    }

    async fn sum_after(&self, counter: &CounterName, shard: u16, window: u64, after: u64) -> Result<i64, Refusal> {
        self.store.sum_after(counter, shard, window, after).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<(), Refusal> {
        self.store.settle(settlements).await
    }

    async fn close(&self, closing: &Settlement) -> Result<(), Refusal> {
        self.store.close(closing).await
    }
}

impl<F, Fut> Checkpoints for Busy<F>
where
    F: Fn(Compared, usize, Vec<CounterName>) -> Fut + Send + Sync,
    Fut: Future<Output = Vec<Vec<(u16, Pending)>>> + Send,
{
    async fn read(&self, counters: &[CounterName]) -> Result<Vec<Checkpoint>, Refusal> {
        self.store.read(counters).await
    }

    async fn commit(&self, updates: &[CheckpointUpdate]) -> Result<Vec<Commit>, Refusal> {
        self.store.commit(updates).await
    }
}

async fn pending(store: &Compared, counters: &[CounterName]) -> Vec<Vec<(u16, Pending)>> {
    store.pending(counters).await.expect("what is pending")
}

#[tokio::test]
async fn n11_a_batch_is_read_though_some_counter_of_it_is_always_being_rolled_up() {
    let ns = TestNamespace::new("batch", NamespaceConfig::default()).await;
    let names: Vec<CounterName> = (0..50).map(|number| counter(&format!("c{number}"))).collect();
    for name in &names {
        ns.append_one(add(name.as_str(), "t", NOON_MS, 7)).await.expect("an add");
    }
    let (clock_ms, all) = (ns.clock_ms.clone(), names.clone());
    let busy = Busy::new(&ns, |store: Compared, call, of_call: Vec<CounterName>| {
        let (clock_ms, all) = (clock_ms.clone(), all.clone());
        async move {
            let found = pending(&store, &of_call).await;
            // One more of its counters is rolled up, and settled, before the next step of the read.
            let now_ms = clock_ms.fetch_add(10_000, Ordering::SeqCst) + 10_000;
            let lease = LeaseOrder { leased_at_ms: now_ms, fencing_token: call as u64 };
            let job = Job { counter: all[call % all.len()].clone(), lease };
            let rolled_up = roll_up(&store, &store, &[job]).await.remove(0).expect("a rollup");
            assert!(matches!(rolled_up, RolledUp::Committed { .. }), "{rolled_up:?}");
            found
        }
    });
    let counts = accurate(&busy, &busy, &names).await.expect("counts");
    assert!(counts.iter().all(|(count, _)| *count == 7), "{counts:?}");
    let calls = busy.calls.load(Ordering::SeqCst);
    assert!(calls <= 4, "{calls} calls for one read");
}

/// The first read of what is pending comes to one half of the shards before a clear and an add, and to the other after
/// them. The later ones come to all of them after it.
#[tokio::test]
async fn n11_a_read_next_to_a_clear_answers_what_was_before_it_or_what_came_after() {
    for is_old_first in [true, false] {
        let ns = TestNamespace::new("clear", NamespaceConfig { buckets_per_id: 2, ..NamespaceConfig::default() }).await;
        let names = [counter("c")];
        let shards: Vec<u16> = ns.pending("c").await.into_iter().map(|(shard, _)| shard).collect();
        // Of the old adds, of the clear and of the new adds some are in each shard.
        for number in 0..20 {
            ns.append_one(add("c", &format!("old {number}"), NOON_MS, 100)).await.expect("an add");
        }
        let of_old = if is_old_first { shards[0] } else { shards[1] };
        let busy = Busy::new(&ns, |store: Compared, call, of_call: Vec<CounterName>| async move {
            let before = pending(&store, &of_call).await;
            if call > 0 {
                return before;
            }
            let happens = [event("c", "clear", NOON_MS + 10, Change::Clear)];
            assert_eq!(store.append(&happens).await, [counted(NOON_MS + 10)]);
            for number in 0..20 {
                let new = add("c", &format!("new {number}"), NOON_MS + 20, 1);
                assert_eq!(store.append(&[new]).await, [counted(NOON_MS + 20)]);
            }
            let after = pending(&store, &of_call).await;
            let mixed = before.into_iter().flatten().zip(after.into_iter().flatten());
            vec![mixed.map(|(before, after)| if before.0 == of_old { before } else { after }).collect()]
        });
        let counts = accurate(&busy, &busy, &names).await.expect("a count");
        let count = counts[0].0;
        assert!(count == 2_000 || (0..=20).contains(&count), "{count}, {of_old} of {shards:?} read before the clear");
    }
}

#[tokio::test]
async fn n11_a_counter_that_is_cleared_at_each_step_of_a_read_is_refused_in_the_end() {
    let ns = TestNamespace::new("cleared", NamespaceConfig::default()).await;
    let busy = Busy::new(&ns, |store: Compared, call, of_call: Vec<CounterName>| async move {
        let time_ms = NOON_MS + call as u64;
        let clear = event("c", &format!("clear {call}"), time_ms, Change::Clear);
        assert_eq!(store.append(&[clear]).await, [counted(time_ms)]);
        pending(&store, &of_call).await
    });
    let refused = accurate(&busy, &busy, &[counter("c"), counter("d")]).await;
    let applied = tallystone_model::Applied::No;
    assert!(matches!(&refused, Err(Refusal::Unavailable { applied: of, .. }) if *of == applied), "{refused:?}");
}

/// The counter is deleted between the second read of what is pending and that of the checkpoint. Of the adds that the
/// deletion removes, one is before the window of its clear and one is in it.
#[tokio::test]
async fn n14_a_read_next_to_a_deletion_answers_what_was_before_it_or_nothing() {
    for deleted_at_call in [0, 1] {
        let ns = TestNamespace::new("deletion", NamespaceConfig::default()).await;
        ns.append_one(add("c", "before", NOON_MS - 3_000, 100)).await.expect("an add");
        ns.append_one(add("c", "in its window", NOON_MS, 7)).await.expect("an add");
        let busy = Busy::new(&ns, |store: Compared, call, of_call: Vec<CounterName>| async move {
            let found = pending(&store, &of_call).await;
            if call == deleted_at_call {
                let clear = event("c", "deletion", NOON_MS + 10, Change::Clear);
                assert_eq!(store.append(&[clear]).await, [counted(NOON_MS + 10)]);
                store.delete(&counter("c"), NOON_MS + 10).await.expect("a deletion");
            }
            found
        });
        let counts = accurate(&busy, &busy, &[counter("c")]).await.expect("a count");
        assert!([107, 0].contains(&counts[0].0), "{} after a deletion at call {deleted_at_call}", counts[0].0);
    }
}
