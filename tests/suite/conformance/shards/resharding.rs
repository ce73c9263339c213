//! The number of shards of a queue is changed while it is in use (Q17, X4).

use super::{finds_each, names, shard_of, shards_of};
use crate::conformance::named;
use std::collections::BTreeSet;
use std::time::Duration;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_tests::queue::{lease_ref, no_lease, to};
use tallystone_tests::*;
use tokio::sync::mpsc;

over_stores_of_shards!(
    q17_every_message_is_found_while_the_number_of_shards_changes,
    q17_an_id_is_one_message_while_the_number_of_shards_changes,
    q17_a_coalesced_message_goes_where_its_id_is_live,
    q17_a_server_that_knows_nothing_of_a_change_finds_every_message,
    q17_a_server_that_knows_nothing_of_a_change_takes_from_the_new_shards,
    q17_a_worker_that_waits_gets_a_message_of_a_new_shard,
    q17_walks_go_on_over_a_change,
    q17_a_queue_may_be_deleted_during_a_change,
    q17_changes_that_cannot_be_made_change_nothing,
    q17_a_value_stays_in_its_shard_until_its_last_message_has_ended,
    q17_a_coalesced_message_goes_where_its_value_is,
    q17_the_last_message_of_a_value_may_leave_it_in_the_middle_of_a_batch,
);

fn reshard(shards: u16) -> QueuePatch {
    QueuePatch { shards: Some(shards), ..QueuePatch::default() }
}

/// A simple queue with this number of shards.
async fn queue_of<S: Probe>(stage: &Stage<S>, shards: u16) -> TestQueue<S> {
    new_queue(stage, QueueConfig { shards, ..simple() }).await
}

async fn new_queue<S: Probe>(stage: &Stage<S>, config: QueueConfig) -> TestQueue<S> {
    let name = stage.queue_name();
    stage.store.create_queue(&name, config).await.expect("a new queue");
    TestQueue { store: stage.store.clone(), clock: stage.clock.clone(), shard: Shard::first(&name) }
}

fn draining(queue: &Queue) -> u16 {
    queue.spread.as_ref().map_or(0, Spread::draining)
}

async fn numbers<S: Probe>(queue: &TestQueue<S>) -> Vec<u16> {
    queue.store.layout(&queue.shard).await.expect("a queue").numbers().collect()
}

/// Lets time pass until nothing that has ended is kept.
async fn collect<S: Probe>(queue: &TestQueue<S>) {
    queue.clock.advance(600_000);
    for shard in shards_of(queue).await {
        queue.store.sweep(&shard).await.expect("a shard");
    }
}

/// Lets time pass until nothing that has ended is kept, and the earlier shards are removed.
async fn drain<S: Probe>(queue: &TestQueue<S>) {
    collect(queue).await;
    queue.store.finish(queue.name()).await;
    assert_eq!(draining(&queue.describe().await.expect("a queue")), 0);
}

async fn q17_every_message_is_found_while_the_number_of_shards_changes<S: Probe>(stage: &Stage<S>) {
    const EACH: usize = 30;
    for changes in [[4, 7, 3], [7, 3, 4], [1, 5, 1], [5, 1, 2]] {
        let queue = queue_of(stage, changes[0]).await;
        for (round, shards) in changes.into_iter().skip(1).enumerate() {
            let all = |kind: &str| -> Vec<String> { (0..EACH).map(|n| format!("{kind}{round}-{n}")).collect() };
            let (before, after) = (all("before"), all("after"));
            queue.put(before.iter().map(|name| message(name, 1))).await;
            let leases = queue.take(10).await;
            let (running, first) = (leases.len(), to(&leases[0]));
            queue.complete(first.clone()).await.expect("a live lease");
            let described = queue.describe().await.expect("a queue");
            let changed = queue.reconfigure(reshard(shards)).await;
            assert_eq!((changed.config.shards, draining(&changed)), (shards, described.config.shards));
            assert!(changed.revision > described.revision);
            assert_eq!(queue.reconfigure(reshard(shards)).await, changed, "the same again changes nothing");
            queue.put(after.iter().map(|name| message(name, 2))).await;
            let depth = queue.depth().await;
            assert_eq!((depth.running, depth.completed), (running as u64 - 1, 1));
            assert_eq!(depth.pending as usize, 2 * EACH - running);
            for name in before.iter().chain(&after) {
                assert_eq!(queue.get(name).await.id.as_str(), name);
                assert_eq!(queue.facts(name).await.message.id.as_str(), name);
            }
            // What their workers and senders did before is answered as before.
            queue.complete(first.clone()).await.expect("the same again");
            for lease in &leases[1..] {
                queue.extend(to(lease), None, "").await.expect("a live lease");
                queue.release(to(lease), Some(0), "").await.expect("a live lease");
            }
            queue.cancel(no_lease(&after[0]), "").await.expect("a pending message");
            queue.redrive(&after[0]).await.expect("a canceled message");
            queue.reprioritize(&after[1], 0).await.expect("a pending message");
            let mut seen = BTreeSet::from([first.id.to_string()]);
            for lease in queue.take_all().await {
                assert!(seen.insert(lease.id.to_string()), "twice: {lease:?}");
                queue.complete(to(&lease)).await.expect("a live lease");
            }
            assert_eq!(seen, before.into_iter().chain(after).collect());
            queue.store.finish(queue.name()).await;
            assert!(draining(&queue.describe().await.expect("a queue")) > 0, "ended messages are kept");
            drain(&queue).await;
            let current = queue.store.layout(&queue.shard).await.expect("a queue").current();
            let expected: Vec<u16> = std::iter::once(0).chain(current.numbers()).collect();
            assert_eq!((numbers(&queue).await, current.count), (expected, shards));
        }
        queue.assert_sound().await;
    }
}

