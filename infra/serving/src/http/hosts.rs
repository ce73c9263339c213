//! The `Host` of a call (S7). A page of `evil.example` can let this name resolve to the address of this port (DNS
//! rebinding). The browser then sends the page's calls here, as calls of the same origin. Only their `Host` differs.

use super::FaultBody;
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use tallystone_model::ConfigError;

/// The longest name in DNS.
const NAME_BYTES_MAX: usize = 253;

/// The names under which a host serves HTTP: those of its configuration, and loopback names. IP addresses are always
/// allowed: a browser does not resolve them.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostNames(Arc<[String]>);

impl HostNames {
    pub(crate) fn new(names: &[String]) -> HostNames {
        HostNames(names.iter().map(|name| name.to_ascii_lowercase()).collect())
    }

    /// Refuses a call without a host, or with a host of another name (421).
    pub(super) fn check(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), FaultBody> {
        // HTTP/2 has it as `:authority`; HTTP/1 may have both.
        let of_uri = uri.authority().map(Authority::as_str);
        let of_headers = headers.get_all(HOST).into_iter().map(|value| value.to_str().unwrap_or("unreadable"));
        let mut all = of_uri.into_iter().chain(of_headers).peekable();
        if all.peek().is_none() {
            return Err(FaultBody::bad_host("is missing"));
        }
        match all.find(|authority| !self.allows(authority)) {
            Some(name) => Err(FaultBody::bad_host(format_args!(
                "{name:?} is no IP address, no loopback name, and not in the setting http_hosts"
            ))),
            None => Ok(()),
        }
    }

    fn allows(&self, authority: &str) -> bool {
        let name = without_port(authority).to_ascii_lowercase();
        if let Some(v6) = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
            return v6.parse::<Ipv6Addr>().is_ok();
        }
        let is_loopback = name == "localhost" || name.ends_with(".localhost");
        is_loopback || name.parse::<Ipv4Addr>().is_ok() || self.0.contains(&name)
    }
}

/// `name:7610` as `name`. What follows the last colon is no port if it is not a number.
fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => authority,
    }
}

/// Checks the names that a section of the configuration allows. `field` names the list in the error.
pub fn check_host_names(field: &str, names: &[String]) -> Result<(), ConfigError> {
    let is_name = |name: &str| {
        let is_label = |label: &str| {
            !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        name.len() <= NAME_BYTES_MAX && name.split('.').all(is_label)
    };
    match names.iter().position(|name| !is_name(name)) {
        Some(number) => Err(ConfigError::new(
            format!("{field}[{number}]"),
            format!(
                "is {:?}; must be a name without scheme and port, such as counters.example.com, of A-Z a-z 0-9 . _ -",
                names[number]
            ),
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn s7_only_addresses_loopback_names_and_configured_names_are_hosts_of_this_port() {
        let hosts = HostNames::new(&names(&["Counters.example", "counters"]));
        for allowed in [
            "127.0.0.1:7610",
            "127.0.0.1",
            "10.0.0.5:80",
            "[::1]:7610",
            "[::1]",
            "[fd00::5]:7610",
            "localhost",
            "LocalHost:7610",
            "a.localhost:1",
            "a.b.localhost",
            "counters",
            "counters:80",
            "counters.EXAMPLE:7610",
        ] {
            assert!(hosts.allows(allowed), "{allowed}");
        }
        for refused in [
            "",
            ":7610",
            "evil.example:7610",
            "evil.example",
            "counters.example.evil.example",
            "a.counters.example",
            "localhost.evil.example",
            "evillocalhost",
            ".evil:1",
            "127.0.0.1.evil.example",
            "127.0.0.1.",
            "2130706433",
            "127.1",
            "::1",
            "[evil.example]:1",
            "[::1]evil.example",
            "evil@127.0.0.1",
            "127.0.0.1@evil.example:80",
            "localhost:80:80",
            "évil",
            "localhost/",
            "counters.example.",
        ] {
            assert!(!hosts.allows(refused), "{refused}");
        }
        assert!(!HostNames::default().allows("counters.example"));
    }

    #[test]
    fn s7_every_host_of_a_call_is_checked() {
        let hosts = HostNames::default();
        let refused = |of_headers: &[&str], uri: &'static str| {
            let headers = of_headers.iter().map(|value| (HOST, value.parse().unwrap())).collect();
            hosts.check(&headers, &Uri::from_static(uri)).is_err()
        };
        assert!(!refused(&["localhost:7610"], "/v1/add_count"));
        assert!(!refused(&[], "http://localhost:7610/v1/add_count"), "HTTP/2");
        assert!(refused(&[], "/v1/add_count"));
        assert!(refused(&["évil"], "/v1/add_count"), "not ASCII");
        assert!(refused(&["localhost", "evil.example"], "/v1/add_count"));
        assert!(refused(&["evil.example"], "http://localhost:7610/v1/add_count"));
        assert!(refused(&["localhost"], "http://evil.example/v1/add_count"));
    }

    #[test]
    fn s7_configured_names_have_neither_scheme_nor_port() {
        let field =
            |list: &[&str]| check_host_names("counters.http_hosts", &names(list)).err().map(|error| error.field);
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        assert_eq!(field(&["counters", "counters.example.com", "xn--bcher-kva.example", "a_b"]), None);
        for bad in
            ["", "http://counters", "counters:7610", "a b", "a/b", "*", "*.example", ".", "a.", ".a", "bücher", &long]
        {
            assert_eq!(field(&["counters", bad]).as_deref(), Some("counters.http_hosts[1]"), "{bad}");
        }
    }
}
