//! A load of increments whose outcome is known exactly: each has a token, and is sent again with it until it is acknowledged. Some that were
//! acknowledged are sent once more later, perhaps to another process, and count nothing. One more worker sets and deletes counters of ids
//! that no other writes; sent again, such a command changes nothing.

use super::now_ms;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tallystone_tests::compact::{Node, Reply, Wire};

/// The fields that the load adds to; the second one is signed.
pub(super) const SCHEMA: &str = "SCHEMA likes 6 balance i9 views 40";
const FIELDS: [&str; 3] = ["likes", "balance", "views"];
/// Errors of a moment, after which the command is sent again.
const PASSING: &[&str] =
    &["LOADING", "READONLY", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "UNBLOCKED", "BUSY", "NOSET"];
/// Ids that all workers add to.
const SHARED_IDS: u64 = 100;
/// Ids that one worker sets and deletes.
pub(super) const SET_IDS: std::ops::Range<u64> = 200..300;
const GIVE_UP: Duration = Duration::from_secs(90);
/// What a command has added (id, field, by how much), and its words.
type Sent = (Vec<(u64, u8, i32)>, Vec<Vec<u8>>);

/// A worker repeats one of its latest commands after this many.
const REPEAT_EVERY: u64 = 4;
/// How many latest commands it chooses from: the set still remembers their tokens.
const LATEST: usize = 32;

/// What counts of an id, by field.
pub(super) type Sums = BTreeMap<u64, [i64; 3]>;

/// The target of the load, and how far it has come.
pub(super) struct Load {
    /// The port of the engine to write to.
    pub(super) port: AtomicU16,
    /// The workers end.
    pub(super) stop: AtomicBool,
    /// Commands that were acknowledged.
    pub(super) done: AtomicU64,
    /// Commands that were sent again after that, and acknowledged again.
    pub(super) repeated: AtomicU64,
    next_id: AtomicU64,
    replicas: u32,
}

impl Load {
    pub(super) fn new(port: u16) -> Load {
        let (done, repeated) = (0.into(), 0.into());
        Load { port: port.into(), stop: false.into(), done, repeated, next_id: 1_000.into(), replicas: 0 }
    }

    /// A command counts as acknowledged once this number of replicas has it.
    pub(super) fn waiting_for_replicas(self, replicas: u32) -> Load {
        Load { replicas, ..self }
    }

    /// Runs `workers` until `during` returns; what counts then, exactly.
    pub(super) fn run(&self, workers: u64, random: &mut StdRng, during: impl FnOnce(&mut StdRng)) -> Sums {
        std::thread::scope(|scope| {
            let seeds: Vec<u64> = (0..workers).map(|_| random.random()).collect();
            let start =
                |(number, seed): (usize, u64)| scope.spawn(move || self.work(number, StdRng::seed_from_u64(seed)));
            let seed = random.random();
            let setter = scope.spawn(move || self.set(StdRng::seed_from_u64(seed)));
            let threads: Vec<_> = seeds.into_iter().enumerate().map(start).chain([setter]).collect();
            // Also when it panics: the scope waits for the workers.
            let stop = Stop(self);
            during(random);
            drop(stop);
            let mut all = Sums::new();
            for thread in threads {
                let sums = thread.join().expect("a worker");
                for (id, sums) in sums {
                    let all = all.entry(id).or_default();
                    all.iter_mut().zip(sums).for_each(|(all, sum)| *all += sum);
                }
            }
            all
        })
    }

