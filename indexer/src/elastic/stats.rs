//! How messages went through a queue.
//!
//! One aggregation over spans of time. The parts of a long span are asked for some at a time: each state of each part
//! has a histogram on the server, and a thousand parts at once would not fit a small one.

use super::Elastic;
use super::filter::Filter;
use crate::store::{HistoryError, StatsQuery};
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tallystone_model::State;
use tallystone_proto::history::v1::{Activity, ReasonCount, StateActivity};

/// Parts in one request.
const PARTS: usize = 50;
/// Requests at once.
const AT_ONCE: usize = 2;
/// Reasons in one answer, and how many each shard offers for it.
const REASONS: usize = 20;
const REASONS_OF_SHARD: usize = 1_000;
/// Significant digits of the histograms: within a tenth of a percent.
const DIGITS: u8 = 3;

/// From the first, up to but not including the second.
type Span = (u64, u64);

pub(super) async fn stats(elastic: &Elastic, query: &StatsQuery) -> Result<Vec<Activity>, HistoryError> {
    let parts = parts(query);
    let whole = vec![(query.from_ms, query.to_ms)];
    let requests = std::iter::once(whole).chain(parts.chunks(PARTS).map(<[Span]>::to_vec));
    let requests: Vec<_> = requests.map(|spans| activity(elastic, query, spans)).collect();
    let answers = stream::iter(requests).buffered(AT_ONCE);
    let activities: Vec<Vec<Activity>> = answers.try_collect().await?;
    Ok(activities.into_iter().flatten().collect())
}

/// The intervals; the last may be shorter.
fn parts(query: &StatsQuery) -> Vec<Span> {
    let Some(interval_ms) = query.interval_ms.filter(|interval_ms| *interval_ms > 0) else { return Vec::new() };
    let begins = std::iter::successors(Some(query.from_ms), |begin| begin.checked_add(interval_ms));
    let within = begins.take_while(|begin| *begin < query.to_ms);
    within.map(|begin| (begin, begin.saturating_add(interval_ms).min(query.to_ms))).collect()
}

/// What happened in each of these spans, which follow one another.
async fn activity(elastic: &Elastic, query: &StatsQuery, spans: Vec<Span>) -> Result<Vec<Activity>, HistoryError> {
    let answer: Answer = elastic.link.search(&elastic.names.historic, &body(query, &spans)).await?;
    // Without an index there is no aggregation.
    let mut buckets: Vec<Bucket> = answer.aggregations.map(|found| found.spans.buckets).unwrap_or_default();
    buckets.resize_with(spans.len(), Bucket::default);
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
                // Most transitions have no reason.
                "reasons": { "terms": {
                    "field": "reason",
                    "exclude": [""],
                    "size": REASONS,
                    "shard_size": REASONS_OF_SHARD,
                    "order": [{ "_count": "desc" }, { "_key": "asc" }],
                } },
            },
        } },
    })
}

const PERCENTS: [u8; 3] = [50, 90, 99];

#[derive(Deserialize)]
struct Answer {
    aggregations: Option<Spans>,
}

#[derive(Deserialize)]
struct Spans {
    spans: Buckets,
}

#[derive(Deserialize)]
struct Buckets {
    buckets: Vec<Bucket>,
}

/// One span.
#[derive(Default, Deserialize)]
struct Bucket {
    entered: Terms<State>,
    left: Terms<State, Spent>,
    reasons: Terms<String>,
}

/// Counts by value.
#[derive(Deserialize)]
pub(super) struct Terms<K, More = Nothing> {
    pub(super) buckets: Vec<Term<K, More>>,
}

impl<K, More> Default for Terms<K, More> {
    fn default() -> Self {
        Terms { buckets: Vec::new() }
    }
}

#[derive(Deserialize)]
pub(super) struct Term<K, More> {
    pub(super) key: K,
    pub(super) doc_count: u64,
    #[serde(flatten)]
    more: More,
}

/// Only the count.
#[derive(Deserialize)]
pub(super) struct Nothing {}

/// The time spent in the state left.
#[derive(Deserialize)]
struct Spent {
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

impl Bucket {
    fn activity(self, (from_ms, to_ms): Span) -> Activity {
        let mut states: BTreeMap<State, StateActivity> = BTreeMap::new();
        let seconds = (to_ms - from_ms) as f64 / 1_000.0;
        for term in self.entered.buckets {
            let activity = states.entry(term.key).or_default();
            activity.entered = term.doc_count;
            activity.entered_per_s = term.doc_count as f64 / seconds;
        }
        for term in self.left.buckets {
            let activity = states.entry(term.key).or_default();
            activity.left = term.doc_count;
            let Spent { spent, longest } = term.more;
            activity.max_ms = longest.value.unwrap_or_default() as i64;
            let mut percentiles = spent.values.into_iter().map(|percentile| percentile.value.unwrap_or_default());
            // A histogram answers the upper end of a step, which can lie above the longest.
            let mut next = || (percentiles.next().unwrap_or_default().round() as i64).min(activity.max_ms);
            (activity.p50_ms, activity.p90_ms, activity.p99_ms) = (next(), next(), next());
        }
        let reasons =
            self.reasons.buckets.into_iter().map(|term| ReasonCount { reason: term.key, count: term.doc_count });
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
    fn parts_begin_with_the_span_and_end_with_it() {
        assert_eq!(parts(&query(7, 30, Some(10))), [(7, 17), (17, 27), (27, 30)]);
        assert_eq!(parts(&query(7, 27, Some(10))), [(7, 17), (17, 27)]);
        assert_eq!(parts(&query(0, 5, Some(10))), [(0, 5)]);
        assert_eq!(
            parts(&query(u64::MAX - 3, u64::MAX, Some(2))),
            [(u64::MAX - 3, u64::MAX - 1), (u64::MAX - 1, u64::MAX)]
        );
        assert_eq!((parts(&query(0, 5, None)), parts(&query(0, 5, Some(0)))), (vec![], vec![]));
    }

    #[test]
    fn only_the_spans_asked_for_are_read() {
        let body = body(&query(0, 100, None), &[(10, 20), (20, 25)]);
        let range = &body["query"]["bool"]["filter"][1]["range"]["at_ms"];
        assert_eq!(range, &json!({ "gte": 10, "lt": 25 }));
        let ranges = &body["aggs"]["spans"]["range"]["ranges"];
        assert_eq!(ranges, &json!([{ "from": 10, "to": 20 }, { "from": 20, "to": 25 }]));
    }

    #[test]
    fn a_percentile_is_not_above_the_longest() {
        let bucket: Bucket = serde_json::from_value(json!({
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
