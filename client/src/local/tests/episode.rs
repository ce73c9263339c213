//! The life of a folder through processes that die at a given step.

use super::fake::Fake;
use super::{folder, open, open_or_die, options};
use crate::local::{LocalCounters, LocalOptions, Steps};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// By namespace and counter.
type Totals = BTreeMap<(String, String), i64>;

/// Ends the process of a test: not a panic that is reported.
pub(super) struct Died;

/// Dies at the step of this number; `None` after the last step.
pub(super) fn dying_at(number: usize) -> (LocalOptions, Arc<AtomicUsize>) {
    let reached = Arc::new(AtomicUsize::new(0));
    let count = reached.clone();
    let steps = Steps::observed_by(move |_| {
        if count.fetch_add(1, Ordering::SeqCst) == number {
            resume_unwind(Box::new(Died));
        }
    });
    (LocalOptions { steps, ..options() }, reached)
}

/// Two namespaces, some counters, positive and negative adds, pushes; the process dies at the step of this number. Returns what was added,
/// and whether the step was reached.
async fn live_until(folder: &Path, fake: &Fake, step: usize) -> (Totals, bool) {
    let (options, reached) = dying_at(step);
    let mut totals = Totals::new();
    let Some(counters) = open_or_die(folder, fake, options).await else { return (totals, true) };
    for round in 1..=3_i64 {
        for (namespace, counter) in [("ads", "a"), ("ads", "b"), ("ads", "c"), ("other", "a")] {
            // Its first use writes its name, and may be the end.
            let handle = catch_unwind(AssertUnwindSafe(|| counters.counter(namespace, counter)));
            let Ok(handle) = handle else { return (totals, true) };
            let handle = handle.expect("room");
            let mut add = |delta: i64| {
                handle.add(delta);
                *totals.entry((namespace.to_owned(), counter.to_owned())).or_default() += delta;
            };
            add(round * 100);
            add(-7);
        }
        // A failure is one of the service, or the end of the process.
        drop(counters.push().await);
    }
    (totals, reached.load(Ordering::SeqCst) > step)
}

/// How many steps were the last one of a process.
#[derive(Default)]
pub(super) struct Deaths {
    pub(super) last_steps: usize,
    pub(super) deaths: usize,
}

/// Two processes die at every step: one in the middle of a push, and the next one in the middle of what it takes over, at the same step or one
/// of these. The third one pushes the rest: each add has counted once. `check` sees the third one after that.
pub(super) async fn each_death(
    next: [usize; 3],
    fake: impl Fn() -> Fake,
    name: &str,
    check: impl Fn(&Fake, &LocalCounters),
) -> Deaths {
    let mut seen = Deaths::default();
    for step in 0.. {
        let mut was_reached = false;
        for next in [step].into_iter().chain(next) {
            let (folder, fake) = (folder(), fake());
            let mut totals = Totals::new();
            for (process, step) in [step, next].into_iter().enumerate() {
                let (added, died) = live_until(folder.path(), &fake, step).await;
                sum(&mut totals, &added);
                was_reached |= died && process == 0;
                seen.deaths += usize::from(died);
            }
            let counters = open(folder.path(), &fake).await;
            // The first push may still meet the answers that no process before has got.
            while counters.push().await.is_err() {}
            check(&fake, &counters);
            counters.close().await.expect("all is pushed");
            assert_eq!(fake.counts(), totals, "{name}, died at {step}, then at {next}");
        }
        if !was_reached {
            break;
        }
        seen.last_steps = step;
    }
    seen
}

fn sum(totals: &mut Totals, more: &Totals) {
    for (counter, delta) in more {
        *totals.entry(counter.clone()).or_default() += delta;
    }
}
