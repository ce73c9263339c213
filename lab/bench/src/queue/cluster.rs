//! Many queues on a Redis Cluster of three primaries: CPU per message, and the share of each primary. Reference: the same queues
//! on a single Redis. All of them share the machine, so the rate says what two cores carry, and not what three machines would.

use super::plan::QueuePlan;
use crate::load::{LoadClient, Source, Traffic, race};
use crate::ours::{OurClient, Ours, config_of, simple_queue};
use crate::profile::{process_cpu_s, threads_cpu_s};
use crate::report::{Goal, Reference, Row};
use crate::rig::Rig;
use crate::sample::{CallStats, Sample, Samples, TimedStats};
use crate::shape::BATCH;
use anyhow::{Context, Result, ensure};
use std::time::Instant;
use tallystone_assembly::Config;
use tallystone_local::{ClusterNode, PrivateRedis, PrivateRedisOptions, free_port, free_port_except, make_cluster};
use tempfile::TempDir;

const PRIMARIES: usize = 3;
const NODE_TIMEOUT_MS: u32 = 5_000;
/// Four for each primary.
const PARTITIONS: u16 = 12;
/// Enough that each primary has nearly a third of them, whatever their names.
const QUEUES: usize = 240;
const CLIENTS: usize = 24;
/// Of the dedicated threads of the server.
const SERVER: &str = "server";

/// The nodes of a cluster.
struct Nodes {
    processes: Vec<PrivateRedis>,
    _dir: TempDir,
}

impl Nodes {
    async fn start() -> Result<Nodes> {
        let dir = tempfile::tempdir()?;
        let (mut members, mut processes) = (Vec::new(), Vec::new());
        for number in 0..PRIMARIES {
            let port = free_port()?;
            let bus_port = free_port_except(&[port])?;
            let member = ClusterNode { port, bus_port, password: None };
            let mut options = PrivateRedisOptions::new(dir.path().join(number.to_string()));
            options.port = Some(port);
            options.extra_args = member.arguments(NODE_TIMEOUT_MS);
            options.extra_args.extend(Rig::WITHOUT_REWRITES.map(str::to_owned));
            processes.push(PrivateRedis::start(options).await.context("cannot start a node of a cluster")?);
            members.push(member);
        }
        make_cluster(&members, PRIMARIES).await?;
        Ok(Nodes { processes, _dir: dir })
    }

    fn config(&self) -> Config {
        let mut config = Config::default();
        let hosts: Vec<String> = self.processes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        config.redis.url = format!("redis-cluster://{}", hosts.join(","));
        config.redis.partitions = Some(PARTITIONS);
        config
    }

    async fn stop(self) {
        for process in self.processes {
            process.stop().await;
        }
    }
}

/// The result of one sample.
struct Round {
    rate: Sample,
    /// Of the server and all Redis processes.
    us_per_message: f64,
    /// Of the CPU of all Redis processes, in percent.
    shares: Vec<f64>,
}

pub(super) async fn measure(plan: &QueuePlan, rig: &Rig) -> Result<Vec<Row>> {
    let [mut rates, mut single_rates, mut costs, mut single_costs, mut largest, mut smallest] =
        [const { Samples::new() }; 6];
    let sample = |value| Sample { value, ..Sample::default() };
    for _ in 0..plan.runs {
        let nodes = Nodes::start().await?;
        let pids: Vec<u32> = nodes.processes.iter().map(PrivateRedis::pid).collect();
        let ours = round(plan, nodes.config(), &pids).await?;
        nodes.stop().await;
        rates.push(ours.rate);
        costs.push(sample(ours.us_per_message));
        largest.push(sample(ours.shares.iter().copied().fold(0.0, f64::max)));
        smallest.push(sample(ours.shares.iter().copied().fold(100.0, f64::min)));

        rig.flush().await?;
        let single = round(plan, config_of(rig), &[rig.pid()]).await?;
        single_rates.push(single.rate);
        single_costs.push(sample(single.us_per_message));
    }
    let what = format!("{QUEUES} queues on {PRIMARIES} primaries, batches of {BATCH}");
    let single = |samples| Reference::Measured("one primary", samples);
    let rows = vec![
        Row::new(
            format!("{what}: CPU of the server and of Redis per message"),
            "µs",
            &costs,
            single(&single_costs),
            Goal::RatioAtMost(1.25),
        ),
        Row::new(format!("{what}: enqueue, then dequeue + complete"), "/s", &rates, single(&single_rates), Goal::None),
        Row::new(
            format!("{what}: the largest share of one of them in the CPU of Redis"),
            "%",
            &largest,
            Reference::None,
            Goal::AtMost(38.0),
        ),
        Row::new(format!("{what}: the smallest share"), "%", &smallest, Reference::None, Goal::AtLeast(28.0)),
    ];
    Ok(rows.into_iter().map(|row| row.with("messages", plan.sizes.messages).with("partitions", PARTITIONS)).collect())
}

