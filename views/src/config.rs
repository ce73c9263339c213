//! `[views]`

use crate::dedupe::{SLIDING_MS_MAX, Window};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use tallystone_client::CounterClient;
use tallystone_model::ConfigError;
use tallystone_serving::Listen;
use tallystone_serving::http::check_host_names;

/// The namespace whose paths have no prefix.
pub const DEFAULT_NAMESPACE: &str = "default";
/// The counters of a namespace are in namespaces of at most 64 bytes, which have a prefix.
const NAME_BYTES_MAX: usize = 40;

/// The shortest and the longest lease. A process that waits for a partition cuts a longer lease to its own. An owner with the longest one
/// renews it every second, so it keeps its partition.
const LEASE_MS: RangeInclusive<u64> = 2_000..=5_000;

/// `[views]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ViewsConfig {
    /// Where HTTP is served.
    pub listen: SocketAddr,
    /// Where Prometheus reads `/metrics`; `None`: not served.
    pub metrics_listen: Option<SocketAddr>,
    /// Names under which clients and browsers may call over HTTP, without port, in addition to IP addresses and
    /// loopback names.
    pub http_hosts: Vec<String>,
    /// The server of the counters.
    pub counters_url: String,
    /// The topic of views, if the log is in Kafka; `None`: it is in Redis.
    pub topic: Option<String>,
    /// Partitions of the log. It is fixed when the log is created.
    pub partitions: u16,
    /// Views that wait for the log, in bytes of memory; views beyond that are refused.
    pub waiting_bytes_max: u32,
    /// The memory of the pairs of all partitions that this process owns, in bytes; views beyond that are refused.
    pub pairs_bytes_max: u64,
    /// For how long a process that dies keeps the partitions that it owns, if the log is in Redis.
    pub lease_ms: u32,
    /// Counts of videos that this process keeps for reads while the counters are away.
    pub counts_kept_max: u32,
    /// What is counted.
    pub namespaces: Vec<ViewNamespace>,
}

/// What is counted under one prefix of paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ViewNamespace {
    /// Its name, and the prefix of its paths; those of `default` have none.
    pub name: String,
    /// Which window a pair of video and user counts in once.
    pub window: WindowKind,
    /// How long the window is.
    pub window_ms: u64,
    /// Also count every view.
    pub page_views: bool,
    /// Also count the visitors of each day.
    pub daily_visitors: bool,
    /// The time zone of the days, such as Europe/Berlin.
    pub time_zone: String,
}

/// Which window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WindowKind {
    /// It begins with the first view of the pair.
    Sliding,
    /// It begins at each multiple of its length.
    Tumbling,
}

impl Default for ViewsConfig {
    fn default() -> Self {
        ViewsConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 7620)),
            metrics_listen: None,
            http_hosts: Vec::new(),
            counters_url: "http://127.0.0.1:7610".to_owned(),
            topic: None,
            partitions: 4,
            waiting_bytes_max: 16 * 1_024 * 1_024,
            pairs_bytes_max: 1_024 * 1_024 * 1_024,
            lease_ms: 3_000,
            counts_kept_max: 1_000_000,
            namespaces: vec![ViewNamespace::default()],
        }
    }
}

impl Default for ViewNamespace {
    fn default() -> Self {
        ViewNamespace {
            name: DEFAULT_NAMESPACE.to_owned(),
            window: WindowKind::Sliding,
            window_ms: 3_600_000,
            page_views: true,
            daily_visitors: true,
            time_zone: "UTC".to_owned(),
        }
    }
}

