//! Free ports.

use crate::LocalError;
use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// Another process may take a free port before the service binds it, also one that a service has for itself.
const TRIES: usize = 3;

/// A port of loopback that was free a moment ago.
///
/// # Errors
/// The system has none.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// The same, and none of these, which services will bind later.
///
/// # Errors
/// The system has none.
pub fn free_port_except(taken: &[u16]) -> io::Result<u16> {
    loop {
        let port = free_port()?;
        if !taken.contains(&port) {
            return Ok(port);
        }
    }
}

/// Starts on the port given, or on a free one, and once more if a process took a port meanwhile.
pub(crate) async fn on_a_port<T>(
    port: Option<u16>,
    mut start: impl AsyncFnMut(u16) -> Result<T, LocalError>,
    unusable: impl Fn(io::Error) -> LocalError,
) -> Result<T, LocalError> {
    let mut tries = TRIES;
    loop {
        let port = port.map_or_else(free_port, Ok).map_err(&unusable)?;
        tries -= 1;
        match start(port).await {
            Err(LocalError::Exited { log_tail, .. }) if tries > 0 && log_tail.contains("in use") => {}
            outcome => return outcome,
        }
    }
}