/// One client, its queues and its messages.
struct Member {
    client: OurClient,
    queues: Vec<String>,
    source: Source,
}

/// The life of all messages on a server with this configuration, whose Redis processes have these ids.
async fn round(plan: &QueuePlan, config: Config, redis: &[u32]) -> Result<Round> {
    let ours = Ours::start_with(config, plan.args.server_threads.max(1)).await?;
    let names: Vec<String> = (0..QUEUES).map(|number| format!("bench/{number}")).collect();
    for name in &names {
        ours.create_queue(name, simple_queue()).await?;
    }
    let clients = ours.clients("", CLIENTS, CLIENTS).await?.into_iter();
    let own = names.chunks(QUEUES / CLIENTS).map(<[String]>::to_vec);
    let members = clients.zip(own).zip(0..).map(|((client, queues), seed)| Member {
        client,
        queues,
        source: Traffic::plain().source(seed),
    });
    let members: Vec<Member> = members.collect();
    let batches = (plan.sizes.messages as usize / BATCH / CLIENTS).max(1);
    let messages = (batches * BATCH * CLIENTS) as u64;

    let before = cpu_s(redis)?;
    let (members, mut total) = race(members, messages, |_, member| fill(member, batches)).await?;
    let (_, drained) = race(members, messages, |_, member| empty(member, batches)).await?;
    let after = cpu_s(redis)?;
    ours.stop().await?;

    let spent: Vec<f64> = after.1.iter().zip(&before.1).map(|(after, before)| after - before).collect();
    let of_redis: f64 = spent.iter().sum();
    ensure!(of_redis > 0.0, "the sample is too short for the times that the kernel counts");
    let us_per_message = (after.0 - before.0 + of_redis) * 1e6 / messages as f64;
    let shares = spent.iter().map(|spent| 100.0 * spent / of_redis).collect();
    TimedStats::add(&mut total, &drained);
    // Each message counts once, though it took part in both halves.
    let rate = Sample { value: total.rate().value / 2.0, ..Sample::default() };
    Ok(Round { rate, us_per_message, shares })
}

/// CPU seconds so far: of the server, and of each Redis.
fn cpu_s(redis: &[u32]) -> Result<(f64, Vec<f64>)> {
    let server = threads_cpu_s()?.remove(SERVER).unwrap_or_default();
    Ok((server, redis.iter().map(|pid| process_cpu_s(*pid)).collect::<Result<_>>()?))
}

async fn fill(mut member: Member, batches: usize) -> Result<(Member, CallStats)> {
    let mut stats = CallStats::new();
    for number in 0..batches {
        let drafts = (0..BATCH as u64).map(|at| member.source.draft(at)).collect();
        member.client.queue.clone_from(&member.queues[number % member.queues.len()]);
        let began = Instant::now();
        member.client.enqueue(drafts).await?;
        stats.note(BATCH, began.elapsed());
    }
    Ok((member, stats))
}

async fn empty(mut member: Member, batches: usize) -> Result<(Member, CallStats)> {
    let mut stats = CallStats::new();
    for number in 0..batches {
        member.client.queue.clone_from(&member.queues[number % member.queues.len()]);
        let began = Instant::now();
        let held = member.client.dequeue(BATCH).await?;
        ensure!(held.len() == BATCH, "{} of {BATCH} messages are there", held.len());
        member.client.complete(held).await?;
        stats.note(BATCH, began.elapsed());
    }
    Ok((member, stats))
}
