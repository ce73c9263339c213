//! Where the archive is, and how it is opened.

use crate::error::ArchiveError;

/// Where Cassandra listens by default.
const PORT: u16 = 9_042;
/// The longest name of a keyspace that Cassandra takes.
const KEYSPACE_MAX: usize = 48;

/// A keyspace of a cluster. It has a password, so it has no `Debug`.
#[derive(PartialEq, Eq)]
pub(crate) struct Address {
    /// Nodes with which the first connection may be made, each HOST or HOST:PORT.
    pub(crate) nodes: Vec<String>,
    pub(crate) keyspace: String,
    /// Of the user, with a password.
    pub(crate) user: Option<(String, String)>,
    /// The data center whose nodes are called; `None`: all.
    pub(crate) datacenter: Option<String>,
}

impl Address {
    /// Of `HOST[:PORT][,HOST…]/KEYSPACE`, with options by their names in small letters. Options that it does not
    /// have are ignored.
    ///
    /// # Errors
    /// [`ArchiveError::Invalid`].
    pub(crate) fn parse(
        address: &str,
        options: impl Iterator<Item = (String, String)>,
    ) -> Result<Address, ArchiveError> {
        let parts =
            address.split_once('/').filter(|(nodes, keyspace)| nodes.split(',').all(is_node) && is_keyspace(keyspace));
        // It is not shown: it may have a password.
        let malformed = || {
            let why = "must be like cassandra://HOST:9042,HOST:9042/KEYSPACE, the keyspace in small letters, digits and _; \
                       CASSANDRA_USERNAME and CASSANDRA_PASSWORD are the user";
            ArchiveError::invalid(why)
        };
        let (nodes, keyspace) = parts.ok_or_else(malformed)?;
        let nodes = nodes.split(',').map(node).collect();
        let mut address = Address { nodes, keyspace: keyspace.to_owned(), user: None, datacenter: None };
        let (mut name, mut password) = (None, None);
        for (option, value) in options.filter(|(_, value)| !value.is_empty()) {
            match option.as_str() {
                "cassandra_username" => name = Some(value),
                "cassandra_password" => password = Some(value),
                "cassandra_datacenter" => address.datacenter = Some(value),
                _ => {}
            }
        }
        address.user = match (name, password) {
            (Some(name), Some(password)) => Some((name, password)),
            (None, None) => None,
            _ => return Err(ArchiveError::invalid("CASSANDRA_USERNAME and CASSANDRA_PASSWORD need each other")),
        };
        Ok(address)
    }
}

/// As the driver reads it: an address of IPv6 needs its port.
fn node(node: &str) -> String {
    if node.ends_with(']') { format!("{node}:{PORT}") } else { node.to_owned() }
}

fn is_node(node: &str) -> bool {
    !node.is_empty() && node.chars().all(|c| c.is_ascii_alphanumeric() || ".-_:[]".contains(c))
}

/// Whether CQL means the same with and without quotes.
fn is_keyspace(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    name.len() <= KEYSPACE_MAX && name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(address: &str, options: &[(&str, &str)]) -> Result<Address, ArchiveError> {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Address::parse(address, options)
    }

    #[test]
    fn n21_an_address_names_nodes_and_a_keyspace() {
        let address = parse("one,two:9142,[::1]:9043,[::2]/events_1", &[("cassandra_service_host", "x")]).unwrap();
        assert_eq!(address.nodes, ["one", "two:9142", "[::1]:9043", "[::2]:9042"]);
        assert_eq!((address.keyspace.as_str(), address.user, address.datacenter), ("events_1", None, None));
        let bad = [
            "one",
            "/events",
            "one,/events",
            "user:secret@one/events",
            "one/Events",
            "one/1events",
            "one/events/more",
            "one/",
        ];
        for bad in bad {
            let error = parse(bad, &[]).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains("must be like") && !error.contains("secret"), "{bad}: {error}");
        }
    }

    #[test]
    fn n21_a_user_has_a_password() {
        let options =
            [("cassandra_username", "me"), ("cassandra_password", "secret"), ("cassandra_datacenter", "east")];
        let address = parse("one/events", &options).unwrap();
        assert_eq!(address.user, Some(("me".to_owned(), "secret".to_owned())));
        assert_eq!(address.datacenter.as_deref(), Some("east"));
        assert!(parse("one/events", &options[..1]).is_err());
        assert!(parse("one/events", &options[1..]).is_err());
    }
}
