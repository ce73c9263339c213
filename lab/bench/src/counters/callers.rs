//! Callers that go on for a time, whatever the service answers: a refused call is sent again after the time that the
//! refusal names, one without an answer at once.

use crate::sample::CallStats;
use anyhow::{Result, ensure};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tallystone_proto::counter::v1::counters_client::CountersClient;
use tallystone_proto::counter::v1::{AddCountsRequest, add_count_result};
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

/// How long a caller waits for an answer.
const DEADLINE: Duration = Duration::from_secs(5);

/// What callers send, and until when.
#[derive(Clone)]
pub(super) struct Load {
    pub(super) requests: Arc<Vec<AddCountsRequest>>,
    pub(super) until: Instant,
}

/// What became of their calls.
pub(super) struct Called {
    /// Of those that were answered.
    pub(super) stats: CallStats,
    pub(super) refused: u64,
    /// Without an answer in time.
    pub(super) failed: u64,
}

/// All callers at once. They end with their last calls.
pub(super) async fn call_until(clients: Vec<CountersClient<Channel>>, load: &Load) -> Result<Called> {
    let mut callers: JoinSet<Result<Called>> =
        clients.into_iter().enumerate().map(|(number, client)| one(number, client, load.clone())).collect();
    let mut all = Called { stats: CallStats::new(), refused: 0, failed: 0 };
    while let Some(ended) = callers.join_next().await {
        let Called { stats, refused, failed } = ended??;
        all.stats.add(&stats);
        all.refused += refused;
        all.failed += failed;
    }
    Ok(all)
}

async fn one(number: usize, mut client: CountersClient<Channel>, load: Load) -> Result<Called> {
    let mut called = Called { stats: CallStats::new(), refused: 0, failed: 0 };
    let mut next = number;
    while Instant::now() < load.until {
        let adds = &load.requests[next % load.requests.len()];
        next += 1;
        let mut request = Request::new(adds.clone());
        request.set_timeout(DEADLINE);
        let began = Instant::now();
        match client.add_counts(request).await {
            Ok(answer) => {
                let results = answer.into_inner().results;
                let is_ok = |outcome| matches!(outcome, Some(add_count_result::Outcome::Ok(_)));
                ensure!(results.len() == adds.adds.len(), "{} results", results.len());
                ensure!(results.into_iter().all(|result| is_ok(result.outcome)), "an add was refused");
                called.stats.note(adds.adds.len(), began.elapsed());
            }
            Err(status) => match retry_delay(&status) {
                Some(delay) => {
                    called.refused += 1;
                    tokio::time::sleep_until((Instant::now() + delay).min(load.until).into()).await;
                }
                None => called.failed += 1,
            },
        }
    }
    Ok(called)
}

/// The time after which a call that was refused for overload may come again.
pub(super) fn retry_delay(status: &Status) -> Option<Duration> {
    if status.code() != Code::ResourceExhausted {
        return None;
    }
    status.get_details_retry_info()?.retry_delay
}
