//! Folders that cannot be used, and disks that fail (L2).

use super::fake::{Answer, Fake};
use super::{folder, handle, open, options};
use crate::local::{LocalCounters, LocalError, LocalOptions};
use std::fs;

#[tokio::test]
async fn l2_a_folder_is_open_once() {
    let (folder, fake) = (folder(), Fake::default());
    let counters = open(folder.path(), &fake).await;
    let second = LocalCounters::open_with(folder.path(), fake.clone(), options()).await;
    assert!(matches!(second, Err(LocalError::Locked { .. })), "{second:?}");
    counters.close().await.expect("nothing to push");
    LocalCounters::open_with(folder.path(), fake.clone(), options()).await.expect("it is free");
}

#[tokio::test]
async fn l2_other_bounds_and_damaged_files_are_refused() {
    let (folder, fake) = (folder(), Fake::default());
    let counters = open(folder.path(), &fake).await;
    handle(&counters, "a").add(1);
    handle(&counters, "b").add(2);
    fake.state().answers.push_back(Answer::Away);
    counters.close().await.expect_err("away");
    let open = |options: LocalOptions| LocalCounters::open_with(folder.path(), fake.clone(), options);
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
