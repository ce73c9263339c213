//! Local counters against a service within the test: every step as the last one of a process, every answer that a push may get.
//!
//! What lives here: the service (`fake`) and its log (`fake_log`), an episode with crashes (`episode`), and tests of one subject each. What may not: a real service;
//! that is `tests/suite/local`.

mod crashes;
mod episode;
mod fake;
mod fake_log;
mod leaving;
mod logged;
mod power;
mod pulls;
mod pushes;
mod room;

use super::counters::OpenLog;
use super::{Handle, LocalCounters, LocalError, LocalOptions};
use episode::Died;
use fake::Fake;
use fake_log::FakeLog;
use std::panic::resume_unwind;
use std::path::Path;
use tempfile::TempDir;

/// A folder in memory, if the machine has one: tests here end processes, not machines.
fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder")
}

/// Nothing happens by itself after the first moment: tests push and pull.
fn options() -> LocalOptions {
    let never_ms = 1_000_000_000;
    LocalOptions {
        push_interval_ms: never_ms,
        pull_interval_ms: never_ms,
        sync_interval_ms: never_ms,
        slots_max: 64,
        stripes_max: 4,
        ..LocalOptions::default()
    }
}

/// `None`: the process died during it.
async fn open_or_die(folder: &Path, fake: &Fake, options: LocalOptions) -> Option<LocalCounters> {
    loop {
        let (folder, fake, options) = (folder.to_owned(), fake.clone(), options.clone());
        let log = fake.state().log.is_some().then(|| {
            let fake = fake.clone();
            let open: OpenLog = Box::new(|folder| Ok(Box::new(FakeLog { fake, steps: folder.options.steps.clone() })));
            open
        });
        let opened = tokio::spawn(async move { LocalCounters::open_with(&folder, fake, log, options).await }).await;
        match opened {
            // The tasks of a process that has ended may hold the folder for a moment.
            Ok(Err(LocalError::Locked { .. })) => tokio::task::yield_now().await,
            Ok(opened) => return Some(opened.expect("a sound folder")),
            Err(panicked) => match panicked.into_panic() {
                died if died.is::<Died>() => return None,
                panic => resume_unwind(panic),
            },
        }
    }
}

async fn open_as(folder: &Path, fake: &Fake, options: LocalOptions) -> LocalCounters {
    open_or_die(folder, fake, options).await.expect("it does not die here")
}

async fn open(folder: &Path, fake: &Fake) -> LocalCounters {
    open_as(folder, fake, options()).await
}

fn handle(counters: &LocalCounters, counter: &str) -> Handle {
    counters.counter("ads", counter).expect("room")
}
