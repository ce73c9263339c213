//! The end of an episode, when nothing goes wrong any more: what is left is read and checked, and changes of numbers of shards end.

use super::call::{purge, sweep};
use super::plan::Plan;
use super::servers::{ServerStore, Servers};
use crate::judge::{EXCLUSIVITY_KEY, History};
use crate::scripting::locked;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tallystone_model::{Refusal, Shard, State, Store};
use tokio::time::sleep;

/// Entries on a page of the last reading.
const PAGE: usize = 1_000;
/// Steps of the scrubber for one queue.
const STEPS_MAX: usize = 1_000;
/// After this time no ended message is retained, and no id is remembered.
const RETAINED: Duration = Duration::from_secs(30);
/// Ends what a change has left at most: the earlier shards are emptied, and then removed.
const CHECKS: usize = 2;

/// The store of a server that lives.
type Called = Arc<ServerStore>;

/// See the module.
pub(super) struct Conclusion<'a> {
    pub(super) servers: &'a Servers,
    pub(super) history: &'a Mutex<History>,
}

impl Conclusion<'_> {
    fn fails(&self, what: &str, first: &Shard, why: impl std::fmt::Display) {
        locked(self.history).failures.push(format!("{what} {}: {why}", first.queue));
    }

    /// Reads what is left of each queue, and lets the scrubber check it. Where numbers of shards change, the minutely check is made before.
    pub(super) async fn read(&self, plan: &Plan) {
        self.check_shards(plan).await;
        for (first, _) in &plan.queues {
            if let Err(refusal) = self.read_queue(first).await {
                self.fails("the last reading of", first, refusal);
            }
        }
    }

    async fn read_queue(&self, first: &Shard) -> Result<(), Refusal> {
        self.servers.call(0, async |store| scrub(&store, first, self.history).await).await?;
        for state in State::ALL {
            let mut cursor = String::new();
            loop {
                let from = &cursor;
                let list = async |store: Called| store.list_messages(first, state, from, PAGE).await;
                let page = self.servers.call(0, list).await?;
                let mut history = locked(self.history);
                for message in page.items {
                    let value = message.metadata.get(EXCLUSIVITY_KEY).map(str::to_owned);
                    let key = (first.queue.clone(), message.id.clone(), value);
                    if history.left.insert(key, message.state).is_some() {
                        history.violations.push(format!("'{}' is listed twice", message.id));
                    }
                }
                cursor = page.next_cursor;
                if cursor.is_empty() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// When the queues are empty, no earlier shard is left.
    pub(super) async fn end_changes(&self, plan: &Plan) {
        if plan.changing.is_empty() {
            return;
        }
        let firsts = || plan.queues.iter().map(|(first, _)| first);
        for first in firsts() {
            if let Err(refusal) = self.servers.call(0, async |store| purge(&store, first, true).await).await {
                self.fails("the last purge of", first, refusal);
            }
        }
        sleep(RETAINED).await;
        for first in firsts() {
            if let Err(refusal) = self.servers.call(0, async |store| sweep(&store, first).await).await {
                self.fails("the last sweep of", first, refusal);
            }
        }
        self.check_shards(plan).await;
        for first in firsts() {
            match self.servers.call(0, async |store| store.layout(first).await).await {
                Ok(layout) if layout.old().is_empty() => {}
                Ok(layout) => self.fails("its earlier shards are empty and stay:", first, format!("{layout:?}")),
                Err(refusal) => self.fails("the last layout of", first, refusal),
            }
        }
    }

    async fn check_shards(&self, plan: &Plan) {
        if plan.changing.is_empty() {
            return;
        }
        let first = plan.first(0);
        for _ in 0..CHECKS {
            let check = async |store: Called| {
                // The check is of the queues that the server has used.
                for (first, _) in &plan.queues {
                    store.get_queue(&first.queue).await?;
                }
                store.inner().check_shards().await
            };
            match self.servers.call(0, check).await {
                Ok(0) => {}
                Ok(strays) => self.fails("shards with messages that no queue has, as found for", first, strays),
                Err(refusal) => self.fails("the last check of", first, refusal),
            }
        }
    }
}

async fn scrub(store: &ServerStore, first: &Shard, history: &Mutex<History>) -> Result<(), Refusal> {
    let mut cursor = String::new();
    for _ in 0..STEPS_MAX {
        let (_, page) = store.check(first, &cursor).await?;
        locked(history).violations.extend(page.items.iter().map(|violation| format!("{violation:?}")));
        cursor = page.next_cursor;
        if cursor.is_empty() {
            return Ok(());
        }
    }
    Err(Refusal::Internal("the scrubber does not end".to_owned()))
}
