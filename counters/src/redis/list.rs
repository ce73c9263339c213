//! The counters of a namespace, page by page.

use super::cache::CachePosition;
use super::{RedisNamespace, record};
use crate::cache::Cache;
use crate::checkpoints::{Checkpoint, Checkpoints};
use crate::names::CounterName;
use crate::namespace::{CounterType, Placement, SHARDS};
use crate::refusal::Refusal;
use std::collections::BTreeSet;
use tallystone_link::ScanPosition;
use tallystone_lua::counter::OLDER_FIELD;

/// A counter and its last checkpoint; of a BEST_EFFORT counter only the count is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedCounter {
    /// Its name.
    pub counter: CounterName,
    /// Its last checkpoint.
    pub checkpoint: Checkpoint,
}

/// A page of a namespace's counters, in no order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterPage {
    /// May be empty, also before the last page.
    pub counters: Vec<ListedCounter>,
    /// The token of the next page; `None`: this was the last one.
    pub next: Option<String>,
}

/// The position of a list: shard by shard, first the counters with a checkpoint, then those that are only pending.
#[derive(Clone, Copy, Default)]
struct Position {
    is_pending: bool,
    shard: u16,
    within: ScanPosition,
}

impl Position {
    fn parse(token: &str) -> Option<Position> {
        if token.is_empty() {
            return Some(Position::default());
        }
        let mut parts = token.split('.');
        let is_pending = match parts.next()? {
            "r" => false,
            "p" => true,
            _ => return None,
        };
        let shard = parts.next()?.parse().ok().filter(|shard| *shard < SHARDS)?;
        let within = ScanPosition::parse(parts.next()?)?;
        parts.next().is_none().then_some(Position { is_pending, shard, within })
    }

    fn token(&self) -> String {
        format!("{}.{}.{}", if self.is_pending { "p" } else { "r" }, self.shard, self.within)
    }

    fn after(&self, within: Option<ScanPosition>) -> Option<Position> {
        let Position { is_pending, shard, .. } = *self;
        match within {
            Some(within) => Some(Position { is_pending, shard, within }),
            None if shard + 1 < SHARDS => Some(Position { is_pending, shard: shard + 1, ..Position::default() }),
            None if !is_pending => Some(Position { is_pending: true, ..Position::default() }),
            None => None,
        }
    }
}

impl RedisNamespace {
    /// A page of about `count` counters; `token`: from the page before, or empty.
    pub async fn list(&self, token: &str, count: usize) -> Result<CounterPage, Refusal> {
        let mut page = self.list_all(token, count).await?;
        // Of those that were written since, some are new counters.
        page.counters.retain(|listed| !listed.checkpoint.is_deleted);
        Ok(page)
    }

    /// As [`list`](RedisNamespace::list), with the counters that were deleted.
    pub(super) async fn list_all(&self, token: &str, count: usize) -> Result<CounterPage, Refusal> {
        let unknown = || Refusal::invalid("page_token", "is not a page token of this list");
        if self.config.counter_type == CounterType::BestEffort {
            return self.list_cached(CachePosition::parse(token).ok_or_else(unknown)?, count).await;
        }
        let mut position = Position::parse(token).ok_or_else(unknown)?;
        let (mut page, mut without) = (CounterPage::default(), BTreeSet::new());
        loop {
            let (mut listed, within) = match position.is_pending {
                false => self.scan_checkpoints(position.shard, position.within, count).await?,
                true => self.scan_pending(position.shard, position.within, count).await?,
            };
            if listed.is_empty() {
                without.insert(position.shard);
            }
            page.counters.append(&mut listed);
            match position.after(within) {
                None => break,
                Some(next) if page.counters.len() >= count || within.is_some() => {
                    page.next = Some(next.token());
                    break;
                }
                Some(next) => position = next,
            }
        }
        // One more round trip for all of them: a walk cannot check a state on its way.
        self.verify_shards(without).await?;
        Ok(page)
    }

