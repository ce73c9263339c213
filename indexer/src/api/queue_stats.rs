//! rpc QueueStats (Q20).

use super::watermark::Reached;
use super::{status, watermark, wire};
use crate::clock::now_ms;
use crate::store::{HistoryStore, StatsQuery};
use tallystone_proto::history::v1 as pb;
use tonic::Status;

const HOUR_MS: u64 = 3_600_000;
/// The longest span.
const SPAN_MS_MAX: u64 = 366 * 24 * HOUR_MS;
/// The shortest interval, and the most of them.
const INTERVAL_MS_MIN: u64 = 1_000;
const INTERVALS_MAX: u64 = 1_000;

pub(super) async fn handle(
    store: &impl HistoryStore,
    request: pb::QueueStatsRequest,
) -> Result<pb::QueueStatsResponse, Status> {
    // What is wrong whatever the watermark is, without asking for it.
    query(&request, Reached(None), now_ms())?;
    let reached = watermark::reached(store).await?;
    let query = query(&request, reached, now_ms())?;
    let mut activities = store.stats(&query).await.map_err(status::of_store)?.into_iter();
    let total = activities.next();
    Ok(pb::QueueStatsResponse { total, intervals: activities.collect(), watermark: Some(reached.watermark()) })
}

fn query(request: &pb::QueueStatsRequest, reached: Reached, now_ms: u64) -> Result<StatsQuery, Status> {
    let queue = wire::queue(&request.queue)?;
    let from_ms = wire::time_ms("from_ms", request.from_ms)?;
    // Up to where history is; but up to now for who asks from later on.
    let known_to_ms = reached.0.filter(|known_to_ms| from_ms.is_none_or(|from_ms| from_ms < *known_to_ms));
    let to_ms = wire::time_ms("to_ms", request.to_ms)?.or(known_to_ms).unwrap_or(now_ms);
    let from_ms = from_ms.unwrap_or(to_ms.saturating_sub(HOUR_MS));
    let span_ms = match to_ms.checked_sub(from_ms) {
        None | Some(0) => {
            return Err(status::invalid("from_ms", format!("is {from_ms}; before to_ms, which is {to_ms}")));
        }
        Some(span_ms) => span_ms,
    };
    // Who counts back from now counts from a little before ours.
    let grace_ms = if request.to_ms == 0 { HOUR_MS } else { 0 };
    if span_ms > SPAN_MS_MAX + grace_ms {
        return Err(status::invalid("from_ms", "is more than 366 days before to_ms"));
    }
    let interval_ms = match u64::try_from(request.interval_ms) {
        Ok(0) => None,
        Ok(interval_ms) if interval_ms >= INTERVAL_MS_MIN => Some(interval_ms),
        _ => {
            let why = format!("is {}; 0, or at least {INTERVAL_MS_MIN}", request.interval_ms);
            return Err(status::invalid("interval_ms", why));
        }
    };
    if let Some(intervals) = interval_ms.map(|interval_ms| span_ms.div_ceil(interval_ms))
        && intervals > INTERVALS_MAX
    {
        return Err(status::invalid("interval_ms", format!("makes {intervals} intervals; at most {INTERVALS_MAX}")));
    }
    Ok(StatsQuery { queue, from_ms, to_ms, interval_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_795_000_000_000;

    fn asked(from_ms: i64, to_ms: i64, interval_ms: i64) -> pb::QueueStatsRequest {
        pb::QueueStatsRequest { queue: "q".to_owned(), from_ms, to_ms, interval_ms }
    }

    fn span(request: pb::QueueStatsRequest, reached_ms: Option<u64>) -> Result<(u64, u64), String> {
        let query = query(&request, Reached(reached_ms), NOW_MS).map_err(|status| status.message().to_owned())?;
        Ok((query.from_ms, query.to_ms))
    }

    #[test]
    fn q20_the_default_is_the_last_hour_of_what_is_known() {
        assert_eq!(span(asked(0, 0, 0), Some(NOW_MS - 5)), Ok((NOW_MS - 5 - HOUR_MS, NOW_MS - 5)));
        assert_eq!(span(asked(0, 0, 0), None), Ok((NOW_MS - HOUR_MS, NOW_MS)));
        assert_eq!(span(asked(0, 7_200_000, 0), None), Ok((HOUR_MS, 2 * HOUR_MS)));
        assert_eq!(span(asked(0, 5, 0), None), Ok((0, 5)), "no time is before 1970");
        let from_ms = NOW_MS - 3;
        assert_eq!(span(asked(from_ms as i64, 0, 0), Some(NOW_MS - 5)), Ok((from_ms, NOW_MS)), "later than is known");
    }

    #[test]
    fn q20_absurd_spans_are_refused() {
        let now_ms = NOW_MS as i64;
        let days = |days: i64| days * 86_400_000;
        for (request, field) in [
            (asked(now_ms + 1, 0, 0), "from_ms"),
            (asked(10, 10, 0), "from_ms"),
            (asked(11, 10, 0), "from_ms"),
            (asked(-1, 10, 0), "from_ms"),
            (asked(1, i64::MAX, 0), "to_ms"),
            (asked(now_ms - days(366) - 1, now_ms, 0), "from_ms"),
            (asked(1, now_ms, 0), "from_ms"),
            (asked(0, now_ms, -1), "interval_ms"),
            (asked(0, now_ms, 999), "interval_ms"),
            (asked(now_ms - 1_000_001, now_ms, 1_000), "interval_ms"),
        ] {
            let refused = span(request.clone(), None).expect_err(field);
            assert!(refused.starts_with(&format!("{field}: ")), "{request:?}: {refused}");
        }
        assert!(span(asked(now_ms - days(366), now_ms, days(1)), None).is_ok());
        assert!(span(asked(now_ms - days(366) - 5, 0, days(1)), None).is_ok(), "366 days back, asked 5 ms ago");
        assert!(span(asked(now_ms - 1_000_000, now_ms, 1_000), None).is_ok());
    }
}
