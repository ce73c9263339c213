//! What the verbs that serve share: binding a port, and the errors of a start.

use crate::error::CliError;
use std::error::Error;
use std::net::SocketAddr;
use tallystone_assembly::AssemblyError;
use tallystone_link::ConnectError;
use tallystone_model::with_causes;
use tallystone_views::log::OpenError;
use tokio::net::TcpListener;

/// Binds a port.
pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, CliError> {
    TcpListener::bind(address).await.map_err(|error| {
        CliError::usage(format!("cannot listen on {address}: {error}"))
            .hint("is a server running already? --listen 127.0.0.1:0 chooses a free port")
    })
}

/// Why a process could not be put together, or has ended.
pub(crate) fn cannot_assemble(error: AssemblyError) -> CliError {
    match error {
        AssemblyError::Redis(error) => cannot_connect(error),
        AssemblyError::Views(OpenError::Connect(error)) => cannot_connect(error),
        AssemblyError::Config(_) | AssemblyError::History(_) | AssemblyError::Views(OpenError::Partitions { .. }) => {
            CliError::usage(error)
        }
        _ => cannot_serve(&error),
    }
}

/// Why a Redis cannot be used.
pub(crate) fn cannot_connect(error: ConnectError) -> CliError {
    match error {
        ConnectError::Unreachable { .. } => {
            cannot_serve(&error).hint("--redis-url sets another address; `tallystone dev` starts its own Redis")
        }
        ConnectError::Denied { .. } => {
            CliError::usage(error).hint("redis.url may have a user and a password: redis://USER:PASSWORD@HOST:PORT")
        }
        _ => CliError::usage(error),
    }
}

/// Why a server does not start, or has ended, with all causes in one line.
pub(crate) fn cannot_serve(error: &(dyn Error + 'static)) -> CliError {
    CliError::unavailable(with_causes(error))
}
