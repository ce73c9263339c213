//! The index of each hour of transitions, and of each hour of messages. It never changes.
//!
//! The first program that needs an hour chooses its index and stores the choice: a document that is created once and never
//! changed. Every other program reads it. So a late or repeated event finds the index of the first write, whichever
//! program writes it, and whatever the settings have become. An index rolls over by age and by size because the choice for
//! a new hour is then a new index. (docs/decisions/0050)

use super::client::ElasticClient;
use super::filter::Filter;
use super::get::get;
use super::index_list::{ListedIndex, list};
use super::names::{HOUR_MS, IndexNames, Kind, hour_of};
use super::options::Rollover;
use super::refresh::refresh;
use super::response::SearchResponse;
use crate::store::HistoryError;
use elasticsearch::http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::Mutex;

/// Choices that a program remembers: eleven years of hours.
const REMEMBERED_MAX: usize = 200_000;

/// An hour of one kind, in hours since 1970.
type HourKey = (Kind, u64);

/// The document of one hour.
#[derive(Serialize, Deserialize)]
struct HourDocument {
    kind: String,
    from_ms: u64,
    index: String,
}

/// The choices that this program knows. The lock is held while it chooses, so that a process chooses each index once.
#[derive(Default)]
pub(super) struct HourIndices(Mutex<HashMap<HourKey, Arc<str>>>);

/// The indices of some hours.
#[derive(Default)]
pub(super) struct Places(HashMap<HourKey, Arc<str>>);

impl Places {
    /// The index of this time, which was requested.
    pub(super) fn of(&self, kind: Kind, at_ms: u64) -> Result<Arc<str>, HistoryError> {
        let found = self.0.get(&(kind, hour_of(at_ms))).cloned();
        found.ok_or_else(|| HistoryError::Failed(format!("{kind:?} at {at_ms} have no index")))
    }
}

impl HourIndices {
    /// The indices of these times, Unix ms. Chooses those that have none yet.
    pub(super) async fn places(
        &self,
        client: &ElasticClient,
        names: &IndexNames,
        rollover: &Rollover,
        times: impl Iterator<Item = (Kind, u64)>,
    ) -> Result<Places, HistoryError> {
        let wanted: BTreeSet<HourKey> = times.map(|(kind, at_ms)| (kind, hour_of(at_ms))).collect();
        let mut known = self.0.lock().await;
        if known.len() > REMEMBERED_MAX {
            known.clear();
        }
        let missing: Vec<HourKey> = wanted.iter().filter(|key| !known.contains_key(key)).copied().collect();
        if !missing.is_empty() {
            known.extend(stored(client, names, &missing).await?);
        }
        let unchosen: Vec<HourKey> = missing.into_iter().filter(|key| !known.contains_key(key)).collect();
        for key in unchosen {
            let choice = choose(client, names, rollover, key).await?;
            let index = store(client, names, key, choice.index).await?;
            if choice.is_new {
                create(client, &index).await?;
            }
            known.insert(key, index);
        }
        let place = |key: HourKey| Some((key, known.get(&key)?.clone()));
        Ok(Places(wanted.into_iter().filter_map(place).collect()))
    }

    /// Reads the choices again: the server may have lost them.
    pub(super) async fn forget(&self) {
        self.0.lock().await.clear();
    }
}

fn id((kind, hour): HourKey) -> String {
    format!("{}-{hour}", kind.word())
}

/// The hours that have a stored choice.
async fn stored(
    client: &ElasticClient,
    names: &IndexNames,
    hours: &[HourKey],
) -> Result<Vec<(HourKey, Arc<str>)>, HistoryError> {
    let ids: Vec<String> = hours.iter().copied().map(id).collect();
    let found: Vec<Option<HourDocument>> = get(client, &names.hours, &ids).await?;
    let known = hours.iter().zip(found).filter_map(|(key, found)| Some((*key, found?.index.into())));
    Ok(known.collect())
}

/// Stores a choice, unless another program has stored one before. Returns the one that holds.
async fn store(
    client: &ElasticClient,
    names: &IndexNames,
    key: HourKey,
    index: String,
) -> Result<Arc<str>, HistoryError> {
    let (kind, hour) = key;
    let path = format!("{}/_create/{}", names.hours, id(key));
    let document = json!(HourDocument { kind: kind.word().to_owned(), from_ms: hour * HOUR_MS, index: index.clone() });
    let reply = client.send(Method::Put, &path, &[], Some(&document)).await?;
    if reply.status != 409 {
        reply.done()?;
        tracing::debug!(index, hour, "chose the index of an hour");
        return Ok(index.into());
    }
    let first = stored(client, names, &[key]).await?.into_iter().next();
    first.map(|(_, index)| index).ok_or_else(|| HistoryError::Unavailable(format!("the choice {} is gone", id(key))))
}