async fn q17_an_id_is_one_message_while_the_number_of_shards_changes<S: Probe>(stage: &Stage<S>) {
    let queue = queue_of(stage, 4).await;
    queue.reconfigure(QueuePatch { id_window_ms: Some(2_000_000), ..QueuePatch::default() }).await;
    let all = names(40);
    let first = queue.put(all.iter().map(|name| message(name, 1))).await;
    for lease in queue.take(20).await {
        queue.complete(to(&lease)).await.expect("a live lease");
    }
    queue.reconfigure(reshard(7)).await;
    let again = async |what: &str| {
        for server in [queue.clone(), queue.through(&stage.other)] {
            for (name, first) in all.iter().zip(&first) {
                let repeated = server.try_put(message(name, 1)).await.expect("the same message");
                assert_eq!(repeated.enqueued_at_ms, first.enqueued_at_ms, "{name}, {what}");
                let other = server.try_put(message(name, 7)).await;
                assert!(matches!(other, Err(Refusal::IdConflict { .. })), "{name}, {what}: {other:?}");
            }
        }
    };
    queue.through(&stage.other).put_late(message(&all[0], 1)).await;
    again("in every state").await;
    for lease in queue.take_all().await {
        queue.complete(to(&lease)).await.expect("a live lease");
    }
    collect(&queue).await;
    assert_eq!(queue.depth().await, Depth::default());
    again("remembered").await;
    queue.store.finish(queue.name()).await;
    assert_eq!(draining(&queue.describe().await.expect("a queue")), 4, "their ids are remembered");
    // Without its window an id is new, and in a new shard. So it is after the earlier shards.
    stage.clock.advance(2_000_000);
    for finishes in [false, true] {
        if finishes {
            queue.store.finish(queue.name()).await;
            assert_eq!(draining(&queue.describe().await.expect("a queue")), 0);
        }
        for (n, result) in queue.put(all.iter().map(|name| message(name, 9))).await.into_iter().enumerate() {
            assert_eq!(result.enqueued_at_ms, stage.clock.now_ms(), "{n}");
        }
    }
    let tokens = queue.take_all().await;
    assert!(tokens.len() == all.len() && tokens.iter().all(|lease| fencing::shard_of(lease.fencing_token) >= 4));
    queue.assert_sound().await;
}

