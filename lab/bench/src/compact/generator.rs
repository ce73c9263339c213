//! The load generator: one thread, blocking sockets, requests that were built before. It sends to a connection as soon as it has read
//! that connection's replies, in turn, so that all others have requests at the engine meanwhile.

use super::objects::Draw;
use super::replies::Replies;
use super::requests::{Op, Store};
use crate::sample::{CallStats, Sample, TimedStats};
use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of requests that are built for one load at most: more than the caches of a processor.
const BUILT_BYTES: usize = 96 << 20;
/// Items of requests that are built for one load at most.
const BUILT_ITEMS: u64 = 1 << 20;
/// Connections that fill an engine, and bytes that each has under way.
const FILL_CONNECTIONS: usize = 4;
const FILL_BYTES: usize = 256 << 10;
const READ_BYTES: usize = 64 << 10;

/// Requests in pipelines of one size.
pub(super) struct Pipelines {
    op: Op,
    commands: u64,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Pipelines {
    /// Pipelines of this number of commands, on random objects from `first` on.
    pub(super) fn new(op: Op, commands: u64, first: u64, objects: u64) -> Arc<Pipelines> {
        let mut draw = Draw::new(commands ^ objects);
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        while ends.len() < 64
            || (bytes.len() < BUILT_BYTES && (ends.len() as u64) < BUILT_ITEMS / (commands * op.items()))
        {
            (0..commands).for_each(|_| op.append(&mut bytes, &mut draw, first, objects));
            ends.push(bytes.len());
        }
        Arc::new(Pipelines { op, commands, bytes, ends })
    }

    /// What the commands do.
    pub(super) fn op(&self) -> Op {
        self.op
    }

    fn get(&self, place: usize) -> &[u8] {
        let place = place % self.ends.len();
        let begin = if place == 0 { 0 } else { self.ends[place - 1] };
        &self.bytes[begin..self.ends[place]]
    }
}

/// What a load did.
pub(super) struct Driven {
    timed: TimedStats,
    /// Shares of a core: of the generator, and of the engine's main thread.
    pub(super) generator: f64,
    pub(super) engine: f64,
    /// Processor time of the engine's main thread for each item.
    pub(super) engine_ns: f64,
}

impl Driven {
    /// Items a second, and the times of pipelines.
    pub(super) fn rate(&self) -> Sample {
        self.timed.rate()
    }

    /// Adds another run, as if it had followed immediately.
    pub(super) fn add(&mut self, other: &Driven) {
        let mean = |ours: f64, theirs: f64, share: f64| ours + (theirs - ours) * share;
        let share = |ours: f64, theirs: f64| theirs / (ours + theirs).max(1e-6);
        let time = share(self.timed.elapsed.as_secs_f64(), other.timed.elapsed.as_secs_f64());
        let items = share(self.timed.stats.messages as f64, other.timed.stats.messages as f64);
        self.generator = mean(self.generator, other.generator, time);
        self.engine = mean(self.engine, other.engine, time);
        self.engine_ns = mean(self.engine_ns, other.engine_ns, items);
        self.timed.add(&other.timed);
    }
}

/// A connection with at most one pipeline under way.
struct Connection {
    stream: TcpStream,
    replies: Replies,
    /// Replies that were read and not yet waited for.
    ahead: u64,
    buffer: Vec<u8>,
    sent: Instant,
}

impl Connection {
    fn open(port: u16) -> Result<Connection> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("the engine refuses a connection")?;
        stream.set_nodelay(true)?;
        Ok(Connection {
            stream,
            replies: Replies::default(),
            ahead: 0,
            buffer: vec![0; READ_BYTES],
            sent: Instant::now(),
        })
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.sent = Instant::now();
        Ok(self.stream.write_all(bytes)?)
    }

    /// Reads this number of replies. Those that come with them are kept for the next call.
    fn receive(&mut self, replies: u64, elements: u64) -> Result<()> {
        while self.ahead < replies {
            let read = self.stream.read(&mut self.buffer)?;
            ensure!(read > 0, "the engine closed a connection");
            self.ahead += self.replies.take(&self.buffer[..read], elements)?;
        }
        self.ahead -= replies;
        Ok(())
    }

