//! What happens to a push for each answer that it may get (L2).

use super::episode::dying_at;
use super::fake::{Answer, Fake};
use super::{Handle, LocalCounters, folder, handle, open, open_as, options};
use crate::counter::CounterType;
use crate::local::{LocalError, LocalOptions};
use std::path::Path;
use std::time::Duration;

/// A folder with so many counters.
async fn many(folder: &Path, fake: &Fake, count: usize) -> (LocalCounters, Vec<Handle>) {
    let counters = open_as(folder, fake, LocalOptions { slots_max: count as u32, ..options() }).await;
    let handles = counters.handles("ads", &strs(&names(count))).expect("room");
    (counters, handles)
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("c{number}")).collect()
}

fn strs(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

#[tokio::test]
async fn l2_adds_of_threads_are_pushed_once_each_as_one_add_for_each_counter() {
    let (folder, fake) = (folder(), Fake::default());
    let counters = open(folder.path(), &fake).await;
    let (a, b) = (handle(&counters, "a"), handle(&counters, "b"));
    // More threads than stripes: some share one.
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (a, b) = (&a, b.clone());
            scope.spawn(move || {
                for _ in 0..10_000 {
                    a.add(1);
                    b.add(thread - 10);
                }
            });
        }
    });
    assert_eq!((a.unpushed(), b.unpushed()), (80_000, -520_000));
    counters.push().await.expect("a service that answers");
    assert_eq!((fake.count("a"), fake.count("b")), (80_000, -520_000));
    assert_eq!((a.unpushed(), fake.calls().len(), fake.calls()[0].len()), (0, 1, 2));
    counters.push().await.expect("nothing to push");
    assert_eq!(fake.calls().len(), 1, "a counter without adds is not sent");
    let stats = counters.stats();
    assert_eq!((stats.pushed_adds, stats.pushes, stats.push_failures, stats.counters), (2, 1, 0, 2));
}

#[tokio::test]
async fn l2_adds_next_to_pushes_are_neither_lost_nor_doubled() {
    let (folder, fake) = (folder(), Fake::default());
    let counters = open(folder.path(), &fake).await;
    let a = handle(&counters, "a");
    let adders: Vec<_> = (0..3)
        .map(|_| {
            let a = a.clone();
            std::thread::spawn(move || (0..300_000).for_each(|_| a.add(1)))
        })
        .collect();
    let mut before = 0;
    while adders.iter().any(|adder| !adder.is_finished()) {
        counters.push().await.expect("a service that answers");
        let count = fake.count("a");
        assert!(count >= before && count <= 900_000, "{count} after {before}");
        before = count;
    }
    adders.into_iter().for_each(|adder| adder.join().expect("no panic"));
    counters.close().await.expect("a service that answers");
    assert_eq!(fake.count("a"), 900_000);
}

#[tokio::test]
async fn l2_a_push_without_an_answer_is_sent_again_as_it_was() {
    let fake = Fake::answering(&[Answer::Lost, Answer::Away]);
    let folder = folder();
    let counters = open(folder.path(), &fake).await;
    let (a, b) = (handle(&counters, "a"), handle(&counters, "b"));
    a.add(5);
    b.add(6);
    for _ in 0..2 {
        assert!(matches!(counters.push().await, Err(LocalError::NotPushed { .. })));
        a.add(1);
    }
    let calls = fake.calls();
    assert_eq!(calls[0], calls[1], "the same adds, the same token, the same time");
    assert_eq!((a.unpushed(), fake.count("a")), (7, 5));
    assert!(counters.stats().last_push_error.is_some());
    counters.push().await.expect("a service that answers");
    assert_eq!((a.unpushed(), fake.count("a"), fake.count("b")), (0, 7, 6));
    assert_eq!(counters.stats().duplicates, 2);
    assert_eq!(counters.stats().last_push_error, None);
}

