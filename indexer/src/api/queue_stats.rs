//! rpc QueueStats (Q20).

use super::watermark::Reached;
use super::{fields, status, watermark};
use crate::clock::now_ms;
use crate::store::{HistoryStore, StatsQuery};
use tallystone_proto::history::v1 as pb;
use tonic::Status;

const HOUR_MS: u64 = 3_600_000;
/// The longest span of a request.
const SPAN_MS_MAX: u64 = 366 * 24 * HOUR_MS;
/// The shortest interval, and the most intervals of a request.
const INTERVAL_MS_MIN: u64 = 1_000;
const INTERVALS_MAX: u64 = 1_000;

pub(super) async fn handle(
    store: &impl HistoryStore,
    request: pb::QueueStatsRequest,
) -> Result<pb::QueueStatsResponse, Status> {
    // Refuses a malformed request without a call of the store.
    query(&request, Reached(None), now_ms())?;
    let reached = watermark::reached(store).await?;
    let query = query(&request, reached, now_ms())?;
    let mut activities = store.stats(&query).await.map_err(status::of_store)?.into_iter();
    let total = activities.next();
    Ok(pb::QueueStatsResponse { total, intervals: activities.collect(), watermark: Some(reached.watermark()) })
}

fn query(request: &pb::QueueStatsRequest, reached: Reached, now_ms: u64) -> Result<StatsQuery, Status> {
    let queue = fields::queue(&request.queue)?;
    let from_ms = fields::time_ms("from_ms", request.from_ms)?;
    // The default end is the watermark, or now if the span begins after the watermark.
    let watermark_ms = reached.0.filter(|watermark_ms| from_ms.is_none_or(|from_ms| from_ms < *watermark_ms));
    let to_ms = fields::time_ms("to_ms", request.to_ms)?.or(watermark_ms).unwrap_or(now_ms);
    let from_ms = from_ms.unwrap_or(to_ms.saturating_sub(HOUR_MS));
    let span_ms = match to_ms.checked_sub(from_ms) {
        None | Some(0) => {
            return Err(status::invalid("from_ms", format!("is {from_ms}; must be before to_ms, which is {to_ms}")));
        }
        Some(span_ms) => span_ms,
    };
    // A caller that computes `from_ms` from its own "now" is a little behind this server's.
    let grace_ms = if request.to_ms == 0 { HOUR_MS } else { 0 };
    if span_ms > SPAN_MS_MAX + grace_ms {
        return Err(status::invalid("from_ms", "is more than 366 days before to_ms"));
    }
    let interval_ms = match u64::try_from(request.interval_ms) {
        Ok(0) => None,
        Ok(interval_ms) if interval_ms >= INTERVAL_MS_MIN => Some(interval_ms),
        _ => {
            let why = format!("is {}; must be 0, or at least {INTERVAL_MS_MIN}", request.interval_ms);
            return Err(status::invalid("interval_ms", why));
        }
    };
    if let Some(intervals) = interval_ms.map(|interval_ms| span_ms.div_ceil(interval_ms))
        && intervals > INTERVALS_MAX
    {
        return Err(status::invalid(
            "interval_ms",
            format!("makes {intervals} intervals; the maximum is {INTERVALS_MAX}"),
        ));
    }
    Ok(StatsQuery { queue, from_ms, to_ms, interval_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_795_000_000_000;

    fn request(from_ms: i64, to_ms: i64, interval_ms: i64) -> pb::QueueStatsRequest {
        pb::QueueStatsRequest { queue: "q".to_owned(), from_ms, to_ms, interval_ms }
    }

    fn span(request: pb::QueueStatsRequest, reached_ms: Option<u64>) -> Result<(u64, u64), String> {
        let query = query(&request, Reached(reached_ms), NOW_MS).map_err(|status| status.message().to_owned())?;
        Ok((query.from_ms, query.to_ms))
    }

    #[test]
    fn q20_the_default_is_the_last_hour_before_the_watermark() {
        assert_eq!(span(request(0, 0, 0), Some(NOW_MS - 5)), Ok((NOW_MS - 5 - HOUR_MS, NOW_MS - 5)));
        assert_eq!(span(request(0, 0, 0), None), Ok((NOW_MS - HOUR_MS, NOW_MS)));
        assert_eq!(span(request(0, 7_200_000, 0), None), Ok((HOUR_MS, 2 * HOUR_MS)));
        assert_eq!(span(request(0, 5, 0), None), Ok((0, 5)), "no time is before 1970");
        let from_ms = NOW_MS - 3;
        assert_eq!(
            span(request(from_ms as i64, 0, 0), Some(NOW_MS - 5)),
            Ok((from_ms, NOW_MS)),
            "the span begins after the watermark"
        );
    }

    #[test]
    fn q20_invalid_spans_are_refused() {
        let now_ms = NOW_MS as i64;
        let days = |days: i64| days * 86_400_000;
        for (request, field) in [
            (request(now_ms + 1, 0, 0), "from_ms"),
            (request(10, 10, 0), "from_ms"),
            (request(11, 10, 0), "from_ms"),
            (request(-1, 10, 0), "from_ms"),
            (request(1, i64::MAX, 0), "to_ms"),
            (request(now_ms - days(366) - 1, now_ms, 0), "from_ms"),
            (request(1, now_ms, 0), "from_ms"),
            (request(0, now_ms, -1), "interval_ms"),
            (request(0, now_ms, 999), "interval_ms"),
            (request(now_ms - 1_000_001, now_ms, 1_000), "interval_ms"),
        ] {
            let refused = span(request.clone(), None).expect_err(field);
            assert!(refused.starts_with(&format!("{field}: ")), "{request:?}: {refused}");
        }
        assert!(span(request(now_ms - days(366), now_ms, days(1)), None).is_ok());
        assert!(span(request(now_ms - days(366) - 5, 0, days(1)), None).is_ok(), "366 days back, requested 5 ms ago");
        assert!(span(request(now_ms - 1_000_000, now_ms, 1_000), None).is_ok());
    }
}
