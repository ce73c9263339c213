//! A check that many calls need at the same time, such as all that find nothing in an emptied store: a few are made for all of them.

use crate::refusal::Refusal;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Calls that come while a check is made wait for the next one, and share it.
#[derive(Default)]
pub(super) struct SharedCheck {
    /// When the last check began, and its answer.
    last: Mutex<Option<(Instant, Result<(), Refusal>)>>,
}

impl SharedCheck {
    /// The answer of a check that has begun after this call.
    pub(super) async fn answer<F>(&self, check: impl FnOnce() -> F) -> Result<(), Refusal>
    where
        F: Future<Output = Result<(), Refusal>>,
    {
        let called_at = Instant::now();
        let mut last = self.last.lock().await;
        if let Some((began_at, answer)) = last.as_ref()
            && *began_at > called_at
        {
            return answer.clone();
        }
        let began_at = Instant::now();
        let answer = check().await;
        *last = Some((began_at, answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    fn lost() -> Result<(), Refusal> {
        Err(Refusal::DataLoss { why: "its identity mark is gone".to_owned() })
    }

    #[tokio::test(start_paused = true)]
    async fn x7_calls_that_come_together_share_a_check_and_a_later_call_makes_its_own() {
        let (check, made) = (SharedCheck::default(), AtomicUsize::new(0));
        let answer = |after_ms: u64| {
            let (check, made) = (&check, &made);
            async move {
                tokio::time::sleep(Duration::from_millis(after_ms)).await;
                let slow = || async {
                    made.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    lost()
                };
                check.answer(slow).await
            }
        };
        // The first one checks for 10 ms; what comes meanwhile needs a check that begins later.
        let answers = join_all([0, 5, 6, 7].map(answer)).await;
        assert!(answers.iter().all(|answer| *answer == lost()), "{answers:?}");
        assert_eq!(made.load(Ordering::Relaxed), 2);
        assert_eq!(check.answer(async || Ok(())).await, Ok(()), "no earlier answer counts");
    }
}
