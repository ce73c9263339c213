//! The watermark of a response: it includes every transition before that time. It is read before the query runs, so it
//! never promises more than the response has.

use super::status;
use crate::clock::now_ms;
use crate::store::HistoryStore;
use tallystone_proto::history::v1::Watermark;
use tonic::Status;

/// A watermark of the store, Unix ms; `None`: the store has none yet.
#[derive(Clone, Copy)]
pub(super) struct Reached(pub(super) Option<u64>);

/// The store's watermark. Called before the query runs.
pub(super) async fn reached(store: &impl HistoryStore) -> Result<Reached, Status> {
    store.watermark().await.map(Reached).map_err(status::of_store)
}

impl Reached {
    /// As a response that is sent now carries it.
    pub(super) fn watermark(self) -> Watermark {
        self.seen_at(now_ms())
    }

    fn seen_at(self, now_ms: u64) -> Watermark {
        Watermark {
            indexed_to_ms: self.0.map(|up_to_ms| up_to_ms as i64),
            // The clock of Redis may be ahead of this machine's.
            behind_ms: self.0.map(|up_to_ms| now_ms.saturating_sub(up_to_ms) as i64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q20_a_response_is_never_from_the_future() {
        let watermark = |reached, now_ms| {
            let Watermark { indexed_to_ms, behind_ms } = Reached(reached).seen_at(now_ms);
            (indexed_to_ms, behind_ms)
        };
        assert_eq!(watermark(Some(1_000), 1_250), (Some(1_000), Some(250)));
        assert_eq!(watermark(Some(1_000), 900), (Some(1_000), Some(0)));
        assert_eq!(watermark(None, 900), (None, None));
    }
}
