//! Reads a counter's events back (N12). Records are stored by time, not by counter, so a read covers all counters of a
//! window. It skips time buckets that do not exist, and in a bucket with few fields it reads only those that exist. What is
//! archived comes from the archive (N15).

use super::RedisNamespace;
use super::calls::{defect, of_archive};
use super::layout::{Field, Layout, window_of};
use super::pace;
use super::record::{self, read};
use crate::config::EventArchive;
use crate::log::{Change, Event, EventScan, Labels, WINDOW_MS};
use crate::names::{CounterName, Token};
use crate::namespace::Placement;
use crate::refusal::Refusal;
use futures::future::try_join_all;
use futures::stream::{StreamExt, iter};
use redis::{Cmd, FromRedisValue, from_redis_value};
use std::ops::Range;
use tallystone_archive::{ArchiveError, ArchivedEvent, Scan, Scope};
use tallystone_lua::counter::STATE_PRUNED;
use tallystone_model::Applied;

/// Another process may delete what is past its retention by a clock that is ahead of this one's, or a moment later.
const PRUNE_AHEAD_MS: u64 = 60_000;
/// Time buckets that one call covers, in each shard.
const BUCKETS_MAX: u64 = 2_048;
/// Fields that one command reads at most.
const FIELDS_MAX: u64 = 1_000;
/// Parts that one call reads at most. The pace of this process says how many at once.
const PARTS_MAX: usize = 256;

/// Objects of the archive that one call reads at most.
const OBJECTS_MAX: usize = 64;
/// How often a call is repeated because the archive took over events that it was reading.
const TRIES: usize = 5;

/// A shard of the event log, as it stands.
pub(super) struct Shard {
    number: u16,
    layout: Layout,
    /// Records before this time are in the archive, or dropped (Unix ms).
    pruned_to_ms: u64,
    /// Records before this time are dropped. Of those that follow, retention may have dropped some, too.
    kept_from_ms: u64,
    /// The number of fields of each time bucket that the call covers.
    pub(super) lengths: Vec<u64>,
}

/// Windows of one time bucket, so few that one or two commands to each shard read their records.
pub(super) struct ScanPart {
    windows: Range<u64>,
    bucket: u64,
    /// The bucket has so few fields that its field names are read first.
    is_sparse: bool,
}

impl ScanPart {
    /// The first window that it does not cover.
    pub(super) fn end(&self) -> u64 {
        self.windows.end
    }
}

impl Shard {
    /// The parts in which to read a bucket; `number`: its index among those that the call covers.
    pub(super) fn parts(&self, bucket: u64, number: usize, within: Range<u64>) -> Vec<ScanPart> {
        parts(std::slice::from_ref(self), bucket, number, within)
    }
}

impl RedisNamespace {
    /// Reads whole windows until there are `enough` events or the bounds of one call are met.
    pub(super) async fn scan_events(
        &self,
        counter: &CounterName,
        windows: Range<u64>,
        enough: usize,
    ) -> Result<EventScan, Refusal> {
        for _ in 0..TRIES {
            let shards = self.shards_of(counter).await?;
            if !self.config.archived {
                return self.scan_log(counter, shards, windows, enough).await;
            }
            let archived_to_ms: Vec<u64> = shards.iter().map(|shard| shard.pruned_to_ms).collect();
            let windows_to = || archived_to_ms.iter().map(|to_ms| to_ms / WINDOW_MS);
            let (all_to, some_to) = (windows_to().min().unwrap_or_default(), windows_to().max().unwrap_or_default());
            if windows.start < all_to {
                let older = windows.start..windows.end.min(all_to);
                return self.scan_archive(counter, &shards, older, enough).await;
            }
            // Shards are archived one by one: of these windows some events are here, and some there.
            let mut older = EventScan { events: Vec::new(), next_window: windows.end };
            if windows.start < some_to {
                older = self.scan_archive(counter, &shards, windows.clone(), enough).await?;
            }
            let mut scan = self.scan_log(counter, shards, windows.start..older.next_window, enough).await?;
            let now = self.shards_of(counter).await?;
            let has_gone = |(now, before_ms): (&Shard, &u64)| {
                now.pruned_to_ms > *before_ms && now.pruned_to_ms > windows.start * WINDOW_MS
            };
            if now.iter().zip(&archived_to_ms).any(has_gone) {
                continue;
            }
            older.events.retain(|event| event.time_ms < scan.next_window * WINDOW_MS);
            scan.events.append(&mut older.events);
            in_order(&mut scan.events);
            return Ok(scan);
        }
        let why = "the archive takes over events faster than they are read".to_owned();
        Err(Refusal::Unavailable { applied: Applied::Unknown, why })
    }

