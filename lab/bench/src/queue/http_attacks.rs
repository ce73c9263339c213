//! Attacks over HTTP, on a server of the counters: configurations that nest deeply, and what foreign pages send (S7). The
//! innocent caller adds to a counter over HTTP.

use super::attack_cost::{Footprint, LEAD, Measured};
use super::attacks::paced;
use super::innocent::Schedule;
use super::plan::QueuePlan;
use crate::program::Program;
use crate::rig::Rig;
use crate::sample::Sample;
use anyhow::{Result, ensure};
use reqwest::header::{CONTENT_TYPE, HOST, ORIGIN};
use reqwest::{Client, RequestBuilder};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};
use tallystone_client::{CounterClient, NamespaceConfig};
use tallystone_counters::namespace::ARTICLE_EXAMPLE;
use tokio::task::JoinSet;

const NAMESPACE: &str = "n";
/// The address of the innocent caller. The attacker has 127.0.0.1.
const INNOCENT: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// A call that adds to a counter.
const ADD: &str = r#"{"namespace":"n","counter":"c","delta":1}"#;
/// Calls of an attack.
const CALLS: u32 = 3_000;
const DEPTH: usize = 5_000;
const JSON: &str = "application/json";

/// One attack.
#[derive(Clone, Copy)]
pub(super) enum HttpAttack {
    /// Configurations of a namespace whose `scope` nests.
    Nested,
    /// Adds that foreign web pages send: cross-origin as plain text, and through a rebound DNS name.
    Foreign,
}

impl HttpAttack {
    pub(super) const ALL: [HttpAttack; 2] = [HttpAttack::Nested, HttpAttack::Foreign];

    pub(super) fn name(self) -> &'static str {
        match self {
            HttpAttack::Nested => "3,000 configurations that nest 5,000 levels",
            HttpAttack::Foreign => "3,000 adds of foreign pages",
        }
    }

    /// The call with this number.
    fn request(self, http: &Client, url: &str, n: usize) -> RequestBuilder {
        let add = |content_type: &str| post(http, url).header(CONTENT_TYPE, content_type);
        match self {
            HttpAttack::Nested => {
                let put = http.put(format!("{url}/v1/namespaces/{NAMESPACE}/persistence_configuration"));
                put.header(CONTENT_TYPE, JSON).body(nested())
            }
            HttpAttack::Foreign if n.is_multiple_of(2) => add("text/plain").header(ORIGIN, "http://evil.example"),
            HttpAttack::Foreign => add(JSON).header(HOST, "evil.example"),
        }
    }

    /// Starts it. Its calls are spread over this time; it ends when it is dropped.
    fn start(self, http: Client, url: String, lasts: Duration) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        tasks.spawn(paced(CALLS, lasts, move |n| {
            let request = self.request(&http, &url, n);
            async move { drop(request.send().await) }
        }));
        tasks
    }
}

fn nested() -> String {
    let scope = format!(r#""id": "CACHE", "scope": {}1{},"#, "[".repeat(DEPTH), "]".repeat(DEPTH));
    ARTICLE_EXAMPLE.replacen(r#""id": "CACHE","#, &scope, 1)
}

/// An add without a Content-Type.
fn post(http: &Client, url: &str) -> RequestBuilder {
    http.post(format!("{url}/v1/add_count")).body(ADD)
}

pub(super) async fn sample(plan: &QueuePlan, rig: &Rig, attack: HttpAttack, measured: &mut Measured) -> Result<()> {
    let dir = tempfile::tempdir()?;
    rig.flush().await?;
    let redis_url = rig.url();
    let arguments = ["counters", "--redis-url", &redis_url, "--server", "http://127.0.0.1:1"];
    let (mut program, url) = Program::serve(None, dir.path(), &arguments).await?;
    CounterClient::connect(&url).await?.put_namespace(NAMESPACE, NamespaceConfig::default()).await?;
    let http = Client::builder().no_proxy().build()?;
    // The server must refuse all of them: accepted calls would be load, not an attack.
    for n in 0..2 {
        let status = attack.request(&http, &url, n).send().await?.status();
        ensure!(status.is_client_error(), "{}: {status}", attack.name());
    }
    measured.before.push(p99(&url, Instant::now(), plan.sizes.fair).await?);
    let footprint = Footprint::before(&mut program, rig).await?;
    let attacking = attack.start(http, url.clone(), LEAD + plan.sizes.fair);
    measured.during.push(p99(&url, Instant::now() + LEAD, plan.sizes.fair).await?);
    measured.note(&footprint, &Footprint::read(&mut program, rig).await?);
    drop(attacking);
    program.stop().await
}

/// Adds at a steady rate, from a separate address: each address has a share of the connections, and when the machine stalls, the
/// attacker can use up the share of its address.
async fn p99(url: &str, begins: Instant, lasts: Duration) -> Result<Sample> {
    let http = Client::builder().no_proxy().local_address(INNOCENT).build()?;
    let calls = Schedule { begins, lasts }.calls(|_| {
        let add = post(&http, url).header(CONTENT_TYPE, JSON);
        async move {
            let status = add.send().await?.status();
            ensure!(status.is_success(), "an add of the innocent caller: {status}");
            Ok(())
        }
    });
    let stats = calls.await?;
    Ok(stats.sample(stats.quantile_ms(0.99).unwrap_or_default()))
}
