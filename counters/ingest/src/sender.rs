//! Sends adds to the counters until each has a definite answer. A repetition sends the same bytes.

use crate::add::ADD_BYTES_MAX;
use crate::batch::Sent;
use crate::clock::now_ms;
use crate::metrics;
use crate::route::{AddOutcome, AgeLimits, Dead, Fate, answer};
use crate::token::token;
use futures::stream::{self, StreamExt};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tallystone_client::{
    Applied, CounterClient, CounterType, Error, IdempotencyToken, NamespaceConfig, NewAdd, Refused,
};
use tokio::time::{Instant, sleep};

/// Adds of one call.
const CALL_MAX: usize = 1_000;
// The counters read 4 MiB, and refuse a larger call as a whole, however often it is sent. Proxies may read less.
const _: () = assert!(CALL_MAX * ADD_BYTES_MAX <= 512 * 1024);
/// Calls at the same time.
const CALLS_MAX: usize = 4;
/// The first and the longest pause before adds without a definite answer are sent again.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// The pause before adds are sent again whose time has not come. A long one could let it pass.
const EARLY_PAUSE: Duration = Duration::from_millis(100);
/// For how long the configuration of a namespace is known. Only a deletion changes whether it counts each token once.
const KNOWN: Duration = Duration::from_secs(10);
/// Namespaces that are known at once.
const KNOWN_MAX: usize = 10_000;

/// Sends adds.
pub(crate) struct Sender {
    counters: CounterClient,
    /// With what a missing namespace is created; `None`: it is not.
    creation: Option<NamespaceConfig>,
    /// Namespaces that count each token once.
    known: Mutex<HashMap<String, KnownNamespace>>,
}

/// What is known of a namespace, and since when.
#[derive(Clone, Copy)]
struct KnownNamespace {
    ages: AgeLimits,
    since: Instant,
}

/// Whether adds of a namespace may be sent.
enum Checked {
    Ready(AgeLimits),
    Refused(Dead, String),
    Later(String),
}

impl Sender {
    /// `counters` repeats no call by itself.
    pub(crate) fn new(counters: CounterClient, creation: Option<NamespaceConfig>) -> Sender {
        Sender { counters, creation, known: Mutex::default() }
    }

    /// Returns the fate of each add, in their order. Waits through outages, however long they last.
    pub(crate) async fn settle(&self, sent: &[Sent]) -> Vec<Fate> {
        let mut by_namespace: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (number, one) in sent.iter().enumerate() {
            by_namespace.entry(&one.add.namespace).or_default().push(number);
        }
        let mut calls: Vec<(String, Vec<usize>)> = Vec::new();
        for (namespace, numbers) in &by_namespace {
            calls.extend(numbers.chunks(CALL_MAX).map(|chunk| ((*namespace).to_owned(), chunk.to_vec())));
        }
        let settle = |(namespace, numbers)| self.settle_some(namespace, numbers, sent);
        let settled: Vec<Vec<(usize, Fate)>> =
            stream::iter(calls).map(settle).buffer_unordered(CALLS_MAX).collect().await;
        let mut fates: Vec<(usize, Fate)> = settled.into_iter().flatten().collect();
        fates.sort_by_key(|(number, _)| *number);
        fates.into_iter().map(|(_, fate)| fate).collect()
    }

