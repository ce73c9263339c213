//! Reads a counter's events back (N12). Records are stored by time, not by counter, so a read covers all counters of a
//! window. It skips time buckets that do not exist, and in a bucket with few fields it reads only those that exist.

use super::RedisNamespace;
use super::calls::{defect, of_link};
use super::layout::Layout;
use super::record::{self, read};
use crate::log::{Event, EventScan, WINDOW_MS};
use crate::names::CounterName;
use crate::namespace::Placement;
use crate::refusal::Refusal;
use futures::future::try_join_all;
use futures::stream::{StreamExt, iter};
use redis::{Cmd, FromRedisValue, Pipeline, from_redis_value};
use std::ops::Range;
use tallystone_lua::counter::STATE_PRUNED;

/// Time buckets that one call covers, in each shard.
const BUCKETS_MAX: u64 = 2_048;
/// Fields that one command reads at most.
const FIELDS_MAX: u64 = 1_000;
/// Parts that one call reads at most, and how many it reads at once.
const PARTS_MAX: usize = 256;
const PARTS_AT_ONCE: usize = 4;

/// One of the counter's shards.
struct Shard {
    number: u16,
    layout: Layout,
    /// Records before this time are dropped (Unix ms). Of those that follow, retention may have dropped some, too.
    kept_from_ms: u64,
    /// The number of fields of each time bucket that the call covers.
    lengths: Vec<u64>,
}

/// Windows of one time bucket, so few that one or two commands to each shard read their records.
struct ScanPart {
    windows: Range<u64>,
    bucket: u64,
    /// The bucket has so few fields that its field names are read first.
    is_sparse: bool,
}

impl RedisNamespace {
    /// Reads whole windows until there are `enough` events or the bounds of one call are met.
    pub(super) async fn scan_events(
        &self,
        counter: &CounterName,
        windows: Range<u64>,
        enough: usize,
    ) -> Result<EventScan, Refusal> {
        let mut shards =
            try_join_all(Placement::of(counter).shards(&self.config).map(|shard| self.shard(shard))).await?;
        let kept_from_ms = shards.iter().map(|shard| shard.kept_from_ms).min().unwrap_or_default();
        let first = windows.start.max(kept_from_ms / WINDOW_MS);
        if first >= windows.end {
            return Ok(EventScan { events: Vec::new(), next_window: windows.end });
        }
        let per_bucket = self.config.seconds_per_bucket * 1_000 / WINDOW_MS;
        let first_bucket = first / per_bucket;
        let buckets = first_bucket..windows.end.div_ceil(per_bucket).min(first_bucket + BUCKETS_MAX);
        let lengths = try_join_all(shards.iter().map(|shard| self.lengths(shard.number, buckets.clone()))).await?;
        shards.iter_mut().zip(lengths).for_each(|(shard, lengths)| shard.lengths = lengths);

        let covered_to = windows.end.min(buckets.end * per_bucket);
        let there = buckets.clone().flat_map(|bucket| {
            let within = first.max(bucket * per_bucket)..covered_to.min((bucket + 1) * per_bucket);
            parts(&shards, bucket, (bucket - first_bucket) as usize, within)
        });
        let mut some: Vec<ScanPart> = there.take(PARTS_MAX + 1).collect();
        let mut scan = EventScan { events: Vec::new(), next_window: covered_to };
        if some.len() > PARTS_MAX
            && let Some(left) = some.pop()
        {
            scan.next_window = left.windows.start;
        }
        let shards = &shards;
        let read = async |part: ScanPart| {
            let end = part.windows.end;
            (end, self.read_part(counter, shards, first_bucket, part).await)
        };
        let mut read = iter(some).map(read).buffered(PARTS_AT_ONCE);
        while let Some((end, events)) = read.next().await {
            scan.events.append(&mut events?);
            if scan.events.len() >= enough {
                scan.next_window = end;
                break;
            }
        }
        Ok(scan)
    }

    async fn shard(&self, number: u16) -> Result<Shard, Refusal> {
        let keys = self.keys(number);
        let command = redis::cmd("MGET").arg(keys.key("layout")).arg(keys.key("state")).to_owned();
        let (layout, state): (Option<Vec<u8>>, Option<Vec<u8>>) = self.query(number, &command).await?;
        let pruned_to_ms = state.as_deref().and_then(|state| state.get(STATE_PRUNED)).map_or(0, read);
        let kept = self.kept(number).await?;
        let first_kept_ms = kept.first().map(|bucket| bucket * self.config.seconds_per_bucket * 1_000);
        let kept_from_ms = first_kept_ms.map_or(pruned_to_ms, |kept_ms| kept_ms.min(pruned_to_ms));
        let layout = Layout::decode(0, &layout.unwrap_or_default());
        Ok(Shard { number, layout, kept_from_ms, lengths: Vec::new() })
    }

