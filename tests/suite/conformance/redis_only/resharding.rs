//! A change of the number of shards of a queue that has ended early, because its server died, or that a failover has lost (X1, X4).

use super::shards::{Kept, find, late_server, remove};
use super::{alone, raw};
use crate::conformance::shards::shard_of;
use tallystone_model::store::Depth;
use tallystone_model::{IndexKeys, NewMessage, QueueConfig, QueuePatch, Refusal, Shard, Spread, Store};
use tallystone_server::Sharded;
use tallystone_server::store::RedisStore;
use tallystone_tests::queue::to;
use tallystone_tests::{KEY, Polling, Stage, TestQueue, TestRedis, exclusive, keyed, simple};

type Queue = TestQueue<Sharded<RedisStore>>;

/// The numbers of shards before and after a change, and the kind of queue.
type Change = (u16, u16, fn() -> QueueConfig);

const CHANGES: [Change; 4] = [(4, 7, simple), (7, 3, exclusive), (1, 5, exclusive), (5, 1, simple)];

/// A queue with this number of shards, whose keys the test changes.
async fn queue(test: &str, shards: u16, config: QueueConfig) -> (TestRedis, Stage<RedisStore>, Queue) {
    let (redis, stage) = alone(test).await;
    let queue = late_server(&redis, &stage.clock, &Shard::first(&stage.queue_name())).await;
    queue.store.create_queue(queue.name(), QueueConfig { shards, ..config }).await.expect("a new queue");
    (redis, stage, queue)
}

fn reshard(shards: u16) -> QueuePatch {
    QueuePatch { shards: Some(shards), ..QueuePatch::default() }
}

async fn spread(queue: &Queue) -> Option<Spread> {
    queue.describe().await.expect("a queue").spread
}

/// Messages that no other call of the test sends, each of another exclusivity value: enough for each shard.
async fn put(queue: &Queue, kind: &str) {
    for n in 0..30 {
        let name = format!("{kind}{n}");
        queue.put_late(keyed(&name, 1, &name)).await;
    }
}

async fn complete_all(queue: &Queue) -> usize {
    let leases = queue.take_all().await;
    for lease in &leases {
        queue.complete(to(lease)).await.expect("a live lease");
    }
    leases.len()
}

#[tokio::test]
async fn x4_a_change_whose_server_dies_is_completed_by_the_next_call_or_the_check() {
    for (before, after, config) in CHANGES {
        let (old, new) = (0..before, before..before + after);
        // It has changed the first shard alone; has closed the others, too; has created one of the new ones.
        for from in [1, before, before + 1] {
            for by_check in [false, true] {
                let (redis, stage, queue) = queue("q17-dies", before, config()).await;
                put(&queue, "before").await;
                let kept = Kept::of(&redis, &queue.shard, from..new.end).await;
                queue.reconfigure(reshard(after)).await;
                let changed = spread(&queue).await;
                kept.put_back(&redis).await;
                let late = late_server(&redis, &stage.clock, &queue.shard).await;
                if by_check {
                    late.describe().await.expect("a queue");
                    assert_eq!(late.store.inner().check_shards().await, Ok(0));
                    for number in old.clone().chain(new.clone()) {
                        let copy = find(&redis, &queue.shard.sibling(number)).await.expect("it is there");
                        assert_eq!(copy["spread"]["version"], changed.as_ref().expect("a change").version, "{number}");
                    }
                }
                put(&late, "after").await;
                assert_eq!(late.reconfigure(reshard(after)).await.spread, changed, "the same call again");
                put(&queue, "then").await;
                assert_eq!(complete_all(&late).await, 90, "{before} to {after} shards");
                queue.assert_sound().await;
            }
        }
    }
}