    async fn shards_of(&self, counter: &CounterName) -> Result<Vec<Shard>, Refusal> {
        try_join_all(Placement::of(counter).shards(&self.config).map(|shard| self.shard(shard))).await
    }

    /// Reads what the archive has of these windows.
    async fn scan_archive(
        &self,
        counter: &CounterName,
        shards: &[Shard],
        windows: Range<u64>,
        enough: usize,
    ) -> Result<EventScan, Refusal> {
        let scope = Scope {
            slice_length_ms: self.slice_ms(),
            counter_id: Placement::of(counter).id(),
            shards: shards.iter().map(|shard| (shard.number, shard.pruned_to_ms)).collect(),
            times_ms: windows.start * WINDOW_MS..windows.end * WINDOW_MS,
            kept_from_ms: self.kept_from_ms() + PRUNE_AHEAD_MS,
        };
        let found = self.scan_objects(&scope, enough, OBJECTS_MAX).await?;
        let Some(mut found) = self.unless_new(found).await? else {
            return Ok(EventScan { events: Vec::new(), next_window: windows.end });
        };
        // The scan may stop inside of a window, but the next call begins at one. So the first window is read whole.
        if found.next_ms < (windows.start + 1) * WINDOW_MS {
            let times_ms = scope.times_ms.start..(windows.start + 1) * WINDOW_MS;
            let whole = Scope { times_ms, ..scope };
            found = self.scan_objects(&whole, usize::MAX, usize::MAX).await?.map_err(of_archive)?;
        }
        let next_window = (found.next_ms / WINDOW_MS).clamp(windows.start, windows.end);
        let is_archived = |event: &ArchivedEvent| {
            let shard = shards.iter().find(|shard| shard.number == event.shard);
            event.time_ms < next_window * WINDOW_MS && shard.is_some_and(|shard| event.time_ms < shard.pruned_to_ms)
        };
        let events = found.events.into_iter().filter(is_archived).map(event).collect::<Result<_, Refusal>>()?;
        Ok(EventScan { events, next_window })
    }

    async fn scan_objects(
        &self,
        scope: &Scope,
        enough: usize,
        objects_max: usize,
    ) -> Result<Result<Scan, ArchiveError>, Refusal> {
        let EventArchive { archive, reads, .. } = self.event_archive()?.clone();
        let (tag, scope) = (self.tag.clone(), scope.clone());
        Ok(reads.scan(async move { archive.scan(&tag, &scope, enough, objects_max).await }).await)
    }

