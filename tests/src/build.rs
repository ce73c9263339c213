//! Short ways to write down what goes into a queue.

use std::collections::BTreeMap;
use tallystone_model::store::DequeueRequest;
use tallystone_model::{Backoff, Filter, IndexKeys, MessageId, Metadata, NewMessage, QueueConfig, QueueType};

/// The exclusivity key of [`exclusive`] queues.
pub const KEY: &str = "tail";

/// A message id.
pub fn id(text: &str) -> MessageId {
    MessageId::parse("id", text).expect("a valid message id")
}

/// A message with nothing but an id and a priority.
pub fn message(id: &str, priority: i64) -> NewMessage {
    NewMessage::new(self::id(id), priority)
}

/// A message with metadata.
pub fn tagged(id: &str, priority: i64, pairs: &[(&str, &str)]) -> NewMessage {
    NewMessage { metadata: Metadata::parse(owned(pairs)).expect("valid metadata"), ..message(id, priority) }
}

/// A message for an [`exclusive`] queue, with its exclusivity value.
pub fn keyed(id: &str, priority: i64, value: &str) -> NewMessage {
    tagged(id, priority, &[(KEY, value)])
}

/// A simple queue with all defaults, but without a pause between attempts.
pub fn simple() -> QueueConfig {
    QueueConfig { retry_backoff: Backoff::default(), ..QueueConfig::default() }
}

/// A queue exclusive by [`KEY`], otherwise like [`simple`].
pub fn exclusive() -> QueueConfig {
    QueueConfig { queue_type: QueueType::Exclusive { key: KEY.to_owned() }, ..simple() }
}

/// A filter.
pub fn filter(pairs: &[(&str, &str)]) -> Filter {
    Filter::parse(owned(pairs)).expect("a valid filter")
}

/// A set of key names for an index.
pub fn index(keys: &[&str]) -> IndexKeys {
    IndexKeys::parse(keys.iter().map(|key| (*key).to_owned())).expect("valid key names")
}

/// A Dequeue by worker "w" of up to `limit` messages, without anything else.
pub fn request(limit: usize) -> DequeueRequest {
    DequeueRequest { worker: "w".to_owned(), limit, lease_ms: None, filters: Vec::new(), request_id: String::new() }
}

fn owned(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
