//! A Redis that is unavailable or full: the answer says so, nothing changes, and all is well again without anybody's help.

use super::load::only;
use super::machines::Redis;
use crate::histories::pair::Server;
use crate::system::program::{self, Running, SOON};
use std::net::Ipv4Addr;
use std::time::Duration;
use tallystone_client::*;
use tallystone_tests::{lasting_port, patient_connection};
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const QUEUE: &str = "healing";

/// A client that says at once what the server says.
async fn connect(server: &Server) -> Client {
    Client::builder(server.url()).retry_for(Duration::ZERO).connect().await.expect("a server that listens")
}

async fn enqueue(client: &Client, id: &str) -> Result<Enqueued, Refused> {
    only(client.enqueue(QUEUE, vec![NewMessage::new(id, "payload")]).await)
}

/// Waits until health says so.
async fn until_health(server: &Server, expected: ServingStatus) {
    let channel = Channel::from_shared(server.url()).expect("a good address").connect().await;
    let mut health = HealthClient::new(channel.expect("a server that listens"));
    let request = HealthCheckRequest { service: "tallystone.queue.v1.Queue".to_owned() };
    let mut changes = health.watch(request).await.expect("a watch").into_inner();
    let until = async { while changes.message().await.expect("a change").expect("no end").status() != expected {} };
    timeout(SOON, until).await.expect("the health status changes in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_redis_is_reported_and_heals() {
    let mut redis = Redis::start().await;
    let server = Server::start(&redis.url()).await;
    let client = connect(&server).await;
    client.create_queue(QUEUE, QueueConfig::simple()).await.expect("a new queue");
    enqueue(&client, "before").await.expect("an open queue");
    let lease = client.dequeue(Dequeue::new(QUEUE)).await.expect("a Dequeue").remove(0);
    until_health(&server, ServingStatus::Serving).await;
    // A caller waits all the time.
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.dequeue(Dequeue::new(QUEUE).worker("patient").wait_ms(60_000)).await }
    });

    redis.kill().await;
    // The call that finds out may have been on its way; from then on it is certain that nothing was.
    drop(client.get_message(QUEUE, "before").await);
    until_health(&server, ServingStatus::NotServing).await;
    let completion = || vec![Completion::of(&lease)];
    let answers = [
        client.enqueue(QUEUE, vec![NewMessage::new("during", "")]).await.map(drop),
        client.complete(QUEUE, completion()).await.map(drop),
        client.extend_lease(QUEUE, vec![Extension::of(&lease)]).await.map(drop),
        client.release(QUEUE, vec![Release::of(&lease)]).await.map(drop),
        client.cancel(QUEUE, vec![Cancellation::by_holder(&lease)]).await.map(drop),
        client.dequeue(Dequeue::new(QUEUE)).await.map(drop),
        client.redrive(QUEUE, vec!["before".to_owned()]).await.map(drop),
        client
            .update_message(QUEUE, "before", MessagePatch { priority: Some(1), ..MessagePatch::default() })
            .await
            .map(drop),
        client.update_queue(QUEUE, QueueConfig { lease_ms: Some(5_000), ..QueueConfig::default() }).await.map(drop),
        client.purge_queue(QUEUE, true).await.map(drop),
        client.delete_queue(QUEUE, true).await,
        client.create_queue("another", QueueConfig::simple()).await.map(drop),
        client.get_message(QUEUE, "before").await.map(drop),
        client.depth(QUEUE, None).await.map(drop),
    ];
    for (number, answer) in answers.into_iter().enumerate() {
        let Err(Error::Unavailable { applied, message }) = answer else { panic!("call {number}: {answer:?}") };
        assert_eq!(applied, Applied::No, "call {number}, after Redis had died: {message}");
    }
    until_health(&server, ServingStatus::NotServing).await;

    redis.restart().await;
    let give_up_at = Instant::now() + SOON;
    let healed = loop {
        match client.enqueue(QUEUE, vec![NewMessage::new("after", "")]).await {
            Ok(_) => break client.with_retry_for(Duration::ZERO),
            Err(error) => assert!(error.is_unavailable() && Instant::now() < give_up_at, "{error}"),
        }
        sleep(Duration::from_millis(10)).await;
    };
    let leases = timeout(SOON, waiting).await.expect("woken in time").expect("no panic").expect("no refusal");
    assert_eq!(leases[0].id, "after", "who waited was not forgotten");
    let gone = healed.get_message(QUEUE, "during").await.expect_err("certainly not written");
    assert_eq!(gone.refused().expect("a refusal").reason, "MESSAGE_NOT_FOUND");
    assert_eq!(healed.get_message(QUEUE, "before").await.expect("a message").version, lease.version);
    let completed = only(healed.complete(QUEUE, completion()).await).expect("a lease that still lives");
    assert_eq!(completed.state, State::Completed);
    until_health(&server, ServingStatus::Serving).await;
    drop((client, healed));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q16_programs_wait_for_a_redis_that_loads_its_data() {
    const KEYS: usize = 100_000;
    let mut redis = Redis::start().await;
    let mut commands = redis::pipe();
    for number in 0..KEYS {
        commands.set(format!("key-{number}"), 0).ignore();
    }
    let mut connection = redis.connection().await;
    commands.query_async::<()>(&mut connection).await.expect("keys");
    redis.kill().await;
    // It takes more than 10 s to load them, or less if both programs have noticed it before. It answers after each 1,024 keys.
    redis.add_args(&["--key-load-delay", "100"]);
    let (port, url) = (redis.port(), redis.url());
    let (both_wait, redis_client) = (Barrier::new(3), redis::Client::open(redis.url()).expect("a good URL"));
    let hurry = async {
        both_wait.wait().await;
        let mut connection = patient_connection(&redis_client).await.expect("a Redis that listens");
        let mut command = redis::cmd("CONFIG");
        command.arg("SET").arg("key-load-delay").arg(0);
        command.query_async::<()>(&mut connection).await.expect("no delay any more");
    };
    let programs = async {
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
        let waiting = async |verb: &str| {
            let listen = format!("127.0.0.1:{}", lasting_port());
            let args = [verb, "--redis-url", &url, "--listen", &listen, "--log", "info"];
            let mut process = Running::start_logged(program::command(&args));
            while !process.line().await.contains("Redis is loading its data") {}
            process
        };
        let waits = ["server", "counters"].map(async |verb| {
            let mut process = waiting(verb).await;
            // Another one is stopped meanwhile.
            assert!(waiting(verb).await.stop().await.success());
            both_wait.wait().await;
            while !process.line().await.contains("serving") {}
            process.stop().await;
        });
        futures::future::join_all(waits).await
    };
    tokio::join!(redis.restart(), hurry, programs);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_redis_is_reported_and_heals() {
    let redis = Redis::start().await;
    let server = Server::start(&redis.url()).await;
    let client = connect(&server).await;
    client.create_queue(QUEUE, QueueConfig::simple()).await.expect("a new queue");
    enqueue(&client, "before").await.expect("an open queue");
    let lease = client.dequeue(Dequeue::new(QUEUE)).await.expect("a Dequeue").remove(0);
    enqueue(&client, "more").await.expect("an open queue");
    let depth = client.depth(QUEUE, None).await.expect("a Depth");
    let memory = async |limit: &str| {
        let mut connection = redis.connection().await;
        let mut command = redis::cmd("CONFIG");
        command.arg("SET").arg("maxmemory").arg(limit);
        command.query_async::<()>(&mut connection).await.expect("a limit");
    };

    memory("1mb").await;
    let refusals = [
        client.enqueue(QUEUE, vec![NewMessage::new("during", "")]).await.map(drop),
        client.create_queue("another", QueueConfig::simple()).await.map(drop),
    ];
    for answer in refusals {
        let Err(Error::Refused(refused)) = answer else { panic!("{answer:?}") };
        assert_eq!((refused.code, refused.reason.as_str()), (Code::ResourceExhausted, "STORE_FULL"));
    }
    // Looking needs no memory, and shows that nothing has changed.
    assert_eq!(client.depth(QUEUE, None).await.expect("a Depth"), depth);
    assert_eq!(client.get_message(QUEUE, "before").await.expect("a message").version, lease.version);
    // The messages that are there still run: that is how the queue becomes empty again.
    only(client.complete(QUEUE, vec![(&lease).into()]).await).expect("a lease that still lives");
    assert_eq!(client.dequeue(Dequeue::new(QUEUE)).await.expect("a Dequeue")[0].id, "more");

    memory("0").await;
    enqueue(&client, "during").await.expect("room again");
    assert_eq!(client.dequeue(Dequeue::new(QUEUE)).await.expect("a Dequeue")[0].id, "during");
    drop(client);
    server.stop().await;
}