impl ViewsConfig {
    /// Checks every field; the error names the first bad one.
    pub fn check(&self) -> Result<(), ConfigError> {
        Listen { listen: self.listen, metrics_listen: self.metrics_listen }.check("views")?;
        check_host_names("views.http_hosts", &self.http_hosts)?;
        CounterClient::builder(&self.counters_url)
            .check()
            .map_err(|error| ConfigError::new("views.counters_url", error.to_string()))?;
        ConfigError::unless_within("views.partitions", self.partitions.into(), 1..=256)?;
        let bytes = 1_048_576..=1_073_741_824;
        ConfigError::unless_within("views.waiting_bytes_max", self.waiting_bytes_max.into(), bytes)?;
        let bytes = 1_048_576..=1_099_511_627_776;
        ConfigError::unless_within("views.pairs_bytes_max", self.pairs_bytes_max, bytes)?;
        ConfigError::unless_within("views.lease_ms", self.lease_ms.into(), LEASE_MS)?;
        ConfigError::unless_within("views.counts_kept_max", self.counts_kept_max.into(), 1_000..=100_000_000)?;
        for (number, namespace) in self.namespaces.iter().enumerate() {
            let field = |key: &str| format!("views.namespaces[{number}].{key}");
            namespace.check(field)?;
            if self.namespaces[..number].iter().any(|other| other.name == namespace.name) {
                return Err(ConfigError::new(field("name"), format!("{:?} is there twice", namespace.name)));
            }
        }
        Ok(())
    }
}

impl ViewNamespace {
    fn check(&self, field: impl Fn(&str) -> String) -> Result<(), ConfigError> {
        let is_name = |name: &str| {
            (1..=NAME_BYTES_MAX).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        };
        // A path of the host itself would hide it.
        if !is_name(&self.name) || ["v1", "health", "livez", "readyz"].contains(&self.name.as_str()) {
            let why = format!("is {:?}; must be 1 to {NAME_BYTES_MAX} of A-Z a-z 0-9 . _ -, and no path", self.name);
            return Err(ConfigError::new(field("name"), why));
        }
        let longest_ms = match self.window {
            WindowKind::Sliding => SLIDING_MS_MAX,
            WindowKind::Tumbling => 7 * 86_400_000,
        };
        ConfigError::unless_within(&field("window_ms"), self.window_ms, 1_000..=longest_ms)?;
        self.zone().map(drop).map_err(|error| ConfigError::new(field("time_zone"), error))
    }

    /// The window of views.
    pub(crate) fn view_window(&self) -> Window {
        match self.window {
            WindowKind::Sliding => Window::Sliding(self.window_ms),
            WindowKind::Tumbling => Window::Tumbling(self.window_ms),
        }
    }

    /// The time zone of days.
    pub(crate) fn zone(&self) -> Result<TimeZone, String> {
        TimeZone::get(&self.time_zone).map_err(|error| format!("is {:?}: {error}", self.time_zone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bad_field_is_named() {
        let config = ViewsConfig::default();
        assert_eq!(config.check(), Ok(()));
        let of = |namespace: ViewNamespace| ViewsConfig { namespaces: vec![namespace], ..config.clone() };
        let default = ViewNamespace::default;
        for (field, config) in [
            ("views.counters_url", ViewsConfig { counters_url: "ftp://c".to_owned(), ..config.clone() }),
            ("views.partitions", ViewsConfig { partitions: 0, ..config.clone() }),
            ("views.waiting_bytes_max", ViewsConfig { waiting_bytes_max: 1, ..config.clone() }),
            ("views.pairs_bytes_max", ViewsConfig { pairs_bytes_max: 1, ..config.clone() }),
            ("views.lease_ms", ViewsConfig { lease_ms: 5_001, ..config.clone() }),
            ("views.counts_kept_max", ViewsConfig { counts_kept_max: 1, ..config.clone() }),
            ("views.namespaces[1].name", ViewsConfig { namespaces: vec![default(), default()], ..config.clone() }),
            ("views.namespaces[0].name", of(ViewNamespace { name: "v1".to_owned(), ..default() })),
            ("views.namespaces[0].window_ms", of(ViewNamespace { window_ms: SLIDING_MS_MAX + 1, ..default() })),
            ("views.namespaces[0].time_zone", of(ViewNamespace { time_zone: "Mars/Olympus".to_owned(), ..default() })),
        ] {
            assert_eq!(config.check().unwrap_err().field, field);
        }
    }
}