    /// Waits until this number of further commands is acknowledged.
    pub(super) fn progress(&self, count: u64) {
        let (from, give_up_at) = (self.done.load(Relaxed), Instant::now() + GIVE_UP);
        while self.done.load(Relaxed) < from + count {
            assert!(Instant::now() < give_up_at, "the load does not go on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn work(&self, number: usize, mut random: StdRng) -> Sums {
        let mut sums = Sums::new();
        let mut route = Route { load: self, wire: None };
        let mut serial = 0_u64;
        let mut latest: VecDeque<Sent> = VecDeque::new();
        while !self.stop.load(Relaxed) {
            serial += 1;
            if serial.is_multiple_of(REPEAT_EVERY) {
                // Any of the latest commands: a process that was killed since may have acknowledged the older ones.
                let (items, command) = &latest[random.random_range(0..latest.len())];
                check(&route.until_done(command), items, command);
                self.repeated.fetch_add(1, Relaxed);
            }
            let items: Vec<(u64, u8, i32)> = (0..random.random_range(1..12)).map(|_| self.item(&mut random)).collect();
            let token = [format!("w{number}-{serial}-{}", random.random::<u32>()), now_ms().to_string()];
            let command = command(&items, &mut random, &token);
            let reply = route.until_done(&command);
            check(&reply, &items, &command);
            for (id, field, delta) in &items {
                sums.entry(*id).or_default()[usize::from(*field)] += i64::from(*delta);
            }
            latest.push_back((items, command));
            if latest.len() > LATEST {
                latest.pop_front();
            }
            self.done.fetch_add(1, Relaxed);
        }
        sums
    }

    /// Sets and deletes.
    fn set(&self, mut random: StdRng) -> Sums {
        let mut rows = Sums::new();
        let mut route = Route { load: self, wire: None };
        while !self.stop.load(Relaxed) {
            let id = random.random_range(SET_IDS);
            let row: &mut [i64; 3] = rows.entry(id).or_default();
            let (value, time) = (random.random_range(0..100), random.random_range(0..1 << 40));
            let command = match random.random_range(0..4) {
                0 => {
                    *row = [0; 3];
                    words(&["CT.DEL", "k", &id.to_string()])
                }
                1 => {
                    if time > row[2] {
                        (row[0], row[2]) = (value, time);
                    }
                    let item = [id as i64, value, time].map(i64::to_le_bytes).concat();
                    [words(&["CT.PSETNEWER", "k", "likes", "views"]), vec![item]].concat()
                }
                _ => {
                    *row = [value, -value, time % 1_000];
                    let [likes, balance, views] = row.map(|value| value.to_string());
                    words(&["CT.SET", "k", &id.to_string(), "likes", &likes, "balance", &balance, "views", &views])
                }
            };
            route.until_done(&command);
            self.done.fetch_add(1, Relaxed);
        }
        rows
    }

    fn item(&self, random: &mut StdRng) -> (u64, u8, i32) {
        let id = match random.random_range(0..10) {
            0..4 => random.random_range(0..SHARED_IDS),
            4..8 => self.next_id.fetch_add(random.random_range(1..4), Relaxed),
            _ => random.random_range(1_000..=self.next_id.load(Relaxed)),
        };
        let field = random.random_range(0..3_u8);
        // Unsigned fields only rise: the order of the workers does not matter.
        let delta = if field == 1 { random.random_range(-300..300) } else { random.random_range(0..30) };
        (id, field, delta)
    }
}

fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

struct Stop<'a>(&'a Load);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Relaxed);
    }
}

/// A single increment, many in decimal, or many packed.
fn command(items: &[(u64, u8, i32)], random: &mut StdRng, [token, time]: &[String; 2]) -> Vec<Vec<u8>> {
    let text = |text: &str| text.as_bytes().to_vec();
    let is_packed = random.random_bool(0.6);
    let mut args = vec![text(if is_packed { "CT.PINCRBY" } else { "CT.MINCRBY" }), text("k")];
    if is_packed {
        let item =
            |(id, field, delta): &(u64, u8, i32)| [&id.to_le_bytes()[..], &[*field], &delta.to_le_bytes()].concat();
        args.push(items.iter().flat_map(item).collect());
    } else if let [(id, field, delta)] = items {
        args = ["CT.INCRBY", "k", &id.to_string(), FIELDS[usize::from(*field)], &delta.to_string()].map(text).to_vec();
    } else {
        for (id, field, delta) in items {
            args.extend([&id.to_string(), FIELDS[usize::from(*field)], &delta.to_string()].map(text));
        }
    }
    args.extend(["TOKEN", token, "TIME", time].map(text));
    args
}

