//! `tallystone counter namespace put NAME`

use super::text::describe_text;
use crate::counter::session::CounterSession;
use crate::duration::parse_ms;
use crate::error::CliError;
use crate::ndjson::{open, unreadable};
use clap::Args;
use std::io::Read;
use std::path::PathBuf;
use tallystone_client::{Cardinality, CounterType, NamespaceConfig};

/// More than any configuration takes, and less than a request may hold.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

#[derive(Args, Debug)]
pub(crate) struct PutArgs {
    /// 1 to 64 of A-Z a-z 0-9 . _ -
    name: String,
    /// A control plane's persistence_configuration (JSON with comments), as it stands; `-` for stdin
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// What is not given stays as it is, or takes the server's default in a new namespace.
#[derive(Args, Debug)]
#[group(id = "config", multiple = true)]
pub(crate) struct ConfigArgs {
    /// What its counters promise; best effort cannot be changed from or to [server's default: eventual]
    #[arg(long = "type", value_enum, value_name = "TYPE")]
    counter_type: Option<TypeName>,
    /// How many counters there are, roughly; low: all are rolled up all the time [server's default: high]
    #[arg(long, value_enum)]
    cardinality: Option<CardinalityName>,
    /// Best effort: how long after its last add a counter is kept; 0s: for ever [server's default: 0s]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    ttl: Option<u64>,
    /// How far behind now an event's time may be [server's default: 5s]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    accept_limit: Option<u64>,
    /// All adds of one counter within this time are one rollup [server's default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    coalesce: Option<u64>,
    /// Counters that a worker rolls up at once, of each rollup queue [server's default: 32]
    #[arg(long, value_name = "N")]
    rollup_batch_count: Option<u32>,
    /// Rollup queues [server's default: 8]
    #[arg(long, value_name = "N")]
    num_queues: Option<u32>,
    /// How much may wait in one rollup queue [server's default: 16 MiB]
    #[arg(long, value_name = "BYTES")]
    capacity_bytes: Option<u64>,
    /// Shards over which the events of one counter are spread, 1 to 8; fixed once made [server's default: 4]
    #[arg(long, value_name = "N")]
    buckets_per_id: Option<u32>,
    /// How much time one partition of the event log holds; fixed once made [server's default: 600]
    #[arg(long, value_name = "N")]
    seconds_per_bucket: Option<u32>,
    /// How much time is dropped at once, a multiple of the former [server's default: 86400]
    #[arg(long, value_name = "N")]
    seconds_per_slice: Option<u32>,
    /// After this an event is no longer looked for [server's default: 6days]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    close_after: Option<u64>,
    /// After this events are dropped, once they are rolled up [server's default: 7days]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    delete_after: Option<u64>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum TypeName {
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
