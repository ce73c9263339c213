//! `tallystone queue …`: one file per verb. Here is what they share: the configuration flags and how a queue is shown.

mod create;
mod delete;
mod describe;
mod ls;
mod pause;
mod purge;
mod resume;
mod stats;
mod update;

pub(crate) use stats::run as stats;

use crate::connection::Session;
use crate::duration::{format_ms, format_time, parse_ms};
use crate::error::CliError;
use crate::output::grouped;
use clap::{Args, Subcommand};
use tallystone_client::{Backoff, BackoffKind, QueueConfig, QueueInfo, QueueType};

#[derive(Debug, Subcommand)]
pub(crate) enum QueueVerb {
    /// Make a queue; one that is there with the same configuration is fine
    Create(create::CreateArgs),
    /// List queues and how many messages they hold, by state
    Ls(ls::LsArgs),
    /// Show the configuration of a queue and how many messages it holds
    Describe(describe::DescribeArgs),
    /// Change the configuration of a queue, in force at once on every server
    Update(update::UpdateArgs),
    /// Give out no messages until `resume`; running ones go on
    Pause(pause::PauseArgs),
    /// Give out messages again
    Resume(resume::ResumeArgs),
    /// Cancel and remove the messages of a queue
    Purge(purge::PurgeArgs),
    /// Remove a queue that has no live messages
    Delete(delete::DeleteArgs),
    /// Show how messages went through a queue: rates, time spent in each state, reasons of failure
    Stats(stats::StatsArgs),
}

pub(crate) async fn run(verb: QueueVerb, session: &Session) -> Result<(), CliError> {
    match verb {
        QueueVerb::Create(args) => create::run(args, session).await,
        QueueVerb::Ls(args) => ls::run(args, session).await,
        QueueVerb::Describe(args) => describe::run(args, session).await,
        QueueVerb::Update(args) => update::run(args, session).await,
        QueueVerb::Pause(args) => pause::run(args, session).await,
        QueueVerb::Resume(args) => resume::run(args, session).await,
        QueueVerb::Purge(args) => purge::run(args, session).await,
        QueueVerb::Delete(args) => delete::run(args, session).await,
        QueueVerb::Stats(args) => stats::run(args, session).await,
    }
}

/// The configuration that can be changed later.
#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    /// Lease of a message that names none [server's default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    lease: Option<u64>,
    /// How long a message that names no other time is invisible at first [server's default: 0s]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    invisibility: Option<u64>,
    /// How often a message may run [server's default: 5]
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// How long ended messages stay [server's default: 10m]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    retention: Option<u64>,
    /// Most live messages; 0: no bound [server's default: 0]
    #[arg(long, value_name = "N")]
    max_depth: Option<u64>,
    /// Refuse new messages
    #[arg(long, value_name = "BOOL")]
    enqueue_blocked: Option<bool>,
    /// Give out no messages
    #[arg(long, value_name = "BOOL")]
    dequeue_blocked: Option<bool>,
    /// How the delay after a failed attempt grows
    #[arg(long, value_enum)]
    backoff: Option<BackoffName>,
    /// The delay after the first failed attempt
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, default_value = "1s", requires = "backoff")]
    backoff_base: u64,
    /// The longest delay
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, default_value = "5m", requires = "backoff")]
    backoff_max: u64,
    /// The share of the delay that is drawn at random, in percent
    #[arg(long, value_name = "0-100", default_value_t = 20, requires = "backoff")]
    backoff_jitter: u32,
    /// Metadata keys by which Dequeue and Depth will filter together; may be given again for other sets
    #[arg(long, value_name = "KEY[,KEY]")]
    index: Vec<String>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum BackoffName {
    None,
    Fixed,
    Exponential,
}

impl ConfigArgs {
    fn into_config(self) -> QueueConfig {
        let backoff = |name| match name {
            BackoffName::None => Backoff { kind: BackoffKind::None, base_ms: 0, max_ms: 0, jitter_percent: 0 },
            growing => Backoff {
                kind: if matches!(growing, BackoffName::Fixed) { BackoffKind::Fixed } else { BackoffKind::Exponential },
                base_ms: self.backoff_base,
                max_ms: self.backoff_max,
                jitter_percent: self.backoff_jitter,
            },
        };
        let keys = |index: &String| index.split(',').map(|key| key.trim().to_owned()).collect();
        QueueConfig {
            queue_type: None,
            lease_ms: self.lease,
            invisibility_ms: self.invisibility,
            max_attempts: self.max_attempts,
            enqueue_blocked: self.enqueue_blocked,
            dequeue_blocked: self.dequeue_blocked,
            terminal_retention_ms: self.retention,
            shards: None,
            retry_backoff: self.backoff.map(backoff),
            max_depth: self.max_depth,
            indexes: (!self.index.is_empty()).then(|| self.index.iter().map(keys).collect()),
        }
    }
}

/// The queue's type in a word or two.
fn type_text(queue_type: Option<&QueueType>) -> String {
    match queue_type {
        Some(QueueType::Exclusive { key }) => format!("exclusive by {key}"),
        Some(QueueType::Simple) | None => "simple".to_owned(),
    }
}

/// A queue for a person, a line per field.
fn describe_text(queue: &QueueInfo) -> String {
    let config = &queue.config;
    let duration = |ms: Option<u64>| ms.map_or_else(String::new, format_ms);
    let backoff = config.retry_backoff.map_or_else(String::new, |backoff| match backoff.kind {
        BackoffKind::None => "none".to_owned(),
        kind => format!(
            "{}, {} to {}, {}% of it random",
            if kind == BackoffKind::Fixed { "fixed" } else { "exponential" },
            format_ms(backoff.base_ms),
            format_ms(backoff.max_ms),
            backoff.jitter_percent
        ),
    });
    let blocked = match (config.enqueue_blocked == Some(true), config.dequeue_blocked == Some(true)) {
        (false, false) => "no",
        (true, false) => "enqueue",
        (false, true) => "dequeue (paused)",
        (true, true) => "enqueue and dequeue",
    };
    let indexes: Vec<String> = config.indexes.iter().flatten().map(|keys| keys.join("+")).collect();
    let lines = [
        ("type", type_text(config.queue_type.as_ref())),
        ("lease", duration(config.lease_ms)),
        ("invisibility", duration(config.invisibility_ms)),
        ("max attempts", config.max_attempts.unwrap_or_default().to_string()),
        ("retry backoff", backoff),
        ("retention", duration(config.terminal_retention_ms)),
        ("max depth", config.max_depth.filter(|depth| *depth > 0).map_or_else(|| "no bound".to_owned(), grouped)),
        ("blocked", blocked.to_owned()),
        ("filter indexes", if indexes.is_empty() { "none declared".to_owned() } else { indexes.join(", ") }),
        ("revision", queue.revision.to_string()),
        ("created", format_time(queue.created_at_ms)),
    ];
    lines
        .iter()
        .fold(format!("queue {}\n", queue.name), |text, (name, value)| text + &format!("  {name:<15} {value}\n"))
}
