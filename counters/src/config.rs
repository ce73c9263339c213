//! `[counters]` and `[archive]`

use crate::archive_reads::ArchiveReads;
use crate::service::WaitingBounds;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tallystone_archive::{Archive, ArchiveError};
use tallystone_client::Client;
use tallystone_model::{ConfigError, without_password};
use tallystone_serving::Listen;
use tallystone_serving::http::check_host_names;

/// `[counters]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CountersConfig {
    /// Where gRPC and HTTP are served.
    pub listen: SocketAddr,
    /// Where Prometheus reads `/metrics`; `None`: not served.
    pub metrics_listen: Option<SocketAddr>,
    /// Names under which clients and browsers may call over HTTP, without port, in addition to IP addresses and
    /// loopback names.
    pub http_hosts: Vec<String>,
    /// The queue that hands rollups to the workers.
    pub queue_url: String,
    /// Adds and clears that wait for the store, in all namespaces together; calls beyond that are refused (O8).
    pub waiting_items_max: u32,
    /// The same bound in bytes of memory.
    pub waiting_bytes_max: u32,
}

/// `[archive]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ArchiveConfig {
    /// Where the events of counters are archived: `file:///FOLDER`, a bucket, or a keyspace of Cassandra. All servers and workers of a Redis
    /// need the same; `None`: new namespaces are not archived.
    pub url: Option<String>,
    /// A file with the credentials and options of the store: a line `NAME=VALUE` for each variable of the environment that it replaces.
    pub credentials_file: Option<PathBuf>,
    /// How often the events of a namespace are archived.
    pub interval_ms: u64,
    /// How long events stay in Redis at least: retries that come sooner need no archive.
    pub keep_ms: u64,
    /// Reads of the archive by a process at once. The maximum is for late retries, and again for lists, sums and audits.
    pub reads_max: u32,
}

/// An archive, and when events go there.
#[derive(Clone)]
pub struct EventArchive {
    /// The archive.
    pub archive: Archive,
    /// As [`ArchiveConfig`] has it.
    pub interval_ms: u64,
    /// As [`ArchiveConfig`] has it.
    pub keep_ms: u64,
    /// The reads of it that are under way.
    pub(crate) reads: Arc<ArchiveReads>,
}

impl EventArchive {
    /// Of this archive, as the configuration says.
    pub fn new(archive: Archive, config: &ArchiveConfig) -> EventArchive {
        let ArchiveConfig { interval_ms, keep_ms, reads_max, .. } = *config;
        EventArchive { archive, interval_ms, keep_ms, reads: Arc::new(ArchiveReads::new(reads_max)) }
    }
}

impl Default for ArchiveConfig {
    fn default() -> Self {
        ArchiveConfig { url: None, credentials_file: None, interval_ms: 60_000, keep_ms: 30_000, reads_max: 4 }
    }
}

impl ArchiveConfig {
    /// Checks every field; the error names the first bad one.
    pub fn check(&self) -> Result<(), ConfigError> {
        ConfigError::unless_within("archive.interval_ms", self.interval_ms, 100..=3_600_000)?;
        ConfigError::unless_within("archive.keep_ms", self.keep_ms, 0..=3_600_000)?;
        ConfigError::unless_within("archive.reads_max", u64::from(self.reads_max), 1..=1_000)
    }

    /// The archive. Its folder is created, and nothing is written.
    pub fn open(&self) -> Result<Option<EventArchive>, ConfigError> {
        self.check()?;
        let Some(url) = &self.url else { return Ok(None) };
        let archive = Archive::open_with(url, &self.options()?);
        // An address without `://` may be one whose scheme was forgotten, with a password in it.
        let shown = |error: ArchiveError| error.to_string().replace(url.as_str(), &without_password(url));
        let archive = archive.map_err(|error| ConfigError::new("archive.url", shown(error)))?;
        Ok(Some(EventArchive::new(archive, self)))
    }

    /// What the file of credentials has.
    fn options(&self) -> Result<Vec<(String, String)>, ConfigError> {
        let Some(file) = &self.credentials_file else { return Ok(Vec::new()) };
        let fault = |why: String| ConfigError::new("archive.credentials_file", format!("{}: {why}", file.display()));
        let text = std::fs::read_to_string(file).map_err(|error| fault(error.to_string()))?;
        let not_one = |line| fault(format!("line {line} is not NAME=VALUE with a name such as AWS_ACCESS_KEY_ID"));
        Archive::read_options(&text).map_err(not_one)
    }
}

impl Default for CountersConfig {
    fn default() -> Self {
        CountersConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 7610)),
            metrics_listen: None,
            http_hosts: Vec::new(),
            queue_url: "http://127.0.0.1:7600".to_owned(),
            waiting_items_max: 30_000,
            waiting_bytes_max: 32 * 1_024 * 1_024,
        }
    }
}

impl CountersConfig {
    /// Checks every field; the error names the first bad one.
    pub fn check(&self) -> Result<(), ConfigError> {
        Listen { listen: self.listen, metrics_listen: self.metrics_listen }.check("counters")?;
        check_host_names("counters.http_hosts", &self.http_hosts)?;
        check_queue_url("counters.queue_url", &self.queue_url)?;
        // A call has at most a thousand items.
        ConfigError::unless_within(
            "counters.waiting_items_max",
            u64::from(self.waiting_items_max),
            1_000..=10_000_000,
        )?;
        let bytes = 1_048_576..=1_073_741_824;
        ConfigError::unless_within("counters.waiting_bytes_max", u64::from(self.waiting_bytes_max), bytes)
    }

    /// The bounds on the adds and clears that wait for the store.
    pub fn waiting(&self) -> WaitingBounds {
        WaitingBounds { items_max: self.waiting_items_max as usize, bytes_max: self.waiting_bytes_max as usize }
    }
}

/// Checks the address of a queue; `field` names it in the error.
pub fn check_queue_url(field: &str, url: &str) -> Result<(), ConfigError> {
    Client::builder(url).check().map_err(|error| ConfigError::new(field, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bad_field_is_named() {
        let config = CountersConfig::default();
        assert_eq!(config.check(), Ok(()));
        assert_eq!(CountersConfig { queue_url: "queue:7600".to_owned(), ..config.clone() }.check(), Ok(()));
        for (field, checked) in [
            (
                "counters.metrics_listen",
                CountersConfig { metrics_listen: Some(config.listen), ..config.clone() }.check(),
            ),
            (
                "counters.http_hosts[0]",
                CountersConfig { http_hosts: vec!["counters:7610".to_owned()], ..config.clone() }.check(),
            ),
            ("counters.queue_url", CountersConfig { queue_url: "ftp://queue".to_owned(), ..config.clone() }.check()),
            ("counters.queue_url", CountersConfig { queue_url: String::new(), ..config.clone() }.check()),
            ("counters.waiting_items_max", CountersConfig { waiting_items_max: 999, ..config.clone() }.check()),
            ("counters.waiting_bytes_max", CountersConfig { waiting_bytes_max: 1_000, ..config }.check()),
        ] {
            assert_eq!(checked.unwrap_err().field, field);
        }
    }
}
