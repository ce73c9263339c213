//! Folders that cannot be used, and disks that fail (L2, L3).

use super::fake::{Answer, Fake};
use super::{folder, handle, open, open_as, options};
use crate::local::{Handle, LocalCounters, LocalError, LocalOptions, Steps};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[tokio::test]
async fn l2_a_folder_is_open_once() {
    let (folder, fake) = (folder(), Fake::default());
    let counters = open(folder.path(), &fake).await;
    let second = LocalCounters::open_with(folder.path(), fake.clone(), None, options()).await;
    assert!(matches!(second, Err(LocalError::Locked { .. })), "{second:?}");
    counters.close().await.expect("nothing to push");
    LocalCounters::open_with(folder.path(), fake.clone(), None, options()).await.expect("it is free");
}

#[tokio::test]
async fn l2_other_bounds_and_damaged_files_are_refused() {
    let (folder, fake) = (folder(), Fake::default());
    let counters = open(folder.path(), &fake).await;
    handle(&counters, "a").add(1);
    handle(&counters, "b").add(2);
    fake.state().answers.push_back(Answer::Away);
    counters.close().await.expect_err("away");
    let open = |options: LocalOptions| LocalCounters::open_with(folder.path(), fake.clone(), None, options);
    let other = open(LocalOptions { slots_max: 65, ..options() }).await;
    assert!(matches!(other, Err(LocalError::Invalid { .. })), "{other:?}");
    for name in ["cells", "names", "push-ads"] {
        let path = folder.path().join(name);
        let sound = fs::read(&path).expect("a file");
        let damages: [Vec<u8>; 3] = [
            sound.iter().enumerate().map(|(at, byte)| if at == 20 { byte ^ 1 } else { *byte }).collect(),
            sound[..sound.len() - 1].to_vec(),
            Vec::new(),
        ];
        for damaged in damages {
            fs::write(&path, damaged).expect("room");
            let refused = open(options()).await;
            assert!(matches!(refused, Err(LocalError::Damaged { .. })), "{name}: {refused:?}");
            fs::write(&path, &sound).expect("room");
        }
        if name != "push-ads" {
            fs::remove_file(&path).expect("a file");
            let refused = open(options()).await;
            assert!(matches!(refused, Err(LocalError::Damaged { .. })), "without {name}: {refused:?}");
            fs::write(&path, &sound).expect("room");
        }
    }
    assert!(fake.counts().is_empty(), "nothing was counted from a damaged folder");
    open(options()).await.expect("a sound folder").close().await.expect("a service that answers");
    assert_eq!((fake.count("a"), fake.count("b")), (1, 2));
}

/// A folder in the place of a file makes each write of this file fail, as a full disk does.
#[tokio::test]
async fn l2_adds_continue_while_pushes_cannot_be_written() {
    let (folder, fake) = (folder(), Fake::default());
    let counters = open(folder.path(), &fake).await;
    let a = handle(&counters, "a");
    fs::create_dir(folder.path().join("push-ads~")).expect("room");
    for _ in 0..3 {
        a.add(7);
        let failed = counters.push().await.expect_err("the push cannot be written");
        assert!(failed.to_string().contains("push-ads"), "{failed}");
    }
    assert_eq!((a.get().value, counters.stats().push_failures), (21, 3));
    assert!(fake.calls().is_empty(), "nothing is sent that is not on disk");
    fs::remove_dir(folder.path().join("push-ads~")).expect("a folder");
    counters.push().await.expect("room");
    assert_eq!((fake.count("a"), a.unpushed()), (21, 0));
}

#[tokio::test]
async fn l2_what_cannot_be_kept_for_an_operator_is_not_sent_with_a_new_token() {
    let both = Answer::Both("TOKEN_EXPIRED", "TOO_OLD");
    let (folder, fake) = (folder(), Fake::answering(&[both.clone(), both]));
    let counters = open(folder.path(), &fake).await;
    let (a, b) = (handle(&counters, "a"), handle(&counters, "b"));
    a.add(1);
    b.add(2);
    fs::create_dir(folder.path().join("unresolved")).expect("room");
    counters.push().await.expect_err("the add to a cannot be kept");
    assert_eq!((fake.calls().len(), a.unpushed(), b.unpushed()), (1, 1, 2), "it may have counted");
    fs::remove_dir(folder.path().join("unresolved")).expect("a folder");
    counters.push().await.expect("each add has an answer");
    let lengths: Vec<usize> = fake.calls().iter().map(Vec::len).collect();
    assert_eq!((lengths, fake.count("a"), fake.count("b")), (vec![2, 2, 1], 0, 2));
    assert_eq!(counters.unresolved().expect("a file").len(), 1);
}

