//! Queries over many indices. The same messages of thirty days (six in a small run) are in one index, in six (the default for a retention
//! of thirty days), and in thirty, a day in each. Reference: the same calls on the one index. Each call runs on both, one after
//! the other, in turn.

use super::lives::{EVENTS, Lives, id, number};
use super::plan::HistoryPlan;
use super::services::Services;
use crate::report::{Goal, Reference, Row, grouped};
use crate::sample::{CallStats, Samples};
use anyhow::{Result, ensure};
use elasticsearch::http::Method;
use elasticsearch::http::headers::HeaderMap;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use std::time::Instant;
use tallystone_indexer::{Elastic, HistoryStore, Queues, Rollover, SearchQuery, Source, TraceQuery};
use tallystone_model::{QueueName, Recorded};

const DAY_MS: u64 = 86_400_000;
/// Events in one call of the stores.
const RECORDED_AT_ONCE: usize = 4_000;
/// Messages of one search.
const FOUND_MAX: usize = 100;
/// Calls before those that count, in each round; not more than those.
const WARM_UP_CALLS_MAX: u64 = 100;
const ONE: &str = "rollover-one";
/// Prefixes, days of an index, and what is wanted.
const MANY: [(&str, u16, Goal); 2] =
    [("rollover-default", 5, Goal::RatioAtMost(2.0)), ("rollover-daily", 1, Goal::None)];

/// A query of the figure.
#[derive(Clone, Copy)]
enum Query {
    Trace,
    ByMetadata,
    Newest,
}

pub(super) async fn measure(plan: &HistoryPlan, services: &Services) -> Result<Vec<Row>> {
    let queue = QueueName::parse("queue", "bench/history")?;
    let rolling = |prefix, days| services.rolling_indices(prefix, Rollover { days, ..Rollover::default() });
    let days = plan.sizes.days;
    let [default, daily] = MANY.map(|(prefix, days, _)| rolling(prefix, days));
    let (default, daily, one) = futures::try_join!(default, daily, rolling(ONE, days + 1))?;
    let messages = record(&[&default, &daily, &one], plan.sizes.events, days).await?;
    let mut rows = Vec::new();
    for ((prefix, index_days, goal), many) in MANY.into_iter().zip([&default, &daily]) {
        let indices = u64::from(days.div_ceil(index_days));
        for (prefix, expected) in [(prefix, indices), (ONE, 1)] {
            let count = count_indices(services, prefix).await?;
            ensure!(count as u64 == expected, "{prefix} has {count} indices of transitions");
        }
        rows.extend(compare(plan, &queue, [many, &one], (indices, messages), goal).await?);
    }
    for prefix in [MANY[0].0, MANY[1].0, ONE] {
        services.drop_indices(prefix).await?;
    }
    Ok(rows)
}

/// Each query on both histories, of which the first has this number of indices.
async fn compare(
    plan: &HistoryPlan,
    queue: &QueueName,
    stores: [&Elastic; 2],
    (indices, messages): (u64, u64),
    goal: Goal,
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (query, what) in [
        (Query::Trace, "TraceMessage"),
        (Query::ByMetadata, "SearchMessages by metadata"),
        (Query::Newest, "SearchMessages, the newest 100"),
    ] {
        let [mut ours, mut reference] = [const { Samples::new() }; 2];
        for round in 0..plan.runs {
            let [many, one] = calls(plan, stores, queue, query, messages, u64::from(round)).await?;
            ours.push(many.sample(many.quantile_ms(0.5).unwrap_or_default()));
            reference.push(one.sample(one.quantile_ms(0.5).unwrap_or_default()));
        }
        let what = format!("{what} over {indices} indices, {} events: median", grouped(plan.sizes.events));
        let reference = Reference::Measured("one index with the same", &reference);
        let row = Row::new(what, "ms", &ours, reference, goal);
        rows.push(row.with("calls_per_side_and_run", plan.sizes.queries).with("messages", messages));
    }
    Ok(rows)
}