async fn q17_a_coalesced_message_goes_where_its_id_is_live<S: Probe>(stage: &Stage<S>) {
    let queue = queue_of(stage, 4).await;
    queue.reconfigure(QueuePatch { id_window_ms: Some(2_000_000), ..QueuePatch::default() }).await;
    let all = names(24);
    queue.put(all.iter().map(|name| message(name, 5))).await;
    let leases = queue.take_all().await;
    for lease in &leases[..16] {
        queue.complete(to(lease)).await.expect("a live lease");
    }
    queue.reconfigure(reshard(3)).await;
    let coalesce = |name: &str, priority| NewMessage { coalesce: true, ..message(name, priority) };
    let shard_of = async |name: &str| shard_of(&queue, name).await;
    // Live ones stay.
    for lease in &leases[16..] {
        let name = lease.id.as_str();
        queue.put([coalesce(name, 1)]).await;
        assert!(queue.get(name).await.coalesced && shard_of(name).await < Some(4));
    }
    // Ended ones are new, both in one call: the second is the first one again.
    for lease in &leases[..8] {
        let name = lease.id.as_str();
        queue.put([coalesce(name, 2), coalesce(name, 1)]).await;
        let found = queue.get(name).await;
        assert_eq!((found.state, found.priority, found.version), (State::Pending, 1, 2));
        assert!(shard_of(name).await >= Some(4));
    }
    // So are those of which only the id is known.
    collect(&queue).await;
    for lease in &leases[8..16] {
        let name = lease.id.as_str();
        assert_eq!(shard_of(name).await, None);
        assert_eq!(queue.put([message(name, 5)]).await[0].enqueued_at_ms, Clock::new().now_ms());
        queue.put([coalesce(name, 3)]).await;
        assert!(shard_of(name).await >= Some(4));
        let again = queue.put([message(name, 3)]).await;
        assert_eq!(again[0].enqueued_at_ms, stage.clock.now_ms(), "what the earlier shard remembered is over");
    }
    queue.assert_sound().await;
}

/// Each verb is the first call of a server after the change.
async fn q17_a_server_that_knows_nothing_of_a_change_finds_every_message<S: Probe>(stage: &Stage<S>) {
    const MESSAGES: usize = 20;
    // Each of another exclusivity value.
    let of = |name: String| keyed(&name, 1, &name);
    let all = |kind: &str| -> Vec<NewMessage> { (0..MESSAGES).map(|n| of(format!("{kind}{n}"))).collect() };
    let verbs = ["complete", "extend", "release", "cancel", "redrive", "update", "get", "explain", "enqueue"];
    for ((before, after), verb) in [(4, 7), (7, 3), (5, 1), (1, 5)].into_iter().cycle().zip(verbs) {
        for (finishes, config) in [(false, simple()), (true, simple()), (false, exclusive()), (true, exclusive())] {
            let late = new_queue(stage, QueueConfig { shards: before, ..config }).await;
            let current = late.through(&stage.other);
            late.put(all("old")).await;
            late.take_all().await;
            late.purge(true).await;
            current.reconfigure(reshard(after)).await;
            if finishes {
                drain(&current).await;
            }
            if verb == "enqueue" {
                for message in all("new") {
                    late.put_late(message).await;
                }
                assert_eq!(current.take_all().await.len(), MESSAGES, "{before} to {after} shards");
                continue;
            }
            finds_each(&late, &current, verb, all("new"), &format!("{before} to {after} shards")).await;
        }
    }
}

async fn q17_a_server_that_knows_nothing_of_a_change_takes_from_the_new_shards<S: Probe>(stage: &Stage<S>) {
    for (before, after) in [(4, 7), (7, 3), (5, 1), (1, 5)] {
        for finishes in [false, true] {
            let late = queue_of(stage, before).await;
            let current = late.through(&stage.other);
            late.put(names(20).iter().map(|name| message(name, 1))).await;
            late.take_all().await;
            late.purge(true).await;
            current.reconfigure(reshard(after)).await;
            if finishes {
                drain(&current).await;
            }
            current.put([message("one", 1)]).await;
            assert_eq!(late.take_ids(1).await, ["one"], "{before} to {after} shards");
            assert_eq!(late.depth().await, Depth { running: 1, ..Depth::default() });
            let request_id = || named("r", 1);
            current.put([message("two", 1)]).await;
            let first = late.try_take(request_id()).await.expect("an open queue");
            assert_eq!(current.try_take(request_id()).await, Ok(first), "the same lease");
        }
    }
}