/// The counters of the other namespaces rise, fall and leave the folder meanwhile.
#[tokio::test]
async fn l2_a_push_that_cannot_be_written_holds_up_no_other_and_leaves_no_file_behind() {
    let (folder, fake) = (folder(), Fake::default());
    let counters = open_as(folder.path(), &fake, LocalOptions { idle_ms: 0, ..options() }).await;
    fs::create_dir(folder.path().join("push-b~")).expect("room");
    // The order in which namespaces are pushed is random.
    let others: Vec<String> = (0..8).map(|number| format!("a{number}")).collect();
    let of = |namespace: &String| counters.counter(namespace, "x").expect("room");
    let (b, handles): (Handle, Vec<Handle>) = (of(&"b".to_owned()), others.iter().map(of).collect());
    [&b].into_iter().chain(&handles).for_each(|handle| handle.add(1));
    let failed = counters.push().await.expect_err("a push cannot be written");
    assert!(failed.to_string().contains("push-b"), "{failed}");
    let unpushed: i64 = handles.iter().map(Handle::unpushed).sum();
    handles.iter().for_each(|handle| handle.add(-1));
    drop(handles);
    counters.push().await.expect_err("a push cannot be written");
    drop((b, counters));
    fs::remove_dir(folder.path().join("push-b~")).expect("a folder");
    open(folder.path(), &fake).await.close().await.expect("a service that answers");
    for ((namespace, _), count) in fake.counts() {
        assert_eq!(count, i64::from(namespace == "b"), "{namespace}");
    }
    assert_eq!(unpushed, 0, "the others were pushed");
}

/// Moves the folder away when the push with this number gets its name: from then on, the name cannot be synced.
fn moving(path: &Path, number: usize) -> (LocalOptions, PathBuf) {
    let (away, path) = (path.with_extension("away"), path.to_owned());
    let (named, moved) = (Arc::new(AtomicUsize::new(0)), away.clone());
    let steps = Steps::observed_by(move |step| {
        if step == "a push has its name" && named.fetch_add(1, Ordering::SeqCst) == number {
            fs::rename(&path, &moved).expect("room");
        }
    });
    (LocalOptions { idle_ms: 0, steps, ..options() }, away)
}

#[tokio::test]
async fn l2_a_push_whose_name_may_not_be_on_disk_is_written_again_and_sent_by_this_process_or_the_next() {
    for by_the_next_process in [false, true] {
        let (dir, fake) = (folder(), Fake::default());
        let path = dir.path().join("counters");
        let (moving, away) = moving(&path, 0);
        let counters = open_as(&path, &fake, moving).await;
        let a = handle(&counters, "a");
        a.add(1);
        let failed = counters.push().await.expect_err("the folder is away");
        assert!(failed.to_string().contains("counters"), "{failed}");
        fs::rename(&away, &path).expect("room");
        counters.pull().await.expect("a service that answers");
        assert_eq!((a.get().value, a.get().error_bound), (1, Some(0)), "it is certainly not sent");
        // Nothing is left to push, except what the file has.
        a.add(-1);
        drop(a);
        fs::create_dir(path.join("push-ads~")).expect("room");
        counters.push().await.expect_err("it cannot be written again");
        assert!(fake.calls().is_empty() && counters.has("ads", "a"), "nothing is sent that is not on disk");
        fs::remove_dir(path.join("push-ads~")).expect("a folder");
        let counters = if by_the_next_process {
            drop(counters);
            open(&path, &fake).await
        } else {
            counters
        };
        counters.push().await.expect("a service that answers");
        let deltas: Vec<i64> = fake.calls().iter().flatten().map(|add| add.delta).collect();
        assert_eq!(deltas, [1, -1], "by the next process: {by_the_next_process}");
        counters.close().await.expect("nothing to push");
    }
}

#[tokio::test]
async fn l2_a_push_whose_new_time_may_not_be_on_disk_is_not_sent_with_either_time_before_it_is() {
    let (dir, fake) = (folder(), Fake::answering(&[Answer::Refuse("TOO_OLD")]));
    let path = dir.path().join("counters");
    let (moving, away) = moving(&path, 1);
    let counters = open_as(&path, &fake, moving).await;
    let a = handle(&counters, "a");
    a.add(5);
    counters.push().await.expect_err("the folder is away");
    fs::rename(&away, &path).expect("room");
    fs::create_dir(path.join("push-ads~")).expect("room");
    counters.push().await.expect_err("it cannot be written again");
    assert_eq!((fake.calls().len(), a.unpushed()), (1, 5));
    fs::remove_dir(path.join("push-ads~")).expect("a folder");
    counters.push().await.expect("the new time counts");
    assert_eq!((fake.calls().len(), fake.count("a"), a.unpushed()), (2, 5, 0));
    assert_ne!(fake.calls()[0][0].token, fake.calls()[1][0].token);
}

/// Its counters leave as soon as they have no handle.
fn roomy(steps: Steps) -> LocalOptions {
    LocalOptions { idle_ms: 0, slots_max: 16_384, steps, ..options() }
}