    /// How many fields the buckets have; 0: the bucket does not exist.
    async fn lengths(&self, shard: u16, buckets: Range<u64>) -> Result<Vec<u64>, Refusal> {
        let keys = self.keys(shard);
        let length = |bucket| redis::cmd("HLEN").arg(keys.events(self.config.seconds_per_bucket, bucket)).to_owned();
        self.queries(shard, buckets.map(length)).await
    }

    /// The counter's events of a part, in the order of time and token.
    async fn read_part(
        &self,
        counter: &CounterName,
        shards: &[Shard],
        first_bucket: u64,
        part: ScanPart,
    ) -> Result<Vec<Event>, Refusal> {
        let has_some = |shard: &&Shard| shard.lengths[(part.bucket - first_bucket) as usize] > 0;
        let of_shard = async |shard: &Shard| {
            let key = self.keys(shard.number).events(self.config.seconds_per_bucket, part.bucket);
            let fields = match part.is_sparse {
                true => self.fields(shard.number, &key, &part.windows).await?,
                false => part.windows.clone().flat_map(|window| shard.layout.fields(window)).collect(),
            };
            let command = |some: &[[u8; 9]]| {
                let mut command = redis::cmd("HMGET");
                command.arg(&key);
                for field in some {
                    command.arg(&field[..]);
                }
                command
            };
            let commands = fields.chunks(FIELDS_MAX as usize).map(command);
            let slots: Vec<Vec<Option<Vec<u8>>>> = self.queries(shard.number, commands).await?;
            let mut events = Vec::new();
            for (field, slot) in fields.iter().zip(slots.into_iter().flatten()) {
                let slot = slot.unwrap_or_default();
                record::events(&slot, Placement::of(counter).id(), read(&field[..5]), &mut events)?;
            }
            Ok::<_, Refusal>(events)
        };
        let mut events = try_join_all(shards.iter().filter(has_some).map(of_shard)).await?.concat();
        events.sort_by(|one, other| (one.time_ms, &one.token).cmp(&(other.time_ms, &other.token)));
        Ok(events)
    }

    /// The fields of a bucket that belong to these windows.
    async fn fields(&self, shard: u16, key: &str, windows: &Range<u64>) -> Result<Vec<[u8; 9]>, Refusal> {
        let found: Vec<Vec<u8>> = self.query(shard, redis::cmd("HKEYS").arg(key)).await?;
        let known = found.into_iter().map(|field| field.try_into().map_err(|_| defect("an unknown field of events")));
        let mut fields = known.collect::<Result<Vec<[u8; 9]>, Refusal>>()?;
        fields.retain(|field| windows.contains(&read(&field[..5])));
        Ok(fields)
    }

    /// Sends commands that only read together.
    async fn queries<T: FromRedisValue>(
        &self,
        shard: u16,
        commands: impl Iterator<Item = Cmd>,
    ) -> Result<Vec<T>, Refusal> {
        let mut together = Pipeline::new();
        for command in commands {
            together.add_command(command);
        }
        let values = self.link(shard).calls(&together, false).await.map_err(of_link)?;
        let parsed = values.into_iter().map(|value| from_redis_value(value.extract_error()?).map_err(Into::into));
        let parsed = parsed.collect::<Result<Vec<T>, redis::RedisError>>();
        parsed.map_err(|error| Refusal::Internal(error.to_string()))
    }
}

/// The parts in which to read a bucket; none if no shard has it.
fn parts(shards: &[Shard], bucket: u64, number: usize, within: Range<u64>) -> Vec<ScanPart> {
    let length = shards.iter().map(|shard| shard.lengths[number]).max().unwrap_or_default();
    let is_sparse = length <= FIELDS_MAX;
    let (mut next, mut parts) = (within.start, Vec::new());
    while next < within.end && length > 0 {
        let slots = shards.iter().map(|shard| shard.layout.slots(next)).max().unwrap_or(1);
        let windows = if is_sparse { u64::MAX } else { (FIELDS_MAX / u64::from(slots)).max(1) };
        let end = within.end.min(next.saturating_add(windows));
        parts.push(ScanPart { windows: next..end, bucket, is_sparse });
        next = end;
    }
    parts
}
