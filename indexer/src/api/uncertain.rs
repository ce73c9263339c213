//! Messages that may have changed without a record: their shard has lost transitions since their last one.

use super::status;
use crate::store::{HistoryStore, Queues};
use std::collections::HashMap;
use tallystone_model::Loss;
use tallystone_proto::history::v1::{IndexedMessage, Loss as WireLoss};
use tonic::Status;

/// The losses that a response takes into account. A query and its losses may be read at the same time: a repair settles a
/// loss seconds after its messages are repaired.
pub(super) struct Losses(Vec<Loss>);

/// The losses of these queues.
pub(super) async fn losses(store: &impl HistoryStore, queues: &Queues) -> Result<Losses, Status> {
    store.losses(queues).await.map(Losses).map_err(status::of_store)
}

impl Losses {
    /// Marks the messages that may have changed.
    pub(super) fn mark<'a>(&self, messages: impl IntoIterator<Item = &'a mut IndexedMessage>) {
        if self.0.is_empty() {
            return;
        }
        let of_shard = |loss: &Loss| ((loss.shard.queue.to_string(), u32::from(loss.shard.number)), loss.lost_to_ms);
        let lost_to_ms: HashMap<(String, u32), u64> = self.0.iter().map(of_shard).collect();
        for message in messages {
            let lost_to_ms = lost_to_ms.get(&(message.queue.clone(), message.shard));
            message.uncertain = !message.gone && lost_to_ms.is_some_and(|to_ms| message.changed_at_ms <= *to_ms as i64);
        }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub(super) fn into_inner(self) -> Vec<Loss> {
        self.0
    }
}

/// As a response has it.
pub(super) fn to_wire(loss: &Loss) -> WireLoss {
    WireLoss {
        queue: loss.shard.queue.to_string(),
        shard: loss.shard.number.into(),
        lost_to_ms: loss.lost_to_ms as i64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystone_model::{QueueName, Shard};

    #[test]
    fn q20_a_message_is_uncertain_if_its_shard_has_lost_transitions_since() {
        let queue = QueueName::parse("queue", "q").expect("a name");
        let losses = Losses(vec![Loss { shard: Shard { queue, number: 1 }, lost_to_ms: 50 }]);
        let uncertain = |queue: &str, shard, changed_at_ms, gone| {
            let mut message =
                IndexedMessage { queue: queue.to_owned(), shard, changed_at_ms, gone, ..IndexedMessage::default() };
            losses.mark([&mut message]);
            message.uncertain
        };
        assert!(uncertain("q", 1, 49, false) && uncertain("q", 1, 50, false));
        assert!(!uncertain("q", 1, 51, false), "it has changed since");
        assert!(!uncertain("q", 1, 49, true), "nothing follows");
        assert!(!uncertain("q", 0, 49, false) && !uncertain("p", 1, 49, false), "another shard");
    }
}