#[tokio::test]
async fn l2_what_is_too_old_is_sent_with_a_new_time_and_counts_once() {
    let fake = Fake::answering(&[Answer::Half("TOO_OLD")]);
    let folder = folder();
    let counters = open(folder.path(), &fake).await;
    let handles = ["a", "b", "c", "d"].map(|name| handle(&counters, name));
    handles.iter().for_each(|handle| handle.add(3));
    counters.push().await.expect("the new time counts");
    let calls = fake.calls();
    assert_eq!((calls.len(), calls[0].len(), calls[1].len()), (2, 4, 2));
    assert_ne!(calls[0][2].token, calls[1][0].token);
    assert_eq!(fake.counts().values().sum::<i64>(), 12);
}

#[tokio::test]
async fn l2_an_add_that_may_have_counted_is_not_renewed_while_others_are_too_old() {
    let fake = Fake::answering(&[Answer::Half("TOO_OLD"), Answer::Lost, Answer::Refuse("TOO_OLD")]);
    let folder = folder();
    let counters = open(folder.path(), &fake).await;
    let handles = ["a", "b", "c", "d"].map(|name| handle(&counters, name));
    handles.iter().for_each(|handle| handle.add(3));
    // Half of them count; the others are renewed, count, and their answer is lost.
    counters.push().await.expect_err("a lost answer");
    // They are duplicates, although the service refuses what is so old.
    counters.push().await.expect("each has counted");
    assert_eq!(fake.counts().values().sum::<i64>(), 12);
    assert_eq!(counters.stats().duplicates, 2);
}

#[tokio::test]
async fn l2_what_cannot_be_known_is_kept_and_reported_and_not_sent_again() {
    for reason in ["TOKEN_EXPIRED", "TOKEN_CONFLICT", "OVERFLOW"] {
        let fake = Fake::answering(&[Answer::Half(reason)]);
        let folder = folder();
        let counters = open(folder.path(), &fake).await;
        let handles = ["a", "b"].map(|name| handle(&counters, name));
        handles.iter().for_each(|handle| handle.add(3));
        counters.push().await.expect("each add has an answer");
        let unresolved = counters.unresolved().expect("a file");
        assert_eq!((unresolved.len(), unresolved[0].delta, unresolved[0].reason.as_str()), (1, 3, reason));
        assert_eq!(handles.each_ref().map(Handle::unpushed), [0, 0]);
        drop(handles);
        counters.close().await.expect("nothing is left");
        let counters = open(folder.path(), &fake).await;
        counters.push().await.expect("nothing to push");
        assert_eq!((counters.unresolved().expect("a file").len(), counters.stats().unresolved), (1, 1));
        assert_eq!((fake.calls().len(), fake.counts().values().sum::<i64>()), (1, 3));
    }
}

