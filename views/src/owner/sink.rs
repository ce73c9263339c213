//! The sink: it sends the deltas of a partition to the counters, each with a token and a time that belong to its record
//! (N17). A repetition sends the same bytes, so a delta counts once.

use crate::log::{Deltas, WaitingDeltas};
use crate::metrics;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tallystone_client::{CounterClient, CounterType, Error, IdempotencyToken, NamespaceConfig, NewAdd, Refused};
use tallystone_link::wall_ms;
use tokio::time::{Instant, sleep};

/// Adds of one call.
const CALL_MAX: usize = 1_000;
/// The pause before adds without a definite answer are sent again.
const PAUSE: Duration = Duration::from_millis(200);
/// For how long it is known that a namespace counts each token once. Only a deletion changes that, and the sink need not notice
/// it: another process may have created the namespace again.
const KNOWN: Duration = Duration::from_secs(10);
/// The minimum time between two warnings.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// Sends deltas.
pub(crate) struct Sink {
    counters: CounterClient,
    /// Namespaces that count each token once, and since when that is known.
    ready: Mutex<HashMap<String, Instant>>,
    /// When this process last warned that adds come too early.
    warned_at: Mutex<Option<Instant>>,
}

/// What the answer of an add means.
enum DeltaOutcome {
    /// It has counted, by this call or an earlier one.
    Counted,
    /// It has not, and never will.
    TooOld,
    /// It can never be said whether it has.
    Unresolved(String),
    /// The same bytes may have another answer later.
    Later(String),
    /// As `Later`: the counters' clock has not reached the time of the add.
    Early(String),
}

fn answer(result: Result<(), &Refused>) -> DeltaOutcome {
    let Err(refused) = result else { return DeltaOutcome::Counted };
    match refused.reason.as_str() {
        "TOO_OLD" => DeltaOutcome::TooOld,
        "TOO_EARLY" => DeltaOutcome::Early(refused.message.clone()),
        "TOKEN_EXPIRED" | "TOKEN_CONFLICT" | "OVERFLOW" | "INVALID_ARGUMENT" => {
            DeltaOutcome::Unresolved(refused.message.clone())
        }
        _ => DeltaOutcome::Later(refused.message.clone()),
    }
}

/// With what the namespaces of counts are created if they are missing.
pub fn counts_config() -> NamespaceConfig {
    let counter_type = Some(CounterType::Accurate);
    NamespaceConfig { counter_type, num_queues: Some(1), ..NamespaceConfig::default() }
}

impl Sink {
    /// `counters` repeats no call by itself.
    pub(crate) fn new(counters: CounterClient) -> Sink {
        Sink { counters, ready: Mutex::default(), warned_at: Mutex::default() }
    }

    /// Sends a record of deltas until each has a definite answer, and returns those that came too late: they have certainly
    /// not counted. `sent` is called after each call of the counters.
    pub(super) async fn send(&self, partition: u16, waiting: WaitingDeltas, sent: impl Fn()) -> Deltas {
        let WaitingDeltas { at, token, deltas, .. } = waiting;
        let token = IdempotencyToken::new(token, at.ms);
        let mut by_namespace: BTreeMap<String, Vec<(String, u32)>> = BTreeMap::new();
        for ((namespace, counter), delta) in deltas {
            by_namespace.entry(namespace).or_default().push((counter, delta));
        }
        let mut too_old = Deltas::new();
        for (namespace, mut waiting) in by_namespace {
            while !waiting.is_empty() {
                let now = waiting.split_off(waiting.len().saturating_sub(CALL_MAX));
                let later = self.send_some(&namespace, &token, now, &mut too_old).await;
                sent();
                if let Err((unanswered, why)) = later {
                    tracing::debug!(partition, namespace, why, "adds will be sent again");
                    waiting.extend(unanswered);
                    sleep(PAUSE).await;
                }
            }
        }
        too_old
    }

