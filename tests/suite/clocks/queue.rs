//! The queue on a Redis whose clock is wrong (X6, Q13).

use super::{FOR_GOOD, MOMENT, POLL, RECOVERY, WRONG, wrong_for};
use crate::histories::pair::Server;
use crate::system::program::{Running, SOON, command};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tallystone_client::{Applied, Client, Dequeue, Error, Items, Lease, NewMessage, QueueConfig};
use tallystone_server::store::Clock;
use tallystone_tests::{ClockShift, TestRedis, lasting_port};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

const QUEUE: &str = "q";
const KEY: &str = "key";
const KEYS: usize = 24;
const WORKERS: usize = 16;
/// Far longer than the test takes, and far shorter than the clock is wrong.
const LEASE_MS: u64 = 120_000;
/// How long every other worker holds a lease: longer than the moment for which the clock is wrong.
const HOLD: Duration = Duration::from_millis(900);

/// One item's result; `None`: the store cannot be used now.
fn one<T>(answer: Items<T>) -> Option<T> {
    match answer {
        Ok(mut items) => match items.remove(0) {
            Ok(item) => Some(item),
            Err(refused) if refused.is_unavailable() => None,
            Err(refused) => panic!("refused: {refused}"),
        },
        Err(error) if error.is_unavailable() => None,
        Err(error) => panic!("failed: {error}"),
    }
}

