//! Every event that Redis writes, read from the outboxes after each write, and which writes failovers lost. Shards that are added to the
//! registry are watched from then on.

use crate::judge::Written;
use crate::keyspace::{Keyspace, StreamId};
use std::collections::BTreeSet;
use tallystone_lua::keys::Keyspace as Names;
use tallystone_lua::{ShardKeys, record};
use tallystone_model::{Recorded, Shard};

/// One outbox, and the state of its shard.
struct Outbox {
    shard: Shard,
    key: String,
    state_key: String,
    /// The id of the last entry that was read.
    last: StreamId,
    /// Where the timeline of the state began; `None`: the shard does not exist.
    timeline_begin: Option<u64>,
}

impl Outbox {
    fn new(shard: Shard) -> Outbox {
        let [key, state_key] = ["outbox", "state"].map(|name| ShardKeys::new(&shard).key(name));
        Outbox { shard, key, state_key, last: StreamId::default(), timeline_begin: None }
    }

    fn timeline_of(&self, keyspace: &mut Keyspace) -> Option<u64> {
        let state = keyspace.text(self.state_key.as_bytes()).ok().flatten()?;
        Some(record::decode_state(state).map_or(0, |state| state.timeline_begin))
    }
}

/// The events of an episode, in order of execution.
pub(super) struct Journal {
    outboxes: Vec<Outbox>,
    /// The registry of all shards but the first of each queue.
    registry: String,
    /// Shards that were created, and ones that were deleted, lost ones included.
    pub(super) created: u64,
    pub(super) deleted: u64,
    /// The numbers of the writes that are not lost, in order.
    live: Vec<u64>,
    writes: u64,
    /// The writes with which shards moved to another timeline.
    timelines: Vec<(u64, Shard)>,
    /// The shards of which a failover lost such a write: then two timelines continue the same state.
    pub(super) forked: BTreeSet<Shard>,
    pub(super) written: Vec<Written>,
    /// Entries that could not be decoded.
    pub(super) failures: Vec<String>,
}

impl Journal {
    pub(super) fn new(shards: impl IntoIterator<Item = Shard>) -> Journal {
        Journal {
            outboxes: shards.into_iter().map(Outbox::new).collect(),
            registry: Names::default().shards(),
            created: 0,
            deleted: 0,
            live: Vec::new(),
            writes: 0,
            timelines: Vec::new(),
            forked: BTreeSet::new(),
            written: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Takes note of one write, at this time of the episode. `redis_set_ms`: as in [`Written`].
    pub(super) fn wrote(&mut self, keyspace: &mut Keyspace, elapsed_ms: u64, redis_set_ms: u64) {
        let write = self.writes;
        self.writes += 1;
        self.live.push(write);
        self.watch_registered(keyspace);
        for outbox in &mut self.outboxes {
            let timeline_begin = outbox.timeline_of(keyspace);
            match (std::mem::replace(&mut outbox.timeline_begin, timeline_begin), timeline_begin) {
                (None, Some(_)) => self.created += 1,
                (Some(_), None) => self.deleted += 1,
                (Some(earlier), Some(current)) if earlier != current => {
                    self.timelines.push((write, outbox.shard.clone()));
                }
                _ => {}
            }
            let Ok(Some(stream)) = keyspace.stream(outbox.key.as_bytes()) else { continue };
            if stream.last <= outbox.last {
                continue;
            }
            let first = stream.entries.partition_point(|(id, _)| *id <= outbox.last);
            for (id, values) in stream.entries.range(first..) {
                let at_ms = std::str::from_utf8(&values[1]).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
                // The mark of a new timeline has no events.
                if record::decode_timeline_mark(&values[3]).is_some() {
                    continue;
                }
                match record::decode_events(at_ms, &values[3]) {
                    Ok(events) => self.written.extend((id.ms..).zip(events).map(|(offset, mut event)| {
                        let shard = outbox.shard.clone();
                        event.fencing_token = shard.token(event.fencing_token);
                        let recorded = Recorded { shard, offset, event };
                        Written { write, elapsed_ms, redis_set_ms, is_lost: false, recorded }
                    })),
                    Err(error) => self.failures.push(format!("outbox entry {}: {error}", id.text())),
                }
            }
            outbox.last = stream.last;
        }
    }

    fn watch_registered(&mut self, keyspace: &mut Keyspace) {
        let Ok(Some(registered)) = keyspace.sorted(self.registry.as_bytes()) else { return };
        for (tag, _) in registered.ordered() {
            let is_known = |outbox: &Outbox| tag_of(&outbox.key) == &tag[..];
            if !self.outboxes.iter().any(is_known)
                && let Some(shard) = std::str::from_utf8(tag).ok().and_then(Shard::of_tag)
            {
                self.outboxes.push(Outbox::new(shard));
            }
        }
    }

    /// A failover has lost the last `count` writes. Returns whether a shard has lost its last move to another timeline.
    pub(super) fn lost(&mut self, count: usize, keyspace: &mut Keyspace) -> bool {
        let kept = self.live.len().saturating_sub(count);
        let Some(&first_lost) = self.live.get(kept) else { return false };
        self.live.truncate(kept);
        for written in self.written.iter_mut().rev().take_while(|written| written.write >= first_lost) {
            written.is_lost = true;
        }
        for outbox in &mut self.outboxes {
            let stream = keyspace.stream(outbox.key.as_bytes()).ok().flatten();
            outbox.last = stream.map_or(StreamId::default(), |stream| stream.last);
            outbox.timeline_begin = outbox.timeline_of(keyspace);
        }
        let kept = self.timelines.partition_point(|(write, _)| *write < first_lost);
        let lost = self.timelines.split_off(kept);
        let has_forked = !lost.is_empty();
        self.forked.extend(lost.into_iter().map(|(_, shard)| shard));
        has_forked
    }
}

/// The hash tag of a key.
fn tag_of(key: &str) -> &[u8] {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    tag.map_or(&[], |(tag, _)| tag.as_bytes())
}
