//! `tallystone counters`, and `tallystone counters clock`, for a store that was written under a wrong clock.

mod clock;

use crate::config::{ConfigFile, MetricsFlag, Overrides, PortFlags, RedisFlags, load, redis_with};
use crate::error::CliError;
use crate::global::Global;
use crate::output::Output;
use crate::serving::{cannot_assemble, cannot_serve, listen};
use crate::shutdown::Shutdown;
use crate::traces;
use clap::{Args, Subcommand};
use std::net::SocketAddr;

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
#[command(mut_arg("redis_url", redis_with("the counters")))]
pub(crate) struct CountersArgs {
    #[command(subcommand)]
    verb: Option<CountersVerb>,
    #[command(flatten)]
    file: ConfigFile,
    /// Where to serve gRPC and HTTP [default: 127.0.0.1:7610]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Names under which clients and browsers may call over HTTP, in addition to IP addresses and loopback names:
    /// without port, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    http_hosts: Option<Vec<String>>,
    #[command(flatten)]
    metrics: MetricsFlag,
    #[command(flatten)]
    ports: PortFlags,
    #[command(flatten)]
    redis: RedisFlags,
}

impl CountersArgs {
    /// Sets the keys of `[counters]` and `[redis]`.
    fn set(self, queue: Option<String>) -> Overrides {
        let flags = Overrides::default()
            .set("counters.listen", self.listen)
            .set("counters.http_hosts", self.http_hosts)
            .set("counters.metrics_listen", self.metrics.metrics_listen)
            .set_server("counters.queue_url", queue);
        self.redis.set(self.ports.set(flags))
    }
}

#[derive(Debug, Subcommand)]
enum CountersVerb {
    /// Show how far namespaces are ahead of Redis's clock, or set them back to it
    Clock(clock::ClockArgs),
}

/// The flag `--server` names the queue that hands out rollups.
pub(crate) async fn run(mut args: CountersArgs, global: &Global, output: Output) -> Result<(), CliError> {
    if let Some(CountersVerb::Clock(args)) = args.verb.take() {
        return clock::run(args, output).await;
    }
    let file = args.file.path.take();
    let flags = args.set(global.server.clone());
    let flags = flags.set_credentials(&global.credentials).set_telemetry(&global.telemetry);
    let config = load(file.as_deref(), flags)?;
    traces::start(&config.telemetry, "tallystone-counters")?;
    let mut shutdown = Shutdown::listen().map_err(CliError::usage)?;
    let Some(host) = shutdown.or_requested(tallystone_assembly::counters(&config)).await else { return Ok(()) };
    let host = host.map_err(cannot_assemble)?;
    tracing::info!(queue = config.counters.queue_url, "serving counters");
    let listener = listen(config.counters.listen).await?;
    host.serve(listener, shutdown.requested()).await.map_err(|error| cannot_serve(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Verb {
        #[command(flatten)]
        args: CountersArgs,
    }

    #[test]
    #[expect(clippy::result_large_err, reason = "figment's closure, figment's error")]
    fn s7_the_names_of_http_hosts_come_from_a_flag_or_a_variable() {
        figment::Jail::expect_with(|jail| {
            jail.set_env("TALLYSTONE_COUNTERS_HTTP_HOSTS", "[\"a.example\"]");
            let hosts = |arguments: &[&str]| {
                let verb = Verb::parse_from([&["counters"], arguments].concat());
                load(None, verb.args.set(None)).unwrap().counters.http_hosts
            };
            assert_eq!(hosts(&[]), ["a.example"]);
            assert_eq!(hosts(&["--http-hosts", "b.example,c"]), ["b.example", "c"]);
            Ok(())
        });
    }
}
