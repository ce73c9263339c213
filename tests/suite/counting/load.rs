//! The load under which things are killed: clients that send each event until they know what happened to it, and write
//! that down (N3).

use super::now_ms;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tallystone_client::{Audit, CounterClient, IdempotencyToken, NewAdd, NewRecount};
use tokio::sync::watch;
use tokio::time::sleep;

/// Counters that get an add now and then, in addition to the hot one.
const COLD: usize = 60;
pub(super) const HOT: &str = "hot";
/// How far events may be behind when they are first sent.
const BEHIND_MS: u64 = 300;

/// What happened to an event, once and for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Counted,
    TooOld,
}

/// What was answered.
#[derive(Default)]
pub(super) struct Ledger {
    /// The sum of what was counted, by counter.
    pub(super) sums: BTreeMap<String, i64>,
    /// The sum of the adjustments of recounts, by counter.
    pub(super) adjusted: BTreeMap<String, i64>,
    pub(super) recounts: usize,
    pub(super) counted: usize,
    /// Counted; its first reply was lost, and the call was repeated.
    pub(super) duplicates: usize,
    pub(super) too_old: usize,
}

impl Ledger {
    /// What each count is.
    pub(super) fn counts(&self) -> BTreeMap<String, i64> {
        let mut counts = self.sums.clone();
        self.adjusted.iter().for_each(|(counter, sum)| *counts.entry(counter.clone()).or_default() += sum);
        counts
    }
}

/// A call, and what was answered.
type AnsweredCall = (Vec<NewAdd>, Vec<Verdict>);

/// The load on one namespace.
#[derive(Clone)]
pub(super) struct Load {
    namespace: String,
    clients: Vec<CounterClient>,
    until: watch::Receiver<bool>,
    pub(super) ledger: Arc<Mutex<Ledger>>,
    /// Calls that were answered, some of which are repeated much later.
    earlier: Arc<Mutex<Vec<AnsweredCall>>>,
    /// Events of which all is known.
    pub(super) answered: Arc<watch::Sender<usize>>,
}

impl Load {
    /// Until the watch says true.
    pub(super) fn new(namespace: &str, clients: &[CounterClient], until: watch::Receiver<bool>) -> Self {
        let (ledger, earlier, answered) = (Arc::default(), Arc::default(), Arc::new(watch::Sender::new(0)));
        Load { namespace: namespace.to_owned(), clients: clients.to_vec(), until, ledger, earlier, answered }
    }

    /// Adds; now and then a call that was answered is repeated through the other server, or one that was answered long ago.
    pub(super) async fn add(self, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut number = 0;
        while !*self.until.borrow() {
            let via = rng.random_range(0..self.clients.len());
            let adds: Vec<NewAdd> = (0..rng.random_range(1..=20))
                .map(|_| {
                    number += 1;
                    let counter = match rng.random_range(0..3) {
                        0 => HOT.to_owned(),
                        _ => format!("cold/{}", rng.random_range(0..COLD)),
                    };
                    let time_ms = now_ms() - rng.random_range(0..BEHIND_MS);
                    let token = IdempotencyToken::new(format!("{seed:x}-{number}"), time_ms);
                    NewAdd::new(counter, rng.random_range(-5..100)).token(token)
                })
                .collect();
            let verdicts = self.send(via, &adds, None).await;
            {
                let mut ledger = self.ledger.lock().unwrap();
                for (add, verdict) in adds.iter().zip(&verdicts) {
                    let counted = if *verdict == Verdict::Counted { add.delta } else { 0 };
                    *ledger.sums.entry(add.counter.clone()).or_default() += counted;
                }
                ledger.counted += verdicts.iter().filter(|verdict| **verdict == Verdict::Counted).count();
                ledger.too_old += verdicts.iter().filter(|verdict| **verdict == Verdict::TooOld).count();
            }
            if rng.random_bool(0.1) {
                self.send(self.clients.len() - 1 - via, &adds, Some(&verdicts)).await;
            }
            if rng.random_bool(0.05) {
                let earlier = self.earlier.lock().unwrap().choose(&mut rng).cloned();
                if let Some((adds, verdicts)) = earlier {
                    self.send(via, &adds, Some(&verdicts)).await;
                }
            }
            self.earlier.lock().unwrap().push((adds.clone(), verdicts));
            self.answered.send_modify(|answered| *answered += adds.len());
            // Those who roll up need the machine too.
            sleep(Duration::from_millis(rng.random_range(5..20))).await;
        }
    }

