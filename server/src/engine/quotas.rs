//! The quotas of tenants (S5), over the oracle and in virtual time.

use super::tests::{HOUR, Rig, id_of, queue, request};
use super::*;
use crate::config::{CreateOnEnqueue, QueueTemplates, TenantConfig, TenantConfigs};
use crate::testing::{TestStore, shard_of};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tallystone_model::{Applied, IndexKeys, QueuePatch};

/// A rig with a tenant `t` of the queues `t/…`.
fn rig(quotas: TenantConfig) -> Rig {
    let tenant = TenantConfig { name: "t".to_owned(), prefix: "t/".to_owned(), ..quotas };
    let tenants = TenantConfigs(vec![tenant]);
    tenants.check().unwrap();
    Rig::with(&TestStore::new(), CreateOnEnqueue::Always, QueueTemplates::default(), tenants)
}

impl Rig {
    /// Enqueues these messages; which of them are refused, by which quota.
    async fn refused(&self, name: &str, ids: std::ops::Range<u32>) -> Vec<Option<&'static str>> {
        let messages = ids.map(|id| NewMessage::new(id_of(&id.to_string()), 0)).collect();
        let results = self.engine.enqueue(&queue(name), messages, 0, true).await.unwrap();
        results.into_iter().map(|result| result.err().map(|refusal| quota_of(&refusal))).collect()
    }

    async fn purge(&self, name: &str) {
        self.store.oracle.purge(&shard_of(name), true, "").await.unwrap();
    }
}

fn quota_of(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::TenantQuota { tenant, quota, .. } if tenant == "t" => quota,
        other => panic!("not a quota: {other:?}"),
    }
}

