//! `tallystone counter namespace put NAME`

use super::text::describe_text;
use crate::counter::session::CounterSession;
use crate::duration::parse_ms;
use crate::error::CliError;
use crate::ndjson::{open, unreadable};
use clap::Args;
use std::io::Read;
use std::path::PathBuf;
use tallystone_client::{Cardinality, CounterType, NamespaceConfig, PublishedTo, Threshold};

/// More than any configuration needs, and less than a request may have.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

#[derive(Args, Debug)]
pub(crate) struct PutArgs {
    /// The name: 1 to 64 characters of A-Z a-z 0-9 . _ -
    name: String,
    /// A file with the persistence_configuration of Netflix's control plane (JSON with comments), `-` for stdin;
    /// replaces all parameters
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// The parameters of a namespace. Those that are not given keep their value; in a new namespace they get the server's
/// default.
#[derive(Args, Debug)]
#[group(id = "config", multiple = true)]
pub(crate) struct ConfigArgs {
    /// What the counts promise; a namespace cannot change to or from best-effort [default of a new namespace: eventual]
    #[arg(long = "type", value_enum, value_name = "TYPE")]
    counter_type: Option<TypeName>,
    /// Roughly how many counters the namespace has; with low, every counter is rolled up continuously [default of a new
    /// namespace: high]
    #[arg(long, value_enum)]
    cardinality: Option<CardinalityName>,
    /// For best-effort: how long a counter is kept after its last add; 0s for no limit [default of a new namespace: 0s]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    ttl: Option<u64>,
    /// Maximum age of an event when it arrives; an older one is refused [default of a new namespace: 5s]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    accept_limit: Option<u64>,
    /// All adds to a counter within this time share one rollup [default of a new namespace: 10s]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    coalesce: Option<u64>,
    /// Number of counters that a worker rolls up in one batch [default of a new namespace: 128]
    #[arg(long, value_name = "N")]
    rollup_batch_count: Option<u32>,
    /// The number of rollup queues [default of a new namespace: 8]
    #[arg(long, value_name = "N")]
    num_queues: Option<u32>,
    /// Size of each rollup queue in bytes; a job counts as 512 bytes [default of a new namespace: 16777216, which is 16 MiB]
    #[arg(long, value_name = "BYTES")]
    capacity_bytes: Option<u64>,
    /// Number of shards for the events of one counter, 1 to 8; fixed at creation [default of a new namespace: 4]
    #[arg(long, value_name = "N")]
    buckets_per_id: Option<u32>,
    /// Length of one bucket of the event log, in seconds; fixed at creation [default of a new namespace: 600]
    #[arg(long, value_name = "N")]
    seconds_per_bucket: Option<u32>,
    /// Length of one slice of the event log, in seconds, whose events are deleted together; a multiple of
    /// --seconds-per-bucket [default of a new namespace: 86400]
    #[arg(long, value_name = "N")]
    seconds_per_slice: Option<u32>,
    /// How long after an event the server recognizes its token; a later retry is refused [default of a new namespace: 6days]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    close_after: Option<u64>,
    /// How long events are kept; older ones are deleted once they are rolled up [default of a new namespace: 7days]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    delete_after: Option<u64>,
    /// For eventual, and for accurate with one event bucket: a counter without an add or a clear for this long is deleted; 0s for
    /// never [default of a new namespace: 0s]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    expire_after: Option<u64>,
    /// For eventual and accurate: the counter set to which rollups publish the counts of counters whose names are numbers,
    /// and the field of the counts in it [default of a new namespace: none]
    #[arg(long, num_args = 2, value_names = ["KEY", "FIELD"])]
    publish_to: Option<Vec<String>>,
    /// For eventual and accurate: whether events leave Redis for the archive; it cannot become false [default of a new namespace:
    /// true if the server has an archive]
    #[arg(long, value_name = "BOOL")]
    archived: Option<bool>,
    /// Stop publishing the counts
    #[arg(long, conflicts_with = "publish_to")]
    no_publish: bool,
    /// For eventual and accurate: `counter crossings` lists each time that a count passes this one; with PREFIX=, only of
    /// counters whose names begin with it; up to 32; replaces the current list [default of a new namespace: none]
    #[arg(long = "threshold", value_name = "[PREFIX=]COUNT", value_parser = parse_threshold, allow_hyphen_values = true)]
    thresholds: Vec<Threshold>,
    /// Remove all thresholds
    #[arg(long, conflicts_with = "thresholds")]
    no_thresholds: bool,
    /// For eventual and accurate: a region over which the counters are spread, 2 to 16 of them, the server's among them; replaces
    /// the current list [default of a new namespace: none]
    #[arg(long = "region", value_name = "REGION")]
    regions: Vec<String>,
    /// Remove all regions
    #[arg(long, conflicts_with = "regions")]
    no_regions: bool,
}

fn parse_threshold(text: &str) -> Result<Threshold, String> {
    let (prefix, count) = text.rsplit_once('=').unwrap_or(("", text));
    let count = count.parse().map_err(|_| format!("'{count}' is no 64-bit integer"))?;
    Ok(Threshold { prefix: prefix.to_owned(), count })
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum TypeName {
    BestEffort,
    Eventual,
    Accurate,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum CardinalityName {
    Low,
    Medium,
    High,
}

impl ConfigArgs {
    pub(crate) fn into_config(self) -> NamespaceConfig {
        let published_to = match self.publish_to.map(<[String; 2]>::try_from) {
            Some(Ok([key, field])) => Some(PublishedTo { key, field }),
            _ => self.no_publish.then(PublishedTo::default),
        };
        NamespaceConfig {
            counter_type: self.counter_type.map(|name| match name {
                TypeName::BestEffort => CounterType::BestEffort,
                TypeName::Eventual => CounterType::Eventual,
                TypeName::Accurate => CounterType::Accurate,
            }),
            cardinality: self.cardinality.map(|name| match name {
                CardinalityName::Low => Cardinality::Low,
                CardinalityName::Medium => Cardinality::Medium,
                CardinalityName::High => Cardinality::High,
            }),
            ttl_ms: self.ttl,
            coalesce_ms: self.coalesce,
            rollup_batch_count: self.rollup_batch_count,
            num_queues: self.num_queues,
            capacity_bytes: self.capacity_bytes,
            buckets_per_id: self.buckets_per_id,
            seconds_per_bucket: self.seconds_per_bucket,
            seconds_per_slice: self.seconds_per_slice,
            accept_limit_ms: self.accept_limit,
            close_after_ms: self.close_after,
            delete_after_ms: self.delete_after,
            expire_after_ms: self.expire_after,
            published_to,
            archived: self.archived,
            thresholds: (self.no_thresholds || !self.thresholds.is_empty()).then_some(self.thresholds),
            regions: (self.no_regions || !self.regions.is_empty()).then_some(self.regions),
        }
    }
}

pub(crate) async fn run(args: PutArgs, session: &CounterSession) -> Result<(), CliError> {
    let namespace = match args.file {
        Some(path) => {
            let mut json = String::new();
            let read = open(&path)?.take(FILE_BYTES_MAX).read_to_string(&mut json);
            read.map_err(|error| unreadable(&path, &error))?;
            if json.trim().is_empty() {
                return Err(CliError::usage(format!("{} is empty", path.display())));
            }
            session.call(&args.name, session.client.put_persistence_configuration(&args.name, &json)).await?
        }
        None => session.call(&args.name, session.client.put_namespace(&args.name, args.config.into_config())).await?,
    };
    session.output.one(&namespace, describe_text)
}