/// Handles of counters with the longest names.
fn long_names(counters: &LocalCounters, numbers: Range<usize>) -> Vec<Handle> {
    let names: Vec<String> = numbers.map(|number| format!("{number:0128}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    counters.handles("ads", &names).expect("room")
}

/// Counters whose list of names is shortened as soon as 1,000 of the 3,000 handles are dropped.
async fn almost_long(path: &Path, fake: &Fake, steps: Steps) -> (LocalCounters, Vec<Handle>) {
    let counters = open_as(path, fake, roomy(steps)).await;
    let mut handles = long_names(&counters, 0..9_000);
    handles.truncate(3_000);
    counters.push().await.expect("nothing to push");
    (counters, handles)
}

/// Adds another number to each counter and pushes: two counters with one slot would have the sum. The next process has the same counters.
async fn have_their_own_slots(path: &Path, fake: &Fake, counters: LocalCounters, handles: Vec<Handle>) {
    handles.iter().zip(1..).for_each(|(handle, delta)| handle.add(delta));
    assert!(handles.iter().zip(1..).all(|(handle, delta)| handle.unpushed() == delta), "they share slots");
    counters.push().await.expect("a service that answers");
    assert!(handles.iter().zip(1..).all(|(handle, delta)| fake.count(handle.counter()) == delta));
    let names: Vec<String> = handles.iter().map(|handle| handle.counter().to_owned()).collect();
    drop((handles, counters));
    let counters = open_as(path, fake, roomy(Steps::default())).await;
    assert_eq!(counters.stats().counters, names.len() as u64);
    assert!(names.iter().all(|name| counters.has("ads", name)));
    counters.close().await.expect("nothing to push");
    open_as(path, fake, roomy(Steps::default())).await.close().await.expect("nothing to push");
}

#[tokio::test]
async fn l3_slots_are_free_once_while_the_list_of_names_cannot_be_shortened() {
    let (folder, fake) = (folder(), Fake::default());
    let (counters, mut handles) = almost_long(folder.path(), &fake, Steps::default()).await;
    let length = || fs::metadata(folder.path().join("names")).expect("a file").len();
    fs::create_dir(folder.path().join("names~")).expect("room");
    handles.truncate(2_000);
    for failures in 1..=2 {
        counters.push().await.expect("the list is only longer than it could be");
        let stats = counters.stats();
        assert_eq!((stats.counters, stats.names_failures), (2_000, failures));
        assert!(stats.last_names_error.is_some_and(|error| error.contains("names")));
    }
    assert!(length() > 1_200_000, "{}", length());
    fs::remove_dir(folder.path().join("names~")).expect("a folder");
    counters.push().await.expect("room");
    assert!(length() < 300_000, "{}", length());
    assert_eq!((counters.stats().names_failures, counters.stats().last_names_error), (2, None));
    handles.extend(long_names(&counters, 9_000..10_001));
    have_their_own_slots(folder.path(), &fake, counters, handles).await;
}

#[tokio::test]
async fn l3_a_counter_that_returns_while_the_list_of_names_cannot_be_shortened_has_its_own_slot() {
    let (folder, fake) = (folder(), Fake::default());
    let (counters, mut handles) = almost_long(folder.path(), &fake, Steps::default()).await;
    let returning = handles[2_500].counter().to_owned();
    fs::create_dir(folder.path().join("names~")).expect("room");
    handles.truncate(2_000);
    counters.push().await.expect("the list is only longer than it could be");
    assert!(!counters.has("ads", &returning), "it has left");
    handles.push(handle(&counters, &returning));
    counters.push().await.expect("the list is only longer than it could be");
    assert_eq!(counters.stats().names_failures, 2);
    fs::remove_dir(folder.path().join("names~")).expect("a folder");
    counters.push().await.expect("room");
    handles.extend(long_names(&counters, 9_000..10_001));
    have_their_own_slots(folder.path(), &fake, counters, handles).await;
}

/// The folder is away while the name of the shorter list would be written to disk.
#[tokio::test]
async fn l2_after_a_loss_of_power_the_shorter_list_of_names_or_the_one_before_it_is_read() {
    let (dir, fake) = (folder(), Fake::default());
    let path = dir.path().join("counters");
    let (away, before) = (path.with_extension("away"), path.with_extension("before"));
    let steps = {
        let (path, away, before) = (path.clone(), away.clone(), before.clone());
        Steps::observed_by(move |step| match step {
            "slots are freed" => {
                fs::copy(path.join("names"), &before).expect("room");
            }
            "names are written again" => fs::rename(&path, &away).expect("room"),
            _ => {}
        })
    };
    let (counters, mut handles) = almost_long(&path, &fake, steps).await;
    handles.truncate(2_000);
    counters.push().await.expect("nothing to push");
    fs::rename(&away, &path).expect("a rename");
    drop((handles, counters));
    let lists = [before, path.join("names")].map(|list| fs::read(list).expect("a list"));
    assert!(lists[0].len() > lists[1].len());
    for list in lists {
        fs::write(path.join("names"), &list).expect("room");
        let counters = open_as(&path, &fake, roomy(Steps::default())).await;
        assert_eq!(counters.stats().counters, 2_000, "{} bytes", list.len());
    }
}