    /// A second handle on the socket.
    fn writer(&self) -> Result<TcpStream> {
        Ok(self.stream.try_clone()?)
    }
}

/// Sends pipelines over connections until the time is over, each a closed loop.
pub(super) fn drive(port: u16, pid: u32, pipelines: &Pipelines, connections: usize, time: Duration) -> Result<Driven> {
    let mut open = (0..connections).map(|_| Connection::open(port)).collect::<Result<Vec<_>>>()?;
    let (commands, elements) = (pipelines.commands, pipelines.op.elements());
    let items = (commands * pipelines.op.items()) as usize;
    let mut next = 0;
    let mut send = |connection: &mut Connection| {
        next += 1;
        connection.send(pipelines.get(next))
    };
    let (own, engine, began) = (thread_cpu()?, main_thread_cpu(pid)?, Instant::now());
    let mut stats = CallStats::new();
    open.iter_mut().try_for_each(&mut send)?;
    while began.elapsed() < time {
        for connection in &mut open {
            connection.receive(commands, elements)?;
            stats.note(items, connection.sent.elapsed());
            send(connection)?;
        }
    }
    for connection in &mut open {
        connection.receive(commands, elements)?;
        stats.note(items, connection.sent.elapsed());
    }
    let engine = main_thread_cpu(pid)? - engine;
    let timed = TimedStats::since(began, stats);
    let share = |cpu: Duration| cpu.as_secs_f64() / timed.elapsed.as_secs_f64();
    Ok(Driven {
        generator: share(thread_cpu()? - own),
        engine: share(engine),
        engine_ns: engine.as_secs_f64() * 1e9 / timed.stats.messages as f64,
        timed,
    })
}

/// Sends pipelines at a steady rate over one connection, whether or not earlier ones are answered. A time counts from the moment at which
/// the schedule wants a pipeline sent.
pub(super) fn paced(port: u16, pipelines: &Arc<Pipelines>, per_s: u64, time: Duration) -> Result<CallStats> {
    let mut connection = Connection::open(port)?;
    let (mut writer, all) = (connection.writer()?, pipelines.clone());
    let (count, began) = ((time.as_secs_f64() * per_s as f64) as u64, Instant::now());
    let due = move |place: u64| began + Duration::from_secs_f64(place as f64 / per_s as f64);
    let sender = thread::spawn(move || -> Result<()> {
        for place in 0..count {
            thread::sleep(due(place).saturating_duration_since(Instant::now()));
            writer.write_all(all.get(place as usize))?;
        }
        Ok(())
    });
    let mut stats = CallStats::new();
    for place in 0..count {
        connection.receive(pipelines.commands, pipelines.op.elements())?;
        stats.note(1, due(place).elapsed());
    }
    sender.join().ok().context("the sender panicked")??;
    Ok(stats)
}

/// Stores the objects from `first` to before `end`.
pub(super) fn fill(port: u16, store: Store, first: u64, end: u64) -> Result<()> {
    let mut open = (0..FILL_CONNECTIONS).map(|_| Connection::open(port)).collect::<Result<Vec<_>>>()?;
    let (mut at, mut under_way, mut bytes) = (first, [0; FILL_CONNECTIONS], Vec::new());
    while at < end || under_way.iter().any(|commands| *commands > 0) {
        for (connection, commands) in open.iter_mut().zip(&mut under_way) {
            connection.receive(*commands, 0)?;
            *commands = 0;
            bytes.clear();
            while at < end && bytes.len() < FILL_BYTES {
                // Packs begin where their numbers do.
                let next = (at - at % store.objects() + store.objects()).min(end);
                store.append(&mut bytes, at, next);
                at = next;
                *commands += 1;
            }
            connection.send(&bytes)?;
        }
    }
    Ok(())
}

/// Processor time of this thread.
fn thread_cpu() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD)?;
    let micros = [usage.user_time(), usage.system_time()].map(|time| time.tv_sec() * 1_000_000 + time.tv_usec());
    Ok(Duration::from_micros(micros.iter().sum::<i64>() as u64))
}

/// Processor time of the main thread of a process.
fn main_thread_cpu(pid: u32) -> Result<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat"))?;
    let nanos = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    Ok(Duration::from_nanos(nanos.context("schedstat has no time")?))
}
