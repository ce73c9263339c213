//! Questions that the demo answers from the history alone: why a flight waited, how long each carrier waited, and what
//! happened to a flight whose worker was killed.

use super::flight::TAIL;
use super::killed::KilledWorker;
use super::quantiles::{Quantiles, quantiles};
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tallystone_client::{Client, Code, IndexedMessage, Search, State, Trace};

/// How long the history may take to catch up.
const CAUGHT_UP: Duration = Duration::from_secs(20);
const PAGE: u32 = 1_000;

/// Draws the trace of a message: its transitions, its queue and its id.
pub type DrawTrace = fn(&Trace, &str, &str) -> String;

/// What the history says.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HistoryAnswers {
    pub(super) longest_wait: Option<LongestWait>,
    /// From the enqueue to the landing, by carrier.
    pub(super) waits_by_carrier: Vec<CarrierWait>,
    /// One flight whose worker was killed, and all its transitions.
    pub(super) killed_flight: Option<TracedFlight>,
    /// From the last landing until the history held every transition.
    pub(super) indexed_after_ms: f64,
}

/// The flight that waited longest, and why.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LongestWait {
    pub(super) flight: String,
    pub(super) aircraft: String,
    pub(super) waited_ms: u64,
    /// Earlier flights of the same aircraft.
    pub(super) flights_before: u64,
    /// The sum of the times for which those flights occupied the aircraft.
    pub(super) aircraft_busy_ms: u64,
    /// The part of it that was the lease of a killed worker, until it expired.
    pub(super) dead_lease_ms: u64,
}

/// How long one carrier's flights waited from enqueue to landing.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CarrierWait {
    pub(super) carrier: String,
    pub(super) flights: u64,
    pub(super) wait_ms: Quantiles,
}

/// A flight and its transitions.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TracedFlight {
    pub(super) id: String,
    pub(super) transitions: Vec<tallystone_client::TracedTransition>,
    #[serde(skip)]
    pub(super) drawn: String,
}

/// Waits for the history to catch up, then queries it. `None`: the server keeps no history.
pub(super) async fn query(
    client: &Client,
    queue: &str,
    killed: Option<&KilledWorker>,
    draw_trace: DrawTrace,
) -> Result<Option<HistoryAnswers>> {
    let begin = Instant::now();
    if !history_caught_up(client).await? {
        return Ok(None);
    }
    let indexed_after_ms = begin.elapsed().as_secs_f64() * 1e3;
    let flights = all(client, queue).await?;
    let mut carriers: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for flight in &flights {
        let wait_ms = flight.state_since_ms.saturating_sub(flight.enqueued_at_ms);
        carriers.entry(flight.metadata.get("carrier").map_or("", String::as_str)).or_default().push(wait_ms as f64);
    }
    let carrier = |(carrier, waits): (&str, Vec<f64>)| CarrierWait {
        carrier: carrier.to_owned(),
        flights: waits.len() as u64,
        wait_ms: quantiles(waits),
    };
    let mut waits_by_carrier: Vec<CarrierWait> = carriers.into_iter().map(carrier).collect();
    waits_by_carrier.sort_by(|a, b| b.wait_ms.p50.total_cmp(&a.wait_ms.p50));
    let killed_flight = match killed.and_then(|killed| killed.flights.first()) {
        Some(flight) => Some(traced(client, queue, &flight.id, draw_trace).await?),
        None => None,
    };
    let longest_wait = longest_wait(client, queue, &flights).await?;
    Ok(Some(HistoryAnswers { longest_wait, waits_by_carrier, killed_flight, indexed_after_ms }))
}

/// Waits until the history holds every transition made so far. `false`: the server keeps no history.
///
/// # Errors
/// The history does not answer, or has not caught up within 20 s.
pub async fn history_caught_up(client: &Client) -> Result<bool> {
    match client.history_caught_up(CAUGHT_UP).await {
        Ok(true) => Ok(true),
        Ok(false) => bail!("history has not caught up with the queue within {CAUGHT_UP:?}"),
        Err(error) if error.refused().is_some_and(|refused| refused.code == Code::Unimplemented) => Ok(false),
        Err(error) => Err(error).context("the history store does not answer"),
    }
}

/// Every message of the queue, as the history holds it.
async fn all(client: &Client, queue: &str) -> Result<Vec<IndexedMessage>> {
    let mut search = Search { queue: queue.to_owned(), page_size: PAGE, ..Search::default() };
    let mut messages = Vec::new();
    loop {
        let found = client.search_messages(search.clone()).await.context("SearchMessages")?;
        messages.extend(found.messages);
        search.page_token = found.next_page_token;
        if search.page_token.is_empty() {
            return Ok(messages);
        }
    }
}

async fn longest_wait(client: &Client, queue: &str, flights: &[IndexedMessage]) -> Result<Option<LongestWait>> {
    let wait_ms = |flight: &IndexedMessage| flight.state_since_ms.saturating_sub(flight.enqueued_at_ms);
    // Only flights leased once: these waited for their aircraft, not for a killed worker's lease to expire.
    let candidates = flights.iter().filter(|flight| flight.attempts == 1);
    let Some(longest) = candidates.max_by_key(|flight| wait_ms(flight)) else { return Ok(None) };
    let aircraft = longest.metadata.get(TAIL).cloned().unwrap_or_default();
    let before = flights.iter().filter(|flight| {
        flight.metadata.get(TAIL) == Some(&aircraft)
            && flight.state_since_ms <= longest.state_since_ms
            && flight.id != longest.id
    });
    let (mut flights_before, mut aircraft_busy_ms, mut dead_lease_ms) = (0, 0, 0);
    for flight in before {
        flights_before += 1;
        let trace = trace(client, queue, &flight.id).await?;
        for ran in trace.transitions.iter().filter(|transition| transition.from == Some(State::Running)) {
            aircraft_busy_ms += ran.spent_ms;
            dead_lease_ms += if ran.by == "lease_expired" { ran.spent_ms } else { 0 };
        }
    }
    let trace = trace(client, queue, &longest.id).await?;
    let first_lease = trace.transitions.iter().find(|transition| transition.by == "dequeue");
    Ok(Some(LongestWait {
        flight: longest.id.clone(),
        aircraft,
        waited_ms: first_lease.map_or(0, |lease| lease.spent_ms),
        flights_before,
        aircraft_busy_ms,
        dead_lease_ms,
    }))
}

async fn traced(client: &Client, queue: &str, id: &str, draw_trace: DrawTrace) -> Result<TracedFlight> {
    let trace = trace(client, queue, id).await?;
    let drawn = draw_trace(&trace, queue, id);
    Ok(TracedFlight { id: id.to_owned(), transitions: trace.transitions, drawn })
}

async fn trace(client: &Client, queue: &str, id: &str) -> Result<Trace> {
    client.trace_message(queue, id, 0, 0, "").await.with_context(|| format!("TraceMessage of {id}"))
}
