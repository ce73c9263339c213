//! Values with their bounds, and counters that leave the folder (L1, L3).

use super::fake::{Answer, Fake};
use super::{folder, handle, open, open_as, options};
use crate::counter::CounterType;
use crate::local::LocalOptions;

#[tokio::test]
async fn l1_a_value_is_the_pulled_count_and_what_this_folder_has_added_since() {
    let (folder, fake) = (folder(), Fake::default());
    fake.state().counts.insert(("ads".to_owned(), "a".to_owned()), 1_000);
    let counters = open(folder.path(), &fake).await;
    let a = handle(&counters, "a");
    a.add(5);
    assert_eq!((a.get().value, a.get().error_bound), (5, None), "never pulled");
    counters.pull().await.expect("a service that answers");
    assert_eq!((a.get().value, a.get().error_bound), (1_005, Some(0)));
    counters.push().await.expect("a service that answers");
    assert_eq!(a.get().value, 1_005, "pushed, and not pulled again");
    counters.pull().await.expect("a service that answers");
    a.add(1);
    assert_eq!(a.get().value, 1_006);
}

#[tokio::test]
async fn l1_a_push_without_an_answer_widens_the_bound() {
    let (folder, fake) = (folder(), Fake::answering(&[Answer::Lost, Answer::Away]));
    let counters = open(folder.path(), &fake).await;
    let a = handle(&counters, "a");
    a.add(50);
    counters.push().await.expect_err("a lost answer");
    counters.pull().await.expect("a service that answers");
    let reading = a.get();
    assert_eq!((reading.value, reading.error_bound), (100, Some(50)), "the count has it already");
    counters.push().await.expect_err("away");
    fake.state().is_deaf = true;
    counters.pull().await.expect_err("away");
    assert_eq!(a.get().value, 100, "a failed pull changes nothing");
    assert!(counters.stats().last_pull_error.is_some() && counters.stats().error_bound_max == Some(50));
    fake.state().is_deaf = false;
    counters.push().await.expect("a service that answers");
    counters.pull().await.expect("a service that answers");
    assert_eq!((a.get().value, a.get().error_bound), (50, Some(0)));
}

/// The process that has pushed them remembered them; the next one does not.
#[tokio::test]
async fn l1_after_a_restart_the_bound_is_unknown_until_rollups_have_the_pushes_of_before() {
    let (folder, fake) = (folder(), Fake::default());
    fake.state().types.insert("ads".to_owned(), CounterType::Eventual);
    fake.state().exact_to_ms = 1_000;
    let counters = open(folder.path(), &fake).await;
    let a = handle(&counters, "a");
    a.add(50);
    counters.pull().await.expect("a service that answers");
    counters.push().await.expect("a service that answers");
    assert_eq!((a.get().value, a.get().error_bound), (50, Some(0)), "the rollup lacks it, this process knows it");
    drop(a);
    counters.close().await.expect("nothing to push");
    let counters = open(folder.path(), &fake).await;
    let a = handle(&counters, "a");
    counters.pull().await.expect("a service that answers");
    assert_eq!((a.get().error_bound, a.get().age_ms.is_some()), (None, true), "the rollup may lack 50");
    let b = handle(&counters, "b");
    counters.pull().await.expect("a service that answers");
    assert_eq!(b.get().error_bound, Some(0));
    let stats = counters.stats();
    assert_eq!((stats.error_bound_max, stats.error_bounds_unknown), (Some(0), 1), "one unknown bound hides no other");
    fake.state().exact_to_ms = fake.calls()[0][0].token.clone().expect("a token").generation_time_ms;
    counters.pull().await.expect("a service that answers");
    assert_eq!(a.get().error_bound, None, "the rollup is exact to before this time");
    fake.state().exact_to_ms += 1;
    counters.pull().await.expect("a service that answers");
    assert_eq!((a.get().value, a.get().error_bound), (50, Some(0)));
}

