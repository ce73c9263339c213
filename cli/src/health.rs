//! `tallystone health`: for the probes of containers and for scripts.

use crate::connection::{checked, cli_error, server_url};
use crate::error::CliError;
use crate::global::Global;
use crate::output::Output;
use clap::Args;
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
}

#[derive(Serialize)]
struct Health {
    serving: bool,
}

pub(crate) async fn run(args: HealthArgs, global: &Global, output: Output) -> Result<(), CliError> {
    let url = server_url(global.named_server().as_deref());
    let client = checked(global)?.apply(HealthClient::builder(&url).call_timeout(TIMEOUT)).connect().await;
    let serving = match client {
        Ok(client) => client.is_serving(&args.service).await,
        Err(error) => Err(error),
    };
    let serving = serving.map_err(|error| cli_error(&error))?;
    output.one(&Health { serving }, |health| if health.serving { "serving" } else { "not serving" }.to_owned())?;
    if serving { Ok(()) } else { Err(CliError::refused("the server is up, but does not serve")) }
}
