//! Lost transitions, and the repair of what they leave behind: Q19.

use tallystone_indexer::{DepthQuery, Queues, SearchQuery, fold};
use tallystone_model::{Loss, QueueName, Shard, State};
use tallystone_proto::history::v1::IndexedMessage;
use tallystone_tests::{BEGIN_MS, HistoryFixture, HistoryUnderTest, Life, events_of};

over_history_stores!(
    q19_the_latest_loss_of_a_shard_is_kept_until_it_is_settled,
    q19_a_loss_makes_messages_uncertain_that_have_not_changed_since,
    q19_a_repair_replaces_earlier_versions_only,
    q19_an_event_replaces_the_repair_of_its_version,
);

fn loss(queue: &QueueName, number: u16, lost_to_ms: u64) -> Loss {
    Loss { shard: Shard { queue: queue.clone(), number }, lost_to_ms }
}

async fn losses<S: HistoryUnderTest>(history: &HistoryFixture<S>, queues: Queues) -> Vec<Loss> {
    let mut losses = history.store().losses(&queues).await.expect("losses");
    losses.sort_by_key(|loss| (loss.shard.queue.to_string(), loss.shard.number));
    losses
}

async fn q19_the_latest_loss_of_a_shard_is_kept_until_it_is_settled<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let store = history.store();
    let (a, b) = (history.another_queue(), history.another_queue());
    let of_both = || Queues::WithPrefix(format!("{}/", history.queue));
    assert_eq!(losses(history, of_both()).await, []);
    // Losses are kept of queues with messages.
    history.record(&events_of(&[Life::new(&a, "m").enqueued(), Life::new(&b, "m").enqueued()])).await;
    store.record_losses(&[loss(&a, 0, 500), loss(&b, 1, 300)]).await.expect("recorded");
    store.record_losses(&[loss(&a, 0, 400), loss(&b, 1, 700), loss(&b, 0, 50)]).await.expect("recorded");
    history.show().await;
    assert_eq!(losses(history, of_both()).await, [loss(&a, 0, 500), loss(&b, 0, 50), loss(&b, 1, 700)]);
    assert_eq!(losses(history, Queues::One(a.clone())).await, [loss(&a, 0, 500)]);
    assert_eq!(losses(history, Queues::One(history.queue.clone())).await, []);
    // A later loss than the settled one stays, and so do other shards.
    store.settle_losses(&[loss(&a, 0, 500), loss(&b, 1, 699), loss(&b, 2, 9)]).await.expect("settled");
    history.show().await;
    assert_eq!(losses(history, of_both()).await, [loss(&b, 0, 50), loss(&b, 1, 700)]);
    for _ in 0..2 {
        store.settle_losses(&[loss(&b, 1, 700), loss(&b, 0, 60)]).await.expect("settled, also when repeated");
    }
    history.show().await;
    assert_eq!(losses(history, of_both()).await, []);
}

async fn q19_a_loss_makes_messages_uncertain_that_have_not_changed_since<S: HistoryUnderTest>(
    history: &HistoryFixture<S>,
) {
    let queue = history.another_queue();
    let life = |id: &str, at_ms: u64| Life::new(&queue, id).at(BEGIN_MS + at_ms);
    let lives = [
        life("a", 1).enqueued(),
        life("b", 2).tagged(&[("k", "v")]).enqueued().after(3).leased("w"),
        life("c", 6).enqueued(),
        life("d", 1).enqueued().after(5).leased("w"),
        life("e", 1).enqueued().leased("w").completed().collected(),
        life("f", 1).shard(1).enqueued(),
        Life::new(&history.another_queue(), "a").at(BEGIN_MS).enqueued(),
    ];
    history.record_and_show(&events_of(&lives)).await;
    let by = |losses: &[Loss]| DepthQuery {
        uncertain_by: Some(losses.to_vec()),
        ..DepthQuery::of(Queues::WithPrefix(format!("{}/", history.queue)))
    };
    let to = |ms: u64| loss(&queue, 0, BEGIN_MS + ms);
    assert_eq!(history.depth_of(&by(&[])).await, [0; 6]);
    assert_eq!(history.depth_of(&by(&[to(5)])).await, [0, 1, 1, 0, 0, 0], "a and b");
    assert_eq!(history.depth_of(&by(&[to(6)])).await, [0, 2, 2, 0, 0, 0], "a to d");
    assert_eq!(history.depth_of(&by(&[to(0)])).await, [0; 6]);
    assert_eq!(history.depth_of(&by(&[to(5), loss(&queue, 1, u64::MAX >> 2)])).await, [0, 2, 1, 0, 0, 0]);
    let tagged = DepthQuery { metadata: [("k".to_owned(), "v".to_owned())].into(), ..by(&[to(6)]) };
    assert_eq!(history.depth_of(&tagged).await, [0, 0, 1, 0, 0, 0]);
    // Many losses are more than one query of a server.
    let mut many: Vec<Loss> = (10..1_000).map(|number| loss(&queue, number, u64::MAX >> 2)).collect();
    many.push(to(6));
    assert_eq!(history.depth_of(&by(&many)).await, [0, 2, 2, 0, 0, 0]);
}

