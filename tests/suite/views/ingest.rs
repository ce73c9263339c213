//! A process that accepts views dies at each step of that. Its callers post what had no 202 again, at another process, and the counts
//! are those of an oracle (V1, V3).

use super::life::PARTITIONS;
use super::load::{is_accepted, until_accepted};
use super::machines::Machines;
use super::stage::Http;
use super::view;
use crate::counting::house::until;
use crate::crash::life::{self, End, Life};
use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::Value;
use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tallystone_client::CounterClient;
use tallystone_serving::{Host, Running};
use tallystone_tests::{lasting_port, volatile};
use tallystone_views::log::ViewLog;
use tallystone_views::{StepObserver, ViewService, ViewsConfig, api};
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// The steps at which it dies. It comes to the last one when a caller has the 202.
pub(crate) const STEPS: [&str; 3] = ["views go to the log", IN_THE_LOG, IS_ACCEPTED];
const IN_THE_LOG: &str = "views are in the log";
const IS_ACCEPTED: &str = "a caller has its 202";
/// How often the process reaches the step. It dies at the last time: earlier views have their 202.
const TIMES: usize = 12;

const POSTERS: usize = 4;
const VIDEOS: usize = 8;
/// Users whose views each poster posts: those of one video one by one and twice, those of all videos in batches.
const USERS: usize = 12;

type Pair = (String, String);

/// Pairs that were posted in one call, and whether they were accepted.
struct Posted {
    pairs: Vec<Pair>,
    is_accepted: bool,
}

fn bodies(pairs: &[Pair]) -> Vec<Value> {
    pairs.iter().map(|(video, user)| view(video, user)).collect()
}

/// What was posted to all processes that have died.
#[derive(Default)]
pub(crate) struct Round {
    posted: Vec<(&'static str, Posted)>,
}

impl Round {
    /// Posts to a process while it dies at this step. `start` starts it on a port.
    pub(crate) async fn dies_at(&mut self, step: &'static str, start: impl Fn(u16, &str) -> Life) {
        let port = lasting_port();
        let life = start(port, step);
        let http = || Http::new(format!("http://127.0.0.1:{port}"));
        let ready = async || http().try_call(Method::GET, "/readyz", String::new()).await.ok();
        until(ready, |answer| matches!(answer, Some((200, _)))).await;
        let accepted = Arc::new(Notify::new());
        let post = |poster| tokio::spawn(post(http(), step, poster, accepted.clone()));
        let posters: Vec<_> = (0..POSTERS).map(post).collect();
        if step == IS_ACCEPTED {
            accepted.notified().await;
            // SIGKILL.
            drop(life);
        } else {
            life.dies().await;
        }
        for poster in posters {
            self.posted.extend(poster.await.expect("no panic").into_iter().map(|posted| (step, posted)));
        }
    }

    /// Posts what was not accepted once more. Returns when the counts are exact, which `has_counted_all` waits for.
    pub(crate) async fn is_exact_after_repetition(&self, http: &Http, has_counted_all: impl Future<Output = ()>) {
        for (_, posted) in &self.posted {
            if !posted.is_accepted {
                until_accepted(http, &bodies(&posted.pairs)).await;
            }
        }
        has_counted_all.await;
        for step in STEPS {
            let of_step = || self.posted.iter().filter(|(at, _)| *at == step).map(|(_, posted)| posted);
            assert!(of_step().any(|posted| posted.is_accepted), "nothing was accepted before: {step}");
            assert!(of_step().any(|posted| !posted.is_accepted), "nothing was posted again: {step}");
            let mut counted_without_202 = 0;
            for video in 0..VIDEOS {
                let video = name(step, video);
                let pairs =
                    |posted: &&Posted| posted.pairs.iter().filter(|pair| pair.0 == video).cloned().collect::<Vec<_>>();
                let all: Vec<Pair> = of_step().flat_map(|posted| pairs(&posted)).collect();
                let repeated = of_step().filter(|posted| !posted.is_accepted).flat_map(|posted| pairs(&posted)).count();
                // Each view is in the log once, and once more if it was there without a 202.
                let (once, users) = (all.len() as u64, all.iter().collect::<BTreeSet<_>>().len() as u64);
                let path = format!("/v1/videos/{video}/views");
                let counts = http
                    .until(&path, |counts| counts["viewCount"] == users && counts["pageViews"].as_u64() >= Some(once));
                let without_202 = counts.await["pageViews"].as_u64().expect("a count") - once;
                assert!(without_202 <= repeated as u64, "{without_202} too many of {video}, {repeated} were repeated");
                counted_without_202 += without_202;
            }
            if step == IN_THE_LOG {
                assert!(counted_without_202 > 0, "every view in the log had its 202");
            }
        }
    }
}

fn name(step: &str, video: usize) -> String {
    format!("{}-{video}", step.replace(' ', "-"))
}

/// Makes all calls. After the process has died, none of the others gets an answer.
async fn post(http: Http, step: &'static str, poster: usize, accepted: Arc<Notify>) -> Vec<Posted> {
    let mut calls = Vec::new();
    for user in (0..USERS).map(|user| format!("u{poster}-{user}")) {
        let single = vec![(name(step, poster), user.clone())];
        calls.extend([single.clone(), single]);
        calls.push((0..VIDEOS).map(|video| (name(step, video), user.clone())).collect());
    }
    let mut posted = Vec::new();
    for pairs in calls {
        let is_accepted = is_accepted(&http, &bodies(&pairs)).await;
        if is_accepted {
            accepted.notify_one();
        }
        posted.push(Posted { pairs, is_accepted });
    }
    posted
}

/// An observer that ends the process when this step is reached for the last of [`TIMES`].
pub(crate) fn ends_at(step_of_end: String, its_end: End) -> StepObserver {
    let times = AtomicUsize::new(0);
    Arc::new(move |step| {
        if step == step_of_end && times.fetch_add(1, Ordering::SeqCst) + 1 == TIMES {
            its_end.come();
        }
    })
}

/// Serves on this port until the process ends.
pub(crate) async fn serve(views: Arc<ViewService>, port: &str) {
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await.expect("a free port");
    let _running = Running::start(api::attach(Host::new(), views), listener).expect("a bound port");
    pending().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is the process that other tests start and kill"]
async fn accepts_until_it_comes_to_its_end() {
    let Some(([redis_url, counters_url, port, step], its_end)) = life::arguments() else { return };
    let log = ViewLog::connect(&volatile(&redis_url), PARTITIONS).await.expect("a log");
    let counters = CounterClient::builder(counters_url).retry_for(Duration::ZERO).connect_lazy().expect("an address");
    let config = ViewsConfig { partitions: PARTITIONS, ..ViewsConfig::default() };
    let (views, _) = ViewService::start(&config, log.observed_by(ends_at(step, its_end)), &counters);
    serve(views, &port).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v1_v3_a_process_that_accepts_views_may_die_at_any_step() {
    let mut machines = Machines::start(0).await;
    let (redis, counters) = (machines.redis.url(), machines.counters.url());
    let start = |port: u16, step: &str| {
        let arguments = [&redis, &counters, &*port.to_string(), step];
        Life::start("views::ingest::accepts_until_it_comes_to_its_end", Signal::SIGKILL, &arguments)
    };
    let mut round = Round::default();
    for step in STEPS {
        round.dies_at(step, start).await;
    }
    machines.add_views().await;
    round.is_exact_after_repetition(&machines.http(0), machines.until_nothing_waits()).await;
}
