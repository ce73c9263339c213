//! The flags that configure a queue.

use crate::duration::parse_ms;
use clap::Args;
use tallystone_client::{Backoff, BackoffKind, PriorityClasses, QueueConfig};

/// What can be changed after the queue was created.
#[derive(Args, Debug)]
pub(super) struct ConfigArgs {
    /// Length of the leases of messages without their own setting [default of a new queue: 30s]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    lease: Option<u64>,
    /// How long a new message without its own setting is invisible [default of a new queue: 0s]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    invisibility: Option<u64>,
    /// Number of attempts before a message becomes errored [default of a new queue: 5]
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// How long completed and canceled messages are kept [default of a new queue: 10m]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    retention: Option<u64>,
    /// How long errored messages are kept [default of a new queue: 30d]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    errored_retention: Option<u64>,
    /// Maximum number of errored messages; beyond it the oldest are removed [default of a new queue: 100000]
    #[arg(long, value_name = "N")]
    max_errored: Option<u64>,
    /// Maximum bytes of payload of all errored messages; beyond it the oldest are removed [default of a new queue:
    /// 1073741824, which is 1 GiB]
    #[arg(long, value_name = "BYTES")]
    max_errored_bytes: Option<u64>,
    /// How long the queue remembers the id of a message after the message ended, even if the message is removed earlier;
    /// with 0s, it knows the id only as long as it keeps the message [default of a new queue: 0s]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    id_window: Option<u64>,
    /// Maximum number of live messages (invisible, pending and running); 0 for no limit [default of a new queue: 0]
    #[arg(long, value_name = "N")]
    max_depth: Option<u64>,
    /// Whether to refuse new messages
    #[arg(long, value_name = "BOOL")]
    enqueue_blocked: Option<bool>,
    /// Whether to stop leasing messages to workers, as `queue pause` does
    #[arg(long, value_name = "BOOL")]
    dequeue_blocked: Option<bool>,
    /// How the delay after a failed attempt grows. With `queue update`, it replaces all four backoff settings: those without a
    /// flag get the defaults below [default of a new queue: exponential]
    #[arg(long, value_enum)]
    backoff: Option<BackoffName>,
    /// The delay after the first failed attempt
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, default_value = "1s", requires = "backoff")]
    backoff_base: u64,
    /// The longest delay
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, default_value = "5m", requires = "backoff")]
    backoff_max: u64,
    /// Maximum random reduction of each delay, in percent
    #[arg(long, value_name = "0-100", default_value_t = 20, requires = "backoff")]
    backoff_jitter: u32,
    /// Declare a filter index over these metadata keys, which filters use together; repeat for further indexes
    #[arg(long, value_name = "KEY[,KEY]")]
    index: Vec<String>,
    /// A priority class and its offset, such as `bulk=3650d` or `urgent=-1d`: a message of the class gets the time of its
    /// enqueue plus the offset as its priority; repeat for further classes; `queue update` replaces all classes
    #[arg(long, value_name = "CLASS=OFFSET", value_parser = parse_class)]
    priority_class: Vec<(String, i64)>,
    /// A metadata key whose value, if it names a priority class, overrides the priority and the class of a message
    #[arg(long, value_name = "KEY", requires = "priority_class")]
    priority_class_key: Option<String>,
}

/// `CLASS=OFFSET`, the offset in ms.
fn parse_class(text: &str) -> Result<(String, i64), String> {
    let (name, offset) = text.rsplit_once('=').ok_or("must be CLASS=OFFSET, such as urgent=-1d")?;
    let (sign, duration) = match offset.strip_prefix('-') {
        Some(duration) => (-1, duration),
        None => (1, offset.strip_prefix('+').unwrap_or(offset)),
    };
    let ms = i64::try_from(parse_ms(duration)?).map_err(|_| "the offset is too long".to_owned())?;
    Ok((name.to_owned(), sign * ms))
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum BackoffName {
    None,
    Fixed,
    Exponential,
}

impl ConfigArgs {
    /// `shards`: where it can be given.
    pub(super) fn into_config(self, shards: Option<u32>) -> QueueConfig {
        let backoff = |name| match name {
            BackoffName::None => Backoff::NONE,
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
            errored_retention_ms: self.errored_retention,
            max_errored: self.max_errored,
            max_errored_bytes: self.max_errored_bytes,
            id_window_ms: self.id_window,
            shards,
            retry_backoff: self.backoff.map(backoff),
            max_depth: self.max_depth,
            priority_classes: (!self.priority_class.is_empty()).then(|| PriorityClasses {
                offsets_ms: self.priority_class.into_iter().collect(),
                override_key: self.priority_class_key.unwrap_or_default(),
            }),
            indexes: (!self.index.is_empty()).then(|| self.index.iter().map(keys).collect()),
        }
    }
}