#[tokio::test]
async fn x4_the_end_of_a_change_whose_server_dies_is_completed_by_the_check() {
    for (before, after, config) in CHANGES {
        let (redis, stage, queue) = queue("q17-end-dies", before, config()).await;
        put(&queue, "before").await;
        queue.reconfigure(reshard(after)).await;
        queue.purge(true).await;
        let old = Kept::of(&redis, &queue.shard, 1..before).await;
        assert_eq!(queue.store.inner().check_shards().await, Ok(0));
        let finished = spread(&queue).await;
        assert!(finished.as_ref().is_some_and(|spread| spread.old.is_empty()));
        assert_eq!(raw::<u64>(&redis, "ZCARD ts:shards").await, u64::from(after));
        // It died before it removed them.
        old.put_back(&redis).await;
        for number in 1..before {
            raw::<u64>(&redis, &format!("ZADD ts:shards 0 {}", queue.shard.sibling(number).tag())).await;
        }
        let late = late_server(&redis, &stage.clock, &queue.shard).await;
        put(&late, "after").await;
        assert_eq!(late.store.inner().check_shards().await, Ok(0));
        assert_eq!((spread(&late).await, raw::<u64>(&redis, "ZCARD ts:shards").await), (finished, u64::from(after)));
        for number in 1..before {
            assert_eq!(find(&redis, &queue.shard.sibling(number)).await, None, "shard {number}");
        }
        assert_eq!(complete_all(&late).await, 30);
        late.purge(true).await;
        late.store.delete_queue(late.name()).await.expect("an empty queue");
        assert_eq!(raw::<u64>(&redis, "ZCARD ts:shards").await, 0);
        let left: Vec<String> = raw(&redis, &format!("KEYS ts:{{{}/*", queue.name())).await;
        let stays = |key: &String| key.ends_with(":outbox") || key.ends_with(":deleted");
        assert!(left.iter().all(stays), "{left:?}");
    }
}

/// A closed shard does not open again, whatever the first one has lost.
#[tokio::test]
async fn x1_the_first_shard_takes_over_a_change_that_it_has_lost() {
    for (before, after, config) in CHANGES {
        for by_check in [false, true] {
            let (redis, stage, queue) = queue("q17-lost", before, config()).await;
            put(&queue, "before").await;
            let first = Kept::of(&redis, &queue.shard, [0]).await;
            queue.reconfigure(reshard(after)).await;
            put(&queue, "after").await;
            let changed = spread(&queue).await.expect("a change");
            first.put_back(&redis).await;
            // The messages of the first shard are there still, but its counts are not: only what the others have is counted.
            let late = late_server(&redis, &stage.clock, &queue.shard).await;
            assert_eq!(spread(&late).await, None);
            if !by_check && before > 1 {
                // A closed shard refuses it. The server reads the shard, and learns.
                put(&late, "more").await;
            } else {
                assert_eq!(late.store.inner().check_shards().await, Ok(0));
            }
            let adopted = spread(&late).await.expect("the change");
            assert_eq!((adopted.current, &adopted.old), (changed.current, &changed.old), "{before} to {after}");
            assert!(adopted.version >= changed.version);
            assert_eq!(late.describe().await.expect("a queue").config.shards, after);
            assert_eq!(late.store.inner().check_shards().await, Ok(0));
            for number in 1..before + after {
                let copy = find(&redis, &queue.shard.sibling(number)).await.expect("it is there");
                assert_eq!(copy["spread"]["version"], adopted.version, "shard {number}");
            }
            for name in (0..30).map(|n| format!("after{n}")) {
                late.get(&name).await;
            }
        }
    }
}

/// The operator repeats the change, or makes another one, before the check has found out what was lost.
#[tokio::test]
async fn x1_another_change_comes_after_one_that_the_first_shard_has_lost() {
    for (before, config) in [(1, exclusive()), (4, simple())] {
        let (redis, stage, queue) = queue("q17-lost-again", before, config).await;
        let first = Kept::of(&redis, &queue.shard, [0]).await;
        queue.reconfigure(reshard(5)).await;
        put(&queue, "after").await;
        first.put_back(&redis).await;
        let late = late_server(&redis, &stage.clock, &queue.shard).await;
        let refused = late.store.update_queue(late.name(), reshard(3)).await;
        assert!(matches!(refused, Err(Refusal::Invalid { field: "shards", .. })), "{refused:?}");
        assert_eq!(late.reconfigure(reshard(5)).await.config.shards, 5);
        assert_eq!(complete_all(&late).await, 30);
    }
}