fn check(reply: &Reply, items: &[(u64, u8, i32)], command: &[Vec<u8>]) {
    let name = String::from_utf8_lossy(&command[0]);
    match &*name {
        "CT.PINCRBY" => assert_eq!(reply.to_string(), format!("[{}]", items.len()), "{name}"),
        _ => {
            assert_eq!(reply.ints().len(), items.len(), "{name}: {reply}");
            let is_sane = |(value, (_, field, _)): (i64, &(u64, u8, i32))| *field == 1 || value >= 0;
            assert!(reply.ints().into_iter().zip(items).all(is_sane), "{name}: {reply}");
        }
    }
}

/// A connection to where the key is.
struct Route<'a> {
    load: &'a Load,
    wire: Option<(u16, Wire)>,
}

impl Route<'_> {
    fn until_done(&mut self, command: &[Vec<u8>]) -> Reply {
        let give_up_at = Instant::now() + GIVE_UP;
        loop {
            let reply = self.attempt(command);
            assert!(Instant::now() < give_up_at, "never done; the last answer: {reply:?}");
            let Some(reply) = reply else {
                self.wire = None;
                std::thread::sleep(Duration::from_millis(2));
                continue;
            };
            let text = reply.to_string();
            match reply.code() {
                None => return reply,
                Some(code) if PASSING.contains(&code) => std::thread::sleep(Duration::from_millis(2)),
                Some("MOVED") => {
                    let moved = text.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
                    self.load.port.store(moved, Relaxed);
                }
                Some("ASK") => {
                    let asked: u16 = text.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
                    if let Some(reply) = ask(asked, command).filter(|reply| reply.code().is_none()) {
                        return reply;
                    }
                }
                Some(_) => panic!("{}: {reply}", command[0].escape_ascii()),
            }
        }
    }

    fn attempt(&mut self, command: &[Vec<u8>]) -> Option<Reply> {
        let port = self.load.port.load(Relaxed);
        if self.wire.as_ref().is_none_or(|(connected, _)| *connected != port) {
            self.wire = Some((port, Wire::connect(port).ok()?));
        }
        let wire = &mut self.wire.as_mut()?.1;
        let reply = wire.try_call(command).ok()?;
        if self.load.replicas == 0 || reply.code().is_some() {
            return Some(reply);
        }
        // A node that is no longer the primary refuses this: then the command is sent again.
        let replicas = wire.try_call(&["WAIT".to_owned(), self.load.replicas.to_string(), "2000".to_owned()]).ok()?;
        matches!(replicas, Reply::Int(count) if count >= i64::from(self.load.replicas)).then_some(reply)
    }
}

fn ask(port: u16, command: &[Vec<u8>]) -> Option<Reply> {
    let mut wire = Wire::connect(port).ok()?;
    wire.try_call(&["ASKING"]).ok()?;
    wire.try_call(command).ok()
}

/// The node has exactly what counts.
pub(super) fn judge(node: &Node, sums: &Sums) {
    let found = node.scan("k");
    let expected: BTreeMap<u64, Vec<i64>> = sums
        .iter()
        .filter(|(_, sums)| sums.iter().any(|sum| *sum != 0))
        .map(|(id, sums)| (*id, sums.to_vec()))
        .collect();
    let wrong: Vec<_> = expected.iter().filter(|(id, row)| found.get(id) != Some(row)).take(5).collect();
    let shown: Vec<_> = wrong.iter().map(|(id, row)| (id, row, found.get(id))).collect();
    assert!(shown.is_empty(), "id, what counts, what is there: {shown:?}");
    assert_eq!(found.len(), expected.len(), "there are ids that nobody wrote");
    assert_eq!(node.faults("k"), Vec::<String>::new());
}