    /// A page of about `count` counters that have a checkpoint, with those that were deleted.
    pub(crate) async fn rolled_up(&self, token: &str, count: usize) -> Result<CounterPage, Refusal> {
        let unknown = || Refusal::invalid("page_token", "is not a page token of this list");
        let position = Position::parse(token).ok_or_else(unknown)?;
        let (counters, within) = self.scan_checkpoints(position.shard, position.within, count).await?;
        if counters.is_empty() {
            self.verify_shards([position.shard]).await?;
        }
        let next = position.after(within).filter(|next| !next.is_pending).map(|next| next.token());
        Ok(CounterPage { counters, next })
    }

    /// A page of about `count` checkpoints of a shard.
    pub(super) async fn scan_checkpoints(
        &self,
        shard: u16,
        position: ScanPosition,
        count: usize,
    ) -> Result<(Vec<ListedCounter>, Option<ScanPosition>), Refusal> {
        let key = self.keys(shard).counts();
        let (pairs, next) = self.scan::<Vec<(String, Vec<u8>)>>(shard, "HSCAN", &key, position, count).await?;
        let listed = |(name, raw): (String, Vec<u8>)| {
            Ok(ListedCounter { counter: CounterName::parse(name)?, checkpoint: record::decode_checkpoint(&raw)? })
        };
        Ok((pairs.into_iter().map(listed).collect::<Result<_, Refusal>>()?, next))
    }

    /// Counters that no rollup has seen yet. A counter pending in several shards is listed by the first of them.
    async fn scan_pending(
        &self,
        shard: u16,
        position: ScanPosition,
        count: usize,
    ) -> Result<(Vec<ListedCounter>, Option<ScanPosition>), Refusal> {
        let key = self.keys(shard).key("pending");
        let (pairs, next) = self.scan::<Vec<(String, Vec<u8>)>>(shard, "HSCAN", &key, position, count).await?;
        let (mut counters, mut last_writes) = (Vec::new(), Vec::new());
        for (name, raw) in pairs.into_iter().filter(|(name, _)| !name.starts_with(OLDER_FIELD)) {
            counters.push(CounterName::parse(name)?);
            last_writes.push(record::last_add_ms(&raw)?);
        }
        let checkpoints = self.read(&counters).await?;
        let mut new = Vec::new();
        for ((counter, last_add_ms), checkpoint) in counters.into_iter().zip(last_writes).zip(checkpoints) {
            let is_new = match checkpoint.is_deleted {
                // It may be new in several shards, and is then listed by each: those before may have only its deletion.
                true => last_add_ms > Some(checkpoint.last_write_ms),
                false if checkpoint != Checkpoint::default() => false,
                false => self.is_first(&counter, Placement::of(&counter), shard).await?,
            };
            if is_new {
                new.push(ListedCounter { counter, checkpoint: Checkpoint::default() });
            }
        }
        Ok((new, next))
    }

    async fn is_first(&self, counter: &CounterName, placement: Placement, shard: u16) -> Result<bool, Refusal> {
        for earlier in placement.shards(&self.config).take_while(|earlier| *earlier != shard) {
            let mut command = redis::cmd("HEXISTS");
            command.arg(self.keys(earlier).key("pending")).arg(counter.as_str());
            if self.query(earlier, &command).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn list_cached(&self, position: CachePosition, count: usize) -> Result<CounterPage, Refusal> {
        let (names, next) = self.cache_scan(position, count).await?;
        if names.is_empty() {
            self.verify_shards(self.shard_behind(position, next)).await?;
        }
        let counts = self.cache_get(&names).await?;
        let listed =
            |(counter, count)| ListedCounter { counter, checkpoint: Checkpoint { count, ..Checkpoint::default() } };
        let next = next.map(CachePosition::token);
        Ok(CounterPage { counters: names.into_iter().zip(counts).map(listed).collect(), next })
    }
}