#[tokio::test]
async fn x1_a_change_that_a_copy_has_lost_reaches_it_again() {
    for (before, after, config) in [(4, 7, exclusive()), (5, 1, simple())] {
        let (redis, stage, queue) = queue("q17-lost-copy", before, config).await;
        let copies = Kept::of(&redis, &queue.shard, 1..before).await;
        queue.reconfigure(reshard(after)).await;
        let changed = spread(&queue).await.expect("a change");
        copies.put_back(&redis).await;
        // Open shards accept what they get, as before the change.
        let late = late_server(&redis, &stage.clock, &queue.shard).await;
        put(&late, "open").await;
        assert_eq!(complete_all(&late).await, 30);
        late.purge(true).await;
        let open = find(&redis, &queue.shard.sibling(1)).await.expect("a shard");
        assert_eq!(open["spread"], serde_json::Value::Null, "it is not removed before it is closed again");
        assert_eq!(late.store.inner().check_shards().await, Ok(0));
        assert_eq!(spread(&late).await, Some(changed.finished()), "closed and then removed by one check");
        for number in 1..before {
            assert_eq!(find(&redis, &queue.shard.sibling(number)).await, None, "shard {number}");
        }
        put(&late, "new").await;
        assert_eq!(complete_all(&late).await, 30);
    }
}

#[tokio::test]
async fn x1_a_queue_whose_first_shard_was_lost_during_a_change_keeps_the_messages_of_the_others() {
    for (before, after, config) in CHANGES.into_iter().take(3) {
        let (redis, stage, queue) = queue("q17-lost-home", before, config()).await;
        queue.reconfigure(reshard(after)).await;
        put(&queue, "after").await;
        let changed = spread(&queue).await.expect("a change");
        remove(&redis, &queue.shard).await;
        let late = late_server(&redis, &stage.clock, &queue.shard).await;
        // Whatever the number of shards that its creator has in mind.
        let other = late.store.create_queue(late.name(), QueueConfig { shards: after + 1, ..config() }).await;
        assert!(matches!(other, Err(Refusal::QueueExists { .. })), "{other:?}");
        late.store.create_queue(late.name(), QueueConfig { shards: after, ..config() }).await.expect("the queue");
        assert_eq!(spread(&late).await, Some(changed));
        assert_eq!(complete_all(&late).await, 30);
    }
}

#[tokio::test]
async fn x4_a_shard_that_was_removed_is_not_created_by_a_late_call() {
    let (redis, stage, queue) = queue("q17-late", 4, exclusive()).await;
    let late = late_server(&redis, &stage.clock, &queue.shard).await;
    put(&late, "before").await;
    queue.purge(true).await;
    queue.reconfigure(reshard(3)).await;
    assert_eq!(queue.store.inner().check_shards().await, Ok(0));
    // It has the first layout in mind, and misses its shards.
    put(&late, "after").await;
    assert_eq!(late.depth().await, Depth { pending: 30, ..Depth::default() });
    for number in 1..4 {
        assert_eq!(find(&redis, &queue.shard.sibling(number)).await, None, "shard {number}");
        late.store.mend(&queue.shard.sibling(number)).await.expect("nothing to do");
        assert_eq!(find(&redis, &queue.shard.sibling(number)).await, None, "shard {number}");
    }
    assert_eq!(raw::<u64>(&redis, "ZCARD ts:shards").await, 3);
}

#[tokio::test]
async fn x4_of_two_changes_at_once_one_is_made() {
    for (before, config) in [(1, exclusive()), (4, simple())] {
        let (redis, stage, first) = queue("q17-two", before, config).await;
        let second = late_server(&redis, &stage.clock, &first.shard).await;
        put(&first, "before").await;
        let change = async |queue: &Queue, shards| queue.store.update_queue(queue.name(), reshard(shards)).await;
        let (to_six, to_three) = tokio::join!(change(&first, 6), change(&second, 3));
        let shards = first.describe().await.expect("a queue").config.shards;
        let (made, refused) = if shards == 6 { (to_six, to_three) } else { (to_three, to_six) };
        assert_eq!(made.expect("made").config.shards, shards);
        assert!(matches!(refused, Err(Refusal::Invalid { field: "shards", .. })), "{refused:?}");
        put(&second, "after").await;
        assert_eq!(complete_all(&first).await, 60);
        for queue in [&first, &second] {
            queue.purge(true).await;
        }
        let (by_first, by_second) =
            tokio::join!(first.store.inner().check_shards(), second.store.inner().check_shards());
        assert_eq!((by_first, by_second), (Ok(0), Ok(0)));
        assert_eq!(raw::<u64>(&redis, "ZCARD ts:shards").await, u64::from(shards));
    }
}

