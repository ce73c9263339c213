//! Statistics of a queue: what was entered and left, for how long, and for which reasons.
//!
//! One aggregation over spans of time. Intervals are requested a few at a time: the server keeps a histogram per state
//! and interval, and those of a thousand intervals would exceed the memory of a small server.

use super::cluster::Cluster;
use super::filter::Filter;
use super::response::TermsAggregation;
use crate::store::{HistoryError, StatsQuery};
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tallystone_model::State;
use tallystone_proto::history::v1::{Activity, ReasonCount, StateActivity};

/// Intervals in one request.
const INTERVALS_PER_REQUEST: usize = 50;
/// Requests in flight.
const REQUESTS_AT_ONCE: usize = 2;
/// Reasons returned, and how many each shard offers for them.
const REASONS: usize = 20;
const REASONS_PER_SHARD: usize = 1_000;
/// Significant digits of the histograms: within a tenth of a percent.
const DIGITS: u8 = 3;

/// From the first time up to but not including the second, Unix ms.
type Span = (u64, u64);

pub(super) async fn stats(cluster: &Cluster, query: &StatsQuery) -> Result<Vec<Activity>, HistoryError> {
    let intervals = intervals(query);
    let whole = vec![(query.from_ms, query.to_ms)];
    let requests = std::iter::once(whole).chain(intervals.chunks(INTERVALS_PER_REQUEST).map(<[Span]>::to_vec));
    let requests: Vec<_> = requests.map(|spans| activity(cluster, query, spans)).collect();
    let responses = stream::iter(requests).buffered(REQUESTS_AT_ONCE);
    let activities: Vec<Vec<Activity>> = responses.try_collect().await?;
    Ok(activities.into_iter().flatten().collect())
}

/// The intervals of the query's span; the last may be shorter.
fn intervals(query: &StatsQuery) -> Vec<Span> {
    let Some(interval_ms) = query.interval_ms.filter(|interval_ms| *interval_ms > 0) else { return Vec::new() };
    let begins = std::iter::successors(Some(query.from_ms), |begin| begin.checked_add(interval_ms));
    let within = begins.take_while(|begin| *begin < query.to_ms);
    within.map(|begin| (begin, begin.saturating_add(interval_ms).min(query.to_ms))).collect()
}

/// What happened in each of these adjacent spans.
async fn activity(cluster: &Cluster, query: &StatsQuery, spans: Vec<Span>) -> Result<Vec<Activity>, HistoryError> {
    let historic = &cluster.group_of(query.queue.as_str()).names.historic;
    let response: StatsResponse = cluster.client.search(historic, &body(query, &spans)).await?;
    // The response has no aggregations if there is no index.
    let mut buckets: Vec<SpanBucket> = response.aggregations.map(|found| found.spans.buckets).unwrap_or_default();
    buckets.resize_with(spans.len(), SpanBucket::default);
    Ok(spans.iter().zip(buckets).map(|(span, bucket)| bucket.activity(*span)).collect())
}

fn body(query: &StatsQuery, spans: &[Span]) -> Value {
    let from_ms = spans.first().map(|span| span.0);
    let to_ms = spans.last().map(|span| span.1);
    let filter = Filter::default().term("queue", query.queue.as_str()).range("at_ms", from_ms, to_ms);
    let ranges: Vec<Value> = spans.iter().map(|(from, to)| json!({ "from": from, "to": to })).collect();
    let states = |field: &str| json!({ "field": field, "size": State::ALL.len() });
    let percentiles = json!({
        "field": "spent_ms",
        "percents": PERCENTS,
        "keyed": false,
        "hdr": { "number_of_significant_value_digits": DIGITS },
    });
    json!({
        "size": 0,
        "track_total_hits": false,
        "query": filter.query(),
        "aggs": { "spans": {
            "range": { "field": "at_ms", "ranges": ranges },
            "aggs": {
                "entered": { "terms": states("entered") },
                "left": {
                    "terms": states("left"),
                    "aggs": {
                        "spent": { "percentiles": percentiles },
                        "longest": { "max": { "field": "spent_ms" } },
                    },
                },
                // The empty reason: most transitions have none.
                "reasons": { "terms": {
                    "field": "reason",
                    "exclude": [""],
                    "size": REASONS,
                    "shard_size": REASONS_PER_SHARD,
                    "order": [{ "_count": "desc" }, { "_key": "asc" }],
                } },
            },
        } },
    })
}

const PERCENTS: [u8; 3] = [50, 90, 99];

#[derive(Deserialize)]
struct StatsResponse {
    aggregations: Option<StatsAggregations>,
}

#[derive(Deserialize)]
struct StatsAggregations {
    spans: RangeAggregation,
}

#[derive(Deserialize)]
struct RangeAggregation {
    buckets: Vec<SpanBucket>,
}

