//! What `tallystone dev` says once it is ready.

use serde::Serialize;
use std::path::PathBuf;
use tallystone_local::MODULE_FILE;

/// What is running, and where.
#[derive(Serialize)]
pub(super) struct Running {
    pub(super) server: String,
    pub(super) counters: String,
    pub(super) views: Option<String>,
    /// The namespace of counters to try.
    pub(super) namespace: &'static str,
    pub(super) redis_url: String,
    /// The file with the password of this Redis.
    pub(super) redis_conf: PathBuf,
    /// The module of the compact store that this Redis has loaded; `None`: it was not found.
    pub(super) compact_module: Option<PathBuf>,
    pub(super) kafka: Option<String>,
    pub(super) elasticsearch: Option<String>,
    pub(super) metrics: Option<String>,
    pub(super) data_dir: PathBuf,
    pub(super) process_id: u32,
}

/// The same for people.
pub(super) fn banner(running: &Running) -> String {
    let metrics = running.metrics.as_ref().map_or_else(String::new, |url| format!("\n  metrics  {url}"));
    let other = if running.server.ends_with(":7600") {
        String::new()
    } else {
        format!("\n  export TALLYSTONE_SERVER={}", running.server)
    };
    let other = if running.counters.ends_with(":7610") {
        other
    } else {
        format!("{other}\n  export TALLYSTONE_COUNTERS={}", running.counters)
    };
    let history = match (&running.kafka, &running.elasticsearch) {
        (Some(kafka), Some(elasticsearch)) => format!("\n  Kafka    {kafka}\n  history  {elasticsearch}"),
        _ => String::new(),
    };
    let views = match &running.views {
        Some(url) => format!("{url} (HTTP: POST /v1/views)"),
        None => "none: they need a single Redis".to_owned(),
    };
    let compact = match &running.compact_module {
        Some(_) => "with the compact store: `tallystone compact`, CT. commands".to_owned(),
        None => format!("without the compact store: {MODULE_FILE} is not in the folder of this program"),
    };
    format!(
        "Tallystone is ready.
  gRPC     {}{metrics}
  counters {} (gRPC and HTTP; open it in a browser)
           the namespace '{}' is ACCURATE: a count includes every acknowledged add
  views    {}
  Redis    {} (its password is in {})
           {compact}{history}
  data     {} (kept; delete it to start empty)

Try, in another terminal:{other}
  tallystone msg enqueue hello --payload 'hello, world'
  tallystone work hello --exec 'cat; echo'
  tallystone queue ls
  tallystone queue stats hello
  tallystone counter add visits
  tallystone counter get visits

Ctrl-C stops everything.",
        running.server,
        running.counters,
        running.namespace,
        views,
        running.redis_url,
        running.redis_conf.display(),
        running.data_dir.display()
    )
}
