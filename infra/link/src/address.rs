//! `redis.url`: one Redis, or the Sentinels that know which one is the primary (X2).

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
}

const SENTINEL_PORT: u16 = 26379;

impl Address {
    /// Reads an address. An error does not quote it: it may have a password.
    pub(crate) fn parse(url: &str) -> Result<Address, String> {
        let info = |url: &str| url.into_connection_info().map_err(|error| format!("is no address: {error}"));
        let (scheme, rest) = match url.split_once("://") {
            Some(("redis-sentinel", rest)) => ("redis", rest),
            Some(("rediss-sentinel", rest)) => ("rediss", rest),
            _ => return Ok(Address::One(info(url)?)),
        };
        let Some((rest, name)) = rest.rsplit_once('#').filter(|(_, name)| !name.is_empty()) else {
            return Err("has no name of the primary behind '#'".to_owned());
        };
        let (login, rest) = rest.rsplit_once('@').map_or(("", rest), |(login, rest)| (login, rest));
        let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
        let at = if login.is_empty() { "" } else { "@" };
        let node = info(&format!("{scheme}://{login}{at}primary/{database}"))?;
        let sentinel = |host: &str| {
            let port = if has_port(host) { String::new() } else { format!(":{SENTINEL_PORT}") };
            info(&format!("{scheme}://{host}{port}"))
        };
        let sentinels = hosts.split(',').map(sentinel).collect::<Result<_, _>>()?;
        Ok(Address::Sentinels { sentinels, name: name.to_owned(), node })
    }

    /// How the primary is reached.
    pub(crate) fn node(&self) -> &ConnectionInfo {
        match self {
            Address::One(node) | Address::Sentinels { node, .. } => node,
        }
    }
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
    fn x2_bad_addresses_are_refused_without_a_quotation() {
        for url in [
            "redis-sentinel://u:pass@a:1",
            "redis-sentinel://u:pass@a:1#",
            "redis-sentinel://u:pass@a:port#m",
            "pass://",
        ] {
            let why = Address::parse(url).err().expect("refused");
            assert!(!why.contains("pass"), "{why}");
        }
    }
}