/// The Dequeue of a worker is sent before the message is refused by the earlier shard and sent to the new one.
async fn q17_a_worker_that_waits_gets_a_message_of_a_new_shard<S: Probe>(stage: &Stage<S>) {
    let queue = queue_of(stage, 4).await;
    queue.put([message("kept", 1)]).await;
    let other = queue.through(&stage.other);
    let servers = [&queue, &other];
    let mut notified = servers.map(|server| {
        let (sender, notified) = mpsc::unbounded_channel();
        server.store.on_ready(Box::new(move |shard| {
            let _ = sender.send(shard.number);
        }));
        notified
    });
    let poll = async |server: &TestQueue<S>| {
        let answer = server.store.dequeue(&queue.shard, &[request(1)], true, None).await;
        answer.expect("a queue").leases.remove(0).expect("an open queue")
    };
    for server in servers {
        while !poll(server).await.is_empty() {}
    }
    queue.reconfigure(reshard(2)).await;
    for server in servers {
        assert_eq!(poll(server).await, []);
    }
    for name in ["a", "b", "c", "d", "e", "f"] {
        for notified in &mut notified {
            while notified.try_recv().is_ok() {}
        }
        queue.put([message(name, 1)]).await;
        for (n, (server, notified)) in servers.into_iter().zip(&mut notified).enumerate() {
            until_notified(notified).await;
            if n == 1 {
                assert_eq!(server.take_ids(1).await, [name]);
            }
            poll(server).await;
            if n == 0 {
                // It has got the message: back with it for the other one.
                let lease = lease_ref(name, queue.get(name).await.fencing_token);
                queue.release(lease, Some(0), "").await.expect("a live lease");
            }
        }
    }
}

/// Waits until a server is notified of a new shard.
async fn until_notified(notified: &mut mpsc::UnboundedReceiver<u16>) {
    let wait = async { while notified.recv().await.expect("a channel") < 4 {} };
    tokio::time::timeout(Duration::from_secs(10), wait).await.expect("a notification");
}

async fn q17_walks_go_on_over_a_change<S: Probe>(stage: &Stage<S>) {
    for (before, after) in [(4, 7), (1, 3), (5, 1)] {
        let queue = queue_of(stage, before).await;
        let late = queue.through(&stage.other);
        queue.put(names(40).iter().map(|name| message(name, 1))).await;
        let page =
            async |token: &str| late.store.list_messages(&late.shard, State::Pending, token, 7).await.expect("a page");
        let mut pages = vec![page("").await];
        queue.reconfigure(reshard(after)).await;
        queue.put((0..20).map(|n| message(&format!("new{n}"), 1))).await;
        while let Some(last) = pages.last().filter(|page| !page.next_cursor.is_empty()) {
            let next = page(&last.next_cursor).await;
            pages.push(next);
        }
        let listed: Vec<String> = pages.into_iter().flat_map(|page| page.items).map(|m| m.id.to_string()).collect();
        let distinct: BTreeSet<&String> = listed.iter().collect();
        assert_eq!((listed.len(), distinct.len()), (60, 60), "{before} to {after} shards");
        let again = queue.through(&stage.other);
        let selection = Selection { states: [State::Pending].into(), ..Selection::default() };
        let change = Change::Cancel { reason: "unwanted".to_owned() };
        let request = ChangeRequest { selection, change, dry_run: false };
        let matched = again.change_all(&request, 5).await;
        assert_eq!((matched, again.depth().await.canceled), (60, 60));
        assert_eq!(again.purge(true).await, 60);
        queue.store.finish(queue.name()).await;
        assert_eq!(draining(&queue.describe().await.expect("a queue")), 0);
        queue.assert_sound().await;
    }
}

async fn q17_a_queue_may_be_deleted_during_a_change<S: Probe>(stage: &Stage<S>) {
    for (before, after) in [(4, 7), (1, 3), (5, 1)] {
        let queue = queue_of(stage, before).await;
        queue.put(names(10).iter().map(|name| message(name, 1))).await;
        queue.reconfigure(reshard(after)).await;
        queue.put((0..10).map(|n| message(&format!("new{n}"), 1))).await;
        let refused = queue.store.delete_queue(queue.name()).await;
        assert!(matches!(refused, Err(Refusal::QueueNotEmpty { .. })), "{refused:?}");
        for lease in queue.take_all().await {
            queue.complete(to(&lease)).await.expect("a live lease");
        }
        let all = numbers(&queue).await;
        queue.store.delete_queue(queue.name()).await.expect("only ended messages");
        for number in all {
            let gone = queue.store.holds(&queue.shard.sibling(number), &[id("m0")]).await;
            assert!(matches!(gone, Err(Refusal::QueueNotFound { .. })), "{number}: {gone:?}");
        }
        // A later queue of the name begins with its first shards again.
        stage.clock.advance(1);
        queue.store.create_queue(queue.name(), QueueConfig { shards: 2, ..simple() }).await.expect("a new queue");
        queue.put((0..10).map(|n| message(&format!("later{n}"), 1))).await;
        assert_eq!((numbers(&queue).await, queue.take_all().await.len()), (vec![0, 1], 10));
        queue.assert_sound().await;
    }
}