/// One span.
#[derive(Default, Deserialize)]
struct SpanBucket {
    entered: TermsAggregation<State>,
    left: TermsAggregation<State, TimeSpent>,
    reasons: TermsAggregation<String>,
}

/// The time spent in the state that was left, ms.
#[derive(Deserialize)]
struct TimeSpent {
    spent: Percentiles,
    longest: Longest,
}

#[derive(Deserialize)]
struct Percentiles {
    values: Vec<Percentile>,
}

#[derive(Deserialize)]
struct Percentile {
    value: Option<f64>,
}

#[derive(Deserialize)]
struct Longest {
    value: Option<f64>,
}

impl SpanBucket {
    fn activity(self, (from_ms, to_ms): Span) -> Activity {
        let mut states: BTreeMap<State, StateActivity> = BTreeMap::new();
        let seconds = (to_ms - from_ms) as f64 / 1_000.0;
        for bucket in self.entered.buckets {
            let activity = states.entry(bucket.key).or_default();
            activity.entered = bucket.doc_count;
            activity.entered_per_s = bucket.doc_count as f64 / seconds;
        }
        for bucket in self.left.buckets {
            let activity = states.entry(bucket.key).or_default();
            activity.left = bucket.doc_count;
            let TimeSpent { spent, longest } = bucket.sub;
            activity.max_ms = longest.value.unwrap_or_default() as i64;
            let mut percentiles = spent.values.into_iter().map(|percentile| percentile.value.unwrap_or_default());
            // A histogram returns the upper bound of a step, which can exceed the maximum.
            let mut next = || (percentiles.next().unwrap_or_default().round() as i64).min(activity.max_ms);
            (activity.p50_ms, activity.p90_ms, activity.p99_ms) = (next(), next(), next());
        }
        let reasons =
            self.reasons.buckets.into_iter().map(|bucket| ReasonCount { reason: bucket.key, count: bucket.doc_count });
        Activity {
            from_ms: from_ms as i64,
            to_ms: to_ms as i64,
            states: states
                .into_iter()
                .map(|(state, activity)| StateActivity { state: state as i32, ..activity })
                .collect(),
            reasons: reasons.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystone_model::QueueName;

    fn query(from_ms: u64, to_ms: u64, interval_ms: Option<u64>) -> StatsQuery {
        StatsQuery { queue: QueueName::parse("queue", "q").unwrap(), from_ms, to_ms, interval_ms }
    }

    #[test]
    fn intervals_cover_exactly_the_span() {
        assert_eq!(intervals(&query(7, 30, Some(10))), [(7, 17), (17, 27), (27, 30)]);
        assert_eq!(intervals(&query(7, 27, Some(10))), [(7, 17), (17, 27)]);
        assert_eq!(intervals(&query(0, 5, Some(10))), [(0, 5)]);
        assert_eq!(
            intervals(&query(u64::MAX - 3, u64::MAX, Some(2))),
            [(u64::MAX - 3, u64::MAX - 1), (u64::MAX - 1, u64::MAX)]
        );
        assert_eq!((intervals(&query(0, 5, None)), intervals(&query(0, 5, Some(0)))), (vec![], vec![]));
    }

    #[test]
    fn only_the_requested_spans_are_read() {
        let body = body(&query(0, 100, None), &[(10, 20), (20, 25)]);
        let range = &body["query"]["bool"]["filter"][1]["range"]["at_ms"];
        assert_eq!(range, &json!({ "gte": 10, "lt": 25 }));
        let ranges = &body["aggs"]["spans"]["range"]["ranges"];
        assert_eq!(ranges, &json!([{ "from": 10, "to": 20 }, { "from": 20, "to": 25 }]));
    }

    #[test]
    fn a_percentile_is_not_above_the_maximum() {
        let bucket: SpanBucket = serde_json::from_value(json!({
            "key": "x", "doc_count": 2,
            "entered": { "buckets": [{ "key": "running", "doc_count": 3 }] },
            "left": { "buckets": [{ "key": "pending", "doc_count": 2,
                "spent": { "values": [{ "key": 50.0, "value": 10.004 }, { "key": 90.0, "value": 1_000.6 },
                    { "key": 99.0, "value": 1_000.6 }] },
                "longest": { "value": 1_000.0 } }] },
            "reasons": { "buckets": [{ "key": "lease expired", "doc_count": 1 }] },
        }))
        .unwrap();
        let activity = bucket.activity((0, 2_000));
        let [pending, running] = &activity.states[..] else { panic!("{activity:?}") };
        assert_eq!((pending.p50_ms, pending.p90_ms, pending.p99_ms, pending.max_ms), (10, 1_000, 1_000, 1_000));
        assert_eq!((running.entered, running.entered_per_s, running.left), (3, 1.5, 0));
        assert_eq!(activity.reasons, [ReasonCount { reason: "lease expired".to_owned(), count: 1 }]);
    }
}
