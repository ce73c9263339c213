//! `redis.url`: one Redis, the Sentinels that know which one is the primary (X2), or nodes of a Redis Cluster (Q17).

use redis::{ConnectionInfo, IntoConnectionInfo};

/// Where `redis.url` leads.
pub(crate) enum Address {
    /// `redis://[USER:PASSWORD@]HOST:PORT[/DATABASE]`; `rediss`: with TLS.
    One(ConnectionInfo),
    /// `redis-sentinel://[USER:PASSWORD@]HOST:PORT,HOST:PORT…[/DATABASE]#NAME`; `rediss-sentinel`: with TLS. The user is that
    /// of Redis; NAME is how the Sentinels call the primary.
    Sentinels {
        /// The Sentinels.
        sentinels: Vec<ConnectionInfo>,
        /// Their name of the primary.
        name: String,
        /// The primary; its host is none.
        node: ConnectionInfo,
    },
    /// `redis-cluster://[USER:PASSWORD@]HOST:PORT,HOST:PORT…`; `rediss-cluster`: with TLS. The user is that of every node.
    Cluster {
        /// Some nodes; they know the others.
        seeds: Vec<ConnectionInfo>,
    },
}

const SENTINEL_PORT: u16 = 26379;
const NODE_PORT: u16 = 6379;

impl Address {
    /// Reads an address. An error does not quote it: it may have a password.
    pub(crate) fn parse(url: &str) -> Result<Address, String> {
        let info = |url: &str| url.into_connection_info().map_err(|error| format!("is no address: {error}"));
        let (scheme, rest) = match url.split_once("://") {
            Some(("redis-sentinel", rest)) => ("redis", rest),
            Some(("rediss-sentinel", rest)) => ("rediss", rest),
            Some(("redis-cluster", rest)) => return Address::parse_cluster("redis", rest),
            Some(("rediss-cluster", rest)) => return Address::parse_cluster("rediss", rest),
            _ => return Ok(Address::One(info(url)?)),
        };
        let Some((rest, name)) = rest.rsplit_once('#').filter(|(_, name)| !name.is_empty()) else {
            return Err("has no name of the primary behind '#'".to_owned());
        };
        let (login, rest) = rest.rsplit_once('@').map_or(("", rest), |(login, rest)| (login, rest));
        let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
        let at = if login.is_empty() { "" } else { "@" };
        let node = info(&format!("{scheme}://{login}{at}primary/{database}"))?;
        let sentinels = each_host(&format!("{scheme}://"), hosts, SENTINEL_PORT)?;
        Ok(Address::Sentinels { sentinels, name: name.to_owned(), node })
    }

    fn parse_cluster(scheme: &str, rest: &str) -> Result<Address, String> {
        let (login, hosts) = rest.rsplit_once('@').map_or(("", rest), |(login, hosts)| (login, hosts));
        let (hosts, database) = hosts.split_once('/').unwrap_or((hosts, ""));
        if !["", "0"].contains(&database) {
            return Err("has a database, but a Redis Cluster has only one".to_owned());
        }
        let at = if login.is_empty() { "" } else { "@" };
        Ok(Address::Cluster { seeds: each_host(&format!("{scheme}://{login}{at}"), hosts, NODE_PORT)? })
    }

    /// How the primary is reached.
    pub(crate) fn node(&self) -> &ConnectionInfo {
        match self {
            Address::One(node) | Address::Sentinels { node, .. } => node,
            Address::Cluster { seeds } => &seeds[0],
        }
    }
}

/// The addresses of hosts that commas separate; there is one at least.
fn each_host(before: &str, hosts: &str, port: u16) -> Result<Vec<ConnectionInfo>, String> {
    let one = |host: &str| {
        let port = if has_port(host) { String::new() } else { format!(":{port}") };
        format!("{before}{host}{port}").into_connection_info().map_err(|error| format!("is no address: {error}"))
    };
    hosts.split(',').map(one).collect()
}

/// Whether a port follows the host, which may be an IPv6 address in brackets.
fn has_port(host: &str) -> bool {
    host.rsplit_once(']').map_or(host, |(_, port)| port).contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x2_sentinels_are_in_the_address() {
        let address = Address::parse("redis-sentinel://me:p%40ss@a:1,b,[::1],[::2]:3/4#main").unwrap();
        let Address::Sentinels { sentinels, name, node } = address else { unreachable!("Sentinels") };
        let hosts: Vec<String> = sentinels.iter().map(|info| info.addr().to_string()).collect();
        assert_eq!((hosts.join(" ").as_str(), name.as_str()), ("a:1 b:26379 ::1:26379 ::2:3", "main"));
        let settings = node.redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("me"), Some("p@ss"), 4));
        assert!(sentinels.iter().all(|info| info.redis_settings().password().is_none()));
    }

    #[test]
    fn q17_nodes_of_a_cluster_are_in_the_address() {
        let address = Address::parse("redis-cluster://me:p%40ss@a:1,b,[::1]:3").unwrap();
        let Address::Cluster { seeds } = &address else { unreachable!("a cluster") };
        let hosts: Vec<String> = seeds.iter().map(|info| info.addr().to_string()).collect();
        assert_eq!(hosts.join(" "), "a:1 b:6379 ::1:3");
        assert!(seeds.iter().all(|info| info.redis_settings().password() == Some("p@ss")));
        assert_eq!(address.node().redis_settings().username(), Some("me"));
    }

    #[test]
    fn x2_bad_addresses_are_refused_without_a_quotation() {
        for url in [
            "redis-sentinel://u:pass@a:1",
            "redis-sentinel://u:pass@a:1#",
            "redis-sentinel://u:pass@a:port#m",
            "pass://",
            "redis-cluster://u:pass@a:1/3",
            "redis-cluster://u:pass@a:port",
        ] {
            let why = Address::parse(url).err().expect("refused");
            assert!(!why.contains("pass"), "{why}");
        }
    }
}
