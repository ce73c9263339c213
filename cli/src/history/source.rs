//! Where a question about history goes: to a server, or straight to the file of an embedded store that no server has
//! open, such as the one that the last demo left.

use crate::connection::Session;
use crate::dev::data_dir_of;
use crate::error::CliError;
use crate::global::Global;
use crate::output::Output;
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tallystone_client::Client;
use tallystone_indexer::api::HistoryApi;
use tallystone_indexer::embedded::{Embedded, EmbeddedOptions};
use tallystone_proto::Corked;
use tokio::net::TcpListener;
use tokio_stream::StreamExt;
use tonic::transport::server::TcpIncoming;

#[derive(Args, Debug)]
pub(crate) struct HistoryFlags {
    /// Ask this file of an embedded history store, which no server may have open, instead of a server
    #[arg(long = "history", value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Where the demo leaves what happened in it.
pub(crate) fn demo_file() -> PathBuf {
    data_dir_of("demo").join("history.db")
}

impl HistoryFlags {
    /// Who answers: the file, if one is named; else the server; else, where no server was named and none is there, the
    /// last demo.
    pub(crate) async fn session(&self, global: &Global, output: Output) -> Result<Session, CliError> {
        if let Some(file) = &self.file {
            return of_file(file, output).await;
        }
        let failure = match Session::connect(global, output).await {
            Ok(session) => return Ok(session),
            Err(failure) => failure,
        };
        let demo = demo_file();
        if global.server.is_some() || !demo.exists() {
            return Err(failure);
        }
        eprintln!("No server is running here: this is from the last demo, {}.", demo.display());
        of_file(&demo, output).await
    }
}

/// Serves the file to this process alone.
async fn of_file(file: &Path, output: Output) -> Result<Session, CliError> {
    if !file.exists() {
        return Err(CliError::usage(format!("there is no history {}", file.display())));
    }
    let embedded = Embedded::open(EmbeddedOptions::new(file)).map_err(CliError::usage)?;
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(CliError::usage)?;
    let url = format!("http://{}", listener.local_addr().map_err(CliError::usage)?);
    let service = HistoryApi::new(Arc::new(embedded)).service();
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true)).map(|stream| stream.map(Corked::new));
    // Until this process ends, which is when the answer has been shown.
    tokio::spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
    let client = Client::connect(url).await.map_err(|error| crate::connection::cli_error(&error))?;
    Ok(Session { client, output })
}
