//! The feed of passed thresholds (N16): a crossing for each time that a new checkpoint passes a threshold of its namespace.
//!
//! The compare-and-set that replaces the checkpoint also appends its crossings, in the same script call: so each is there
//! once, whatever process dies (docs/decisions/0106). A reader reads the lists of all shards, in the order of their ids, and goes
//! on from a position: the last id that it has read of each shard.

use crate::checkpoints::Checkpoint;
use crate::names::CounterName;
use crate::namespace::{SHARDS, Threshold};
use crate::refusal::Refusal;
use futures::future::try_join_all;
use tallystone_link::StreamId;

/// When the last entry that a reader has read is lost, entries with earlier ids may be new: the clock of the store's new
/// primary may be behind. The reader continues this much earlier: two clocks differ by less.
const LOST_MS: u64 = 60_000;

/// What one new checkpoint has passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrossingEntry {
    /// Its id, by the store's clock. Those of a shard rise, except after lost writes.
    pub id: StreamId,
    /// The id of the entry before it in its shard; the default: it is the first one.
    pub before: StreamId,
    /// The counter.
    pub counter: CounterName,
    /// The new count.
    pub count: i64,
    /// The time to which the new count is exact, in Unix ms.
    pub exact_to_ms: u64,
    /// The thresholds, in the order in which a count passes them on its way to the new one.
    pub thresholds: Vec<i64>,
}

/// The lists of crossings of a namespace, one in each shard. An entry is in the home shard of its counter.
pub trait CrossingLists: Send + Sync {
    /// A shard's time, in Unix ms: what is appended afterwards has no earlier id, unless its clock is set back.
    fn shard_ms(&self, shard: u16) -> impl Future<Output = Result<u64, Refusal>> + Send;

    /// The entries of a shard from this id on, in their order, at most `count`.
    fn entries(
        &self,
        shard: u16,
        from: StreamId,
        count: usize,
    ) -> impl Future<Output = Result<Vec<CrossingEntry>, Refusal>> + Send;

    /// The id of a shard's last entry before this one; the default: there is none.
    fn last_before(&self, shard: u16, id: StreamId) -> impl Future<Output = Result<StreamId, Refusal>> + Send;
}

/// The last id that a reader has read, of each shard.
pub type CrossingsRead = [StreamId; SHARDS as usize];

/// Crossings that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrossingsPage {
    /// In the order of their ids.
    pub entries: Vec<CrossingEntry>,
    /// Where the next page begins.
    pub next: CrossingsRead,
    /// Every entry with an earlier time (Unix ms) is on this page or on one before.
    pub complete_to_ms: u64,
}

/// The thresholds that a new checkpoint of a counter passes, each once, in the order in which a count passes them on its way from
/// the one to the other. Upwards it passes a threshold by reaching it, downwards by leaving it. A deletion passes none.
pub fn passed(thresholds: &[Threshold], counter: &CounterName, before: &Checkpoint, after: &Checkpoint) -> Vec<i64> {
    if thresholds.is_empty() || after.is_deleted {
        return Vec::new();
    }
    let (low, high) = (before.count.min(after.count), before.count.max(after.count));
    let is_passed = |threshold: &&Threshold| {
        low < threshold.count && threshold.count <= high && counter.as_str().starts_with(&threshold.prefix)
    };
    let mut passed: Vec<i64> = thresholds.iter().filter(is_passed).map(|threshold| threshold.count).collect();
    passed.sort_unstable();
    // Two prefixes of a name may have the same threshold.
    passed.dedup();
    if after.count < before.count {
        passed.reverse();
    }
    passed
}

/// Where a reader begins that requires only what follows.
pub async fn last_entries(lists: &impl CrossingLists) -> Result<CrossingsRead, Refusal> {
    let last = |shard| lists.last_before(shard, StreamId { ms: u64::MAX, number: u64::MAX });
    let mut read = CrossingsRead::default();
    read.copy_from_slice(&try_join_all((0..SHARDS).map(last)).await?);
    Ok(read)
}

