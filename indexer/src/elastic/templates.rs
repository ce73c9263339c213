//! The index templates, and the mappings of indices that an older program made. Every indexer makes them before its
//! first write; a newer program's are left alone.

use super::Elastic;
use crate::store::HistoryError;
use elasticsearch::http::Method;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

/// Raised with every change of a mapping below. A change may only add fields: the mappings of indices that are there
/// cannot change otherwise.
const VERSION: u64 = 1;
/// Above the templates that come with the server.
const PRIORITY: u64 = 500;

/// Whether they are known to be there.
#[derive(Default)]
pub(super) struct Templates {
    ready: Mutex<bool>,
}

impl Templates {
    /// Makes what is missing and upgrades what is older.
    pub(super) async fn ensure(&self, elastic: &Elastic) -> Result<(), HistoryError> {
        let mut ready = self.ready.lock().await;
        if !*ready {
            for kind in kinds(elastic) {
                kind.ensure(elastic).await?;
            }
            *ready = true;
        }
        Ok(())
    }

    /// The server was away: it may come back without them.
    pub(super) async fn doubt(&self) {
        *self.ready.lock().await = false;
    }
}

/// One kind of index.
struct Kind<'a> {
    /// Of the template.
    name: String,
    /// Its indices: a name or a pattern.
    indices: &'a str,
    shards: u16,
    mappings: Value,
}

impl Kind<'_> {
    async fn ensure(&self, elastic: &Elastic) -> Result<(), HistoryError> {
        let path = format!("_index_template/{}", self.name);
        let found = elastic.link.send(Method::Get, &path, &[], None).await?;
        let version = match found.status {
            404 => None,
            _ => found.read::<Value>()?["index_templates"][0]["index_template"]["version"].as_u64(),
        };
        if version.is_some_and(|version| version > VERSION) {
            return Ok(());
        }
        if version != Some(VERSION) {
            elastic.link.send(Method::Put, &path, &[], Some(&self.template(elastic))).await?.done()?;
            tracing::info!(template = self.name, version = VERSION, "wrote the index template");
        }
        self.upgrade_indices(elastic).await
    }

    fn template(&self, elastic: &Elastic) -> Value {
        json!({
            "index_patterns": [self.indices],
            "priority": PRIORITY,
            "version": VERSION,
            "_meta": { "version": VERSION, "description": "Tallystone history" },
            "template": {
                "settings": {
                    "index": {
                        "number_of_shards": self.shards,
                        "number_of_replicas": elastic.options.replicas,
                        "refresh_interval": "1s",
                    }
                },
                "mappings": self.mappings,
            },
        })
    }

    /// Adds to the indices of an older program the fields that it did not know.
    async fn upgrade_indices(&self, elastic: &Elastic) -> Result<(), HistoryError> {
        let path = format!("{}/_mapping", self.indices);
        let query = [("ignore_unavailable", "true"), ("filter_path", "*.mappings._meta")];
        let found = elastic.link.send(Method::Get, &path, &query, None).await?;
        if found.status == 404 {
            return Ok(());
        }
        let indices: Map<String, Value> = found.read()?;
        let older = |meta: &Value| meta["mappings"]["_meta"]["version"].as_u64().is_some_and(|found| found < VERSION);
        for (index, _) in indices.iter().filter(|(_, meta)| older(meta)) {
            let path = format!("{index}/_mapping");
            let put = elastic.link.send(Method::Put, &path, &[], Some(&self.mappings)).await?;
            // Dropped meanwhile.
            if put.status != 404 {
                put.done()?;
            }
        }
        Ok(())
    }
}

fn kinds(elastic: &Elastic) -> [Kind<'_>; 4] {
    let (names, shards) = (&elastic.names, elastic.options.shards);
    let kind = |indices, shards, properties| {
        let name = str::trim_end_matches(indices, "-*").to_owned();
        // Fields that are not named here are kept and shown, never guessed at.
        let mappings = json!({ "dynamic": false, "_meta": { "version": VERSION }, "properties": properties });
        Kind { name, indices, shards, mappings }
    };
    [
        kind(&names.current, shards, current()),
        kind(&names.historic, shards, historic()),
        kind(&names.payload, shards, payload()),
        kind(&names.progress, 1, progress()),
    ]
}

/// A time: a number to sort and count by, and a date for people and their dashboards.
fn time() -> Value {
    json!({ "type": "long", "fields": { "date": { "type": "date_nanos", "format": "epoch_millis" } } })
}

fn current() -> Value {
    json!({
        "queue": { "type": "keyword" },
        "shard": { "type": "long" },
        "id": { "type": "keyword" },
        "sequence": { "type": "long" },
        "state": { "type": "keyword" },
        "gone": { "type": "boolean" },
        "version": { "type": "long" },
        "priority": { "type": "long" },
        "metadata_pairs": { "type": "keyword" },
        "metadata": { "type": "object", "enabled": false },
        "attempts": { "type": "long" },
        "fence": { "type": "long" },
        "worker": { "type": "keyword" },
        "reason": { "type": "keyword" },
        "enqueued_at_ms": time(),
        "since_ms": { "type": "long" },
        "changed_at_ms": time(),
        "due_ms": { "type": "long" },
        "coalesced": { "type": "boolean" },
    })
}

fn historic() -> Value {
    json!({
        "queue": { "type": "keyword" },
        "shard": { "type": "long" },
        "id": { "type": "keyword" },
        "sequence": { "type": "long" },
        "version": { "type": "long" },
        "from": { "type": "keyword" },
        "to": { "type": "keyword" },
        "entered": { "type": "keyword" },
        "left": { "type": "keyword" },
        "by": { "type": "keyword" },
        "at_ms": time(),
        "spent_ms": { "type": "long" },
        "worker": { "type": "keyword" },
        "fence": { "type": "long" },
        "attempts": { "type": "long" },
        "reason": { "type": "keyword" },
        "due_ms": { "type": "long" },
        "priority": { "type": "long" },
    })
}

fn payload() -> Value {
    // Kept, not searched.
    json!({ "payload": { "type": "binary" } })
}

fn progress() -> Value {
    json!({
        "source": { "type": "long" },
        "of": { "type": "long" },
        "up_to_ms": { "type": "long" },
    })
}
