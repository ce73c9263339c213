//! The messages of one Enqueue: those that the quotas let in, and why the others are refused.

use super::stock::{Amount, OVERHEAD_BYTES, Reservation};
use tallystone_model::message::Enqueued;
use tallystone_model::{NewMessage, Refusal};

/// One Enqueue, divided.
pub(crate) struct Admission {
    /// Why each message is refused; `None`: it is let in.
    pub(super) refused: Vec<Option<Refusal>>,
    /// What those that are let in take; `None`: neither messages nor bytes are bounded.
    pub(super) reserved: Option<(Reservation, Vec<u64>)>,
}

/// The bytes that a message takes in the store, about.
pub(super) fn bytes_of(message: &NewMessage) -> u64 {
    let pairs = message.metadata.pairs().iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
    (message.id.as_str().len() + message.payload.len() + pairs) as u64 + OVERHEAD_BYTES
}

impl Admission {
    /// Takes out the messages that are refused.
    pub(crate) fn filter(&self, messages: &mut Vec<NewMessage>) {
        if self.refused.iter().any(Option::is_some) {
            let mut refused = self.refused.iter();
            messages.retain(|_| refused.next().is_none_or(Option::is_none));
        }
    }

    /// The results of all messages, given those of the ones that were let in.
    pub(crate) fn merge(self, answers: Vec<Result<Enqueued, Refusal>>) -> Vec<Result<Enqueued, Refusal>> {
        if let Some((reservation, sizes)) = self.reserved {
            let mut accepted = Amount::default();
            for (_, bytes) in answers.iter().zip(sizes).filter(|(answer, _)| answer.is_ok()) {
                accepted.add(&Amount { messages: 1, bytes });
            }
            reservation.settle(accepted);
        }
        let mut answers = answers.into_iter();
        let merged = self.refused.into_iter().map(|refused| match refused {
            Some(refusal) => Err(refusal),
            None => answers.next().unwrap_or_else(|| Err(Refusal::Internal("an item went unanswered".to_owned()))),
        });
        merged.collect()
    }
}