/// The page after a position, or from the oldest entries on. It has whole entries, and at most one more than it needs to have
/// `crossings` of them.
///
/// # Errors
/// [`Refusal::PositionExpired`]: entries after the position are gone.
pub async fn read_crossings(
    lists: &impl CrossingLists,
    after: Option<&CrossingsRead>,
    crossings: usize,
) -> Result<CrossingsPage, Refusal> {
    let read = |shard: u16| read_shard(lists, shard, after.map(|after| after[usize::from(shard)]), crossings);
    let shards = try_join_all((0..SHARDS).map(read)).await?;
    // What is on no page yet begins here.
    let complete_to_ms = shards.iter().map(|shard| shard.read_to_ms).min().unwrap_or_default();
    let next = std::array::from_fn(|shard| shards[shard].from);
    let mut page = CrossingsPage { entries: Vec::new(), next, complete_to_ms };
    let all =
        shards.into_iter().enumerate().flat_map(|(shard, read)| read.entries.into_iter().map(move |it| (shard, it)));
    let mut all: Vec<(usize, CrossingEntry)> = all.collect();
    all.sort_by_key(|(shard, entry)| (entry.id, *shard));
    let mut found = 0;
    for (shard, entry) in all {
        if found >= crossings {
            page.complete_to_ms = page.complete_to_ms.min(entry.id.ms);
            break;
        }
        found += entry.thresholds.len();
        page.next[shard] = entry.id;
        page.entries.push(entry);
    }
    Ok(page)
}

/// What was read of one shard.
struct ShardRead {
    entries: Vec<CrossingEntry>,
    /// The position in this shard before these entries.
    from: StreamId,
    /// Every entry with an earlier time (Unix ms) is among these, or was read before.
    read_to_ms: u64,
}

async fn read_shard(
    lists: &impl CrossingLists,
    shard: u16,
    after: Option<StreamId>,
    count: usize,
) -> Result<ShardRead, Refusal> {
    // In this order: what is not there when the entries are read comes later than this time.
    let now_ms = lists.shard_ms(shard).await?;
    let mut from = after.unwrap_or_default();
    let mut entries = lists.entries(shard, from, count + 1).await?;
    let mut is_all = entries.len() <= count;
    if let Some(after) = after {
        let is_first = |entry: &CrossingEntry| entry.id == after;
        match entries.first() {
            Some(first) if is_first(first) => drop(entries.remove(0)),
            Some(first) if first.before == after => {}
            Some(first) if first.before > after => return Err(Refusal::PositionExpired),
            None if after == StreamId::default() => {}
            // The store has lost the entry that was read last. It keeps the last one that it has.
            Some(_) | None => {
                let earlier = StreamId { ms: after.ms.saturating_sub(LOST_MS), number: 0 };
                from = lists.last_before(shard, earlier).await?;
                entries = lists.entries(shard, earlier, count + 1).await?;
                is_all = entries.len() <= count;
            }
        }
    }
    let read_to_ms = match entries.last() {
        Some(last) if !is_all => last.id.ms,
        _ => now_ms,
    };
    Ok(ShardRead { entries, from, read_to_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n16_a_threshold_is_passed_by_reaching_it_upwards_and_by_leaving_it_downwards() {
        let threshold = |prefix: &str, count| Threshold { prefix: prefix.to_owned(), count };
        let all = [threshold("", 10), threshold("a", -5), threshold("ab", 10), threshold("", 0), threshold("b", 7)];
        let passed = |from: i64, to: i64, is_deleted: bool| {
            let of = |count: i64, is_deleted: bool| Checkpoint { count, is_deleted, ..Checkpoint::default() };
            let counter = CounterName::parse("abc").expect("a name");
            super::passed(&all, &counter, &of(from, false), &of(to, is_deleted))
        };
        let nothing: [i64; 0] = [];
        assert_eq!(passed(0, 9, false), nothing);
        assert_eq!(passed(9, 10, false), [10], "once, although two thresholds have it");
        assert_eq!(passed(10, 11, false), nothing);
        assert_eq!(passed(10, 9, false), [10]);
        assert_eq!(passed(0, -1, false), [0]);
        assert_eq!(passed(-6, 100, false), [-5, 0, 10]);
        assert_eq!(passed(100, -6, false), [10, 0, -5]);
        assert_eq!(passed(i64::MIN, i64::MAX, false), [-5, 0, 10]);
        assert_eq!(passed(100, 0, true), nothing, "a deletion");
        assert_eq!(passed(5, 5, false), nothing);
    }
}
