//! `tallystone counters clock`

use crate::config::{ConfigFile, Overrides, RedisFlags, load, redis_with};
use crate::error::CliError;
use crate::output::{Output, grouped};
use crate::serving::cannot_assemble;
use clap::Args;
use serde::Serialize;
use tallystone_counters::redis::RedisNamespaces;
use tallystone_counters::{NamespaceName, Refusal};

#[derive(Args, Debug)]
#[command(mut_arg("redis_url", redis_with("the counters")))]
pub(super) struct ClockArgs {
    /// The namespaces [default: all]
    #[arg(value_name = "NAMESPACE")]
    namespaces: Vec<String>,
    /// Roll up all pending events, then set the namespaces that are ahead of Redis's clock back to this clock. No count
    /// changes. Meanwhile adds and clears are refused (NAMESPACE_CHANGED). If the command is interrupted, run it again.
    /// A namespace is refused if its archive has events later than Redis's clock
    #[arg(long)]
    reset: bool,
    #[command(flatten)]
    file: ConfigFile,
    #[command(flatten)]
    redis: RedisFlags,
}

/// One namespace.
#[derive(Serialize)]
struct NamespaceClock {
    namespace: String,
    /// How far it is ahead of Redis's clock; with --reset, how far it was.
    ahead_ms: u64,
    /// A reset has begun and not ended.
    unfinished: bool,
    reset: bool,
}

pub(super) async fn run(args: ClockArgs, output: Output) -> Result<(), CliError> {
    let config = load(args.file.path.as_deref(), args.redis.set(Overrides::default()))?;
    let connected = tallystone_assembly::connect_namespaces(&config.redis).await;
    let namespaces = connected.map_err(cannot_assemble)?;
    let names = match args.namespaces.is_empty() {
        true => namespaces.all().await.map_err(failed)?.into_iter().map(|namespace| namespace.name).collect(),
        false => {
            args.namespaces.into_iter().map(NamespaceName::parse).collect::<Result<Vec<_>, _>>().map_err(failed)?
        }
    };
    let mut last_error = None;
    for name in names {
        match of_namespace(&namespaces, &name, args.reset).await {
            Ok(clock) => output.one(&clock, shown)?,
            // One that is refused does not concern the others.
            Err(refusal) => {
                if let Some(error) = last_error.replace(failed(refusal).at(&name)) {
                    tracing::warn!("{error}");
                }
            }
        }
    }
    last_error.map_or(Ok(()), Err)
}

async fn of_namespace(
    namespaces: &RedisNamespaces,
    name: &NamespaceName,
    reset: bool,
) -> Result<NamespaceClock, Refusal> {
    let ahead = namespaces.clock_ahead(name).await?;
    let reset = reset && (ahead.ahead_ms > 0 || ahead.is_reserved);
    if reset {
        namespaces.reset_clock(name).await?;
    }
    let (ahead_ms, unfinished) = (ahead.ahead_ms, ahead.is_reserved && !reset);
    Ok(NamespaceClock { namespace: name.to_string(), ahead_ms, unfinished, reset })
}

fn shown(clock: &NamespaceClock) -> String {
    let NamespaceClock { namespace, ahead_ms, unfinished, reset } = clock;
    match (reset, unfinished, ahead_ms) {
        (true, ..) => format!("{namespace}: set back by {} ms", grouped(*ahead_ms)),
        (false, true, _) => format!("{namespace}: a reset has not ended; run `tallystone counters clock --reset`"),
        (false, false, 0) => format!("{namespace}: not ahead of Redis's clock"),
        _ => format!("{namespace}: {} ms ahead of Redis's clock", grouped(*ahead_ms)),
    }
}

fn failed(refusal: Refusal) -> CliError {
    let error = match &refusal {
        Refusal::Unavailable { .. } | Refusal::ClockSkew { .. } => CliError::unavailable(&refusal),
        _ => CliError::refused(&refusal),
    };
    error.reason(refusal.reason())
}
