//! `tallystone health`: for the probes of containers and for scripts.

mod own_port;

use crate::connection::{checked, cli_error, server_url};
use crate::error::CliError;
use crate::global::Global;
use crate::output::Output;
use clap::Args;
use own_port::Probe;
use serde::Serialize;
use std::time::Duration;
use tallystone_client::HealthClient;

/// The caller of a probe repeats it.
const TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Args, Debug)]
pub(crate) struct HealthArgs {
    /// One service of the server, such as tallystone.outbox [default: the server as a whole]
    #[arg(value_name = "SERVICE", default_value = "", hide_default_value = true)]
    service: String,

    /// Instead of --server, check the process that listens on this port of this machine (on loopback or on all addresses), with or
    /// without TLS. Its certificate is not verified. A port of --metrics-listen works, too
    #[arg(long, value_name = "PORT", conflicts_with = "service")]
    port: Option<u16>,

    /// Check only whether the process answers, not whether it can serve calls
    #[arg(long, requires = "port")]
    live: bool,
}

#[derive(Serialize)]
struct Health {
    serving: bool,
}

pub(crate) async fn run(args: HealthArgs, global: &Global, output: Output) -> Result<(), CliError> {
    let serving = match args.port {
        Some(port) => {
            let probe = if args.live { Probe::Live } else { Probe::Ready };
            let answered = tokio::time::timeout(TIMEOUT, own_port::answers(port, probe, &checked(global)?)).await;
            answered.unwrap_or_else(|_| Err(CliError::unavailable(format!("port {port} did not answer in time"))))?
        }
        None => of_server(&args.service, global).await?,
    };
    output.one(&Health { serving }, |health| if health.serving { "serving" } else { "not serving" }.to_owned())?;
    if serving { Ok(()) } else { Err(CliError::refused("the server is up, but does not serve")) }
}

async fn of_server(service: &str, global: &Global) -> Result<bool, CliError> {
    let url = server_url(global.named_server().as_deref());
    let client = checked(global)?.apply(HealthClient::builder(&url).call_timeout(TIMEOUT)).connect().await;
    let serving = match client {
        Ok(client) => client.is_serving(service).await,
        Err(error) => Err(error),
    };
    serving.map_err(|error| cli_error(&error))
}