#[tokio::test]
async fn l1_only_counters_that_are_read_are_pulled() {
    let (folder, fake) = (folder(), Fake::default());
    let counters = open_as(folder.path(), &fake, LocalOptions { idle_ms: 0, ..options() }).await;
    let (a, _b) = (handle(&counters, "a"), handle(&counters, "b"));
    counters.pull().await.expect("a service that answers");
    fake.state().reads.clear();
    a.get();
    counters.pull().await.expect("a service that answers");
    assert_eq!(fake.state().reads, [["a"]]);
    counters.pull().await.expect("nothing to pull");
    assert_eq!(fake.state().reads.len(), 1);
}

#[tokio::test]
async fn l3_an_unused_counter_leaves_the_folder_and_its_slot_is_used_again() {
    let (folder, fake) = (folder(), Fake::default());
    let small = LocalOptions { idle_ms: 0, slots_max: 2, ..options() };
    let counters = open_as(folder.path(), &fake, small.clone()).await;
    let (kept, dropped) = (handle(&counters, "kept"), handle(&counters, "dropped"));
    assert!(counters.counter("ads", "third").is_err(), "two slots");
    kept.add(1);
    dropped.add(2);
    drop(dropped);
    fake.state().answers.push_back(Answer::Away);
    counters.push().await.expect_err("away");
    assert!(counters.has("ads", "dropped"), "it has adds that are not pushed");
    counters.push().await.expect("a service that answers");
    assert!(counters.has("ads", "kept") && !counters.has("ads", "dropped"));
    let third = handle(&counters, "third");
    assert_eq!(third.unpushed(), 0, "nothing of the counter that had the slot before");
    third.add(30);
    drop((kept, third));
    drop(counters);
    // The next process finds the names as they were.
    let counters = open_as(folder.path(), &fake, small).await;
    counters.close().await.expect("a service that answers");
    let counts = ["kept", "dropped", "third"].map(|name| fake.count(name));
    assert_eq!(counts, [1, 2, 30]);
}

#[tokio::test]
async fn l3_a_counter_that_the_service_has_expired_leaves_the_folder() {
    for counter_type in [CounterType::Eventual, CounterType::Accurate] {
        let (folder, fake) = (folder(), Fake::default());
        fake.state().types.insert("ads".to_owned(), counter_type);
        fake.state().exact_to_ms = 1_000;
        let counters = open(folder.path(), &fake).await;
        let (a, b) = (handle(&counters, "a"), handle(&counters, "b"));
        a.add(3);
        counters.push().await.expect("a service that answers");
        counters.pull().await.expect("a service that answers");
        fake.state().counts.clear();
        fake.state().exact_to_ms = 0;
        counters.pull().await.expect("a service that answers");
        drop(a);
        counters.push().await.expect("nothing to push");
        assert!(!counters.has("ads", "a"), "{counter_type:?}: gone, and without a handle");
        assert!(counters.has("ads", "b"), "{counter_type:?}: a handle keeps it");
        assert_eq!(b.get().value, 0);
        // It returns with what is added from here on.
        handle(&counters, "a").add(4);
        counters.close().await.expect("a service that answers");
        assert_eq!(fake.count("a"), 4, "{counter_type:?}");
    }
}

#[tokio::test]
async fn l3_names_are_written_again_when_most_of_them_are_gone() {
    let (folder, fake) = (folder(), Fake::default());
    let options = LocalOptions { idle_ms: 0, slots_max: 4_096, ..options() };
    let counters = open_as(folder.path(), &fake, options.clone()).await;
    let kept = handle(&counters, "kept");
    let length = || std::fs::metadata(folder.path().join("names")).expect("a file").len();
    let mut longest = 0;
    for round in 0..6 {
        let names: Vec<String> = (0..4_000).map(|number| format!("{round}-{number}-{}", "x".repeat(100))).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        drop(counters.handles("ads", &names).expect("the slots of the round before are free"));
        longest = longest.max(length());
        counters.push().await.expect("nothing to push");
    }
    assert!(length() < 100_000 && longest > 400_000 && longest < 2_000_000, "{longest}, then {}", length());
    kept.add(9);
    drop((kept, counters));
    let counters = open_as(folder.path(), &fake, options).await;
    assert!(counters.has("ads", "kept"));
    counters.close().await.expect("a service that answers");
    assert_eq!(fake.count("kept"), 9);
}
