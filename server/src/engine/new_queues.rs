//! Which queues an Enqueue creates (Q1).

use super::tests::{Rig, id_of, queue};
use super::*;
use crate::config::{CreateOnEnqueue, QueueTemplate, QueueTemplates};
use crate::testing::TestStore;
use tallystone_model::{Metadata, QueueConfig, QueueType};

fn exclusive() -> QueueConfig {
    QueueConfig { queue_type: QueueType::Exclusive { key: "k".to_owned() }, ..QueueConfig::default() }
}

impl Rig {
    /// Whether an Enqueue is accepted, and says that it has created the queue.
    async fn creates(&self, name: &str) -> Result<bool, Refusal> {
        let metadata = Metadata::parse([("k".to_owned(), "v".to_owned())].into()).unwrap();
        let message = NewMessage { metadata, ..NewMessage::new(id_of("a"), 0) };
        let results = self.engine.enqueue(&queue(name), vec![message], 0, true).await?;
        results.into_iter().next().unwrap().map(|enqueued| enqueued.queue_created)
    }
}

#[tokio::test(start_paused = true)]
async fn q24_the_switch_says_which_queues_an_enqueue_creates() {
    let templates = QueueTemplates(vec![QueueTemplate { prefix: "known".to_owned(), config: exclusive() }]);
    let not_found = |name: &str| Err(Refusal::QueueNotFound { queue: name.to_owned() });
    for (switch, known, other) in [
        (CreateOnEnqueue::Always, Ok(true), Ok(true)),
        (CreateOnEnqueue::Templates, Ok(true), not_found("other")),
        (CreateOnEnqueue::Never, not_found("known/1"), not_found("other")),
    ] {
        let rig = Rig::creating(&TestStore::new(), switch, templates.clone());
        assert_eq!(rig.creates("known/1").await, known, "{switch:?}");
        assert_eq!(rig.creates("other").await, other, "{switch:?}");
        // The second Enqueue creates nothing.
        assert_eq!(rig.creates("known/1").await, known.map(|_| false), "{switch:?}");
        let made = rig.store.oracle.get_queue(&queue("known/1")).await.map(|made| made.config);
        assert!(made.is_err() || made == Ok(exclusive()));
    }
}

#[tokio::test(start_paused = true)]
async fn q1_a_queue_that_was_exclusive_does_not_become_simple() {
    let rig = Rig::with_queues(&[]).await;
    rig.store.oracle.create_queue(&queue("q"), exclusive()).await.unwrap();
    rig.store.oracle.delete_queue(&queue("q")).await.unwrap();
    assert_eq!(rig.creates("q").await, Err(Refusal::QueueNotFound { queue: "q".to_owned() }));
    rig.store.oracle.create_queue(&queue("q"), QueueConfig::default()).await.unwrap();
    assert_eq!(rig.creates("q").await, Ok(false), "a CreateQueue has made it simple");
    // With a template it is exclusive again.
    let templates = QueueTemplates(vec![QueueTemplate { prefix: "q".to_owned(), config: exclusive() }]);
    let rig = Rig::creating(&TestStore::new(), CreateOnEnqueue::Always, templates);
    rig.store.oracle.create_queue(&queue("q"), exclusive()).await.unwrap();
    rig.store.oracle.delete_queue(&queue("q")).await.unwrap();
    assert_eq!(rig.creates("q").await, Ok(true));
}
