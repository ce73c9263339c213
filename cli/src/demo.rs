//! `tallystone demo …`

use crate::connection::{cli_error, server_url};
use crate::error::CliError;
use crate::history::demo_file;
use crate::output::Output;
use crate::shutdown::Shutdown;
use tallystone_client::{Client, Error};
pub(crate) use tallystone_demo::FlightsArgs;
use tallystone_demo::{FlightsOptions, OwnServer, history_caught_up, run_flights};

/// `demo flights`: on the server named, or on one that the demo starts.
pub(crate) async fn flights(mut args: FlightsArgs, server: Option<String>, output: Output) -> Result<(), CliError> {
    args.quiet |= output.json;
    let shutdown = Shutdown::listen().map_err(CliError::usage)?;
    let own = match &server {
        Some(_) => None,
        None => Some(OwnServer::start(demo_file()).await.map_err(|error| CliError::unavailable(format!("{error:#}")))?),
    };
    let url = own.as_ref().map_or_else(|| server_url(server.as_deref()), |own| own.url().to_owned());
    let options = FlightsOptions {
        counters: own.as_ref().map(OwnServer::counter_services),
        draw_trace: |trace, queue, id| crate::msg::drawn(trace, &mut None, queue, id),
        args,
    };
    let done = fly(options, &url, shutdown, output).await;
    if let Some(own) = own {
        // The relay still has to record the last events, those of the queue's deletion.
        if let Ok(client) = Client::connect(own.url()).await {
            let _ = history_caught_up(&client).await;
        }
        own.stop().await;
    }
    done
}

async fn fly(options: FlightsOptions, url: &str, shutdown: Shutdown, output: Output) -> Result<(), CliError> {
    let details = options.args.details;
    let client = Client::connect(url).await.map_err(|error| cli_error(&error))?;
    let report = run_flights(options, client, shutdown.requested()).await.map_err(|error| {
        match error.downcast_ref::<Error>() {
            Some(error) => cli_error(error),
            None => CliError::usage(format!("{error:#}")),
        }
    })?;
    output.one(&report, |report| report.text(details))?;
    if report.passed() { Ok(()) } else { Err(CliError::refused("a check failed")) }
}
