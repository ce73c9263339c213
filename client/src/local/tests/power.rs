//! A machine that loses its power: what was not written to disk may be there or not, page by page and file by file (L2).

use super::episode::Died;
use super::fake::{Answer, Fake};
use super::{folder, handle, open, open_or_die, options};
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

/// What a test knows of a machine.
#[derive(Clone)]
struct Machine {
    path: PathBuf,
    disk: Arc<Mutex<Disk>>,
    added: Arc<AtomicI64>,
    /// The files when its last process died, and what had been added.
    at_end: Arc<Mutex<Option<(Files, i64)>>>,
}

impl Machine {
    /// A machine with a folder that has names, files and nothing to push.
    async fn at_rest(path: &Path, fake: &Fake) -> Machine {
        let counters = open(path, fake).await;
        names().iter().for_each(|name| drop(handle(&counters, name)));
        counters.close().await.expect("nothing to push");
        let at_rest = files(path);
        let disk = Disk { cells: at_rest["cells"].clone(), files: at_rest, added: 0 };
        Machine {
            path: path.to_owned(),
            disk: Arc::new(Mutex::new(disk)),
            added: Arc::default(),
            at_end: Arc::default(),
        }
    }

    /// A process that adds and pushes, and dies at the step of this number; whether it has come to this step.
    async fn live_until(&self, fake: &Fake, step: usize) -> bool {
        let (machine, reached) = (self.clone(), AtomicUsize::new(0));
        let observer = move |name: &'static str| {
            let mut disk = machine.disk.lock().expect("no panic");
            let added = machine.added.load(Ordering::SeqCst);
            match name {
                "cells are on disk" => {
                    disk.cells = std::fs::read(machine.path.join("cells")).expect("cells");
                    disk.added = added;
                }
                "files are on disk" => disk.files = files(&machine.path),
                _ => {}
            }
            if reached.fetch_add(1, Ordering::SeqCst) == step {
                *machine.at_end.lock().expect("no panic") = Some((files(&machine.path), added));
                drop(disk);
                resume_unwind(Box::new(Died));
            }
        };
        *self.at_end.lock().expect("no panic") = None;
        let options = LocalOptions { steps: Steps::observed_by(observer), ..options() };
        let Some(counters) = open_or_die(&self.path, fake, options).await else { return true };
        drop(counters.push().await);
        let handles: Vec<_> = names().iter().map(|name| handle(&counters, name)).collect();
        let has_died = || self.at_end.lock().expect("no panic").is_some();
        for round in 1..=4 {
            if has_died() {
                break;
            }
            for handle in &handles {
                handle.add(round);
                self.added.fetch_add(round, Ordering::SeqCst);
            }
            drop(counters.push().await);
        }
        has_died()
    }

    /// The machine loses its power where its last process has died. The next process counts what was added, except what was not on disk.
    /// Each seed keeps other parts of the data that were not on disk.
    async fn lose_power(&self, fake: &Fake, seed: u64, which: &str) {
        let (now, added) = self.at_end.lock().expect("no panic").take().expect("a process that has died");
        let mut random = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ added.cast_unsigned();
        let choose = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            match seed {
                0 => false,
                1 => true,
                _ => random >> 63 == 1,
            }
        };
        let (found, at_least) = {
            let disk = self.disk.lock().expect("no panic");
            // What the service has counted stays counted.
            (after_the_loss(&disk, &now, choose), disk.added.max(fake.counts().values().sum()))
        };
        let restarted = super::folder();
        for (name, content) in found {
            std::fs::write(restarted.path().join(name), content).expect("room");
        }
        let counters = open(restarted.path(), fake).await;
        while counters.push().await.is_err() {}
        counters.close().await.expect("a service that answers");
        let counted: i64 = fake.counts().values().sum();
        assert!((at_least..=added).contains(&counted), "{counted} of {at_least} to {added}: {which}, choice {seed}");
    }
}

fn names() -> [String; 4] {
    std::array::from_fn(|number| format!("c{number}"))
}

fn answers() -> [Vec<Answer>; 4] {
    [vec![], vec![Answer::Lost], vec![Answer::Half("TOO_OLD")], vec![Answer::Count, Answer::Lost]]
}

#[tokio::test]
async fn l2_a_loss_of_power_loses_only_what_came_after_the_last_write_and_doubles_nothing() {
    let mut losses = 0;
    for answers in answers() {
        for step in 0.. {
            let mut was_reached = false;
            for seed in 0..6 {
                let (folder, fake) = (folder(), Fake::answering(&answers));
                let machine = Machine::at_rest(folder.path(), &fake).await;
                if machine.live_until(&fake, step).await {
                    (was_reached, losses) = (true, losses + 1);
                    machine.lose_power(&fake, seed, &format!("{answers:?}, step {step}")).await;
                }
            }
            if !was_reached {
                assert!(step > 30, "only {step} steps with {answers:?}");
                break;
            }
        }
    }
    assert!(losses > 500, "{losses} losses");
}

/// The next process still finds what a killed process has not synced. A loss of power can remove it afterwards.
#[tokio::test]
async fn l2_a_loss_of_power_soon_after_a_kill_doubles_nothing() {
    let mut losses = 0;
    for answers in answers() {
        for kill in 0.. {
            let mut was_killed = false;
            // Steps of `open`, and of the push that this process takes over. Over all kills, each of these steps is used.
            for (number, step) in [0, 1, 2 + kill % 3, 5 + kill % 4, 9 + kill % 11].into_iter().enumerate() {
                let (folder, fake) = (folder(), Fake::answering(&answers));
                let machine = Machine::at_rest(folder.path(), &fake).await;
                was_killed = machine.live_until(&fake, kill).await;
                if was_killed && machine.live_until(&fake, step).await {
                    losses += 1;
                    let which = format!("{answers:?}, killed at {kill}, step {step}");
                    machine.lose_power(&fake, (kill + number) as u64 % 3, &which).await;
                }
            }
            if !was_killed {
                break;
            }
        }
    }
    assert!(losses > 500, "{losses} losses");
}