/// Records at least this many events in each of the stores. Returns the number of messages.
async fn record(stores: &[&Elastic], events: u64, days: u16) -> Result<u64> {
    let batches = events.div_ceil(RECORDED_AT_ONCE as u64);
    let mut dry = Lives::new("bench/history")?;
    for _ in 0..batches {
        dry.next(RECORDED_AT_ONCE);
    }
    let messages = dry.messages();
    let mut lives = Lives::new("bench/history")?;
    for _ in 0..batches {
        let batch: Vec<Recorded> =
            lives.next(RECORDED_AT_ONCE).into_iter().map(|recorded| spread(recorded, messages, days)).collect();
        for store in stores {
            let rejected = store.record(&batch).await?;
            ensure!(rejected.is_empty(), "events were rejected: {rejected:?}");
        }
    }
    for store in stores {
        // Makes all of them visible.
        store.advance(Source { number: 0, of: 1 }, lives.now_ms()).await?;
    }
    Ok(messages)
}

/// Moves the event by whole days, so that the messages are on as many days.
fn spread(mut recorded: Recorded, messages: u64, days: u16) -> Recorded {
    let event = &mut recorded.event;
    let by_ms = number(event) * u64::from(days) / messages * DAY_MS;
    for at_ms in [&mut event.at_ms, &mut event.enqueued_at_ms, &mut event.since_ms] {
        *at_ms += by_ms;
    }
    for at_ms in [&mut event.from_since_ms, &mut event.due_ms] {
        *at_ms += if *at_ms == 0 { 0 } else { by_ms };
    }
    recorded
}

async fn count_indices(services: &Services, prefix: &str) -> Result<usize> {
    let path = format!("{prefix}-historic-*/_settings?filter_path=*.settings.index.uuid");
    let transport = services.transport().await?;
    let sent = transport.send(Method::Get, &path, HeaderMap::new(), None::<&()>, None::<String>, None).await?;
    let found: Value = sent.error_for_status_code()?.json().await?;
    Ok(found.as_object().map_or(0, |indices| indices.len()))
}

/// Calls each side in turn, with the same random messages.
async fn calls(
    plan: &HistoryPlan,
    sides: [&Elastic; 2],
    queue: &QueueName,
    query: Query,
    messages: u64,
    seed: u64,
) -> Result<[CallStats; 2]> {
    let mut stats = [CallStats::new(), CallStats::new()];
    let mut rng = StdRng::seed_from_u64(seed);
    let warm_up_calls = plan.sizes.queries.min(WARM_UP_CALLS_MAX);
    for call in 0..warm_up_calls + plan.sizes.queries {
        let message = rng.random_range(0..messages);
        for turn in 0..2 {
            let side = (call as usize + turn) % 2;
            let began = Instant::now();
            query.run(sides[side], queue, message).await?;
            if call >= warm_up_calls {
                stats[side].note(1, began.elapsed());
            }
        }
    }
    Ok(stats)
}

impl Query {
    async fn run(self, store: &Elastic, queue: &QueueName, message: u64) -> Result<()> {
        let search = |metadata| SearchQuery {
            queues: Queues::One(queue.clone()),
            metadata,
            include_gone: true,
            limit: FOUND_MAX,
            ..SearchQuery::default()
        };
        match self {
            Query::Trace => {
                let query =
                    TraceQuery { queue: queue.clone(), id: id(message), sequence: None, limit: 1_000, after: None };
                let trace = store.trace(&query).await?;
                let is_whole = (1..=EVENTS as usize).contains(&trace.transitions.len()) && !trace.more;
                ensure!(is_whole && trace.message.is_some(), "the trace of message {message} is {trace:?}");
            }
            Query::ByMetadata => {
                let tail = ("tail".to_owned(), format!("tail-{}", message % 4_001));
                ensure!(!store.search(&search([tail].into())).await?.is_empty(), "message {message} is not found");
            }
            Query::Newest => {
                let found = store.search(&search([].into())).await?;
                ensure!(found.len() == FOUND_MAX, "{} messages are found", found.len());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_day_has_messages_and_a_message_stays_on_its_day() {
        const DAYS: u16 = 30;
        let mut lives = Lives::new("q").unwrap();
        let batch = lives.next(20_000);
        let messages = lives.messages();
        let day = |event: &tallystone_model::Event| event.enqueued_at_ms / DAY_MS;
        let first = day(&batch[0].event);
        let mut days = std::collections::BTreeSet::new();
        for recorded in batch {
            let own = number(&recorded.event) * u64::from(DAYS) / messages;
            let moved = spread(recorded, messages, DAYS).event;
            assert_eq!((day(&moved) - first, moved.at_ms / DAY_MS - first), (own, own));
            days.insert(own);
        }
        assert_eq!(days.len(), usize::from(DAYS));
    }
}
