//! One script call does a bounded amount of work (X5): for each script of the queues and the counters, the store commands of
//! one call and the bytes that they touch, where everything is at its limit, and where the store holds several times as much.
//!
//! What lives here: the budget (`budget`), the stores that the cases fill (`stage`, `space`), a case or more for each script
//! (`queue/`, `counter`), and the same calls on a real Redis, for their milliseconds (`real`). What may not: rules of the queue.

mod budget;
mod counter;
mod queue;
mod real;
mod space;
mod stage;

use budget::{Case, Excess};
use std::sync::atomic::{AtomicUsize, Ordering};
use tallystone_lua::Script;
use tallystone_lua::counter::CounterScript;
use tallystone_tests::amount;

/// The amounts of data that the store holds in addition to what a call needs, as factors.
const SIZES: [usize; 2] = [1, 10];
/// The same for queues, whose indexes take long to fill.
fn sizes_of_queues() -> [usize; 2] {
    [1, amount(2, 4)]
}

/// What is known to exceed the budget: calls read all records in the slots of one window, however many these are
/// (docs/decisions/0085). The test fails if an entry has become wrong.
const KNOWN: [Excess; 1] = [Excess { script: "append", what: "a full window" }];

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

/// Runs the cases on all processors, prints a table of the largest calls, and fails where one exceeds the budget.
fn check(runs: Vec<Box<dyn Fn() -> Vec<Case> + Sync + Send>>) {
    let next = AtomicUsize::new(0);
    let parallel = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if real::url().is_some() { 1 } else { parallel };
    let mut cases: Vec<(usize, Vec<Case>)> = std::thread::scope(|scope| {
        let run = || {
            let mut done = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(run) = runs.get(at) else { return done };
                done.push((at, run()));
            }
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("a case")).collect()
    });
    cases.sort_by_key(|(at, _)| *at);
    let cases: Vec<Case> = cases.into_iter().flat_map(|(_, cases)| cases).collect();
    println!("{}", Case::header());
    let mut wrong = String::new();
    for case in &cases {
        println!("{}", case.row());
        let is_known = KNOWN.iter().any(|known| known.is(case));
        match case.excess() {
            Some(excess) if !is_known => wrong += &format!("{excess}\n"),
            _ => {}
        }
    }
    for known in &KNOWN {
        let mut of_it = cases.iter().filter(|case| known.is(case)).peekable();
        if of_it.peek().is_some() && of_it.all(|case| case.excess().is_none()) {
            wrong += &format!("{known:?} is within the budget: it is no longer one of the known ones\n");
        }
    }
    assert!(wrong.is_empty(), "beyond the budget:\n{wrong}");
}

#[test]
fn x5_a_call_of_each_script_of_the_queues_is_bounded() {
    let mut runs: Vec<Box<dyn Fn() -> Vec<Case> + Sync + Send>> = Vec::new();
    for script in Script::ALL {
        for size in sizes_of_queues() {
            runs.push(Box::new(move || block_on(queue::cases(*script, size))));
        }
    }
    check(runs);
}

#[test]
fn x5_a_call_of_each_script_of_the_counters_is_bounded() {
    let mut runs: Vec<Box<dyn Fn() -> Vec<Case> + Sync + Send>> = Vec::new();
    for script in CounterScript::ALL {
        for size in SIZES {
            runs.push(Box::new(move || block_on(counter::cases(*script, size))));
        }
    }
    check(runs);
}
