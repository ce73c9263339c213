//! S2, S3: certificates and tokens are replaced several times while clients call, and no call fails. No client repeats one.

use super::certificates::Ca;
use super::secured::{Listening, Principals, Secured};
use super::tls::{EXPIRY, metric};
use crate::system::program::{SOON, until};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tallystone_client::{Client, ClientBuilder, NewMessage};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

const POLL: Duration = Duration::from_millis(10);
/// How often the files are replaced.
const TIMES: usize = 5;
/// The calls that each caller makes before the next time.
const CALLS: u64 = 5;

/// Tasks that call, one call after the other.
#[derive(Default)]
struct Callers {
    all: Vec<(Arc<AtomicU64>, JoinHandle<()>)>,
    stop: CancellationToken,
}

impl Callers {
    /// One more; a call that fails panics.
    fn add<F: Future<Output = ()> + Send + 'static>(&mut self, call: impl Fn(u64) -> F + Send + 'static) {
        let (made, stop) = (Arc::new(AtomicU64::new(0)), self.stop.clone());
        let count = made.clone();
        let task = tokio::spawn(async move {
            while !stop.is_cancelled() {
                call(count.load(Ordering::Relaxed)).await;
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        self.all.push((made, task));
    }

    /// Waits until each has made some calls from now on.
    async fn go_on(&mut self) {
        let give_up_at = Instant::now() + SOON;
        for (made, task) in &mut self.all {
            let enough = made.load(Ordering::Relaxed) + CALLS;
            while made.load(Ordering::Relaxed) < enough {
                if task.is_finished() {
                    (&mut *task).await.expect("no call fails");
                }
                assert!(Instant::now() < give_up_at, "a caller does not go on");
                sleep(POLL).await;
            }
        }
    }

    async fn end(self) {
        self.stop.cancel();
        let mut calls = 0;
        for (made, task) in self.all {
            task.await.expect("no call fails");
            calls += made.load(Ordering::Relaxed);
        }
        println!("{calls} calls, and none has failed");
    }
}

async fn works(client: &Client, queue: &str, id: String) {
    let enqueued = client.enqueue(queue, vec![NewMessage::new(id, "payload")]).await.expect("an Enqueue");
    assert!(enqueued.iter().all(Result::is_ok), "{enqueued:?}");
}

/// Callers that keep their connection, and one that makes a new one for each call. Each has its own queue.
async fn callers(connect: impl Fn() -> ClientBuilder<Client> + Send + Sync + 'static) -> (Callers, Vec<String>) {
    let mut callers = Callers::default();
    let mut queues = Vec::new();
    for number in 0..2 {
        let queue = format!("keeps-{number}");
        queues.push(queue.clone());
        let client = connect().connect().await.expect("a server");
        callers.add(move |number| {
            let (client, queue) = (client.clone(), queue.clone());
            async move { works(&client, &queue, number.to_string()).await }
        });
    }
    queues.push("new".to_owned());
    let connect = Arc::new(connect);
    callers.add(move |number| {
        let connect = connect.clone();
        async move {
            let client = connect().connect().await.expect("a new connection");
            works(&client, "new", number.to_string()).await;
        }
    });
    (callers, queues)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s2_no_call_fails_while_the_certificate_is_replaced() {
    let place = Secured::new().await;
    let dir = place.dir.path();
    let clients = Ca::new(dir, "clients");
    let shown = clients.client(dir, "caller", "");
    let mut flags = place.tls();
    flags.extend(["--tls-client-ca", clients.file.to_str().expect("text")]);
    // The page of metrics, over the same certificate, is read without one of a client.
    let config = place.path("t.toml");
    std::fs::write(&config, "[tls]\nclient_certificates = 'optional'\n").expect("a file");
    flags.extend(["--config", &config]);
    let server = place.start("server", &flags).await;
    let (url, ca) = (server.https(), place.ca.file.clone());
    let connect = move || {
        let builder = Client::builder(&url).retry_for(Duration::ZERO).call_timeout(SOON).ca_file(&ca);
        builder.certificate_files(&shown.certificate, &shown.key)
    };
    let (mut callers, _) = callers(connect).await;
    callers.go_on().await;
    for year in (2050..).take(TIMES) {
        // The key first: for a moment it does not fit the certificate.
        let expires_s = place.ca.server_until(dir, year);
        let is_new = async || metric(&server, &place.ca, EXPIRY).await == expires_s as f64;
        until("the server reads its certificate again", is_new).await;
        callers.go_on().await;
    }
    callers.end().await;
    assert_eq!(server.process.stop().await.code(), Some(0));
}

/// Whether the audit log has a call of this principal on each of these queues.
fn has_called(audit: &str, principal: &str, queues: &[String]) -> bool {
    let text = std::fs::read_to_string(audit).expect("the audit log");
    // The last line may be on its way.
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let is_of = |line: &Value, queue: &str| line["principal"] == principal && line["names"][0] == queue;
    queues.iter().all(|queue| lines.iter().any(|line| is_of(line, queue)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_no_call_fails_while_tokens_are_replaced() {
    let place = Secured::new().await;
    let add = |number: usize| {
        let mut principals = Principals::default();
        let token = principals.add(&format!("caller-{number}"), &["admin:*"], ["", ""]);
        (principals, token)
    };
    let (mut present, mut token) = add(0);
    let [path, config, audit] = ["principals.toml", "t.toml", "audit.log"].map(|name| place.path(name));
    present.write(Path::new(&path));
    std::fs::write(&config, "[audit]\nall_calls = true\n").expect("a file");
    let token_path = place.token_file("token", &token);
    let token_file = token_path.clone();
    let flags = ["--principals", &path, "--audit-file", &audit, "--config", &config];
    let server: Listening = place.start("server", &flags).await;
    let url = format!("http://{}", server.address);
    let connect = move || Client::builder(&url).retry_for(Duration::ZERO).call_timeout(SOON).token_file(&token_file);
    let (mut callers, queues) = callers(connect).await;
    callers.go_on().await;
    let is_known = async |token: &str| server.client(token).list_queues("", 1, "").await.is_ok();
    for number in 1..=TIMES {
        // As the documentation says: both tokens are valid until every caller has the new one.
        let (next, next_token) = add(number);
        present.and(&next).replace(Path::new(&path));
        until("the new token is known", async || is_known(&next_token).await).await;
        // A new client that read it while it is written would have no token.
        std::fs::rename(place.token_file("token.next", &next_token), &token_path).expect("a file");
        let name = format!("caller-{number}");
        until("every caller uses the new token", async || has_called(&audit, &name, &queues)).await;
        next.replace(Path::new(&path));
        until("the old token is not valid any more", async || !is_known(&token).await).await;
        callers.go_on().await;
        (present, token) = (next, next_token);
    }
    callers.end().await;
    assert_eq!(server.process.stop().await.code(), Some(0));
}