async fn q17_changes_that_cannot_be_made_change_nothing<S: Probe>(stage: &Stage<S>) {
    let refused = async |queue: &TestQueue<S>, shards| {
        let before = queue.describe().await;
        let refusal = queue.store.update_queue(queue.name(), reshard(shards)).await.expect_err("refused");
        assert!(matches!(refusal, Refusal::Invalid { field: "shards", .. }), "{refusal:?}");
        assert_eq!(queue.describe().await, before);
        refusal.to_string()
    };
    let simple = queue_of(stage, 4).await;
    // Each closed shard of an exclusive queue needs one index more.
    let indexes = (0..16).map(|n| IndexKeys::parse([format!("key{n}")]).expect("a key")).collect();
    let full = new_queue(stage, QueueConfig { shards: 4, indexes, ..exclusive() }).await;
    let before = full.describe().await;
    let refusal = full.store.update_queue(full.name(), reshard(2)).await.expect_err("refused");
    assert!(matches!(refusal, Refusal::TooManyIndexes { .. }), "{refusal:?}");
    assert_eq!(full.describe().await, before);
    for shards in [0, 65] {
        refused(&simple, shards).await;
    }
    simple.put([message("a", 1)]).await;
    simple.reconfigure(reshard(64)).await;
    assert!(refused(&simple, 4).await.contains("shards_draining 0"));
    // Another field may change meanwhile, in all shards.
    simple.reconfigure(QueuePatch { lease_ms: Some(77_000), ..QueuePatch::default() }).await;
    simple.put(names(60).iter().map(|name| message(name, 1))).await;
    let leases = simple.take_all().await;
    assert_eq!(leases.len(), 61);
    assert!(leases.iter().all(|lease| lease.expires_at_ms - lease.leased_at_ms == 77_000));
}

/// A value has messages in one shard at a time, whatever their states; so only one of them runs at a time.
async fn q17_a_value_stays_in_its_shard_until_its_last_message_has_ended<S: Probe>(stage: &Stage<S>) {
    const KEPT: [&str; 6] = ["pending", "running", "delayed", "retried", "errored", "canceled"];
    const FREE: [&str; 2] = ["completed", "none"];
    for (before, after) in [(4, 7), (7, 3), (1, 5), (5, 1)] {
        let queue = new_queue(stage, QueueConfig { shards: before, ..exclusive() }).await;
        let late = queue.through(&stage.other);
        queue.put(["running", "retried", "errored", "completed"].map(|value| keyed(value, 1, value))).await;
        let leases = queue.take_all().await;
        let lease_of = |value: &str| to(leases.iter().find(|lease| lease.id.as_str() == value).expect("its lease"));
        queue.release(lease_of("retried"), Some(5_000), "").await.expect("a live lease");
        queue.release_for_good(lease_of("errored"), Verdict::Error, "").await.expect("a live lease");
        queue.complete(lease_of("completed")).await.expect("a live lease");
        let delayed = NewMessage { invisibility_ms: Some(5_000), ..keyed("delayed", 1, "delayed") };
        queue.put([keyed("pending", 1, "pending"), delayed, keyed("canceled", 1, "canceled")]).await;
        queue.cancel(no_lease("canceled"), "").await.expect("a pending message");
        queue.reconfigure(reshard(after)).await;

        let is_kept = async |name: String| shard_of(&queue, &name).await < Some(before);
        // Twice: with what the first call has brought, and through a server that knows nothing of the change.
        for (server, kind) in [(&queue, "second"), (&late, "third")] {
            for value in KEPT.into_iter().chain(FREE) {
                server.put_late(keyed(&format!("{value}-{kind}"), 2, value)).await;
                assert_eq!(
                    is_kept(format!("{value}-{kind}")).await,
                    KEPT.contains(&value),
                    "{value}, {before} to {after}"
                );
            }
        }
        let run = async |expected: &[&str]| {
            let taken = late.take_all().await;
            let mut values: Vec<&str> = taken.iter().map(|lease| lease.metadata.get(KEY).expect("a value")).collect();
            values.sort_unstable();
            assert_eq!(values, expected, "one of each value, {before} to {after} shards");
            for lease in taken {
                late.complete(to(&lease)).await.expect("a live lease");
            }
        };
        run(&["canceled", "completed", "delayed", "errored", "none", "pending", "retried"]).await;
        late.complete(lease_of("running")).await.expect("a live lease");
        for id in ["errored", "canceled"] {
            late.redrive(id).await.expect("an ended message");
        }
        run(&["canceled", "completed", "delayed", "errored", "none", "pending", "retried", "running"]).await;
        run(&["canceled", "errored", "pending", "running"]).await;
        run(&[]).await;
        // Two that are not visible yet keep their values.
        for value in KEPT {
            queue.put([keyed(&format!("{value}-fourth"), 1, value)]).await;
            let (is_kept, is_hidden) =
                (is_kept(format!("{value}-fourth")).await, ["delayed", "retried"].contains(&value));
            assert_eq!(is_kept, is_hidden, "{value}, {before} to {after} shards");
        }
        stage.clock.advance(5_000);
        for _ in 0..2 {
            late.take_all().await;
            late.purge(true).await;
        }
        drain(&queue).await;
        queue.put([keyed("delayed-fifth", 1, "delayed")]).await;
        assert!(!is_kept("delayed-fifth".to_owned()).await);
        queue.assert_sound().await;
    }
}

