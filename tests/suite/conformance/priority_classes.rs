//! Priority classes: the store computes the deadline from its time and the offset of the class: Q28.

use tallystone_model::*;
use tallystone_tests::*;

over_each_store!(
    q28_the_deadline_is_the_time_of_the_enqueue_plus_the_offset,
    q28_a_repetition_is_the_same_message_although_time_has_passed,
    q28_metadata_overrides_class_and_priority,
    q28_an_unknown_class_refuses_its_item_alone,
    q28_the_class_is_part_of_the_content,
    q28_a_class_coalesces_with_its_deadline_of_now,
    q28_messages_of_a_class_keep_the_other_options,
    q28_changed_classes_hold_for_later_messages,
);

const YEAR_MS: i64 = 365 * 86_400_000;

fn classes() -> PriorityClasses {
    let offsets_ms = [("now", 0), ("urgent", -60_000), ("bulk", 10 * YEAR_MS), ("first", -1_000 * YEAR_MS)];
    PriorityClasses {
        offsets_ms: offsets_ms.map(|(name, offset_ms)| (name.to_owned(), offset_ms)).into(),
        override_key: "tier".to_owned(),
    }
}

fn with_classes(config: QueueConfig) -> QueueConfig {
    QueueConfig { priority_classes: classes(), ..config }
}

fn of_class(class: &str, message: NewMessage) -> NewMessage {
    NewMessage { priority_class: Some(class.to_owned()), ..message }
}

async fn q28_the_deadline_is_the_time_of_the_enqueue_plus_the_offset<S: Probe>(stage: &Stage<S>) {
    for config in [simple(), exclusive()] {
        let queue = stage.queue(with_classes(config)).await;
        let now_ms = stage.clock.now_ms() as i64;
        for (name, offset_ms) in &classes().offsets_ms {
            queue.put([of_class(name, keyed(name, 0, name))]).await;
            let message = queue.get(name).await;
            assert_eq!((message.priority, message.priority_class.as_ref()), (now_ms + offset_ms, Some(name)));
        }
        queue.put([keyed("deadline", now_ms + 1, "k")]).await;
        stage.clock.advance(60_002);
        // Later, and a minute more urgent: behind `now` and the deadline by two milliseconds.
        queue.put([of_class("urgent", keyed("late", 0, "late"))]).await;
        assert_eq!(queue.take_ids(9).await, ["first", "urgent", "now", "deadline", "late", "bulk"]);
    }
}

async fn q28_a_repetition_is_the_same_message_although_time_has_passed<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(with_classes(simple())).await;
    let mail = of_class("urgent", tagged("m", 0, &[("tier", "gold")]));
    queue.put([mail.clone()]).await;
    let (before, events) = (queue.get("m").await, queue.events().await);
    stage.clock.advance(5_000);
    let again = queue.put([mail]).await.remove(0);
    assert_eq!(again.enqueued_at_ms, before.enqueued_at_ms);
    assert_eq!((queue.get("m").await, queue.events().await), (before, events));
}

async fn q28_metadata_overrides_class_and_priority<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(with_classes(simple())).await;
    let now_ms = stage.clock.now_ms() as i64;
    queue.put([tagged("priority", 7, &[("tier", "urgent")])]).await;
    queue.put([of_class("bulk", tagged("class", 0, &[("tier", "urgent")]))]).await;
    queue.put([tagged("no class", 7, &[("tier", "gold")])]).await;
    for overridden in ["priority", "class"] {
        let message = queue.get(overridden).await;
        assert_eq!((message.priority, message.priority_class.as_deref()), (now_ms - 60_000, Some("urgent")));
    }
    let message = queue.get("no class").await;
    assert_eq!((message.priority, message.priority_class), (7, None));
}

async fn q28_an_unknown_class_refuses_its_item_alone<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(with_classes(simple())).await;
    let items = vec![message("a", 1), of_class("later", message("b", 0)), of_class("now", message("c", 0))];
    let results = queue.store.enqueue(&queue.shard, items.clone()).await.expect("a response");
    assert!(matches!(&results[1], Err(Refusal::Invalid { field: "priority_class", why }) if why.contains("urgent")));
    assert!(results[0].is_ok() && results[2].is_ok(), "{results:?}");
    assert_eq!(queue.depth().await.pending, 2);
    let without = stage.queue(simple()).await;
    let results = without.store.enqueue(&without.shard, items).await.expect("a response");
    assert_eq!(results.iter().filter(|result| result.is_err()).count(), 2);
}

async fn q28_the_class_is_part_of_the_content<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(with_classes(simple())).await;
    queue.put([of_class("now", message("m", 0)), message("plain", 0)]).await;
    for other in [of_class("bulk", message("m", 0)), message("m", 0), of_class("now", message("plain", 0))] {
        let id = other.id.to_string();
        let results = queue.store.enqueue(&queue.shard, vec![other]).await.expect("a response");
        assert_eq!(results, [Err(Refusal::IdConflict { id })]);
    }
}

async fn q28_a_class_coalesces_with_its_deadline_of_now<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(with_classes(simple())).await;
    let coalescing = |class| NewMessage { coalesce: true, ..of_class(class, message("m", 0)) };
    queue.put([coalescing("bulk")]).await;
    stage.clock.advance(1_000);
    let now_ms = stage.clock.now_ms() as i64;
    queue.put([coalescing("urgent")]).await;
    assert_eq!(queue.get("m").await.priority, now_ms - 60_000);
    stage.clock.advance(1_000);
    queue.put([coalescing("urgent")]).await;
    assert_eq!(queue.get("m").await.priority, now_ms - 60_000, "the later deadline is less urgent");
}

async fn q28_messages_of_a_class_keep_the_other_options<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(with_classes(exclusive())).await;
    let all = NewMessage {
        lease_ms: Some(2_000),
        invisibility_ms: Some(1_500),
        max_attempts: Some(1),
        payload: "payload".into(),
        ..of_class("urgent", tagged("m", 0, &[(KEY, "k"), ("origin", "o")]))
    };
    queue.put([all.clone()]).await;
    let seen = queue.get("m").await;
    assert_eq!((seen.lease_ms, seen.invisibility_ms, seen.max_attempts), (Some(2_000), Some(1_500), 1));
    assert_eq!((seen.payload, seen.metadata), (all.payload, all.metadata));
    stage.clock.advance(1_500);
    let [lease] = &queue.take(9).await[..] else { panic!("one message") };
    assert_eq!((lease.expires_at_ms - lease.leased_at_ms, lease.max_attempts), (2_000, 1));
    assert_eq!(queue.depth_of(&filter(&[("origin", "o")])).await.running, 1);
}

async fn q28_changed_classes_hold_for_later_messages<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(with_classes(simple())).await;
    queue.put([of_class("now", message("before", 0))]).await;
    let before = queue.get("before").await;
    let offsets_ms = [("now".to_owned(), 5)].into();
    let changed = PriorityClasses { offsets_ms, override_key: String::new() };
    queue.reconfigure(QueuePatch { priority_classes: Some(changed), ..QueuePatch::default() }).await;
    assert_eq!(queue.get("before").await, before);
    queue.put([of_class("now", message("before", 0)), of_class("now", message("after", 0))]).await;
    assert_eq!(queue.get("after").await.priority, stage.clock.now_ms() as i64 + 5);
}
