//! A folder whose processes are killed: what they have certainly added, what they may have added, and what the service has counted.

use super::POLL;
use super::adder::options;
use super::ledger::{Key, keys, read};
use crate::ingest::topics::Topics;
use crate::system::program::SOON;
use std::collections::HashMap;
use std::path::PathBuf;
use tallystone_client::CounterClient;
use tallystone_client::local::{LocalCounters, LocalError, LocalOptions, TopicOptions};
use tallystone_link::wall_ms;
use tallystone_tests::is_long;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// Events that are read once more: their time is before the last look by at most this.
const EVENTS_BACK_MS: u64 = 30_000;

pub(super) struct Folder {
    pub(super) dir: TempDir,
    pub(super) prefix: String,
    /// Where its pushes go instead of the service.
    pub(super) topics: Option<Topics>,
    keys: Vec<Key>,
    /// By counter: the sum of the adds that are settled or certain, and adds that may have happened.
    sums: Vec<i64>,
    uncertain: Vec<Vec<i64>>,
    /// By counter: the deltas of its events, by token.
    events: Vec<HashMap<String, i64>>,
    pub(super) adds: u64,
    pub(super) in_flight: usize,
}

/// The sums that some of these adds can have.
fn sums_of_some(adds: &[i64]) -> Vec<i64> {
    adds.iter().fold(vec![0], |sums, add| sums.iter().flat_map(|sum| [*sum, sum + add]).collect())
}

/// Pushes until everything is pushed.
pub(super) async fn until_pushed(counters: &LocalCounters) {
    let give_up_at = Instant::now() + SOON;
    while let Err(error) = counters.push().await {
        assert!(Instant::now() < give_up_at, "{error}");
        sleep(POLL).await;
    }
}

/// Waits until a counter of the service has this count.
pub(super) async fn until_counted(client: &CounterClient, namespace: &str, counter: &str, count: i64) {
    let give_up_at = Instant::now() + SOON;
    loop {
        let counted = client.get(namespace, counter).await.expect("a count");
        if counted.count == count {
            return;
        }
        assert!(Instant::now() < give_up_at, "{namespace}: {counted:?}");
        sleep(POLL).await;
    }
}

impl Folder {
    pub(super) fn new(prefix: &str) -> Folder {
        // Tests end processes here, not machines; a long run also waits for the disk.
        let in_memory = if is_long() { tempfile::tempdir() } else { tempfile::tempdir_in("/dev/shm") };
        let dir = in_memory.or_else(|_| tempfile::tempdir()).expect("a temporary folder");
        let keys = keys(prefix);
        let count = keys.len();
        Folder {
            dir,
            prefix: prefix.to_owned(),
            topics: None,
            keys,
            sums: vec![0; count],
            uncertain: vec![Vec::new(); count],
            events: vec![HashMap::new(); count],
            adds: 0,
            in_flight: 0,
        }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.dir.path().join("counters")
    }

    /// Opens it in this process.
    pub(super) async fn open(
        &self,
        client: &CounterClient,
        options: LocalOptions,
    ) -> Result<LocalCounters, LocalError> {
        match &self.topics {
            None => LocalCounters::open(self.path(), client.clone(), options).await,
            Some(topics) => {
                let topic = TopicOptions::new(&topics.brokers, &topics.source);
                LocalCounters::open_with_topic(self.path(), client.clone(), topic, options).await
            }
        }
    }

    /// Reads what a process has added that has been killed.
    pub(super) fn ended(&mut self, life: u64) {
        let known = read(self.dir.path(), life);
        for (counter, sum) in known.certain {
            self.sums[counter] += sum;
        }
        self.in_flight += known.uncertain.len();
        for (counter, delta) in known.uncertain {
            self.uncertain[counter].push(delta);
        }
        self.adds += known.adds;
    }

    /// Opens the folder in this process, pushes everything, and compares.
    pub(super) async fn settle(&mut self, client: &CounterClient) {
        let give_up_at = Instant::now() + SOON;
        loop {
            let counters = self.open(client, options()).await.expect("a sound folder");
            let unresolved = counters.unresolved().expect("a file");
            assert!(unresolved.is_empty(), "the service was never away for so long: {unresolved:?}");
            match counters.close().await {
                Ok(()) => break,
                Err(error) => assert!(Instant::now() < give_up_at, "{error}"),
            }
            sleep(POLL).await;
        }
        if let Some(topics) = &self.topics {
            topics.until_decided().await;
        }
        for number in 0..self.keys.len() {
            let counted = self.counted(client, number).await;
            let (sum, uncertain) = (self.sums[number], std::mem::take(&mut self.uncertain[number]));
            let possible = sums_of_some(&uncertain);
            let (namespace, counter) = &self.keys[number];
            assert!(
                possible.contains(&(counted - sum)),
                "{namespace}/{counter}: {counted} counted, {sum} added, and of {uncertain:?} any: off by {}",
                counted - sum
            );
            self.sums[number] = counted;
        }
    }

    /// What the service has counted. That of EVENTUAL is the sum of its events, which does not wait for a rollup.
    async fn counted(&mut self, client: &CounterClient, number: usize) -> i64 {
        let (namespace, counter) = &self.keys[number];
        if *namespace == "accurate" {
            return client.get(namespace, counter).await.expect("a count").count;
        }
        let now_ms = wall_ms();
        let (from_ms, to_ms, mut page_token) = (now_ms - EVENTS_BACK_MS, now_ms + 1_000, String::new());
        loop {
            let page = client.list_events(namespace, counter, from_ms, to_ms, 1_000, &page_token).await;
            let page = page.expect("a page");
            let events = &mut self.events[number];
            events.extend(page.items.into_iter().map(|event| (event.token, event.delta)));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return events.values().sum();
            }
        }
    }

    /// Waits until the rollups say the same.
    pub(super) async fn until_rolled_up(&self, client: &CounterClient) {
        let give_up_at = Instant::now() + SOON;
        for ((namespace, counter), sum) in self.keys.iter().zip(&self.sums) {
            loop {
                let counted = client.get(namespace, counter).await.expect("a count");
                if counted.count == *sum {
                    break;
                }
                assert!(Instant::now() < give_up_at, "{namespace}/{counter}: {counted:?}, not {sum}");
                sleep(POLL).await;
            }
        }
    }
}