async fn q17_a_coalesced_message_goes_where_its_value_is<S: Probe>(stage: &Stage<S>) {
    let queue = new_queue(stage, QueueConfig { shards: 1, id_window_ms: 2_000_000, ..exclusive() }).await;
    let coalesce = |id: &str, value: &str| NewMessage { coalesce: true, ..keyed(id, 1, value) };
    queue.put(["a", "b", "c", "d"].map(|id| keyed(id, 2, id))).await;
    let leases = queue.take_all().await;
    queue.release_for_good(to(&leases[0]), Verdict::Error, "").await.expect("a live lease");
    for lease in &leases[1..] {
        queue.complete(to(lease)).await.expect("a live lease");
    }
    queue.put([keyed("kept", 1, "d")]).await;
    queue.reconfigure(reshard(5)).await;
    let is_kept = async |name: &str| shard_of(&queue, name).await == Some(0);
    // The last message of its value, and errored: it is new where it was.
    queue.put([coalesce("a", "a")]).await;
    assert_eq!((is_kept("a").await, queue.state("a").await), (true, State::Pending));
    // Of another value than it had: of one that is kept, and of one that is not.
    queue.put([coalesce("b", "d"), coalesce("c", "x")]).await;
    assert_eq!((is_kept("b").await, is_kept("c").await), (true, false));
    // Only the ids are known.
    queue.take_all().await;
    queue.purge(true).await;
    collect(&queue).await;
    queue.put([keyed("e", 1, "e"), coalesce("d", "d"), coalesce("a", "new")]).await;
    assert_eq!(queue.put([keyed("d", 1, "d")]).await[0].enqueued_at_ms, stage.clock.now_ms());
    for name in ["a", "d", "e"] {
        assert!(!is_kept(name).await, "{name}");
    }
    queue.assert_sound().await;
}

async fn q17_the_last_message_of_a_value_may_leave_it_in_the_middle_of_a_batch<S: Probe>(stage: &Stage<S>) {
    let queue = new_queue(stage, QueueConfig { shards: 1, ..exclusive() }).await;
    queue.put(["a", "b"].map(|id| keyed(id, 2, id))).await;
    for lease in queue.take_all().await {
        queue.release_for_good(to(&lease), Verdict::Error, "").await.expect("a live lease");
    }
    queue.reconfigure(reshard(5)).await;
    // What was the last message of `a` becomes one of `b`, and of `x`: then `a` is kept no more.
    let leave = NewMessage { coalesce: true, ..keyed("a", 1, "b") };
    queue.put([keyed("before", 1, "b"), leave, keyed("after", 1, "a")]).await;
    let mut is_kept = Vec::new();
    for name in ["before", "a", "after"] {
        is_kept.push(shard_of(&queue, name).await == Some(0));
    }
    assert_eq!(is_kept, [true, true, false]);
    assert_eq!(queue.take_all().await.len(), 2, "one of each value");
    queue.assert_sound().await;
}
