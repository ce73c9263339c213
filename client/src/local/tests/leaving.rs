//! Counters leave the folder while threads add to them, and their slots serve others (L3).

use super::fake::Fake;
use super::{folder, open_as, options};
use crate::local::{Handle, LocalCounters, LocalError, LocalOptions, Steps};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

const THREADS: usize = 3;
/// They take about half a second.
const PUSHES: usize = 5_000;
/// More counters than slots: each slot serves several.
const COUNTERS: usize = 9;
const SLOTS: u32 = 6;

/// Takes a handle, adds, and drops the handle or sends it to the next thread, which does the same, until the test is
/// over. Returns what was added.
fn adds(
    thread: usize,
    counters: &LocalCounters,
    is_over: &AtomicBool,
    next: &mpsc::SyncSender<Handle>,
    received: &mpsc::Receiver<Handle>,
) -> BTreeMap<String, i64> {
    let mut added = BTreeMap::<String, i64>::new();
    let mut add = |handle: &Handle, delta: i64| {
        handle.add(delta);
        *added.entry(handle.counter().to_owned()).or_default() += delta;
    };
    for round in (0..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
        let number = round * 7 + thread * 5;
        match counters.counter("ads", &format!("c{}", number / 11 % COUNTERS)) {
            Ok(handle) => {
                let delta = number as i64 % 13 + 1;
                add(&handle, delta);
                match round % 4 {
                    0 => drop(next.try_send(handle)),
                    // Nothing is left to push, as if nothing had been added.
                    1 => add(&handle.clone(), -delta),
                    _ => {}
                }
            }
            Err(error) => {
                assert!(matches!(error, LocalError::Full { .. }), "{error}");
                thread::yield_now();
            }
        }
        while let Ok(handle) = received.try_recv() {
            // Its last handle may be this one.
            add(&handle, 100);
        }
    }
    added
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn l3_counters_that_leave_while_threads_add_and_drop_their_handles_lose_no_add_and_double_none() {
    let (folder, fake, freed) = (folder(), Fake::default(), Arc::new(AtomicUsize::new(0)));
    let count = freed.clone();
    let steps = Steps::observed_by(move |step| {
        count.fetch_add(usize::from(step == "slots are freed"), Ordering::Relaxed);
    });
    let leaving = LocalOptions { idle_ms: 0, slots_max: SLOTS, stripes_max: THREADS as u32, steps, ..options() };
    let counters = Arc::new(open_as(folder.path(), &fake, leaving).await);
    let (mut senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| mpsc::sync_channel(2)).unzip();
    senders.rotate_left(1);
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = senders.into_iter().zip(receivers).enumerate();
    let adders: Vec<_> = ends
        .map(|(thread, (next, received))| {
            let (counters, is_over) = (counters.clone(), is_over.clone());
            thread::spawn(move || adds(thread, &counters, &is_over, &next, &received))
        })
        .collect();
    for _ in 0..PUSHES {
        counters.push().await.expect("a service that answers");
    }
    is_over.store(true, Ordering::Relaxed);
    let mut added = BTreeMap::<String, i64>::new();
    for adder in adders {
        for (counter, delta) in adder.join().expect("no panic") {
            *added.entry(counter).or_default() += delta;
        }
    }
    println!("{} times slots were freed", freed.load(Ordering::Relaxed));
    assert!(freed.load(Ordering::Relaxed) > 50, "{} times slots were freed", freed.load(Ordering::Relaxed));
    Arc::into_inner(counters).expect("the threads have ended").close().await.expect("a service that answers");
    // The list of names is as the slots were.
    let counters = LocalOptions { slots_max: SLOTS, stripes_max: THREADS as u32, ..options() };
    open_as(folder.path(), &fake, counters).await.close().await.expect("nothing to push");
    for (counter, sum) in added {
        assert_eq!(fake.count(&counter), sum, "{counter}");
    }
}