/// Producers and workers on two servers, and what they know.
struct Load {
    clients: [Client; 2],
    enqueued: Mutex<BTreeSet<String>>,
    held: Mutex<BTreeSet<String>>,
    completed: Mutex<BTreeMap<String, usize>>,
    /// No more messages come.
    is_over: CancellationToken,
    stopping: CancellationToken,
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Load {
    async fn produce(&self) {
        for number in 0_usize.. {
            if self.is_over.is_cancelled() {
                return;
            }
            let id = format!("m{number}");
            let message = || NewMessage::new(&id, Vec::new()).metadata(KEY, format!("k{}", number % KEYS));
            while one(self.clients[number % 2].enqueue(QUEUE, vec![message()]).await).is_none() {
                sleep(POLL).await;
            }
            lock(&self.enqueued).insert(id);
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn work(&self, number: usize) {
        let client = &self.clients[number % 2];
        while !self.stopping.is_cancelled() {
            let dequeue = Dequeue::new(QUEUE).worker(format!("w{number}")).lease_ms(LEASE_MS).wait_ms(200);
            match client.dequeue(dequeue).await {
                Ok(leases) => {
                    for lease in leases {
                        self.run(client, number, lease).await;
                    }
                }
                Err(error) if error.is_unavailable() => sleep(POLL).await,
                Err(error) => panic!("{error}"),
            }
        }
    }

    async fn run(&self, client: &Client, number: usize, lease: Lease) {
        let key = &lease.metadata[KEY];
        assert!(lock(&self.held).insert(key.clone()), "two leases of {key} at once: {lease:?}");
        if number.is_multiple_of(2) {
            sleep(HOLD).await;
        }
        lock(&self.held).remove(key);
        // A lost lease would panic.
        while one(client.complete(QUEUE, vec![lease.lease_ref().into()]).await).is_none() {
            sleep(POLL).await;
        }
        *lock(&self.completed).entry(lease.id).or_default() += 1;
    }

    fn done(&self) -> usize {
        lock(&self.completed).len()
    }

    async fn until_done(&self, count: usize, by: Instant) {
        while self.done() < count {
            assert!(Instant::now() < by, "{} of {count} messages are completed", self.done());
            sleep(POLL).await;
        }
    }

    /// What every call that changes something gets now.
    async fn refused(&self) {
        let late = NewMessage::new("refused", Vec::new()).metadata(KEY, "refused");
        match self.clients[0].enqueue(QUEUE, vec![late]).await {
            Err(Error::Unavailable { applied: Applied::No, message }) => {
                assert!(message.contains("clock_skew_max_ms"), "{message}");
            }
            other => panic!("{other:?} under a wrong clock"),
        }
        self.clients[1].depth(QUEUE, None).await.expect("reads go on");
    }
}

async fn started(shift: &ClockShift, clock: impl Fn() -> Clock) -> (TestRedis, [Server; 2], [Client; 2]) {
    let redis = TestRedis::shifted(shift).await;
    let servers =
        [Server::start_on(redis.store(clock()).await).await, Server::start_on(redis.store(clock()).await).await];
    let connect = async |server: &Server| {
        let client = Client::builder(server.url()).retry_for(Duration::ZERO).connect();
        client.await.expect("a server that listens")
    };
    let clients = [connect(&servers[0]).await, connect(&servers[1]).await];
    clients[0].create_queue(QUEUE, QueueConfig::exclusive(KEY)).await.expect("a queue");
    (redis, servers, clients)
}

async fn loses_nothing(time: Duration) {
    let shift = ClockShift::new();
    let (_redis, _servers, clients) = started(&shift, Clock::default).await;
    let (enqueued, held, completed, is_over, stopping) = Default::default();
    let load = Load { clients, enqueued, held, completed, is_over, stopping };
    let workers = futures::future::join_all((0..WORKERS).map(|number| load.work(number)));
    let script = async {
        for ahead_ms in WRONG {
            load.until_done(load.done() + 50, Instant::now() + SOON).await;
            let right_at = wrong_for(&shift, ahead_ms, time, async || load.refused().await).await;
            load.until_done(load.done() + 5, right_at + RECOVERY).await;
            for client in &load.clients {
                client.depth(QUEUE, None).await.expect("an answer");
            }
        }
        load.is_over.cancel();
    };
    let end = async {
        tokio::join!(script, load.produce());
        let all = lock(&load.enqueued).len();
        load.until_done(all, Instant::now() + SOON).await;
        load.stopping.cancel();
    };
    tokio::join!(workers, end);
    let depth = load.clients[0].depth(QUEUE, None).await.expect("a depth");
    let (enqueued, completed) = (lock(&load.enqueued), lock(&load.completed));
    assert!(completed.values().all(|times| *times == 1) && completed.keys().eq(enqueued.iter()), "{completed:?}");
    assert_eq!((depth.completed, depth.pending, depth.running), (enqueued.len() as u64, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x6_a_clock_that_is_wrong_for_a_moment_ends_no_lease_and_loses_no_message() {
    loses_nothing(MOMENT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x6_a_clock_that_stays_wrong_ends_no_lease_and_loses_no_message() {
    loses_nothing(FOR_GOOD).await;
}

/// What the bound prevents; it shows that these tests would find it.
#[tokio::test]
async fn x6_without_a_bound_a_wrong_clock_ends_leases() {
    let shift = ClockShift::new();
    let (_redis, _servers, clients) = started(&shift, || Clock::redis("queues", 0)).await;
    let message = NewMessage::new("m", Vec::new()).metadata(KEY, "k");
    one(clients[0].enqueue(QUEUE, vec![message]).await).expect("an answer");
    let dequeue = || Dequeue::new(QUEUE).worker("w").lease_ms(LEASE_MS);
    let first = clients[0].dequeue(dequeue()).await.expect("an answer");
    assert_eq!(first.len(), 1);
    assert!(clients[1].dequeue(dequeue()).await.expect("an answer").is_empty(), "it is leased");
    shift.set_ms(WRONG[0]);
    assert_eq!(clients[1].dequeue(dequeue().wait_ms(5_000)).await.expect("an answer").len(), 1, "leased twice at once");
}

/// Both on one machine, so the two clocks agree all the time.
#[tokio::test]
async fn x6_a_clock_of_redis_and_server_that_is_wrong_for_a_moment_ends_no_lease() {
    let shift = ClockShift::new();
    let redis = TestRedis::shifted(&shift).await;
    let (url, port) = (redis.url(), lasting_port());
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listen = address.to_string();
    let mut command = command(&["server", "--allow-volatile", "--redis-url", &url, "--listen", &listen]);
    command.envs(shift.environment());
    let mut server = Running::start(command);
    server.listens(address).await;
    let client = Client::builder(format!("http://{address}")).retry_for(Duration::ZERO).connect();
    let client = client.await.expect("a server that listens");
    client.create_queue(QUEUE, QueueConfig::exclusive(KEY)).await.expect("a queue");
    let message = |id: &str| NewMessage::new(id, Vec::new()).metadata(KEY, "k");
    let enqueued = client.enqueue(QUEUE, vec![message("first"), message("second")]).await.expect("an answer");
    assert!(enqueued.iter().all(Result::is_ok), "{enqueued:?}");
    let dequeue = |worker: &str| Dequeue::new(QUEUE).worker(worker).lease_ms(LEASE_MS);
    let held = client.dequeue(dequeue("holder")).await.expect("an answer");
    assert_eq!(held.len(), 1);
    for wrong_ms in WRONG {
        shift.set_ms(wrong_ms);
        let began = Instant::now();
        while began.elapsed() < MOMENT {
            match client.dequeue(dequeue("other")).await {
                Err(Error::Unavailable { message, .. }) => assert!(message.contains("clock_skew_max_ms"), "{message}"),
                other => panic!("{other:?} under a wrong clock"),
            }
        }
        shift.set_ms(0);
        assert!(client.dequeue(dequeue("other")).await.expect("at once").is_empty(), "it is leased");
    }
    assert!(one(client.complete(QUEUE, vec![held[0].lease_ref().into()]).await).is_some());
    assert_eq!(client.dequeue(dequeue("other")).await.expect("an answer").len(), 1);
}

#[tokio::test]
async fn x6_a_redis_that_hung_for_longer_than_the_bound_is_no_wrong_clock() {
    let shift = ClockShift::new();
    let (redis, _servers, clients) = started(&shift, || Clock::redis("queues", 500)).await;
    let pid = Pid::from_raw(i32::try_from(redis.pid()).expect("a process id"));
    kill(pid, Signal::SIGSTOP).expect("a process");
    let enqueue = async |number: usize| {
        let message = NewMessage::new(format!("m{number}"), Vec::new()).metadata(KEY, "k");
        one(clients[number % 2].enqueue(QUEUE, vec![message]).await).expect("it waits, and is not refused")
    };
    let go_on = async {
        sleep(Duration::from_secs(2)).await;
        kill(pid, Signal::SIGCONT).expect("a process");
    };
    let (enqueued, ()) = tokio::join!(futures::future::join_all((0..20).map(enqueue)), go_on);
    assert_eq!(enqueued.len(), 20);
    assert_eq!(clients[0].depth(QUEUE, None).await.expect("a depth").pending, 20);
}
