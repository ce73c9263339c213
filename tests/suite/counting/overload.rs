//! More adds than the store takes, while it hangs (O8, N3): what waits is bounded, what is refused says when to
//! retry, and nothing is stored whose caller has gone before it was sent.

use super::{POLL, lasting_address, now_ms};
use crate::crash::machines::{Redis, Server};
use crate::system::program::{SOON, metrics_page};
use futures::future::join_all;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::Duration;
use tallystone_proto::counter::v1 as wire;
use tallystone_proto::counter::v1::counter_admin_client::CounterAdminClient;
use tallystone_proto::counter::v1::counters_client::CountersClient;
use tokio::time::{Instant, sleep};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

const NS: &str = "overload";
const CALLS: usize = 200;
/// Of one call.
const ADDS: usize = 1_000;
const COUNTERS: usize = 100;
/// The default of `counters.waiting_items_max`.
const WAITING_MAX: usize = 30_000;
/// Two flushes of at most 4,096 items are under way at once; each has whole calls.
const SENT_MAX: i64 = 2 * 4_000;
/// How long the callers wait.
const DEADLINE: Duration = Duration::from_secs(5);
const MEMORY_MAX_KIB: u64 = 100 * 1_024;

type Client = CountersClient<Channel>;

/// One server of counters and its Redis.
struct Machine {
    redis: Redis,
    server: Server,
    metrics: String,
    channels: Vec<Channel>,
}

impl Machine {
    async fn start() -> Machine {
        let (redis, metrics) = (Redis::start().await, lasting_address());
        let args = ["counters", "--redis-url", &redis.url(), "--metrics-listen", &metrics, "--log", "error"];
        let server = Server::start_as(&args).await;
        let mut channels = Vec::new();
        for _ in 0..4 {
            let endpoint = Channel::from_shared(server.url()).expect("an address");
            channels.push(endpoint.connect().await.expect("a server that listens"));
        }
        let config = wire::NamespaceConfig {
            counter_type: Some(wire::CounterType::Accurate.into()),
            // What is sent again at the end still counts.
            accept_limit_ms: Some(300_000),
            ..wire::NamespaceConfig::default()
        };
        let request = wire::PutNamespaceRequest { name: NS.to_owned(), config: Some(config), ..Default::default() };
        CounterAdminClient::new(channels[0].clone()).put_namespace(request).await.expect("a new namespace");
        Machine { redis, server, metrics, channels }
    }

    fn client(&self, number: usize) -> Client {
        CountersClient::new(self.channels[number % self.channels.len()].clone())
    }

    fn signal_redis(&self, signal: Signal) {
        kill(Pid::from_raw(self.redis.pid().cast_signed()), signal).expect("it runs");
    }

    /// The largest resident memory so far.
    fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.pid())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// Adds and clears that wait.
    async fn waiting_items(&self) -> Option<usize> {
        let text = metrics_page(&self.metrics).await;
        let value = text.lines().find_map(|line| line.strip_prefix("tallystone_counter_waiting_items "))?;
        value.parse::<f64>().ok().map(|items| items as usize)
    }

    /// Waits until there is no room. Then a call is refused that would be invalid if it were read.
    async fn refuses_unread(&self) {
        while self.waiting_items().await.is_none_or(|items| items < WAITING_MAX - ADDS) {
            sleep(POLL).await;
        }
        let request = wire::AddCountRequest { namespace: "not a name".to_owned(), ..wire::AddCountRequest::default() };
        let _ = retry_delay(&self.client(0).add_count(request).await.expect_err("it is invalid"));
        let request = wire::DeleteCounterRequest { namespace: "not a name".to_owned(), ..Default::default() };
        let _ = retry_delay(&self.client(0).delete_counter(request).await.expect_err("it is invalid"));
    }

    async fn total(&self) -> i64 {
        let counters = (0..COUNTERS).map(name).collect();
        let request = wire::GetCountsRequest { namespace: NS.to_owned(), counters, ..Default::default() };
        let results = self.client(0).get_counts(request).await.expect("counts").into_inner().results;
        let count = |result: wire::GetCountResult| match result.outcome {
            Some(wire::get_count_result::Outcome::Ok(counted)) => counted.count,
            other => panic!("{other:?}"),
        };
        results.into_iter().map(count).sum()
    }
}

