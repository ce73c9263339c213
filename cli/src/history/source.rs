//! Where a query of history goes: to a server, or to the file of an embedded store that no server has open, such as
//! that of the last demo.

use crate::connection::Session;
use crate::data_dir::data_dir_of;
use crate::error::CliError;
use crate::global::Global;
use crate::output::Output;
use crate::terminal::note;
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tallystone_client::Client;
use tallystone_indexer::api::HistoryApi;
use tallystone_indexer::embedded::{Embedded, EmbeddedOptions};
use tallystone_serving::Host;
use tokio::net::TcpListener;

#[derive(Args, Debug)]
pub(crate) struct HistoryFlags {
    /// Read history from this file of an embedded store, not from a server; no server may have the file open
    #[arg(long = "history", value_name = "FILE")]
    file: Option<PathBuf>,
}

/// The history of the last demo.
pub(crate) fn demo_file() -> PathBuf {
    data_dir_of("demo").join("history.db")
}

impl HistoryFlags {
    /// Connects to the file, if one is named; else to the server; else, if no server was named and none answers, to the
    /// history of the last demo.
    pub(crate) async fn session(&self, global: &Global, output: Output) -> Result<Session, CliError> {
        if let Some(file) = &self.file {
            return of_file(file, output).await;
        }
        let failure = match Session::connect(global, output).await {
            Ok(session) => return Ok(session),
            Err(failure) => failure,
        };
        let demo = demo_file();
        if global.named_server().is_some() || !demo.exists() {
            return Err(failure);
        }
        note(&format!("No server answers. This is the history of the last demo, {}.", demo.display()));
        of_file(&demo, output).await
    }
}

/// Serves the file to this process alone.
async fn of_file(file: &Path, output: Output) -> Result<Session, CliError> {
    if !file.exists() {
        return Err(CliError::usage(format!("there is no history file {}", file.display())));
    }
    let embedded = Embedded::open(EmbeddedOptions::new(file)).map_err(CliError::usage)?;
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(CliError::usage)?;
    let url = format!("http://{}", listener.local_addr().map_err(CliError::usage)?);
    let host = Host::new().service(HistoryApi::new(Arc::new(embedded)).service());
    // It ends with this process, which ends when the answer is printed.
    tokio::spawn(host.serve(listener, std::future::pending()));
    let client = Client::connect(url).await.map_err(|error| crate::connection::cli_error(&error))?;
    Ok(Session { client, output })
}