/// Creates the index, so that the choice for a later hour takes it into account before it has a document.
async fn create(client: &ElasticClient, index: &str) -> Result<(), HistoryError> {
    match client.send(Method::Put, index, &[("wait_for_active_shards", "0")], None).await?.done() {
        Err(HistoryError::Failed(why)) if why.contains("resource_already_exists_exception") => Ok(()),
        done => done,
    }
}

/// An index for an hour.
struct Choice {
    index: String,
    /// Whether it did not exist.
    is_new: bool,
}

/// The index for an hour that has none yet: the one that begins last before it, unless that is too old or full. If that
/// index is full and has documents of this hour, it stays: a program without hours wrote them, or the choices were lost.
/// An index that is too old is not read, because it may not be readable any more.
async fn choose(
    client: &ElasticClient,
    names: &IndexNames,
    rollover: &Rollover,
    (kind, hour): HourKey,
) -> Result<Choice, HistoryError> {
    let indices = list(client, names, kind).await?;
    let before = indices.iter().filter(|index| index.begins <= hour).max_by_key(|index| index.begins);
    let new = match before {
        Some(last) if !names.is_undated(&last.name) && last.begins / 24 == hour / 24 => names.of_hour(kind, hour),
        _ => names.of_day(kind, hour),
    };
    let Some(last) = before else { return Ok(Choice { index: new, is_new: true }) };
    let stays = if names.is_undated(&last.name) {
        has_documents(client, last, kind, hour).await?
    } else if hour / 24 >= last.begins / 24 + u64::from(rollover.days) {
        false
    } else {
        last.name == new || !is_full(client, rollover, last).await? || has_documents(client, last, kind, hour).await?
    };
    Ok(Choice { index: if stays { last.name.clone() } else { new }, is_new: !stays })
}

/// The end of the last hour that this index was chosen for, in hours since 1970; `None`: no hour chose it.
pub(super) async fn last_end(
    client: &ElasticClient,
    names: &IndexNames,
    kind: Kind,
    index: &str,
) -> Result<Option<u64>, HistoryError> {
    refresh(client, &names.hours).await?;
    let body = json!({
        "size": 1,
        "track_total_hits": false,
        "query": Filter::default().term("kind", kind.word()).term("index", index).query(),
        "sort": [{ "from_ms": "desc" }],
    });
    let found: SearchResponse<HourDocument> = client.search(&names.hours, &body).await?;
    Ok(found.into_sources().next().map(|last| hour_of(last.from_ms) + 1))
}

async fn has_documents(
    client: &ElasticClient,
    index: &ListedIndex,
    kind: Kind,
    hour: u64,
) -> Result<bool, HistoryError> {
    let field = match kind {
        Kind::Transitions => "at_ms",
        Kind::Messages => "enqueued_at_ms",
    };
    let range = json!({ "range": { field: { "gte": hour * HOUR_MS, "lt": (hour + 1) * HOUR_MS } } });
    has_match(client, &index.name, &range).await
}

/// Whether a document of the index matches, written just now or long ago.
pub(super) async fn has_match(client: &ElasticClient, index: &str, query: &Value) -> Result<bool, HistoryError> {
    refresh(client, index).await?;
    let body = json!({
        "size": 1,
        "terminate_after": 1,
        "track_total_hits": false,
        "_source": ["version"],
        "query": { "bool": { "filter": [query] } },
    });
    let found: SearchResponse<Value> = client.search(index, &body).await?;
    Ok(found.len() > 0)
}

#[derive(Deserialize)]
struct StatsResponse {
    #[serde(rename = "_all")]
    all: AllStats,
}

#[derive(Deserialize)]
struct AllStats {
    primaries: PrimaryStats,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PrimaryStats {
    docs: DocumentStats,
    store: StoreStats,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DocumentStats {
    count: u64,
    /// Deleted documents and earlier versions, until they are merged away. They count towards the server's limit.
    deleted: u64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoreStats {
    size_in_bytes: u64,
}

async fn is_full(client: &ElasticClient, rollover: &Rollover, index: &ListedIndex) -> Result<bool, HistoryError> {
    refresh(client, &index.name).await?;
    let path = format!("{}/_stats/docs,store", index.name);
    let reply = client.send(Method::Get, &path, &[("filter_path", "_all.primaries")], None).await?;
    let PrimaryStats { docs, store } = reply.read::<StatsResponse>()?.all.primaries;
    let documents = docs.count.saturating_add(docs.deleted);
    Ok(documents >= rollover.documents_max.saturating_mul(index.shards)
        || store.size_in_bytes >= rollover.bytes_max.saturating_mul(index.shards))
}