/// Each of the two sees the queue before the other has begun.
#[tokio::test]
async fn x4_a_deletion_and_a_change_at_once_leave_a_whole_queue_or_none() {
    for before in [1, 4] {
        for round in 0..4 {
            let (redis, stage, first) = queue(&format!("q17-deleted-{round}"), before, exclusive()).await;
            let second = late_server(&redis, &stage.clock, &first.shard).await;
            second.describe().await.expect("a queue");
            let (deleted, changed) = tokio::join!(
                first.store.delete_queue(first.name()),
                second.store.update_queue(second.name(), reshard(5))
            );
            println!("{before}, {round}: {deleted:?}, {changed:?}");
            let late = late_server(&redis, &stage.clock, &first.shard).await;
            // A deletion that was begun and did not end is over then.
            stage.clock.advance(10_000);
            if late.describe().await.is_ok() {
                assert!(deleted.is_err(), "{deleted:?}");
                put(&late, "after").await;
                assert_eq!(complete_all(&late).await, 30);
                late.purge(true).await;
                late.store.delete_queue(late.name()).await.expect("an empty queue");
            }
            let left: Vec<String> = raw(&redis, &format!("KEYS ts:{{{}/*}}:state", first.name())).await;
            assert_eq!(left, Vec::<String>::new(), "{before}, {round}");
        }
    }
}

/// Closed shards know by an index what they keep. It is built before the change.
#[tokio::test]
async fn x4_an_exclusive_queue_is_changed_when_the_index_of_its_values_is_built() {
    for before in [1, 2] {
        let (redis, _stage, queue) = queue("q17-index", before, exclusive()).await;
        // More than a build covers while its caller waits.
        let all: Vec<NewMessage> = (0..6_000).map(|n| keyed(&format!("m{n}"), 1, &format!("v{}", n % 600))).collect();
        for part in all.chunks(1_000) {
            queue.put(part.to_vec()).await;
        }
        let refused = queue.store.update_queue(queue.name(), reshard(5)).await;
        assert!(matches!(refused, Err(Refusal::IndexBuilding { .. })), "{refused:?}");
        assert_eq!(spread(&queue).await, None, "certainly not changed");
        let polling = Polling::begin();
        let changed = loop {
            match queue.store.update_queue(queue.name(), reshard(5)).await {
                Err(Refusal::IndexBuilding { .. }) => polling.pause().await,
                changed => break changed.expect("a change"),
            }
        };
        assert_eq!(changed.config.shards, 5);
        // A value that is there stays, another does not.
        queue.put_late(keyed("kept", 1, "v0")).await;
        queue.put_late(keyed("moved", 1, "new")).await;
        assert!(shard_of(&queue, "kept").await < Some(before) && shard_of(&queue, "moved").await >= Some(before));
        // Nothing that needs the place of an index gets that of this one.
        let indexes: Vec<IndexKeys> = (0..16).map(|n| IndexKeys::parse([format!("key{n}")]).expect("a key")).collect();
        let declared = QueuePatch { indexes: Some(indexes.clone()), ..QueuePatch::default() };
        let refused = queue.store.update_queue(queue.name(), declared).await;
        assert!(matches!(refused, Err(Refusal::TooManyIndexes { .. })), "{refused:?}");
        let fewer = QueuePatch { indexes: Some(indexes[..15].to_vec()), ..QueuePatch::default() };
        queue.reconfigure(fewer).await;
        let none = QueuePatch { indexes: Some(Vec::new()), ..QueuePatch::default() };
        queue.reconfigure(none).await;
        for number in 0..before {
            let config = find(&redis, &queue.shard.sibling(number)).await.expect("it is there");
            let indexes = config["indexes"].as_array().expect("a list");
            assert_eq!((indexes.len(), &indexes[0]["keys"][0]), (1, &KEY.into()), "{config}");
        }
        queue.put_late(keyed("kept-too", 1, "v1")).await;
        assert!(shard_of(&queue, "kept-too").await < Some(before));
        queue.assert_sound().await;
    }
}
