//! `tallystone counter namespace republish NAME…`: reads the checkpoints of the counters' Redis itself, as a worker does.

use super::no_server::NoServer;
use crate::config::{ConfigFile, Overrides, RedisFlags, load, redis_with};
use crate::error::CliError;
use crate::output::{Output, grouped};
use crate::serving::cannot_assemble;
use crate::terminal::note;
use clap::Args;
use serde::Serialize;
use std::time::{Duration, Instant};
use tallystone_assembly::{AssemblyError, republish};
use tallystone_counters::publish::{RepublishError, Republished, Unpublished};
use tallystone_counters::{NamespaceName, Refusal};

/// The time between two lines of progress.
const EVERY: Duration = Duration::from_secs(2);

#[derive(Args, Debug)]
#[command(mut_arg("redis_url", redis_with("the counters")))]
pub(crate) struct RepublishArgs {
    /// The namespaces
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Create the counter set with its default options if it is missing, and add the fields that it lacks. WIDTH: bits of a
    /// count, such as 24, or i24 for counts that may be negative [default width: 20]
    #[arg(long, value_name = "WIDTH", num_args = 0..=1, require_equals = true, default_missing_value = "20")]
    create: Option<String>,
    /// Address of the Redis with the counter sets [default: that of the counters]
    #[arg(long, value_name = "URL")]
    compact_url: Option<String>,
    #[command(flatten)]
    file: ConfigFile,
    #[command(flatten)]
    redis: RedisFlags,
    #[command(flatten)]
    _no_server: NoServer,
}

/// One namespace.
#[derive(Serialize)]
struct Report<'a> {
    namespace: &'a str,
    /// Counters that were read.
    counters: u64,
    published: u64,
    /// Not later than what the set had.
    older: u64,
    not_decimal: u64,
    negative: u64,
}

pub(crate) async fn run(args: RepublishArgs, output: Output) -> Result<(), CliError> {
    let flags = Overrides::default().set("compact.url", args.compact_url);
    let config = load(args.file.path.as_deref(), args.redis.set(flags))?;
    let refused = |refusal: Refusal| CliError::usage(refusal);
    let names = args.names.into_iter().map(NamespaceName::parse).collect::<Result<Vec<_>, _>>().map_err(refused)?;
    for name in names {
        let mut printed = Instant::now();
        let progress = |done: &Republished| {
            if printed.elapsed() >= EVERY {
                note(&format!("{name}: {} counters", grouped(done.counters)));
                printed = Instant::now();
            }
        };
        let done = republish(&config, &name, args.create.as_deref(), progress).await.map_err(failed)?;
        let Republished { counters, published, older, not_decimal, negative } = done;
        let namespace = name.as_str();
        output.one(&Report { namespace, counters, published, older, not_decimal, negative }, shown)?;
    }
    Ok(())
}

fn shown(report: &Report) -> String {
    let parts = [
        (report.older, "no later than published before"),
        (report.not_decimal, "whose names are not numbers"),
        (report.negative, "below 0 for an unsigned field"),
    ];
    let (counters, published) = (grouped(report.counters), grouped(report.published));
    let mut text = format!("{}: {counters} counters, {published} published", report.namespace);
    for (number, what) in parts.into_iter().filter(|(number, _)| *number > 0) {
        text += &format!(", {} {what}", grouped(number));
    }
    text
}

fn failed(error: AssemblyError) -> CliError {
    match &error {
        AssemblyError::Republish { why: RepublishError::Sets(why), .. } => match why {
            Unpublished::Unavailable(_) | Unpublished::NotNow(_) => CliError::unavailable(&error).hint("run the same command again"),
            Unpublished::NoSet(_) => CliError::refused(&error).hint(
                "--create creates it with the default options; for others, `CT.CREATE KEY … SCHEMA FIELD 20 FIELD.exact_to 41`",
            ),
            Unpublished::Refused(_) | Unpublished::Some(_) | Unpublished::Negative => CliError::refused(&error),
        },
        AssemblyError::Republish { why: RepublishError::NotBound(_), .. } => {
            CliError::refused(&error).hint("`tallystone counter namespace put NAME --publish-to KEY FIELD` binds it")
        }
        AssemblyError::Republish { why: RepublishError::Counters(refusal), .. } => match refusal {
            Refusal::Unavailable { .. } | Refusal::ClockSkew { .. } => CliError::unavailable(&error),
            _ => CliError::refused(&error).reason(refusal.reason()),
        },
        _ => cannot_assemble(error),
    }
}
