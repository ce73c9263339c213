//! The index templates, and the mappings of indices that an older program created. Each indexer writes them before
//! its first write, unless a newer program has.

use super::client::ElasticClient;
use super::group::IndexGroup;
use super::names::IndexNames;
use super::options::ElasticOptions;
use crate::store::HistoryError;
use elasticsearch::http::Method;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

/// Raised with every change of a mapping below. A change may only add fields: the server refuses other changes to the
/// mappings of an existing index.
const VERSION: u64 = 2;
/// Above the priority of the templates that come with the server.
const PRIORITY: u64 = 500;

/// Whether the templates are up to date, as far as this process knows.
#[derive(Default)]
pub(super) struct Templates {
    ready: Mutex<bool>,
}

impl Templates {
    /// Creates missing templates and upgrades older ones.
    pub(super) async fn ensure(
        &self,
        client: &ElasticClient,
        groups: &[IndexGroup],
        options: &ElasticOptions,
    ) -> Result<(), HistoryError> {
        let mut ready = self.ready.lock().await;
        if !*ready {
            for group in groups {
                for kind in kinds(&group.names, options) {
                    kind.ensure(client).await?;
                }
                keep_earlier_programs_out(client, &group.names.undated).await?;
            }
            *ready = true;
        }
        Ok(())
    }

    /// Checks the templates again before the next write.
    pub(super) async fn forget(&self) {
        *self.ready.lock().await = false;
    }
}

/// One kind of index.
struct IndexKind {
    /// The name of the template.
    name: String,
    /// The patterns of its indices.
    indices: Vec<String>,
    shards: u16,
    replicas: u16,
    mappings: Value,
}

impl IndexKind {
    async fn ensure(&self, client: &ElasticClient) -> Result<(), HistoryError> {
        let path = format!("_index_template/{}", self.name);
        let found = client.send(Method::Get, &path, &[], None).await?;
        let version = match found.status {
            404 => None,
            _ => found.read::<Value>()?["index_templates"][0]["index_template"]["version"].as_u64(),
        };
        if version.is_some_and(|version| version > VERSION) {
            return Ok(());
        }
        if version != Some(VERSION) {
            client.send(Method::Put, &path, &[], Some(&self.template())).await?.done()?;
            tracing::info!(template = self.name, version = VERSION, "wrote the index template");
        }
        self.upgrade_indices(client).await
    }

    fn template(&self) -> Value {
        json!({
            "index_patterns": self.indices,
            "priority": PRIORITY,
            "version": VERSION,
            "_meta": { "version": VERSION, "description": "Tallystone history" },
            "template": {
                "settings": {
                    "index": {
                        "number_of_shards": self.shards,
                        "number_of_replicas": self.replicas,
                        "refresh_interval": "1s",
                    }
                },
                "mappings": self.mappings,
            },
        })
    }

    /// Adds new fields to the mappings of indices that an older program created.
    async fn upgrade_indices(&self, client: &ElasticClient) -> Result<(), HistoryError> {
        let path = format!("{}/_mapping", self.indices.join(","));
        let query = [("ignore_unavailable", "true"), ("filter_path", "*.mappings._meta")];
        let found = client.send(Method::Get, &path, &query, None).await?;
        if found.status == 404 {
            return Ok(());
        }
        let indices: Map<String, Value> = found.read()?;
        let older = |meta: &Value| meta["mappings"]["_meta"]["version"].as_u64().is_some_and(|found| found < VERSION);
        for (index, _) in indices.iter().filter(|(_, meta)| older(meta)) {
            let path = format!("{index}/_mapping");
            let put = client.send(Method::Put, &path, &[], Some(&self.mappings)).await?;
            // 404: the index was dropped in between.
            if put.status != 404 {
                put.done()?;
            }
        }
        Ok(())
    }
}

/// The pipeline that the one index of messages names. It does not exist, so the server refuses the writes of programs
/// that write one index, which wait and write again; these programs' successors name `_none` with each write.
const PIPELINE_OF_EARLIER_PROGRAMS: &str = "stop-the-indexers-of-the-earlier-version";

/// Programs that write one index write every message to the one index. A message would have two documents if they
/// continued next to those that do.
async fn keep_earlier_programs_out(client: &ElasticClient, undated: &str) -> Result<(), HistoryError> {
    let setting = "index.default_pipeline";
    let query = [("flat_settings", "true"), ("filter_path", "*.settings")];
    let path = format!("{undated}/_settings");
    let found = client.send(Method::Get, &path, &query, None).await?;
    if found.status == 404 || found.read::<Value>()?[undated]["settings"][setting] == PIPELINE_OF_EARLIER_PROGRAMS {
        return Ok(());
    }
    let put = client.send(Method::Put, &path, &[], Some(&json!({ setting: PIPELINE_OF_EARLIER_PROGRAMS }))).await?;
    if put.status != 404 {
        put.done()?;
        tracing::info!(index = undated, "messages continue in indices by day; this one keeps those that it has");
    }
    Ok(())
}

fn kinds(names: &IndexNames, options: &ElasticOptions) -> [IndexKind; 6] {
    let (shards, replicas) = (options.shards, options.replicas);
    let kind = |word: &str, patterns: &[&str], shards, properties| {
        let (name, indices) = names.template(word, patterns);
        // The server stores fields that are not named here, but does not index them by a guessed type.
        let mappings = json!({ "dynamic": false, "_meta": { "version": VERSION }, "properties": properties });
        IndexKind { name, indices, shards, replicas, mappings }
    };
    [
        kind("current", &["", "-*"], shards, current()),
        kind("historic", &["-*"], shards, historic()),
        kind("payload", &["", "-*"], shards, payload()),
        kind("progress", &[""], 1, progress()),
        kind("losses", &[""], 1, losses()),
        kind("hours", &[""], 1, hours()),
    ]
}

/// A time: a number for sorting and ranges, and a date for dashboards.
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
    // Stored, not searched.
    json!({ "payload": { "type": "binary" } })
}

fn losses() -> Value {
    json!({
        "queue": { "type": "keyword" },
        "shard": { "type": "long" },
        "lost_to_ms": { "type": "long" },
    })
}

fn hours() -> Value {
    json!({
        "kind": { "type": "keyword" },
        "from_ms": { "type": "long" },
        "index": { "type": "keyword" },
    })
}

fn progress() -> Value {
    json!({
        "source": { "type": "long" },
        "of": { "type": "long" },
        "up_to_ms": { "type": "long" },
    })
}
