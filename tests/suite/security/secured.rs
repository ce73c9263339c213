//! A process with certificates and principals.

use super::certificates::{Ca, Files};
use crate::system::program::{self, Running};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use tallystone_client::{Client, Code, Error};
use tallystone_serving::{Right, Token};
use tallystone_tests::{TestRedis, lasting_port};
use tempfile::TempDir;
use tokio::time::Duration;

/// The methods of a path, by its refusal of one that it does not have, each in front of the path.
pub(super) fn methods_of(refused: &reqwest::Response, path: &str) -> Vec<String> {
    assert_eq!(refused.status(), 405, "{path}");
    let methods = refused.headers()["allow"].to_str().expect("text");
    // A GET of axum serves HEAD, too.
    methods.split(',').filter(|of| *of != "HEAD").map(|of| format!("{of} {path}")).collect()
}

/// Principals with a token each, as the file has them.
#[derive(Clone, Default)]
pub(super) struct Principals {
    text: String,
}

impl Principals {
    /// Adds a principal, and returns its token. `rest` is more TOML of the principal, and then of its token.
    pub(super) fn add(&mut self, name: &str, rights: &[&str], [of_principal, of_token]: [&str; 2]) -> String {
        let Token { text, id, sha256 } = Token::new().expect("random numbers");
        let (rights, entry) = (serde_json::to_string(rights).expect("text"), "[[principal.tokens]]");
        self.text += &format!("[[principal]]\nname = '{name}'\nrights = {rights}\n{of_principal}\n");
        self.text += &format!("{entry}\nid = '{id}'\nsha256 = '{sha256}'\n{of_token}\n");
        text
    }

    /// Adds two principals for each right but `admin`: one with this right alone on these names, and one with all rights
    /// but this one. Returns their tokens by the name of the right.
    pub(super) fn add_for_each_right(&mut self, names: &str) -> BTreeMap<&'static str, [String; 2]> {
        let add = |right: Right| {
            let (only, denial) = (format!("{right}:{names}"), format!("deny:{right}:{names}"));
            let only = self.add(&format!("only-{right}"), &[&only], ["", ""]);
            let all_but = self.add(&format!("all-but-{right}"), &["admin:*", &denial], ["", ""]);
            (right.name(), [only, all_but])
        };
        Right::ALL.into_iter().filter(|right| *right != Right::Admin).map(add).collect()
    }

    /// Puts this in place of that, in all of them.
    pub(super) fn change(&mut self, this: &str, that: &str) {
        self.text = self.text.replace(this, that);
    }

    /// These and the others.
    pub(super) fn and(&self, others: &Principals) -> Principals {
        Principals { text: format!("{}{}", self.text, others.text) }
    }

    /// Puts a file with them in the place of another one: who reads it finds one or the other, and never a part.
    pub(super) fn replace(&self, path: &Path) {
        let next = path.with_extension("next");
        self.write(&next);
        std::fs::rename(next, path).expect("a file");
    }

    /// Writes them to a file.
    pub(super) fn write(&self, path: &Path) {
        std::fs::write(path, &self.text).expect("a file");
    }
}

/// A folder, and the processes that a test starts with files in it.
pub(super) struct Secured {
    pub(super) dir: TempDir,
    pub(super) redis: TestRedis,
    pub(super) ca: Ca,
    pub(super) server: Files,
}

/// A process that listens.
pub(super) struct Listening {
    pub(super) address: SocketAddr,
    pub(super) metrics: SocketAddr,
    pub(super) process: Running,
}

impl Secured {
    pub(super) async fn new() -> Secured {
        let (redis, dir) = (TestRedis::start().await, TempDir::new().expect("a temporary folder"));
        let ca = Ca::new(dir.path(), "ca");
        let server = ca.server(dir.path());
        Secured { dir, redis, ca, server }
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().expect("text").to_owned()
    }

    /// Writes a token to a file, and returns its path.
    pub(super) fn token_file(&self, name: &str, token: &str) -> String {
        let path = self.path(name);
        super::certificates::write_private(Path::new(&path), token);
        path
    }

    /// The flags of a server's certificate.
    pub(super) fn tls(&self) -> Vec<&str> {
        let Files { certificate, key } = &self.server;
        vec!["--tls-cert", certificate.to_str().expect("text"), "--tls-key", key.to_str().expect("text")]
    }

    /// Starts a verb on the Redis of this place, and waits until it listens.
    pub(super) async fn start(&self, verb: &str, args: &[&str]) -> Listening {
        let url = self.redis.url();
        self.start_with(verb, &[&["--allow-volatile", "--redis-url", &url], args].concat()).await
    }

    /// The same on a Redis that the arguments name.
    pub(super) async fn start_with(&self, verb: &str, args: &[&str]) -> Listening {
        let [address, metrics] = [(); 2].map(|()| SocketAddr::from((Ipv4Addr::LOCALHOST, lasting_port())));
        let mut command = program::command(&[verb, "--log", "warn"]);
        command.args(["--metrics-listen", &metrics.to_string()]).args(args).stdin(Stdio::null());
        // A rollup worker has only the port of metrics.
        let waits_for = if verb == "rollup-worker" { metrics } else { address };
        if verb != "rollup-worker" {
            command.args(["--listen", &address.to_string()]);
        }
        let mut process = Running::start(command);
        process.listens(waits_for).await;
        Listening { address, metrics, process }
    }
}

impl Listening {
    /// Its address for clients with TLS.
    pub(super) fn https(&self) -> String {
        format!("https://{}", self.address)
    }

    /// A client in plain text with this token.
    pub(super) fn client(&self, token: &str) -> Client {
        let builder = Client::builder(format!("http://{}", self.address)).retry_for(Duration::ZERO).token(token);
        builder.connect_lazy().expect("a good address")
    }
}

/// The code and the reason of a refusal.
pub(super) fn refused<T: Debug>(answer: Result<T, Error>) -> (Code, String) {
    match answer {
        Err(Error::Refused(refused)) => (refused.code, refused.reason),
        other => panic!("no refusal: {other:?}"),
    }
}