    /// Settles adds of one namespace, at most those of one call.
    async fn settle_some(&self, namespace: String, numbers: Vec<usize>, sent: &[Sent]) -> Vec<(usize, Fate)> {
        let mut waiting: Vec<(usize, bool)> =
            numbers.into_iter().map(|number| (number, sent[number].perhaps_counted)).collect();
        let (mut fates, mut pause) = (Vec::with_capacity(waiting.len()), PAUSE_MIN);
        loop {
            let why = self.attempt(&namespace, sent, &mut waiting, &mut fates).await;
            if waiting.is_empty() {
                return fates;
            }
            let Some(why) = why else {
                sleep(EARLY_PAUSE).await;
                continue;
            };
            metrics::sent_again(waiting.len());
            tracing::debug!(namespace, why, adds = waiting.len(), "adds will be sent again");
            sleep(pause).await;
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    /// Sends the waiting adds once, and moves those with a definite answer to `fates`. Returns why others wait; `None`: only
    /// for their time.
    async fn attempt(
        &self,
        namespace: &str,
        sent: &[Sent],
        waiting: &mut Vec<(usize, bool)>,
        fates: &mut Vec<(usize, Fate)>,
    ) -> Option<String> {
        let ages = match self.check(namespace).await {
            Checked::Ready(ages) => ages,
            Checked::Later(why) => return Some(why),
            Checked::Refused(dead, why) => {
                fates.extend(waiting.drain(..).map(|(number, _)| (number, Fate::Dead(dead, why.clone()))));
                return None;
            }
        };
        let adds = waiting.iter().map(|(number, _)| add(&sent[*number])).collect();
        let began_ms = now_ms();
        let answered = match self.counters.add_many(namespace, adds).await {
            Ok(results) => {
                let answers = waiting.iter().zip(&results);
                answers.map(|((_, perhaps), result)| answer(result.as_ref(), *perhaps)).collect::<Vec<_>>()
            }
            Err(error) => {
                if let Error::Refused(Refused { reason, message, .. }) = &error
                    && reason == "NAMESPACE_NOT_FOUND"
                {
                    self.known().remove(namespace);
                    if self.creation.is_some() {
                        return Some(message.clone());
                    }
                }
                waiting.iter().map(|(_, perhaps)| whole(&error, *perhaps)).collect()
            }
        };
        let mut last = None;
        let called = std::mem::take(waiting);
        for ((number, perhaps), answered) in called.into_iter().zip(answered) {
            match answered {
                AddOutcome::Is(fate) => fates.push((number, fate)),
                AddOutcome::Early => waiting.push((number, perhaps)),
                AddOutcome::Later { why, perhaps_counted } => {
                    last = Some(why);
                    // Without an answer it may have counted, unless it was too old for that.
                    let may_count = ages.may_count(sent[number].record.at_ms.unwrap_or_default(), began_ms);
                    waiting.push((number, perhaps || (perhaps_counted && may_count)));
                }
            }
        }
        last
    }

    /// Whether the namespace counts each token once. One of type BEST_EFFORT ignores tokens.
    async fn check(&self, namespace: &str) -> Checked {
        let known = self.known().get(namespace).copied();
        if let Some(known) = known.filter(|known| known.since.elapsed() < KNOWN) {
            return Checked::Ready(known.ages);
        }
        let found = match (self.counters.get_namespace(namespace).await, &self.creation) {
            (Err(Error::Refused(refused)), Some(config)) if refused.reason == "NAMESPACE_NOT_FOUND" => {
                match self.counters.put_namespace(namespace, config.clone()).await {
                    Ok(created) => created,
                    Err(error) => return Checked::Later(error.to_string()),
                }
            }
            (Ok(found), _) => found,
            (Err(Error::Refused(refused)), _) => {
                return match refused.reason.as_str() {
                    "NAMESPACE_NOT_FOUND" => Checked::Refused(Dead::NamespaceNotFound, refused.message),
                    "INVALID_ARGUMENT" => Checked::Refused(Dead::Invalid, refused.message),
                    _ => Checked::Later(refused.to_string()),
                };
            }
            (Err(error), _) => return Checked::Later(error.to_string()),
        };
        match found.config.counter_type {
            Some(CounterType::Eventual | CounterType::Accurate) => {
                let mut known = self.known();
                if known.len() >= KNOWN_MAX {
                    known.clear();
                }
                let NamespaceConfig { accept_limit_ms, close_after_ms, .. } = found.config;
                // What the server does not say may be any time.
                let [accept_limit_ms, close_after_ms] =
                    [accept_limit_ms, close_after_ms].map(|age_ms| age_ms.unwrap_or(u64::MAX));
                let ages = AgeLimits { accept_limit_ms, close_after_ms };
                known.insert(namespace.to_owned(), KnownNamespace { ages, since: Instant::now() });
                Checked::Ready(ages)
            }
            Some(CounterType::BestEffort) => {
                let why = format!("the namespace '{namespace}' is BEST_EFFORT, so an add could count twice");
                Checked::Refused(Dead::Invalid, why)
            }
            None => Checked::Later(format!("the type of the namespace '{namespace}' is not known here")),
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, KnownNamespace>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add(sent: &Sent) -> NewAdd {
    // A record without a time, or with a negative one, is not sent.
    let at_ms = sent.record.at_ms.unwrap_or_default().unsigned_abs();
    let add = &sent.add;
    let token = IdempotencyToken::new(token(&sent.record), at_ms);
    let labeled = NewAdd::new(&add.counter, add.delta).source(&add.source).event_item_key(&add.event_item_key);
    labeled.token(token)
}

/// What the failure of a whole call means for each of its adds.
fn whole(error: &Error, perhaps_counted: bool) -> AddOutcome {
    match error {
        Error::Refused(refused) => answer(Err(refused), perhaps_counted),
        error => {
            let is_certain = matches!(error, Error::Unavailable { applied: Applied::No, .. } | Error::Connect { .. });
            AddOutcome::Later { why: error.to_string(), perhaps_counted: perhaps_counted || !is_certain }
        }
    }
}
