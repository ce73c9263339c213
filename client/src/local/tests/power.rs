//! A machine that loses its power: what was not written to disk may be there or not, page by page and file by file (L2).

use super::episode::Died;
use super::fake::{Answer, Fake};
use super::{folder, handle, open, open_as, options};
use crate::local::{LocalOptions, Steps};
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const PAGE_BYTES: usize = 4_096;

type Files = BTreeMap<String, Vec<u8>>;

fn files(folder: &Path) -> Files {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    let file = |path: PathBuf| {
        (path.file_name().expect("a name").display().to_string(), std::fs::read(&path).expect("a file"))
    };
    entries.map(|entry| file(entry.path())).collect()
}

/// What is certainly on disk.
#[derive(Default)]
struct Disk {
    cells: Vec<u8>,
    /// The other files.
    files: Files,
    /// What had been added when `cells` was written.
    added: i64,
}

/// What a machine finds after it has lost its power: for each page of the cells and for each other file, what is certainly on disk or what
/// was to be written.
fn after_the_loss(disk: &Disk, now: &Files, mut choose: impl FnMut() -> bool) -> Files {
    let mut found = Files::new();
    let mut cells = now["cells"].clone();
    for (page, old) in cells.chunks_mut(PAGE_BYTES).zip(disk.cells.chunks(PAGE_BYTES)) {
        if choose() {
            page.copy_from_slice(old);
        }
    }
    found.insert("cells".to_owned(), cells);
    let names: std::collections::BTreeSet<&String> = disk.files.keys().chain(now.keys()).collect();
    for name in names {
        if name == "cells" || name.ends_with('~') {
            continue;
        }
        // Names are written through; each other file is written before it is renamed.
        let (old, new) = (disk.files.get(name), now.get(name));
        let content = if name != "names" && choose() { old } else { new };
        if let Some(content) = content {
            found.insert(name.clone(), content.clone());
        }
    }
    found
}

#[tokio::test]
async fn l2_a_loss_of_power_loses_only_what_came_after_the_last_write_and_doubles_nothing() {
    let mut losses = 0;
    for answers in [vec![], vec![Answer::Lost], vec![Answer::Half("TOO_OLD")], vec![Answer::Count, Answer::Lost]] {
        for step in 0.. {
            let mut was_reached = false;
            for seed in 0..6_u64 {
                let (folder, fake) = (folder(), Fake::answering(&answers));
                let path = folder.path().to_owned();
                // Names and files of a folder at rest.
                let counters = open(&path, &fake).await;
                let names: Vec<String> = (0..4).map(|number| format!("c{number}")).collect();
                names.iter().for_each(|name| drop(handle(&counters, name)));
                counters.close().await.expect("nothing to push");
                let at_rest = files(&path);
                let disk = Disk { cells: at_rest["cells"].clone(), files: at_rest, added: 0 };
                let (disk, added) = (Arc::new(Mutex::new(disk)), Arc::new(AtomicI64::new(0)));
                let at_end = Arc::new(Mutex::new(None));
                let reached = AtomicUsize::new(0);
                let observer = {
                    let (path, disk, added, at_end) = (path.clone(), disk.clone(), added.clone(), at_end.clone());
                    move |name: &'static str| {
                        let mut disk = disk.lock().expect("no panic");
                        match name {
                            "cells are on disk" => {
                                disk.cells = std::fs::read(path.join("cells")).expect("cells");
                                disk.added = added.load(Ordering::SeqCst);
                            }
                            "files are on disk" => disk.files = files(&path),
                            _ => {}
                        }
                        if reached.fetch_add(1, Ordering::SeqCst) == step {
                            *at_end.lock().expect("no panic") = Some((files(&path), added.load(Ordering::SeqCst)));
                            drop(disk);
                            resume_unwind(Box::new(Died));
                        }
                    }
                };
                let counters =
                    open_as(&path, &fake, LocalOptions { steps: Steps::observed_by(observer), ..options() }).await;
                drop(counters.push().await);
                let handles: Vec<_> = names.iter().map(|name| handle(&counters, name)).collect();
                for round in 1..=4 {
                    for handle in &handles {
                        handle.add(round);
                        added.fetch_add(round, Ordering::SeqCst);
                    }
                    if at_end.lock().expect("no panic").is_none() {
                        drop(counters.push().await);
                    }
                }
                let Some((now, added)) = at_end.lock().expect("no panic").take() else { continue };
                was_reached = true;
                losses += 1;
                let mut random = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ step as u64;
                let choose = || {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    match seed {
                        0 => false,
                        1 => true,
                        _ => random >> 63 == 1,
                    }
                };
                let (found, at_least) = {
                    let disk = disk.lock().expect("no panic");
                    // What the service has counted stays counted.
                    (after_the_loss(&disk, &now, choose), disk.added.max(fake.counts().values().sum()))
                };
                let restarted = super::folder();
                for (name, content) in found {
                    std::fs::write(restarted.path().join(name), content).expect("room");
                }
                let counters = open(restarted.path(), &fake).await;
                while counters.push().await.is_err() {}
                counters.close().await.expect("a service that answers");
                let counted: i64 = fake.counts().values().sum();
                let which = format!("{answers:?}, step {step}, choice {seed}");
                assert!((at_least..=added).contains(&counted), "{counted} of {at_least} to {added}: {which}");
            }
            if !was_reached {
                assert!(step > 30, "only {step} steps with {answers:?}");
                break;
            }
        }
    }
    assert!(losses > 500, "{losses} losses");
}