fn name(number: usize) -> String {
    format!("c{number}")
}

/// The adds of one call.
fn adds(call: usize) -> wire::AddCountsRequest {
    let generation_time_ms = now_ms().cast_signed();
    let add = |number: usize| wire::AddCount {
        counter: name(number % COUNTERS),
        delta: 1,
        token: Some(wire::IdempotencyToken { token: format!("{call} {number}"), generation_time_ms }),
        ..Default::default()
    };
    wire::AddCountsRequest { namespace: NS.to_owned(), adds: (0..ADDS).map(add).collect() }
}

/// The time after which a refused call says to retry.
pub(crate) fn retry_delay(status: &Status) -> Duration {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    let details = status.get_error_details();
    let info = details.error_info().expect("a reason");
    assert_eq!((info.reason.as_str(), info.metadata["applied"].as_str()), ("OVERLOADED", "no"));
    let delay = details.retry_info().and_then(|info| info.retry_delay).expect("a delay");
    assert_eq!(info.metadata["retry_after_ms"], delay.as_millis().to_string());
    assert!((10..=5_000).contains(&delay.as_millis()), "{delay:?}");
    delay
}

/// Sends a call until it is taken.
async fn until_taken(mut client: Client, request: wire::AddCountsRequest) {
    let give_up_at = Instant::now() + SOON;
    loop {
        match client.add_counts(request.clone()).await {
            Ok(answer) => {
                let is_ok = |result: &wire::AddCountResult| {
                    matches!(result.outcome, Some(wire::add_count_result::Outcome::Ok(_)))
                };
                assert!(answer.into_inner().results.iter().all(is_ok));
                return;
            }
            Err(status) => sleep(retry_delay(&status)).await,
        }
        assert!(Instant::now() < give_up_at, "it is refused again and again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o8_a_store_that_hangs_costs_bounded_memory_and_no_add_is_stored_late() {
    let machine = Machine::start().await;
    let requests: Vec<wire::AddCountsRequest> = (0..CALLS).map(adds).collect();
    let before_kib = machine.peak_kib();

    machine.signal_redis(Signal::SIGSTOP);
    let answers = join_all(requests.iter().enumerate().map(async |(number, adds)| {
        let mut request = Request::new(adds.clone());
        request.set_timeout(DEADLINE);
        machine.client(number).add_counts(request).await.expect_err("no add is stored meanwhile")
    }));
    let (answers, ()) = tokio::join!(answers, machine.refuses_unread());
    let is_refused = |status: &&Status| status.code() == Code::ResourceExhausted;
    let (refused, late): (Vec<&Status>, Vec<&Status>) = answers.iter().partition(is_refused);
    let grown_kib = machine.peak_kib() - before_kib;
    println!("{} refused, {} waited in vain, {} KiB more", refused.len(), late.len(), grown_kib);
    for status in &refused {
        let _ = retry_delay(status);
    }
    assert!(late.len() <= WAITING_MAX / ADDS, "{} calls waited", late.len());
    assert!(grown_kib < MEMORY_MAX_KIB, "{grown_kib} KiB");
    // Their callers have gone; only what was sent is there.
    let give_up_at = Instant::now() + SOON;
    while machine.waiting_items().await.is_none_or(|items| items as i64 > SENT_MAX) {
        assert!(Instant::now() < give_up_at, "what has no caller stays");
        sleep(POLL).await;
    }

    machine.signal_redis(Signal::SIGCONT);
    let began = Instant::now();
    let one =
        wire::AddCountRequest { namespace: NS.to_owned(), counter: "next".to_owned(), delta: 1, ..Default::default() };
    machine.client(0).add_count(one).await.expect("an add");
    println!("the next add took {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    // Whatever was sent is in the store before it, so all of it is counted.
    let stored = machine.total().await;
    println!("{stored} stored of calls that had ended");
    assert!(stored <= SENT_MAX, "{stored} were stored of calls that had ended");

    // Each counts once, whether it was stored before or not.
    let again = requests.into_iter().enumerate().map(|(number, adds)| until_taken(machine.client(number), adds));
    join_all(again).await;
    assert_eq!(machine.total().await, (CALLS * ADDS) as i64);
}
