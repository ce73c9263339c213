//! Pushes to a log instead of the service (L2), and the values while it is unknown what of them has counted (L1).

use super::episode::{dying_at, each_death};
use super::fake::{Answer, Fake};
use super::fake_log::Outcome::{Answer as Answered, Away, Lost};
use super::{folder, handle, open, open_as, open_or_die, options};
use crate::counter::CounterType;
use crate::local::{LocalCounters, LocalError};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn l2_a_process_that_dies_at_any_step_writes_each_push_to_the_log_once() {
    let all =
        [&[][..], &[Away, Away], &[Answered, Answered, Lost], &[Lost, Answered, Answered, Lost, Lost, Away, Lost]];
    let mut deaths = 0;
    for outcomes in all {
        let check = |fake: &Fake, counters: &LocalCounters| {
            assert_eq!(counters.unresolved().expect("no file"), []);
            assert_eq!(fake.calls().len(), 0, "no push goes to the service");
        };
        let life = each_death([0, 3, 9], || Fake::with_log(outcomes), &format!("{outcomes:?}"), check).await;
        assert!(life.last_steps > 25, "only {} steps with {outcomes:?}", life.last_steps);
        deaths += life.deaths;
    }
    assert!(deaths > 500, "{deaths} deaths");
}

#[tokio::test]
async fn l2_a_push_to_the_log_needs_no_service() {
    let (folder, fake) = (folder(), Fake::with_log(&[]));
    fake.state().is_deaf = true;
    let counters = open(folder.path(), &fake).await;
    let a = handle(&counters, "a");
    a.add(7);
    counters.push().await.expect("a log that answers");
    a.add(8);
    counters.push().await.expect("a log that answers");
    assert_eq!((fake.count("a"), counters.stats().pushed_adds, fake.state().reads.len()), (15, 2, 1));
    fake.state().is_deaf = false;
    fake.state().types.insert("ads".to_owned(), CounterType::BestEffort);
    counters.pull().await.expect("a service that answers");
    a.add(1);
    counters.push().await.expect_err("ingest would make dead letters of them");
    assert_eq!(fake.count("a"), 15);
}

#[tokio::test]
async fn l2_a_push_that_the_log_has_forgotten_waits_for_a_decision() {
    let (steps, mut is_over) = (0.., false);
    for step in steps {
        let (folder, fake) = (folder(), Fake::with_log(&[Answered, Lost]));
        let counters = open(folder.path(), &fake).await;
        let (a, b) = (handle(&counters, "a"), handle(&counters, "b"));
        a.add(5);
        b.add(6);
        counters.push().await.expect_err("a lost answer");
        drop((a, b));
        drop(counters);
        fake.log().marks.clear();
        // The next process may die over it.
        let (options, reached) = dying_at(step);
        if let Some(counters) = open_or_die(folder.path(), &fake, options).await {
            drop(counters.push().await);
        }
        is_over |= reached.load(std::sync::atomic::Ordering::SeqCst) <= step;
        let counters = open(folder.path(), &fake).await;
        counters.push().await.expect("a log that answers");
        let unresolved = counters.unresolved().expect("a file");
        let found: Vec<_> = unresolved.iter().map(|add| (&*add.counter, add.delta, &*add.reason)).collect();
        let mut sorted = found.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [("a", 5, "PUSH_FORGOTTEN"), ("b", 6, "PUSH_FORGOTTEN")], "died at {step}");
        handle(&counters, "a").add(1);
        counters.push().await.expect("a log that answers");
        assert_eq!((fake.count("a"), fake.count("b"), fake.log().puts), (6, 6, 2), "died at {step}");
        if is_over {
            return;
        }
    }
}