    /// Recounts counters one after the other, from their events or not, each with an adjustment; repeats each recount until it is
    /// answered.
    pub(super) async fn recount(self, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut number = 0;
        while !*self.until.borrow() {
            number += 1;
            let via = &self.clients[rng.random_range(0..self.clients.len())];
            let counter = if rng.random() { HOT.to_owned() } else { format!("cold/{}", rng.random_range(0..COLD)) };
            let (adjustment, reason) = (rng.random_range(1..1_000), "a round");
            let audit = if rng.random() { Some(self.audited(via, &counter).await) } else { None };
            let recount = match audit {
                Some(audit) => NewRecount::from_events(&audit, adjustment, reason),
                None => NewRecount::of_count(adjustment, reason),
            };
            let recount = recount.token(format!("{seed:x}-{number}"));
            let answer = loop {
                match via.recount(&self.namespace, &counter, recount.clone()).await {
                    Err(error) if error.is_unavailable() => {}
                    answer => break answer,
                }
            };
            match answer {
                Ok(recounted) => {
                    assert_eq!(recounted.new_count, recounted.old_count + adjustment, "{counter}: {recounted:?}");
                    let mut ledger = self.ledger.lock().unwrap();
                    *ledger.adjusted.entry(counter).or_default() += adjustment;
                    ledger.recounts += 1;
                }
                Err(error) => {
                    let reason = &error.refused().expect("an answer").reason;
                    assert!(["COUNTER_NOT_FOUND", "COUNTER_CHANGED"].contains(&reason.as_str()), "{counter}: {error}");
                }
            }
            sleep(Duration::from_millis(rng.random_range(5..50))).await;
        }
    }

    /// A finished audit. Whatever is killed, the events agree with the count.
    async fn audited(&self, via: &CounterClient, counter: &str) -> Audit {
        loop {
            match via.audit(&self.namespace, counter).await {
                Ok(audit) => {
                    assert!(audit.agrees, "{counter}: {audit:?}");
                    return audit;
                }
                Err(error) if error.is_unavailable() => {}
                Err(error) => panic!("{counter}: {error}"),
            }
        }
    }

    /// Sends events until each has an answer that holds for ever. `known`: what has been answered before, which must be
    /// answered again.
    async fn send(&self, via: usize, adds: &[NewAdd], known: Option<&[Verdict]>) -> Vec<Verdict> {
        let mut verdicts = vec![None; adds.len()];
        let mut open: Vec<usize> = (0..adds.len()).collect();
        while !open.is_empty() {
            let these = open.iter().map(|number| adds[*number].clone()).collect();
            let results = self.clients[via].add_many(&self.namespace, these).await.expect("an answer");
            let mut again = Vec::new();
            for (number, result) in open.into_iter().zip(results) {
                match result {
                    Ok(added) => {
                        assert!(known.is_none() || added.duplicate, "{:?} is counted twice", adds[number]);
                        self.ledger.lock().unwrap().duplicates += usize::from(added.duplicate && known.is_none());
                        verdicts[number] = Some(Verdict::Counted);
                    }
                    Err(refused) if refused.reason == "TOO_OLD" => verdicts[number] = Some(Verdict::TooOld),
                    Err(refused) if refused.is_unavailable() => again.push(number),
                    Err(refused) => panic!("{:?}: {refused:?}", adds[number]),
                }
            }
            open = again;
        }
        let verdicts: Vec<Verdict> = verdicts.into_iter().map(|verdict| verdict.expect("an answer")).collect();
        if let Some(known) = known {
            assert_eq!(verdicts, known, "{adds:?}");
        }
        verdicts
    }
}