/// As a repair writes it if the queue does not have the message any more.
fn gone(message: &IndexedMessage, version: u32) -> IndexedMessage {
    let changed_at_ms = (BEGIN_MS + 9_000) as i64;
    IndexedMessage { gone: true, version, changed_at_ms, due_ms: 0, repaired: true, ..message.clone() }
}

async fn q19_a_repair_replaces_earlier_versions_only<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let store = history.store();
    let tags = [("carrier", "UA")];
    let first = history.life("m").tagged(&tags).priority(3).enqueued().after(5).leased("w");
    let other = history.life("other").enqueued();
    history.record_and_show(&events_of(&[first.clone(), other.clone()])).await;
    let before = fold::message(first.last());
    let unknown = fold::message(history.life("unknown").enqueued().last());
    let same_version = gone(&fold::message(other.last()), 1);
    let repairs = [gone(&before, 3), gone(&unknown, 5), same_version];
    for _ in 0..2 {
        assert_eq!(store.repair(&repairs).await, Ok(vec![true, false, false]), "also when repeated");
    }
    assert_eq!(store.repair(&[gone(&before, 2)]).await, Ok(vec![false]), "an earlier one");
    history.show().await;
    assert_eq!(history.ids(&history.any()).await, ["other"]);
    assert_eq!(history.depth(&[]).await, [0, 1, 0, 0, 0, 0]);
    let with_gone =
        SearchQuery { include_gone: true, metadata: [("carrier".to_owned(), "UA".to_owned())].into(), ..history.any() };
    assert_eq!(history.search(&with_gone).await, [gone(&before, 3)]);
    let trace = history.trace("m").await;
    assert_eq!((trace.message, trace.transitions.len()), (Some(gone(&before, 3)), 2));
    // A repair of a message that is still in the queue.
    let errored = IndexedMessage {
        state: State::Errored as i32,
        version: 7,
        reason: "broken".to_owned(),
        ..fold::message(other.last())
    };
    assert_eq!(store.repair(std::slice::from_ref(&errored)).await, Ok(vec![true]));
    history.show().await;
    assert_eq!(history.search(&history.any()).await, [IndexedMessage { repaired: true, ..errored }]);
    assert_eq!(history.depth(&[]).await, [0, 0, 0, 0, 0, 1]);
}

async fn q19_an_event_replaces_the_repair_of_its_version<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let life = history.life("m").enqueued();
    history.record_and_show(&life.events()).await;
    let repair = gone(&fold::message(life.last()), 2);
    assert_eq!(history.store().repair(&[repair]).await, Ok(vec![true]));
    // A repetition of an earlier event changes nothing.
    history.record_and_show(&life.events()).await;
    assert_eq!(history.ids(&history.any()).await, Vec::<String>::new());
    // The event that seemed lost arrives after all.
    let life = life.after(1).leased("w");
    history.record_and_show(&life.events()).await;
    assert_eq!(history.search(&history.any()).await, [fold::message(life.last())]);
    // Now the version is that of an event: a repair does not replace it.
    assert_eq!(history.store().repair(&[gone(&fold::message(life.last()), 2)]).await, Ok(vec![false]));
    let life = life.after(1).completed().after(1).collected();
    history.record_and_show(&life.events()).await;
    assert_eq!(history.trace("m").await.message, Some(fold::message(life.last())));
}