#[tokio::test]
async fn l2_a_push_ends_by_the_way_on_which_it_has_begun() {
    let (folder, fake) = (folder(), Fake::answering(&[Answer::Lost]));
    let counters = open(folder.path(), &fake).await;
    handle(&counters, "a").add(5);
    counters.push().await.expect_err("a lost answer");
    drop(counters);
    fake.state().log = Some(Default::default());
    let counters = open(folder.path(), &fake).await;
    counters.push().await.expect("a service that answers");
    fake.log().outcomes.extend([Answered, Lost]);
    let a = handle(&counters, "a");
    a.add(7);
    counters.push().await.expect_err("a lost answer of the log");
    assert_eq!((fake.count("a"), fake.calls().len(), fake.log().puts), (12, 2, 1));
    drop((a, counters));
    let log = fake.state().log.take();
    let without = loop {
        match LocalCounters::open_with(folder.path(), fake.clone(), None, options()).await {
            // The tasks of the one before may hold the folder for a moment.
            Err(LocalError::Locked { .. }) => tokio::task::yield_now().await,
            opened => break opened,
        }
    };
    assert!(matches!(without, Err(LocalError::Invalid { .. })), "{without:?}");
    fake.state().log = log;
    let counters = open(folder.path(), &fake).await;
    counters.close().await.expect("a log that answers");
    fake.state().log = None;
    let counters = open(folder.path(), &fake).await;
    handle(&counters, "a").add(1);
    counters.close().await.expect("a service that answers");
    assert_eq!(fake.count("a"), 13);
}

#[tokio::test]
async fn l1_a_value_has_its_own_pushes_while_they_are_in_the_log() {
    for (counter_type, exact_to_ms) in [(CounterType::Accurate, 0), (CounterType::Eventual, 9_000_000_000_000)] {
        let (folder, fake) = (folder(), Fake::with_log(&[]));
        fake.state().types.insert("ads".to_owned(), counter_type);
        // The rollups are beyond all events, except in the middle of this test.
        fake.state().exact_to_ms = exact_to_ms;
        (fake.log().is_slow, fake.log().delay) = (true, HOUR);
        let mut options = options();
        options.clock_error_ms = 0;
        let counters = open_as(folder.path(), &fake, options.clone()).await;
        let a = handle(&counters, "a");
        a.add(50);
        counters.push().await.expect("a log that answers");
        assert_eq!(a.get().value, 50);
        if counter_type == CounterType::Eventual {
            fake.state().exact_to_ms = crate::local::slot::unix_ms(std::time::SystemTime::now()) + 1_000;
        }
        for is_counted in [false, true] {
            counters.pull().await.expect("a service that answers");
            let reading = a.get();
            let error = reading.value.abs_diff(50);
            assert!(error <= reading.error_bound.expect("pulled"), "{counter_type:?}, {is_counted}: {reading:?}");
            assert!(reading.value >= 50, "its own adds are in it: {reading:?}");
            fake.deliver();
        }
        drop(a);
        counters.close().await.expect("nothing to push");
        // The next process does not know what of it has counted.
        let counters = open_as(folder.path(), &fake, options.clone()).await;
        let a = handle(&counters, "a");
        counters.pull().await.expect("a service that answers");
        assert_eq!((a.get().value, a.get().error_bound), (50, None), "{counter_type:?}");
        fake.state().exact_to_ms = exact_to_ms;
        drop(a);
        counters.close().await.expect("nothing to push");
    }
}

#[tokio::test]
async fn l1_a_push_in_the_log_is_certain_after_the_delay_unless_the_service_was_unavailable() {
    let (folder, fake) = (folder(), Fake::with_log(&[]));
    (fake.log().is_slow, fake.log().delay) = (true, Duration::from_millis(20));
    let mut options = options();
    options.clock_error_ms = 0;
    let counters = open_as(folder.path(), &fake, options.clone()).await;
    let a = handle(&counters, "a");
    a.get();
    a.add(50);
    counters.push().await.expect("a log that answers");
    fake.deliver();
    // The delay is over when pulls say so, and not earlier.
    let begun = std::time::Instant::now();
    loop {
        counters.pull().await.expect("a service that answers");
        let reading = a.get();
        if reading.error_bound == Some(0) {
            assert!(reading.value == 50, "{reading:?}");
            break;
        }
        assert_eq!((reading.value, reading.error_bound), (100, Some(50)));
        assert!(begun.elapsed() < Duration::from_secs(20), "{reading:?}");
    }
    fake.log().delay = HOUR;
    drop(a);
    counters.close().await.expect("nothing to push");
    let counters = open_as(folder.path(), &fake, options).await;
    let a = handle(&counters, "a");
    a.add(1);
    counters.push().await.expect("a log that answers");
    // The push of before is due, but the service was unavailable until now.
    fake.state().is_deaf = true;
    counters.pull().await.expect_err("away");
    fake.state().is_deaf = false;
    counters.pull().await.expect("a service that answers");
    assert_eq!(a.get().error_bound, None, "what was pushed before may count later than it was due");
    assert_eq!(a.get().value, 51);
}