/// The results of calls: first those that are accepted, then those that a quota refuses.
fn results(accepted: usize, quota: &'static str, refused: usize) -> Vec<Option<&'static str>> {
    [vec![None; accepted], vec![Some(quota); refused]].concat()
}

#[tokio::test(start_paused = true)]
async fn s5_all_queues_of_a_tenant_share_its_messages() {
    let rig = rig(TenantConfig { messages_max: Some(10), ..TenantConfig::default() });
    assert_eq!(rig.refused("t/a", 0..6).await, results(6, "", 0));
    assert_eq!(rig.refused("t/b", 0..6).await, results(4, "messages_max", 2));
    assert_eq!(rig.refused("other", 0..20).await, results(20, "", 0));
    // Between two readings a full tenant stays full.
    rig.purge("t/a").await;
    assert_eq!(rig.refused("t/b", 6..7).await, results(0, "messages_max", 1));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(rig.refused("t/b", 6..20).await, results(6, "messages_max", 8));
}

#[tokio::test(start_paused = true)]
async fn s5_calls_at_once_do_not_pass_the_bound_together() {
    let rig = rig(TenantConfig { messages_max: Some(100), ..TenantConfig::default() });
    rig.store.slow.store(true, Ordering::SeqCst);
    let calls = (0..30).map(|n| {
        let engine = rig.engine.clone();
        tokio::spawn(async move {
            let messages = (0..10).map(|id| NewMessage::new(id_of(&format!("{n}-{id}")), 0)).collect();
            engine.enqueue(&queue(&format!("t/{}", n % 3)), messages, 0, true).await.unwrap()
        })
    });
    let mut accepted = 0;
    for call in calls.collect::<Vec<_>>() {
        accepted += call.await.unwrap().iter().filter(|result| result.is_ok()).count();
    }
    assert_eq!(accepted, 100);
}

#[tokio::test(start_paused = true)]
async fn s5_a_caller_that_leaves_during_a_reading_makes_no_room() {
    let rig = rig(TenantConfig { messages_max: Some(10), ..TenantConfig::default() });
    assert_eq!(rig.refused("t/a", 0..10).await, results(10, "", 0));
    tokio::time::sleep(Duration::from_millis(100)).await;
    rig.store.gate.send_replace(false);
    let leaves = tokio::time::timeout(Duration::from_millis(1), rig.refused("t/a", 10..11));
    assert!(leaves.await.is_err(), "it reads how much there is");
    let during = tokio::time::timeout(Duration::from_millis(1), rig.refused("t/a", 10..11));
    assert!(during.await.is_err(), "what came before the reading counts meanwhile");
    rig.store.gate.send_replace(true);
    assert_eq!(rig.refused("t/a", 11..12).await, results(0, "messages_max", 1));
}

#[tokio::test(start_paused = true)]
async fn s5_bytes_are_bounded_by_the_size_of_the_messages_until_they_are_read() {
    let rig = rig(TenantConfig { bytes_max: Some(10_000), ..TenantConfig::default() });
    let large = |id: &str| NewMessage { payload: vec![0; 3_000].into(), ..NewMessage::new(id_of(id), 0) };
    let small = |id: &str| NewMessage::new(id_of(id), 0);
    let messages = vec![large("a"), large("b"), large("c"), large("d"), small("e")];
    let results = rig.engine.enqueue(&queue("t/a"), messages, 0, true).await.unwrap();
    let refused: Vec<_> = results.iter().map(|result| result.as_ref().err().map(quota_of)).collect();
    assert_eq!(refused, [None, None, None, Some("bytes_max"), None], "a smaller message still has room");
}

#[tokio::test(start_paused = true)]
async fn s5_a_rate_lets_in_a_second_of_messages_at_once() {
    let rig = rig(TenantConfig { enqueue_per_s: Some(5), ..TenantConfig::default() });
    assert_eq!(rig.refused("t/a", 0..8).await, results(5, "enqueue_per_s", 3));
    let refused = rig.engine.enqueue(&queue("t/b"), vec![NewMessage::new(id_of("a"), 0)], 0, true).await.unwrap();
    let Err(Refusal::TenantQuota { retry_after: Some(wait), max: 5, .. }) = &refused[0] else { panic!("{refused:?}") };
    assert!(*wait <= Duration::from_millis(200), "{wait:?}");
    tokio::time::sleep(*wait).await;
    assert_eq!(rig.refused("t/a", 5..7).await, results(1, "enqueue_per_s", 1));
    assert_eq!(rig.refused("other", 0..100).await, results(100, "", 0));
}

#[tokio::test(start_paused = true)]
async fn s5_queues_and_their_indexes_are_bounded() {
    let rig = rig(TenantConfig { queues_max: Some(2), indexes_max: Some(3), ..TenantConfig::default() });
    let index = |key: &str| IndexKeys::parse([key.to_owned()]).unwrap();
    let with =
        |keys: &[&str]| QueueConfig { indexes: keys.iter().map(|key| index(key)).collect(), ..QueueConfig::default() };
    let create = async |name: &str, config: QueueConfig| {
        rig.engine.create_queue(&queue(name), config).await.map(drop).map_err(|refusal| quota_of(&refusal))
    };
    assert_eq!(create("t/a", with(&["a", "b", "c", "d"])).await, Err("indexes_max"));
    assert_eq!(create("t/a", with(&["a", "b"])).await, Ok(()));
    let patch = |keys: &[&str]| QueuePatch { indexes: Some(with(keys).indexes), ..QueuePatch::default() };
    let update = async |keys: &[&str]| {
        let updated = rig.engine.update_queue(&queue("t/a"), patch(keys)).await;
        updated.map(drop).map_err(|refusal| quota_of(&refusal))
    };
    assert_eq!(update(&["a", "b", "c", "d"]).await, Err("indexes_max"));
    assert_eq!(update(&["a", "b", "c"]).await, Ok(()));
    assert_eq!(rig.refused("t/b", 0..1).await, results(1, "", 0), "the Enqueue creates the second queue");
    assert_eq!(create("t/a", with(&["a", "b", "c"])).await, Ok(()), "a repeated call creates nothing");
    assert_eq!(create("t/c", QueueConfig::default()).await, Err("queues_max"));
    let enqueued = rig.engine.enqueue(&queue("t/c"), vec![NewMessage::new(id_of("a"), 0)], 0, true).await;
    assert_eq!(quota_of(&enqueued.unwrap_err()), "queues_max");
    rig.store.oracle.get_queue(&queue("t/c")).await.unwrap_err();
    assert_eq!(create("other", QueueConfig::default()).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn s5_a_caller_at_the_bounds_of_queues_and_indexes_causes_few_readings() {
    let rig = rig(TenantConfig { queues_max: Some(2), indexes_max: Some(1), ..TenantConfig::default() });
    let indexes = || vec![IndexKeys::parse(["k".to_owned()]).unwrap()];
    let indexed = || QueueConfig { indexes: indexes(), ..QueueConfig::default() };
    let create = async |name: &str, config: QueueConfig| {
        rig.engine.create_queue(&queue(name), config).await.map(drop).map_err(|refusal| quota_of(&refusal))
    };
    let readings = || rig.store.calls("list_queues");
    assert_eq!(create("t/a", indexed()).await, Ok(()));
    let before = readings();
    for n in 0..20 {
        assert_eq!(create(&format!("t/i{n}"), indexed()).await, Err("indexes_max"));
    }
    assert_eq!(readings() - before, 2, "of the queues and of the indexes");
    assert_eq!(create("t/b", QueueConfig::default()).await, Ok(()), "it declares none");
    let before = readings();
    for n in 0..20 {
        assert_eq!(create(&format!("t/q{n}"), QueueConfig::default()).await, Err("queues_max"));
    }
    let patch = QueuePatch { indexes: Some(indexes()), ..QueuePatch::default() };
    let updated = rig.engine.update_queue(&queue("t/b"), patch).await;
    assert_eq!(quota_of(&updated.unwrap_err()), "indexes_max", "its refusal is remembered, too");
    let enqueued = rig.engine.enqueue(&queue("t/c"), vec![NewMessage::new(id_of("a"), 0)], 0, true).await;
    assert_eq!(quota_of(&enqueued.unwrap_err()), "queues_max");
    assert_eq!(readings() - before, 1, "of the queues");
    // Then it is read again, and there may be room: after a while, or at once if a queue was deleted through this server.
    rig.store.oracle.delete_queue(&queue("t/b")).await.unwrap();
    tokio::time::advance(Duration::from_millis(100)).await;
    assert_eq!(create("t/c", QueueConfig::default()).await, Ok(()));
    assert_eq!(create("t/d", QueueConfig::default()).await, Err("queues_max"));
    rig.store.oracle.delete_queue(&queue("t/c")).await.unwrap();
    assert_eq!(create("t/d", QueueConfig::default()).await, Err("queues_max"));
    rig.engine.note_deletion(&queue("t/c")).await;
    assert_eq!(create("t/d", QueueConfig::default()).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn s5_waiters_and_subscriptions_are_bounded_over_all_queues_of_a_tenant() {
    let rig = rig(TenantConfig { waiters_max: Some(2), subscriptions_max: Some(1), ..TenantConfig::default() });
    rig.enqueue("t/a", &[]).await;
    for name in ["t/a", "t/b", "other"] {
        rig.engine.create_queue(&queue(name), QueueConfig::default()).await.unwrap();
    }
    let waiting = [rig.wait("t/a", HOUR), rig.wait("t/b", HOUR)];
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(quota_of(&rig.wait("t/b", HOUR).await.unwrap().unwrap_err()), "waiters_max");
    assert_eq!(rig.wait("t/b", Duration::ZERO).await.unwrap(), Ok(vec![]), "a call that does not wait takes no place");
    let elsewhere = rig.wait("other", HOUR);
    // What is runnable is given to a caller that may not wait, too.
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let _waiting = [rig.wait("t/a", HOUR), rig.wait("t/a", HOUR)];
    tokio::time::sleep(Duration::from_secs(1)).await;
    rig.enqueue("t/b", &["m"]).await;
    assert_eq!(rig.wait("t/b", HOUR).await.unwrap().unwrap().len(), 1);
    assert!(!elsewhere.is_finished());

    let events = WorkEvents::new();
    let work = |name: &str| rig.engine.work(&queue(name), request(0), false, events.sender(0));
    let first = work("t/a").ok().unwrap();
    assert_eq!(quota_of(&work("t/b").err().unwrap()), "subscriptions_max");
    assert!(work("other").is_ok());
    drop(first);
    assert!(work("t/b").is_ok());
}

#[tokio::test(start_paused = true)]
async fn s5_no_lease_is_longer_than_the_tenants() {
    let rig = rig(TenantConfig { lease_ms_max: Some(60_000), ..TenantConfig::default() });
    let long = QueueConfig { lease_ms: 60_001, ..QueueConfig::default() };
    assert_eq!(quota_of(&rig.engine.create_queue(&queue("t/a"), long).await.unwrap_err()), "lease_ms_max");
    rig.engine.create_queue(&queue("t/a"), QueueConfig::default()).await.unwrap();
    let patch = QueuePatch { lease_ms: Some(60_001), ..QueuePatch::default() };
    assert_eq!(quota_of(&rig.engine.update_queue(&queue("t/a"), patch).await.unwrap_err()), "lease_ms_max");
    let with = |id: &str, lease_ms| NewMessage { lease_ms: Some(lease_ms), ..NewMessage::new(id_of(id), 0) };
    let messages = vec![with("a", 60_001), with("b", 60_000)];
    let results = rig.engine.enqueue(&queue("t/a"), messages, 0, true).await.unwrap();
    assert_eq!(quota_of(results[0].as_ref().unwrap_err()), "lease_ms_max");
    assert!(results[1].is_ok());
    let dequeue = async |lease_ms| {
        let request = DequeueRequest { lease_ms: Some(lease_ms), ..request(1) };
        rig.engine.dequeue(&queue("t/a"), request, 0, Instant::now()).await
    };
    assert_eq!(quota_of(&dequeue(60_001).await.unwrap_err()), "lease_ms_max");
    assert_eq!(dequeue(60_000).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn s5_a_tenant_that_was_never_read_is_refused_with_the_stores_word() {
    let rig = rig(TenantConfig { messages_max: Some(10), ..TenantConfig::default() });
    rig.store.away.store(true, Ordering::SeqCst);
    let enqueued = rig.engine.enqueue(&queue("t/a"), vec![NewMessage::new(id_of("a"), 0)], 0, true).await;
    assert!(matches!(enqueued, Err(Refusal::Unavailable { applied: Applied::No, .. })), "{enqueued:?}");
    rig.store.away.store(false, Ordering::SeqCst);
    assert_eq!(rig.refused("t/a", 0..11).await, results(10, "messages_max", 1));
}