#[tokio::test]
async fn l2_a_namespace_that_is_refused_holds_up_no_other() {
    let fake = Fake::default();
    let folder = folder();
    let counters = open(folder.path(), &fake).await;
    fake.state().types.insert("rough".to_owned(), CounterType::BestEffort);
    let rough = counters.counter("rough", "a").expect("room");
    let a = handle(&counters, "a");
    rough.add(1);
    a.add(2);
    let refused = counters.push().await.expect_err("a push to BEST_EFFORT could count twice");
    assert!(refused.to_string().contains("BEST_EFFORT"), "{refused}");
    assert_eq!((fake.count("a"), rough.unpushed(), fake.calls().len()), (2, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn l2_a_namespace_that_becomes_best_effort_gets_no_push_that_could_count_twice() {
    // A push is found at open, or is repeated by the process that has begun it.
    for by_the_next_process in [false, true] {
        let fake = Fake::answering(&[Answer::Lost]);
        let folder = folder();
        let mut counters = open(folder.path(), &fake).await;
        handle(&counters, "a").add(5);
        counters.push().await.expect_err("a lost answer");
        // It is deleted, and made again with another type.
        fake.state().types.insert("ads".to_owned(), CounterType::BestEffort);
        if by_the_next_process {
            drop(counters);
            counters = open(folder.path(), &fake).await;
        }
        let refused = counters.push().await.expect_err("it could count twice");
        assert!(refused.to_string().contains("BEST_EFFORT"), "{refused}");
        assert_eq!((fake.count("a"), fake.calls().len()), (5, 1), "by the next process: {by_the_next_process}");
        // It was a mistake.
        fake.state().types.insert("ads".to_owned(), CounterType::Accurate);
        tokio::time::advance(Duration::from_secs(10)).await;
        counters.push().await.expect("a service that heeds tokens");
        assert_eq!((fake.count("a"), handle(&counters, "a").unpushed()), (5, 0));
    }
}

#[tokio::test]
async fn l2_a_push_has_several_calls_of_at_most_a_thousand_adds_under_way() {
    // Of ten calls, the first eight are sent at once. A failed one is the last that is sent; the others are waited for.
    let fake = Fake::answering(&[Answer::Count, Answer::Away, Answer::Lost]);
    let folder = folder();
    let (counters, handles) = many(folder.path(), &fake, 9_500).await;
    handles.iter().for_each(|handle| handle.add(1));
    counters.push().await.expect_err("the second call does not arrive");
    let sent = fake.calls().len();
    assert!((8..10).contains(&sent), "{sent}");
    assert_eq!((fake.most_under_way(), fake.counts().len()), (8, (sent - 1) * 1_000));
    let unpushed: i64 = handles.iter().map(Handle::unpushed).sum();
    assert_eq!(unpushed as usize, 9_500 - (sent - 2) * 1_000, "also the answers that came after the failure are used");
    counters.push().await.expect("a service that answers");
    assert!(fake.calls().iter().all(|call| call.len() <= 1_000) && fake.calls().len() > sent);
    assert!(fake.counts().len() == 9_500 && fake.counts().values().all(|count| *count == 1));
    assert_eq!(counters.stats().duplicates, 1_000);
}

#[tokio::test]
async fn l2_a_process_that_dies_with_several_calls_under_way_loses_no_add_and_doubles_none() {
    use Answer::{Away, Count, Half, Lost, Refuse};
    const COUNTERS: usize = 4_200;
    let scripts = [
        vec![],
        vec![Count, Lost, Away, Count, Lost],
        vec![Half("TOO_OLD"), Count, Refuse("TOO_OLD"), Lost, Half("TOO_OLD")],
        vec![Half("STORE_UNAVAILABLE"), Lost, Half("OVERLOADED"), Refuse("TOO_OLD")],
    ];
    for answers in scripts {
        // Before the calls, between their answers, and between the bases of an answer.
        for step in (0..16).chain((16..COUNTERS + 60).step_by(1_301)) {
            let (folder, fake) = (folder(), Fake::answering(&answers));
            let (counters, handles) = many(folder.path(), &fake, COUNTERS).await;
            drop((handles, counters));
            // Its first step is one of opening.
            let (dying, _) = dying_at(step + 1);
            let counters = open_as(folder.path(), &fake, LocalOptions { slots_max: COUNTERS as u32, ..dying }).await;
            let handles = counters.handles("ads", &strs(&names(COUNTERS))).expect("they are there");
            handles.iter().enumerate().for_each(|(number, handle)| handle.add(number as i64 + 1));
            drop(counters.push().await);
            drop((handles, counters));
            let (counters, _) = many(folder.path(), &fake, COUNTERS).await;
            while counters.push().await.is_err() {}
            let expected = |number: usize| fake.count(&format!("c{number}")) == number as i64 + 1;
            assert!((0..COUNTERS).all(expected), "{answers:?}, died at {step}");
        }
    }
}

#[tokio::test]
async fn l2_a_clean_stop_pushes_everything_and_a_failed_one_keeps_it() {
    let fake = Fake::answering(&[Answer::Away]);
    let folder = folder();
    let counters = open(folder.path(), &fake).await;
    handle(&counters, "a").add(4);
    assert!(matches!(counters.close().await, Err(LocalError::NotPushed { .. })));
    let counters = open(folder.path(), &fake).await;
    handle(&counters, "a").add(5);
    counters.close().await.expect("a service that answers");
    assert_eq!(fake.count("a"), 9);
    let entries: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").flatten().collect();
    let mut names: Vec<_> = entries.iter().map(|entry| entry.file_name()).collect();
    names.sort();
    assert_eq!(names, ["cells", "lock", "names"], "no push is left");
}
