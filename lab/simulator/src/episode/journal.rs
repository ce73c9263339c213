//! Every event that Redis writes, read from the outboxes after each write, and which writes failovers lost.

use crate::judge::Written;
use crate::keyspace::{Keyspace, StreamId};
use tallystone_lua::{ShardKeys, record};
use tallystone_model::{Recorded, Shard};

/// One outbox.
struct Outbox {
    shard: Shard,
    key: String,
    /// The id of the last entry that was read.
    last: StreamId,
}

/// The events of an episode, in order of execution.
pub(super) struct Journal {
    outboxes: Vec<Outbox>,
    /// The numbers of the writes that are not lost, in order.
    live: Vec<u64>,
    writes: u64,
    pub(super) written: Vec<Written>,
    /// Entries that could not be decoded.
    pub(super) failures: Vec<String>,
}

impl Journal {
    pub(super) fn new(shards: &[Shard]) -> Journal {
        let outbox = |shard: &Shard| {
            let key = ShardKeys::new(shard).key("outbox");
            Outbox { shard: shard.clone(), key, last: StreamId::default() }
        };
        let outboxes = shards.iter().map(outbox).collect();
        Journal { outboxes, live: Vec::new(), writes: 0, written: Vec::new(), failures: Vec::new() }
    }

    /// Takes note of one write.
    pub(super) fn wrote(&mut self, keyspace: &mut Keyspace) {
        let write = self.writes;
        self.writes += 1;
        self.live.push(write);
        for outbox in &mut self.outboxes {
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
                    Ok(events) => self.written.extend((id.ms..).zip(events).map(|(offset, event)| Written {
                        write,
                        is_lost: false,
                        recorded: Recorded { shard: outbox.shard.clone(), offset, event },
                    })),
                    Err(error) => self.failures.push(format!("outbox entry {}: {error}", id.text())),
                }
            }
            outbox.last = stream.last;
        }
    }

    /// A failover has lost the last `count` writes.
    pub(super) fn lost(&mut self, count: usize, keyspace: &mut Keyspace) {
        let kept = self.live.len().saturating_sub(count);
        let Some(&first_lost) = self.live.get(kept) else { return };
        self.live.truncate(kept);
        for written in self.written.iter_mut().rev().take_while(|written| written.write >= first_lost) {
            written.is_lost = true;
        }
        for outbox in &mut self.outboxes {
            let stream = keyspace.stream(outbox.key.as_bytes()).ok().flatten();
            outbox.last = stream.map_or(StreamId::default(), |stream| stream.last);
        }
    }
}
