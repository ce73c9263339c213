//! Ports for what is killed and comes back on the same one.

use rand::Rng;
use std::collections::HashSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// Where the system begins to take ports for outgoing connections, if it does not say.
const EPHEMERAL: u16 = 32_768;

/// A port that stays free while no process listens on it: below those that the system gives to outgoing connections, of
/// which this process and its children make thousands. One of theirs can keep a server from its port for minutes.
pub fn lasting_port() -> u16 {
    static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let below = range.split_whitespace().next().and_then(|low| low.parse().ok()).unwrap_or(EPHEMERAL).max(2_048);
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let given = given.get_or_insert_default();
    for _ in 0..1_000 {
        let port = rand::rng().random_range(below / 2..below);
        if !given.contains(&port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            given.insert(port);
            return port;
        }
    }
    panic!("no free port between {} and {below}", below / 2);
}