    /// Sends adds once. Returns those without a definite answer, and why.
    async fn send_some(
        &self,
        namespace: &str,
        token: &IdempotencyToken,
        adds: Vec<(String, u32)>,
        too_old: &mut Deltas,
    ) -> Result<(), (Vec<(String, u32)>, String)> {
        if let Err(error) = self.prepare(namespace).await {
            return Err((adds, error));
        }
        let add = |(counter, delta): &(String, u32)| NewAdd::new(counter, i64::from(*delta)).token(token.clone());
        let results = match self.counters.add_many(namespace, adds.iter().map(add).collect()).await {
            Ok(results) => results,
            Err(error) => {
                if matches!(&error, Error::Refused(refused) if refused.reason == "NAMESPACE_NOT_FOUND") {
                    self.ready().remove(namespace);
                }
                return Err((adds, error.to_string()));
            }
        };
        let (mut unanswered, mut last) = (Vec::new(), String::new());
        for ((counter, delta), result) in adds.into_iter().zip(results) {
            match answer(result.as_ref().map(drop)) {
                DeltaOutcome::Counted => metrics::counted(delta),
                DeltaOutcome::TooOld => drop(too_old.insert((namespace.to_owned(), counter), delta)),
                DeltaOutcome::Unresolved(why) => {
                    metrics::unresolved(delta);
                    tracing::error!(namespace, counter, delta, token = token.token, why, "views may not have counted");
                }
                DeltaOutcome::Later(why) => {
                    last = why;
                    unanswered.push((counter, delta));
                }
                DeltaOutcome::Early(why) => {
                    self.warn_early(namespace, token.generation_time_ms);
                    last = why;
                    unanswered.push((counter, delta));
                }
            }
        }
        if unanswered.is_empty() { Ok(()) } else { Err((unanswered, last)) }
    }

    /// Warns now and then: these adds, and all behind them, wait until the clock of the counters has come to this time.
    fn warn_early(&self, namespace: &str, at_ms: u64) {
        let mut warned_at = self.warned_at.lock().unwrap_or_else(PoisonError::into_inner);
        if warned_at.is_some_and(|at| at.elapsed() < WARN_EVERY) {
            return;
        }
        *warned_at = Some(Instant::now());
        let ahead_ms = at_ms.saturating_sub(wall_ms());
        tracing::warn!(
            namespace,
            ahead_ms,
            "deltas come too early, and wait: the clock of the log's Redis is or was ahead of that of the counters"
        );
    }

    /// Waits until these namespaces exist and count each token once. Creates those that are missing.
    pub(crate) async fn prepared(&self, namespaces: &[String]) {
        for namespace in namespaces {
            while let Err(why) = self.prepare(namespace).await {
                tracing::debug!(namespace, why, "the namespace of the counters is not ready yet");
                sleep(PAUSE).await;
            }
        }
    }

    /// Creates the namespace if it is missing, and refuses one that ignores tokens.
    async fn prepare(&self, namespace: &str) -> Result<(), String> {
        if self.ready().get(namespace).is_some_and(|since| since.elapsed() < KNOWN) {
            return Ok(());
        }
        let found = match self.counters.get_namespace(namespace).await {
            Err(Error::Refused(refused)) if refused.reason == "NAMESPACE_NOT_FOUND" => {
                self.counters.put_namespace(namespace, counts_config()).await
            }
            found => found,
        };
        match found.map_err(|error| error.to_string())?.config.counter_type {
            Some(CounterType::BestEffort) => {
                tracing::error!(namespace, "the namespace is BEST_EFFORT, which counts repeated adds twice");
                Err("the namespace is BEST_EFFORT".to_owned())
            }
            _ => {
                self.ready().insert(namespace.to_owned(), Instant::now());
                Ok(())
            }
        }
    }

    fn ready(&self) -> std::sync::MutexGuard<'_, HashMap<String, Instant>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
