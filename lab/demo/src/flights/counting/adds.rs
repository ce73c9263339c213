//! The adds: four for each flight that landed, each sent twice, at the same time.

use super::direct::counters_of;
use crate::flights::flight_log::{FlightLogEntries, Run};
use crate::flights::plan::FlightNo;
use crate::flights::plan::Plan;
use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};
use tallystone_client::{Added, CounterClient, IdempotencyToken, NewAdd, Refused};

/// Flights of one batch: four adds each, of a thousand at most.
const FLIGHTS: usize = 250;
/// Batches sent at once, each of them twice.
const LANES: usize = 4;
/// How often a batch is sent on a machine that delays calls by more than the accept limit.
const ATTEMPTS: usize = 5;
const TOO_OLD: &str = "TOO_OLD";

/// The results of the adds.
#[derive(Default)]
pub(super) struct Sent {
    pub(super) adds: u64,
    pub(super) counted: u64,
    pub(super) duplicates: u64,
    pub(super) refused: u64,
    /// With the time of the latest add.
    pub(super) counters: BTreeMap<String, u64>,
}

/// Sends the adds of every flight that landed.
pub(super) async fn send(
    client: &CounterClient,
    namespace: &str,
    plan: &Plan,
    landed: &FlightLogEntries,
) -> Result<Sent> {
    let ids = plan.ids();
    let flights = flights(&landed.runs);
    let batches = flights.chunks(FLIGHTS).map(|flights| {
        let adds = flights.iter().flat_map(|number| {
            let counters = counters(plan, *number);
            let token = token(ids[*number as usize]);
            counters.map(|counter| (counter, token.clone()))
        });
        adds.collect::<Vec<_>>()
    });
    let sent =
        futures::stream::iter(batches).map(async |adds| twice(client, namespace, adds).await).buffer_unordered(LANES);
    sent.try_fold(Sent::default(), async |mut all, part| {
        all.adds += part.adds;
        all.counted += part.counted;
        all.duplicates += part.duplicates;
        all.refused += part.refused;
        for (counter, time_ms) in part.counters {
            let last = all.counters.entry(counter).or_default();
            *last = time_ms.max(*last);
        }
        Ok(all)
    })
    .await
}

/// The counters of a flight.
pub(super) fn counters(plan: &Plan, number: FlightNo) -> [String; 4] {
    let flight = &plan.flights[number as usize];
    counters_of(
        plan.carriers.name(flight.carrier),
        plan.origins.name(flight.origin),
        plan.dests.name(flight.dest),
        plan.aircraft.name(flight.aircraft),
    )
}

/// The flights that landed, each once. A flight whose worker was killed between landing and Complete has landed twice: a
/// token identifies an event only together with its time (N3), and the two landings have different times.
pub(super) fn flights(runs: &[Run]) -> Vec<u32> {
    let landed: BTreeSet<u32> = runs.iter().filter(|run| run.landed).map(|run| run.flight).collect();
    landed.into_iter().collect()
}

/// The idempotency token of a flight: its id, or a hash of an id that is too long.
fn token(id: &str) -> String {
    match id.len() {
        1..=64 => id.to_owned(),
        _ => uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, id.as_bytes()).simple().to_string(),
    }
}

/// Sends the same batch in two calls at once, as a client that does not wait for a slow response. An add that came too late for both has
/// certainly not counted: it is sent again, at a later time.
async fn twice(client: &CounterClient, namespace: &str, adds: Vec<(String, String)>) -> Result<Sent> {
    let mut sent = Sent { adds: adds.len() as u64, ..Sent::default() };
    let mut waiting = adds;
    for attempts_left in (0..ATTEMPTS).rev() {
        let time_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
        let results = both(client, namespace, &waiting, time_ms).await?;
        let mut too_old = Vec::new();
        for (add, results) in waiting.into_iter().zip(results) {
            if attempts_left > 0 && results.iter().all(is_too_old) {
                too_old.push(add);
                continue;
            }
            results.into_iter().for_each(|result| sent.note(result));
            sent.counters.insert(add.0, time_ms);
        }
        waiting = too_old;
        if waiting.is_empty() {
            break;
        }
    }
    Ok(sent)
}

/// The results of both calls for each add.
async fn both(
    client: &CounterClient,
    namespace: &str,
    adds: &[(String, String)],
    time_ms: u64,
) -> Result<Vec<[Result<Added, Refused>; 2]>> {
    let add = |(counter, token): &(String, String)| {
        NewAdd::new(counter.clone(), 1).token(IdempotencyToken::new(token.clone(), time_ms))
    };
    let batch: Vec<NewAdd> = adds.iter().map(add).collect();
    let (one, other) = tokio::try_join!(client.add_many(namespace, batch.clone()), client.add_many(namespace, batch))
        .context("cannot add to the counters")?;
    Ok(one.into_iter().zip(other).map(|(one, other)| [one, other]).collect())
}

fn is_too_old(result: &Result<Added, Refused>) -> bool {
    matches!(result, Err(refused) if refused.reason == TOO_OLD)
}

impl Sent {
    fn note(&mut self, result: Result<Added, Refused>) {
        match result {
            Ok(Added { duplicate: false, .. }) => self.counted += 1,
            Ok(Added { duplicate: true, .. }) => self.duplicates += 1,
            Err(Refused { message, .. }) => {
                tracing::warn!(message, "an add was refused");
                self.refused += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flight_that_landed_twice_counts_once_and_one_that_did_not_does_not() {
        let run = |flight, worker, landed| Run {
            flight,
            worker,
            attempt: 1,
            fencing_token: 1,
            took_off_ns: 1,
            ended_ns: 2,
            landed,
            queued_ms: 0,
        };
        assert_eq!(flights(&[run(7, 1, true), run(3, 1, false), run(7, 2, true), run(5, 2, true)]), [5, 7]);
    }
}
