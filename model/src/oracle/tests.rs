//! A few tests that the oracle is wired together. The conformance suite tests its meaning, over every store.

use super::*;
use crate::config::QueueType;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Waker};

/// The oracle's futures are ready at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("an oracle's future was not ready"),
    }
}

struct World {
    clock: Arc<AtomicU64>,
    oracle: Oracle,
    shard: Shard,
}

fn world(config: QueueConfig) -> World {
    let clock = Arc::new(AtomicU64::new(1_000_000));
    let oracle = Oracle::new(clock.clone());
    let queue = QueueName::parse("queue", "q").unwrap();
    now(oracle.create_queue(&queue, config)).unwrap();
    World { clock, oracle, shard: Shard::first(&queue) }
}

impl World {
    fn enqueue(&self, message: NewMessage) -> Result<Enqueued, Refusal> {
        now(self.oracle.enqueue(&self.shard, vec![message])).unwrap().remove(0)
    }

    fn dequeue(&self, limit: usize) -> Vec<crate::Lease> {
        let request = DequeueRequest {
            worker: "w".to_owned(),
            limit,
            lease_ms: None,
            filters: Vec::new(),
            request_id: String::new(),
        };
        now(self.oracle.dequeue(&self.shard, &[request], true, None)).unwrap().leases.remove(0).unwrap()
    }

    fn complete(&self, id: &str, fencing_token: u64) -> Result<Transition, Refusal> {
        let lease = LeaseRef { id: self::id(id), fencing_token };
        now(self.oracle.complete(&self.shard, vec![lease.into()])).unwrap().remove(0)
    }
}

fn id(text: &str) -> MessageId {
    MessageId::parse("id", text).unwrap()
}

fn message(id: &str, priority: i64, value: &str) -> NewMessage {
    let metadata = crate::Metadata::parse([("key".to_owned(), value.to_owned())].into()).unwrap();
    NewMessage { metadata, ..NewMessage::new(self::id(id), priority) }
}

#[test]
fn q5_one_life_from_enqueue_to_collection() {
    let world = world(QueueConfig::default());
    world.enqueue(message("a", 1, "x")).unwrap();
    let lease = world.dequeue(1).remove(0);
    assert_eq!((lease.attempt, lease.version, lease.fencing_token), (1, 2, 1_000_000_002));
    let done = Transition { state: State::Completed, version: 3 };
    assert_eq!(world.complete("a", lease.fencing_token), Ok(done));
    assert_eq!(world.complete("a", lease.fencing_token), Ok(done), "a repetition answers the same");
    world.clock.fetch_add(600_000, Ordering::SeqCst);
    assert_eq!(now(world.oracle.sweep(&world.shard)).unwrap().collected, 1);
    let events = world.oracle.take_events(&world.shard);
    assert_eq!(events.iter().map(|event| event.version).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(events.last().unwrap().to, None);
}

#[test]
fn q4_a_value_runs_once_at_a_time() {
    let exclusive = QueueType::Exclusive { key: "key".to_owned() };
    let world = world(QueueConfig { queue_type: exclusive, ..QueueConfig::default() });
    for (id, priority, value) in [("a", 1, "x"), ("b", 2, "x"), ("c", 3, "y")] {
        world.enqueue(message(id, priority, value)).unwrap();
    }
    let leases = world.dequeue(9);
    assert_eq!(leases.iter().map(|lease| lease.id.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    world.complete("a", leases[0].fencing_token).unwrap();
    assert_eq!(world.dequeue(9)[0].id, id("b"));
}

#[test]
fn q11_an_expired_lease_is_lost_at_its_very_end() {
    let world = world(QueueConfig { max_attempts: 1, ..QueueConfig::default() });
    world.enqueue(message("a", 1, "x")).unwrap();
    let lease = world.dequeue(1).remove(0);
    world.clock.store(lease.expires_at_ms, Ordering::SeqCst);
    let lost = |state| Err(Refusal::LeaseLost { id: "a".to_owned(), state });
    assert_eq!(world.complete("a", lease.fencing_token), lost(State::Running));
    assert_eq!(now(world.oracle.sweep(&world.shard)).unwrap().expired, 1);
    assert_eq!(world.complete("a", lease.fencing_token), lost(State::Errored));
}

#[test]
fn q18_waiters_are_notified_only_when_a_message_is_runnable() {
    let world = world(QueueConfig::default());
    let notified = Arc::new(AtomicBool::new(false));
    let seen = notified.clone();
    world.oracle.on_ready(Box::new(move |_| seen.store(true, Ordering::SeqCst)));
    world.enqueue(message("a", 1, "x")).unwrap();
    assert!(!notified.load(Ordering::SeqCst), "no caller waits");
    assert_eq!((world.dequeue(1).len(), world.dequeue(1).len()), (1, 0));
    world.enqueue(NewMessage { invisibility_ms: Some(5), ..message("b", 1, "x") }).unwrap();
    assert!(!notified.load(Ordering::SeqCst), "nothing is runnable");
    world.enqueue(message("c", 1, "x")).unwrap();
    assert!(notified.load(Ordering::SeqCst));
}