    /// Reads what the log has of these windows.
    async fn scan_log(
        &self,
        counter: &CounterName,
        mut shards: Vec<Shard>,
        windows: Range<u64>,
        enough: usize,
    ) -> Result<EventScan, Refusal> {
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
            (end, self.pace.read(self.read_part(counter, shards, first_bucket, part)).await)
        };
        let mut read = iter(some).map(read).buffered(pace::MAX);
        while let Some((end, events)) = read.next().await {
            scan.events.append(&mut events?);
            if scan.events.len() >= enough {
                scan.next_window = end;
                break;
            }
        }
        Ok(scan)
    }

    /// A shard of the log.
    pub(super) async fn shard(&self, number: u16) -> Result<Shard, Refusal> {
        let keys = self.keys(number);
        let command = redis::cmd("MGET").arg(keys.key("layout")).arg(keys.key("state")).to_owned();
        let (layout, state): (Option<Vec<u8>>, Option<Vec<u8>>) = self.query(number, &command).await?;
        let pruned_to_ms = state.as_deref().and_then(|state| state.get(STATE_PRUNED)).map_or(0, read);
        let kept = self.kept(number).await?;
        let first_kept_ms = kept.first().map(|bucket| bucket * self.config.seconds_per_bucket * 1_000);
        let kept_from_ms = first_kept_ms.map_or(pruned_to_ms, |kept_ms| kept_ms.min(pruned_to_ms));
        let layout = Layout::decode(0, &layout.unwrap_or_default());
        Ok(Shard { number, layout, pruned_to_ms, kept_from_ms, lengths: Vec::new() })
    }

    /// How many fields the buckets have; 0: the bucket does not exist.
    pub(super) async fn lengths(&self, shard: u16, buckets: Range<u64>) -> Result<Vec<u64>, Refusal> {
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
            let mut events = Vec::new();
            for (field, slot) in self.read_slots(shard, &part).await? {
                record::events(&slot, Placement::of(counter).id(), window_of(&field), &mut events)?;
            }
            if self.config.archived {
                events.retain(|event| event.time_ms >= shard.pruned_to_ms);
            }
            Ok::<_, Refusal>(events)
        };
        let mut events = try_join_all(shards.iter().filter(has_some).map(of_shard)).await?.concat();
        in_order(&mut events);
        Ok(events)
    }

    /// The slots of a part in one shard.
    pub(super) async fn read_slots(&self, shard: &Shard, part: &ScanPart) -> Result<Vec<(Field, Vec<u8>)>, Refusal> {
        let key = self.keys(shard.number).events(self.config.seconds_per_bucket, part.bucket);
        let fields: Vec<Field> = match part.is_sparse {
            true => self.fields(shard.number, &key, &part.windows).await?,
            false => part.windows.clone().flat_map(|window| shard.layout.fields(window)).collect(),
        };
        let command = |some: &[Field]| {
            let mut command = redis::cmd("HMGET");
            command.arg(&key);
            for field in some {
                command.arg(&field[..]);
            }
            command
        };
        let commands = fields.chunks(FIELDS_MAX as usize).map(command);
        let slots: Vec<Vec<Option<Vec<u8>>>> = self.queries(shard.number, commands).await?;
        let found = fields.into_iter().zip(slots.into_iter().flatten());
        Ok(found.filter_map(|(field, slot)| Some((field, slot?))).collect())
    }

    /// The fields of a bucket that belong to these windows.
    async fn fields(&self, shard: u16, key: &str, windows: &Range<u64>) -> Result<Vec<Field>, Refusal> {
        let keys = redis::cmd("HKEYS").arg(key).to_owned();
        let found: Vec<Vec<Vec<u8>>> = self.queries(shard, std::iter::once(keys)).await?;
        let found = found.into_iter().flatten();
        let known = found.map(|field| field.try_into().map_err(|_| defect("an unknown field of events")));
        let mut fields = known.collect::<Result<Vec<Field>, Refusal>>()?;
        fields.retain(|field| windows.contains(&window_of(field)));
        Ok(fields)
    }

    /// Sends commands that only read together.
    async fn queries<T: FromRedisValue>(
        &self,
        shard: u16,
        commands: impl Iterator<Item = Cmd>,
    ) -> Result<Vec<T>, Refusal> {
        let mut commands = commands.peekable();
        if commands.peek().is_none() {
            return Ok(Vec::new());
        }
        let values = self.reads(shard, self.partition(shard).bulk(), commands).await?;
        let parsed = values.into_iter().map(from_redis_value);
        parsed.collect::<Result<Vec<T>, _>>().map_err(|error| Refusal::Internal(error.to_string()))
    }
}

fn in_order(events: &mut [Event]) {
    events.sort_by(|one, other| (one.time_ms, &one.token).cmp(&(other.time_ms, &other.token)));
}

fn event(ArchivedEvent { time_ms, token, delta, source, event_item_key, .. }: ArchivedEvent) -> Result<Event, Refusal> {
    let change = delta.map_or(Change::Clear, Change::Add);
    let labels = Labels::parse(source.unwrap_or_default(), event_item_key.unwrap_or_default())?;
    Ok(Event { time_ms, token: Token::parse(&*token)?, change, labels })
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
