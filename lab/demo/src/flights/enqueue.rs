//! Enqueues the file: reads it as a stream and sends batches, several at a time.

use super::flight::{self, Flight};
use super::plan::Plan;
use anyhow::{Context, Result, anyhow};
use indicatif::ProgressBar;
use serde::Serialize;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tallystone_client::{Client, NewMessage, Refused};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Batches sent at once. Each lane sends one batch after another, and all flights of an aircraft use the same lane: so they
/// are accepted in the order of the file, which decides between equal departures.
const LANES: usize = 8;
const BATCH: usize = 500;

/// What happened to the rows.
#[derive(Default)]
pub(super) struct Enqueued {
    pub(super) rows: u64,
    /// Rows without a tail number: only these must be refused.
    pub(super) rows_without_aircraft: u64,
    /// Rows whose id and content were accepted before.
    pub(super) repeated: u64,
    pub(super) refused: Vec<RefusedRows>,
    /// Ids refused because another row, with other content, has them.
    conflicts: Vec<String>,
    /// Refused rows that have a tail number, conflicts left out.
    refused_otherwise: u64,
    pub(super) plan: Plan,
}

/// Rows refused for one reason.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RefusedRows {
    pub(super) reason: String,
    pub(super) field: Option<String>,
    /// The server's message for the first.
    pub(super) message: String,
    pub(super) rows: u64,
    /// The id of the first.
    pub(super) example: String,
}

type Batch = Vec<(Flight, NewMessage)>;

/// Sends every row of the file.
pub(super) async fn enqueue(
    client: &Client,
    queue: &str,
    file: Option<PathBuf>,
    progress: &ProgressBar,
) -> Result<Enqueued> {
    let enqueued = Arc::new(Mutex::new(Enqueued::default()));
    let mut lanes = JoinSet::new();
    let mut senders = Vec::new();
    for _ in 0..LANES {
        let (sender, mut batches) = mpsc::channel::<Batch>(1);
        senders.push(sender);
        let (client, queue, progress) = (client.clone(), queue.to_owned(), progress.clone());
        let enqueued = Arc::clone(&enqueued);
        lanes.spawn(async move {
            while let Some(batch) = batches.recv().await {
                let (flights, messages): (Vec<Flight>, Vec<NewMessage>) = batch.into_iter().unzip();
                let results = client.enqueue(&queue, messages).await.context("cannot enqueue the flights")?;
                progress.inc(flights.len() as u64);
                let mut enqueued = enqueued.lock().unwrap_or_else(PoisonError::into_inner);
                for (flight, result) in flights.iter().zip(results) {
                    enqueued.count(flight, result.err())?;
                }
            }
            anyhow::Ok(())
        });
    }
    // Reading and unzipping block, so they run on a blocking thread.
    let read = tokio::task::spawn_blocking(move || deal(file, &senders)).await?;
    while let Some(lane) = lanes.join_next().await {
        lane??;
    }
    read?;
    let enqueued = Arc::into_inner(enqueued).ok_or_else(|| anyhow!("a lane is still open"))?;
    Ok(enqueued.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Deals the rows to the lanes, in batches.
fn deal(file: Option<PathBuf>, lanes: &[mpsc::Sender<Batch>]) -> Result<()> {
    let mut batches: Vec<Batch> = lanes.iter().map(|_| Vec::with_capacity(BATCH)).collect();
    for (line, flight) in (2..).zip(flight::read(file.as_deref())?) {
        let flight = flight?;
        let message = flight.message().with_context(|| format!("line {line}"))?;
        let mut hasher = DefaultHasher::new();
        flight.tailnum.hash(&mut hasher);
        let lane = (hasher.finish() % lanes.len() as u64) as usize;
        batches[lane].push((flight, message));
        // A lane that is gone has failed and returns its error itself.
        if batches[lane].len() == BATCH && lanes[lane].blocking_send(std::mem::take(&mut batches[lane])).is_err() {
            return Ok(());
        }
    }
    for (lane, batch) in lanes.iter().zip(batches).filter(|(_, batch)| !batch.is_empty()) {
        let _ = lane.blocking_send(batch);
    }
    Ok(())
}

impl Enqueued {
    fn count(&mut self, flight: &Flight, refused: Option<Refused>) -> Result<()> {
        self.rows += 1;
        self.rows_without_aircraft += u64::from(flight.tailnum.is_empty());
        match refused {
            None if self.plan.accept(flight)? => {}
            None => self.repeated += 1,
            Some(refused) => {
                match refused.reason.as_str() {
                    _ if flight.tailnum.is_empty() => {}
                    "ID_CONFLICT" => self.conflicts.push(flight.id()),
                    _ => self.refused_otherwise += 1,
                }
                self.count_refused(flight, refused);
            }
        }
        Ok(())
    }

    /// Refused rows that the server had to accept: they have a tail number, and no other row has their id.
    pub(super) fn refused_wrongly(&self, plan: &Plan) -> u64 {
        let unfounded = self.conflicts.iter().filter(|id| plan.number(id).is_none()).count();
        self.refused_otherwise + unfounded as u64
    }

    /// Refused rows whose id another row has.
    pub(super) fn conflicts(&self) -> u64 {
        self.conflicts.len() as u64
    }

    fn count_refused(&mut self, flight: &Flight, refused: Refused) {
        let Refused { reason, field, message, .. } = refused;
        let (field, message) = (field.map(|field| of_any_item(&field)), of_any_item(&message));
        match self.refused.iter_mut().find(|rows| rows.reason == reason && rows.field == field) {
            Some(rows) => rows.rows += 1,
            None => self.refused.push(RefusedRows { reason, field, message, rows: 1, example: flight.id() }),
        }
    }
}

/// `messages[17].metadata …` as `metadata …`: the same text for every row.
fn of_any_item(text: &str) -> String {
    text.strip_prefix("messages[").and_then(|rest| rest.split_once("].")).map_or(text, |(_, said)| said).to_owned()
}
