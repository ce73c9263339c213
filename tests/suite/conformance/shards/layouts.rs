//! Servers that have an earlier queue of the name in mind, with another number of shards (Q17).

use super::{finds_each, names};
use std::collections::BTreeSet;
use tallystone_model::*;
use tallystone_tests::queue::to;
use tallystone_tests::*;

over_stores_of_shards!(
    q17_a_server_with_an_old_layout_loses_nothing_and_runs_no_value_twice,
    q17_a_dequeue_finds_what_is_in_a_shard_that_its_server_does_not_know,
    q17_a_call_finds_a_message_through_a_server_with_an_earlier_layout,
);

/// Two servers on one queue, of which one has used an earlier queue of the name, with another number of shards.
async fn q17_a_server_with_an_old_layout_loses_nothing_and_runs_no_value_twice<S: Probe>(stage: &Stage<S>) {
    const VALUES: usize = 30;
    let late = stage.queue(QueueConfig { shards: 4, ..exclusive() }).await;
    let current = late.through(&stage.other);
    let batch = |kind: &str| -> Vec<NewMessage> {
        (0..VALUES).map(|n| keyed(&format!("{kind}{n}"), 1, &format!("v{n}"))).collect()
    };
    for shards in [7, 3, 1, 5] {
        // Now it has the configurations of all its shards.
        late.put(batch("old")).await;
        assert_eq!(late.take_all().await.len(), VALUES);
        late.purge(true).await;
        current.store.delete_queue(current.name()).await.expect("an empty queue");
        stage.clock.advance(1);
        current.store.create_queue(current.name(), QueueConfig { shards, ..exclusive() }).await.expect("a new queue");
        stage.clock.advance(1);
        current.put(batch("first")).await;
        for message in batch("second") {
            late.put_late(message).await;
        }
        assert_eq!(late.depth().await.pending, 2 * VALUES as u64);
        for of_second in [false, true] {
            // Values run in the order of their messages, so what came first is first, wherever it came from.
            let mut leases = late.take(VALUES / 2).await;
            leases.extend(current.take_all().await);
            let running: BTreeSet<&str> = leases.iter().filter_map(|lease| lease.metadata.get(KEY)).collect();
            assert_eq!((leases.len(), running.len()), (VALUES, VALUES), "{shards} shards: a value runs twice");
            assert!(leases.iter().all(|lease| lease.id.as_str().starts_with("second") == of_second));
            assert_eq!((late.take(1).await, current.take(1).await), (vec![], vec![]));
            for (n, lease) in leases.iter().enumerate() {
                let by = if n % 2 == 0 { &late } else { &current };
                by.complete(to(lease)).await.expect("a live lease");
            }
        }
        current.purge(true).await;
    }
}

/// The only message is in a shard that the earlier queue of the name did not have.
async fn q17_a_dequeue_finds_what_is_in_a_shard_that_its_server_does_not_know<S: Probe>(stage: &Stage<S>) {
    let late = stage.queue(QueueConfig { shards: 2, ..simple() }).await;
    let current = late.through(&stage.other);
    for shards in [3, 5, 7] {
        late.put(names(20).iter().map(|name| message(name, 1))).await;
        late.take_all().await;
        late.purge(true).await;
        current.store.delete_queue(current.name()).await.expect("an empty queue");
        stage.clock.advance(1);
        current.store.create_queue(current.name(), QueueConfig { shards, ..simple() }).await.expect("a new queue");
        let of_last = |name: &String| Shard::number_of(shards, None, &id(name)) == shards - 1;
        let name = (0..).map(|n| format!("m{n}")).find(of_last).expect("one in some");
        current.put([message(&name, 1)]).await;
        assert_eq!(late.take_ids(1).await, [name], "{shards} shards");
        current.purge(true).await;
    }
}

/// Each verb is the first call of a server after the queue was created again.
async fn q17_a_call_finds_a_message_through_a_server_with_an_earlier_layout<S: Probe>(stage: &Stage<S>) {
    const MESSAGES: usize = 20;
    for config in [simple(), exclusive()] {
        let late = stage.queue(QueueConfig { shards: 4, ..config.clone() }).await;
        let current = late.through(&stage.other);
        let all = |kind: &str| -> Vec<NewMessage> {
            (0..MESSAGES).map(|n| keyed(&format!("{kind}{n}"), 1, &format!("v{n}"))).collect()
        };
        let verbs = ["complete", "extend", "release", "cancel", "redrive", "update", "get", "explain"];
        for (shards, verb) in [7, 3, 1, 5].into_iter().cycle().zip(verbs) {
            late.put(all("old")).await;
            late.take_all().await;
            late.purge(true).await;
            current.store.delete_queue(current.name()).await.expect("an empty queue");
            stage.clock.advance(1);
            current
                .store
                .create_queue(current.name(), QueueConfig { shards, ..config.clone() })
                .await
                .expect("a queue");
            finds_each(&late, &current, verb, all("new"), &format!("{shards} shards")).await;
            current.purge(true).await;
        }
    }
}
