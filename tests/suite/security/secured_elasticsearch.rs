//! An Elasticsearch with TLS, whose users have the rights of a role each.

use super::secured::Secured;
use serde_json::json;
use std::path::Path;
use tallystone_local::{PrivateElasticsearch, PrivateElasticsearchOptions};

/// The prefix of the indices on which the users have rights.
pub(super) const INDEX_PREFIX: &str = "s6";
/// The password of each user, [`PASSWORD`](super::secured_kafka::PASSWORD), by bcrypt.
const HASH: &str = "$2a$04$abcdefghijklmnopqrstuuOzFlVfGXGZ54mnJRNwhQ6.hDjjFNe5i";

/// A user, its privileges on the cluster, and those on the indices.
pub(super) struct User<'a>(pub(super) &'a str, pub(super) &'a [&'a str], pub(super) &'a [&'a str]);

impl User<'_> {
    fn role(&self) -> String {
        let User(name, cluster, privileges) = self;
        let indices = [json!({"names": [format!("{INDEX_PREFIX}-*")], "privileges": privileges})];
        format!("{name}: {}\n", json!({"cluster": cluster, "indices": indices}))
    }
}

/// Starts it. Users come from files: it has not the modules that it needs to keep users and API keys in an index.
pub(super) async fn start(place: &Secured, users: &[User<'_>]) -> PrivateElasticsearch {
    let settings = [
        ("xpack.security.enabled", "true"),
        ("xpack.security.http.ssl.enabled", "true"),
        ("xpack.security.http.ssl.certificate", "server.crt"),
        ("xpack.security.http.ssl.key", "server.key"),
    ];
    let lines = |line: fn(&User<'_>) -> String| users.iter().map(line).collect::<String>();
    let read = |path: &Path| std::fs::read_to_string(path).expect("a file");
    let files = [
        ("server.crt", read(&place.server.certificate)),
        ("server.key", read(&place.server.key)),
        ("users", lines(|User(name, ..)| format!("{name}:{HASH}\n"))),
        ("users_roles", lines(|User(name, ..)| format!("{name}:{name}\n"))),
        ("roles.yml", lines(|user| user.role())),
    ];
    let options = PrivateElasticsearchOptions {
        settings: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        files: files.map(|(name, text)| (name.to_owned(), text)).to_vec(),
        ..PrivateElasticsearchOptions::new(place.dir.path().join("elasticsearch"))
    };
    PrivateElasticsearch::start(options).await.expect("an Elasticsearch")
}
