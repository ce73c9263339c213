//! How far an answer goes. It is read before the question is asked, so that it never promises more than was there.

use super::status;
use crate::clock::now_ms;
use crate::store::HistoryStore;
use tallystone_proto::history::v1::Watermark;
use tonic::Status;

/// Everything up to then is in the answer; `None`: nothing is known yet.
#[derive(Clone, Copy)]
pub(super) struct Reached(pub(super) Option<u64>);

/// To be called before the store is asked anything else.
pub(super) async fn reached(store: &impl HistoryStore) -> Result<Reached, Status> {
    store.watermark().await.map(Reached).map_err(status::of_store)
}

impl Reached {
    /// As an answer that is given now carries it.
    pub(super) fn watermark(self) -> Watermark {
        self.seen_at(now_ms())
    }

    fn seen_at(self, now_ms: u64) -> Watermark {
        Watermark {
            indexed_to_ms: self.0.map(|up_to_ms| up_to_ms as i64),
            // The queue's clock may be ahead of ours.
            behind_ms: self.0.map(|up_to_ms| now_ms.saturating_sub(up_to_ms) as i64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q20_an_answer_is_never_from_the_future() {
        let watermark = |reached, now_ms| {
            let Watermark { indexed_to_ms, behind_ms } = Reached(reached).seen_at(now_ms);
            (indexed_to_ms, behind_ms)
        };
        assert_eq!(watermark(Some(1_000), 1_250), (Some(1_000), Some(250)));
        assert_eq!(watermark(Some(1_000), 900), (Some(1_000), Some(0)));
        assert_eq!(watermark(None, 900), (None, None));
    }
}
