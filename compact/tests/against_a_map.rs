//! Random commands on a set and on a plain map (W1 to W3): each reply is equal, whatever the tables do meanwhile.

mod disk;

use disk::Disk;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tallystone_compact::*;

#[derive(Clone, Debug)]
enum Step {
    Increment(Id, Vec<(usize, i64)>),
    Set(Id, usize, i64),
    Newer(Id, i64, i64),
    Delete(Id),
    Read(Vec<Id>),
    Scan(usize),
    Work(usize),
    /// Begin a job, or end the one that runs.
    Job(bool),
    Add(u8, bool),
    Widen(usize, u8),
    Retire(usize),
    Memory(u64),
    Option(&'static str, u64),
    /// A command with the token of this number, made so long before now, with this content. Before it, so much time passes.
    Token(u8, u64, bool, u64),
    /// `TOKEN_WINDOW_MS`.
    Window(u64),
    Dump,
    Apply(Id, Vec<(usize, i64)>),
    ApplySet(Id, usize, i64),
}

#[derive(Clone, Copy, Debug)]
enum Id {
    /// Above all ids so far.
    Next(u64),
    /// One of the ids so far.
    Known(usize),
    Any(u64),
    /// Far above all others: one of a few, or of many.
    Wild(u64),
}

fn id() -> impl Strategy<Value = Id> {
    prop_oneof![
        6 => (1..60_u64).prop_map(Id::Next),
        8 => any::<usize>().prop_map(Id::Known),
        1 => any::<u64>().prop_map(Id::Any),
        1 => prop_oneof![Just(0), Just(u64::MAX), Just(1 << 40), 0..3_000_u64].prop_map(Id::Any),
    ]
}

/// Ids of which most are wild, so that the range of a set begins lower, or higher.
fn wild_id() -> impl Strategy<Value = Id> {
    prop_oneof![4 => prop_oneof![0..4_u64, 0..200_u64].prop_map(Id::Wild), 1 => id()]
}

/// Commands that give ids their counters, and that take them back.
fn wild_step() -> impl Strategy<Value = Step> {
    let count = || prop::collection::vec((0..2_usize, 1..9_i64), 1..3);
    prop_oneof![
        4 => (wild_id(), count()).prop_map(|(id, deltas)| Step::Increment(id, deltas)),
        3 => wild_id().prop_map(Step::Delete),
        3 => (1..30_u64, count()).prop_map(|(gap, deltas)| Step::Increment(Id::Next(gap), deltas)),
        1 => step(),
    ]
}

fn delta() -> impl Strategy<Value = i64> {
    prop_oneof![6 => -3..9_i64, 2 => -70_000..70_000_i64, 1 => any::<i64>(), 1 => prop_oneof![Just(i64::MAX), Just(i64::MIN)]]
}

fn deltas() -> impl Strategy<Value = Vec<(usize, i64)>> {
    prop::collection::vec((any::<usize>(), delta()), 1..4)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => (id(), deltas()).prop_map(|(id, deltas)| Step::Increment(id, deltas)),
        6 => (id(), any::<usize>(), delta()).prop_map(|(id, field, value)| Step::Set(id, field, value)),
        4 => (id(), delta(), delta()).prop_map(|(id, value, time)| Step::Newer(id, value, time)),
        3 => id().prop_map(Step::Delete),
        8 => prop::collection::vec(id(), 1..9).prop_map(Step::Read),
        1 => (1..50_usize).prop_map(Step::Scan),
        6 => (1..20_usize).prop_map(Step::Work),
        6 => any::<bool>().prop_map(Step::Job),
        1 => (1..=64_u8, any::<bool>()).prop_map(|(width, signed)| Step::Add(width, signed)),
        1 => (any::<usize>(), 1..=64_u8).prop_map(|(field, width)| Step::Widen(field, width)),
        1 => any::<usize>().prop_map(Step::Retire),
        1 => prop_oneof![Just(0), Just(1), Just(100_000_u64)].prop_map(Step::Memory),
        1 => prop_oneof![Just("CACHE_BYTES"), Just("TABLES_PREALLOCATED")].prop_flat_map(|name| {
            (0..4_u64).prop_map(move |value| Step::Option(name, value * if name == "CACHE_BYTES" { 1_000 } else { 1 }))
        }),
        1 => (10..=95_u64).prop_map(|percent| Step::Option("FILL_PERCENT", percent)),
        1 => (0..6_u64).prop_map(|tables| Step::Option("TABLES_MAX", tables)),
        1 => (1..20_u64).prop_map(|groups| Step::Option("PROBE_MAX", groups)),
        3 => (0..9_u8, 0..10_000_u64, any::<bool>(), 0..2_000_u64)
            .prop_map(|(number, age_ms, content, passes_ms)| Step::Token(number, age_ms, content, passes_ms)),
        1 => prop_oneof![Just(1_000), Just(WINDOW_MS), Just(60_000)].prop_map(Step::Window),
        1 => Just(Step::Dump),
        4 => (id(), deltas()).prop_map(|(id, deltas)| Step::Apply(id, deltas)),
        1 => (id(), any::<usize>(), delta()).prop_map(|(id, field, value)| Step::ApplySet(id, field, value)),
    ]
}

struct World {
    set: CounterSet,
    plain: BTreeMap<u64, BTreeMap<String, i64>>,
    disk: Disk,
    job: Option<Job>,
    ids: Vec<u64>,
    greatest: u64,
    added: usize,
    now_ms: u64,
    /// The content of the commands that have counted, by their token and its time.
    tokens: BTreeMap<(u8, u64), bool>,
    window_ms: u64,
    /// Tokens of earlier times may be forgotten: they were out of a window.
    forgotten_ms: u64,
}

const WINDOW_MS: u64 = 8_000;

impl World {
    fn new(options: Options) -> World {
        let parse = |(name, width): (&str, &str)| Field::parse(name.as_bytes(), width.as_bytes()).unwrap();
        let fields = [("likes", "7"), ("views", "u17"), ("balance", "i9"), ("time", "41"), ("flag", "1")].map(parse);
        // Some groups in a segment, so that a table has many: ids wait for the first one.
        let segment_bytes = 700;
        let (cache_bytes, token_window_ms) = (2_000, WINDOW_MS);
        let options = Options { cache_bytes, segment_bytes, token_window_ms, ..options };
        let set = CounterSet::new(Schema::new(fields.into()).unwrap(), options, 42).unwrap();
        let (disk, plain) = (Disk::default(), BTreeMap::new());
        World {
            set,
            plain,
            disk,
            job: None,
            ids: Vec::new(),
            greatest: 1 << 30,
            added: 0,
            now_ms: 1_000_000,
            tokens: BTreeMap::new(),
            window_ms: WINDOW_MS,
            forgotten_ms: 0,
        }
    }

    fn id(&mut self, id: Id) -> u64 {
        let id = match id {
            Id::Next(gap) => {
                self.greatest = self.greatest.saturating_add(gap);
                self.greatest
            }
            Id::Known(place) if !self.ids.is_empty() => self.ids[place % self.ids.len()],
            Id::Known(_) => 5,
            Id::Any(id) => id,
            Id::Wild(step) => (1 << 62) + step,
        };
        self.ids.push(id);
        id
    }

    fn field(&self, place: usize) -> (u8, Field) {
        let live: Vec<_> = self.set.schema().live().collect();
        let (number, field) = live[place % live.len()];
        (number, field.clone())
    }

    fn value(&self, id: u64, name: &str) -> i64 {
        self.plain.get(&id).and_then(|fields| fields.get(name)).copied().unwrap_or(0)
    }

    fn put(&mut self, id: u64, name: &str, value: i64) {
        self.plain.entry(id).or_default().insert(name.to_owned(), value);
    }

    fn row(&self, id: u64) -> Vec<i64> {
        self.set.schema().live().map(|(_, field)| self.value(id, &field.name)).collect()
    }

    /// What the map says of increments: the results, or that they are refused.
    fn sums(&self, id: u64, deltas: &[(u8, Field, i64)]) -> Option<Vec<(String, i64)>> {
        let mut now: BTreeMap<&str, i64> = BTreeMap::new();
        let mut sums = Vec::new();
        for (_, field, delta) in deltas {
            let current = now.get(field.name.as_str()).copied().unwrap_or_else(|| self.value(id, &field.name));
            let value = current.checked_add(*delta).filter(|value| field.signed || *value >= 0)?;
            now.insert(&field.name, value);
            sums.push((field.name.clone(), value));
        }
        Some(sums)
    }

    /// Whether a set refuses a new id because of `TABLES_MAX`. Then it has changed nothing.
    fn is_full<T>(&self, id: u64, done: &Result<T, Refusal>) -> bool {
        let is_full = matches!(done, Err(Refusal::Full));
        if is_full {
            let (most, hot) = (self.set.options().tables_max, self.set.totals().hot_tables as u64);
            assert!(most > 0 && hot >= most, "{hot} tables of {most}");
            assert!(self.row(id).iter().all(|value| *value == 0), "{id} has a place");
        }
        is_full
    }

    fn fetched(&mut self, ids: &[u64]) -> Fetched {
        self.disk.search(&self.set.unread(ids.iter().copied(), &Fetched::none()))
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Increment(id, deltas) => self.increment(Mode::Decide, id, &deltas),
            Step::Apply(id, deltas) => self.increment(Mode::Apply, id, &deltas),
            Step::Set(id, place, value) => self.write(Mode::Decide, id, place, value),
            Step::ApplySet(id, place, value) => self.write(Mode::Apply, id, place, value),
            Step::Newer(id, value, time) => {
                let id = self.id(id);
                let ((number, field), (time_number, time_field)) = (self.field(0), self.field(1));
                if number == time_number {
                    return;
                }
                let fetched = self.fetched(&[id]);
                let newer = self.set.set_newer(Mode::Decide, id, (number, value), (time_number, time), &fetched);
                let is_newer = time > self.value(id, &time_field.name);
                let in_range = (field.signed || value >= 0) && (time_field.signed || time >= 0);
                if is_newer && in_range && self.is_full(id, &newer) {
                    return;
                }
                assert_eq!(newer.ok(), if is_newer && !in_range { None } else { Some(is_newer) });
                if is_newer && in_range {
                    self.put(id, &field.name, value);
                    self.put(id, &time_field.name, time);
                }
            }
            Step::Delete(id) => {
                let id = self.id(id);
                let fetched = self.fetched(&[id]);
                let deleted = self.set.delete(Mode::Decide, id, &fetched);
                assert_eq!(deleted, Ok(self.row(id).iter().any(|value| *value != 0)));
                self.plain.remove(&id);
            }
            Step::Read(ids) => {
                let ids: Vec<u64> = ids.into_iter().map(|id| self.id(id)).collect();
                self.compare(&ids);
            }
            Step::Scan(count) => self.scan(count),
            Step::Work(steps) => (0..steps).for_each(|_| {
                self.set.step(self.now_ms);
            }),
            Step::Job(fails) => self.job(fails),
            Step::Add(width, signed) => {
                self.added += 1;
                let field = Field { name: format!("new{}", self.added), width, signed, retired: false };
                let _ = self.set.alter(Change::Add(field));
            }
            Step::Widen(place, width) => {
                let (_, field) = self.field(place);
                let _ = self.set.alter(Change::Widen(Field { width, ..field }));
            }
            Step::Retire(place) => {
                let (_, field) = self.field(place);
                if self.set.alter(Change::Retire(field.name.clone().into_bytes())).is_ok() {
                    self.plain.values_mut().for_each(|fields| {
                        fields.remove(&field.name);
                    });
                }
            }
            Step::Memory(bytes) => {
                let change = Change::Option(b"MEMORY_MAX".to_vec(), bytes.to_string().into_bytes());
                assert_eq!(self.set.alter(change).is_ok(), self.set.options().order == Order::Rising || bytes == 0);
            }
            Step::Option(name, value) => {
                let done = self.set.alter(Change::Option(name.as_bytes().to_vec(), value.to_string().into_bytes()));
                assert!(done.is_ok() || (name, self.set.options().order) == ("TABLES_PREALLOCATED", Order::Random));
            }
            Step::Token(number, age_ms, content, passes_ms) => {
                self.now_ms += passes_ms;
                self.token(number, self.now_ms - age_ms, content);
            }
            Step::Window(window_ms) => {
                let value = window_ms.to_string().into_bytes();
                self.set.alter(Change::Option(b"TOKEN_WINDOW_MS".to_vec(), value)).unwrap();
                self.window_ms = window_ms;
                self.forgotten_ms = self.forgotten_ms.max(self.now_ms - window_ms);
            }
            Step::Dump => self.dump(),
        }
    }

    fn token(&mut self, number: u8, time_ms: u64, content: bool) {
        let content_bytes: &[&[u8]] = &[if content { b"1" } else { b"2" }];
        let token = Token { text: &[b'a' + number], time_ms, content: content_bytes };
        let admitted = self.set.admit(Mode::Decide, token, self.now_ms);
        self.forgotten_ms = self.forgotten_ms.max(self.now_ms - self.window_ms);
        if time_ms < self.forgotten_ms && admitted == Err(Refusal::TooOld) {
            return;
        }
        let expected = match self.tokens.get(&(number, time_ms)) {
            _ if time_ms + self.window_ms < self.now_ms => Err(Refusal::TooOld),
            None => Ok(Admission::New),
            Some(counted) if *counted == content => Ok(Admission::Repeated),
            Some(_) => Err(Refusal::TokenReused),
        };
        assert_eq!(admitted, expected, "token {number} of {time_ms} at {}", self.now_ms);
        if admitted == Ok(Admission::New) {
            self.set.remember(token);
            self.tokens.insert((number, time_ms), content);
        }
    }

    fn increment(&mut self, mode: Mode, id: Id, deltas: &[(usize, i64)]) {
        let id = self.id(id);
        let deltas: Vec<(u8, Field, i64)> = deltas
            .iter()
            .map(|(place, delta)| {
                let (number, field) = self.field(*place);
                (number, field, *delta)
            })
            .collect();
        let expected = self.sums(id, &deltas);
        if mode == Mode::Apply && expected.is_none() {
            // A primary would not have sent it.
            return;
        }
        let fetched = if mode == Mode::Decide { self.fetched(&[id]) } else { Fetched::none() };
        let numbers: Vec<(u8, i64)> = deltas.iter().map(|(number, _, delta)| (*number, *delta)).collect();
        let mut results = vec![7];
        let done = self.set.increment(mode, id, &numbers, &fetched, &mut results);
        if mode == Mode::Decide && expected.is_some() && self.is_full(id, &done) {
            assert_eq!(results, [7]);
            return;
        }
        assert_eq!(done.is_ok(), expected.is_some(), "{done:?}");
        let values: Vec<i64> = expected.iter().flatten().map(|(_, value)| *value).collect();
        if mode == Mode::Decide {
            assert_eq!(results[1..], values);
        }
        for (name, value) in expected.into_iter().flatten() {
            self.put(id, &name, value);
        }
    }

    fn write(&mut self, mode: Mode, id: Id, place: usize, value: i64) {
        let id = self.id(id);
        let (number, field) = self.field(place);
        let fetched = if mode == Mode::Decide { self.fetched(&[id]) } else { Fetched::none() };
        let set = self.set.set(mode, id, &[(number, value)], &fetched);
        if mode == Mode::Decide && (field.signed || value >= 0) && self.is_full(id, &set) {
            return;
        }
        assert_eq!(set.is_ok(), field.signed || value >= 0);
        if set.is_ok() {
            self.put(id, &field.name, value);
        }
    }

    fn compare(&mut self, ids: &[u64]) {
        let fetched = self.fetched(ids);
        let mut out = Vec::new();
        self.set.read_many(ids, &fetched, &mut out).unwrap();
        let expected: Vec<i64> = ids.iter().flat_map(|id| self.row(*id)).collect();
        assert_eq!(out, expected, "{ids:?}");
    }

    fn expected(&self) -> BTreeMap<u64, Vec<i64>> {
        let rows = self.plain.keys().map(|id| (*id, self.row(*id)));
        rows.filter(|(_, row)| row.iter().any(|value| *value != 0)).collect()
    }

    fn scan(&mut self, count: usize) {
        let fields = self.set.schema().live().count();
        let (mut found, mut cursor, mut fetched) = (BTreeMap::new(), 0, Fetched::none());
        loop {
            match self.set.scan(cursor, count, &fetched) {
                Ok(scan) => {
                    found.extend(scan.ids.iter().copied().zip(scan.values.chunks(fields).map(<[i64]>::to_vec)));
                    cursor = scan.next;
                    if cursor == 0 {
                        break;
                    }
                }
                Err(page) => fetched = self.disk.fetch(vec![page.expect("no damage")]),
            }
        }
        assert_eq!(found, self.expected());
    }

    fn job(&mut self, fails: bool) {
        match self.job.take() {
            None => self.job = self.set.next_job(),
            Some(Job::Spill(job)) if fails => {
                let serial = job.serial;
                drop(job);
                self.set.abort_spill(serial);
            }
            Some(Job::Spill(job)) => {
                let (file, name) = self.disk.create().unwrap();
                let index = job.write(file, &mut |page| self.disk.append(file, page)).unwrap();
                let serial = job.serial;
                drop(job);
                assert!(self.set.finish_spill(serial, file, name, index).is_some());
            }
            Some(Job::Merge(serial, _)) if fails => self.set.abort_merge(serial),
            Some(Job::Merge(serial, job)) => {
                let (file, name) = self.disk.create().unwrap();
                let mut written = Vec::new();
                let merged = job.run(file, &mut |page| self.disk.read(page), &mut |page: &[u8; PAGE_BYTES]| {
                    written.push(*page);
                    Ok::<(), String>(())
                });
                self.disk.files.insert(file, written);
                let replaced = self.set.finish_merge(serial, name, merged.unwrap()).expect("it is this table's");
                self.disk.files.remove(&replaced.file);
            }
        }
    }

    fn dump(&mut self) {
        let pieces = pieces(&self.set, &self.disk);
        let mut restored = None;
        for (place, piece) in pieces.iter().enumerate() {
            CounterSet::restore(&mut restored, Mode::Decide, piece, &mut self.disk).unwrap();
            if place == pieces.len() / 2 {
                // A snapshot between two pieces.
                let begun = restored.take().expect("the first piece makes it");
                for piece in crate::pieces(&begun, &self.disk) {
                    CounterSet::restore(&mut restored, Mode::Apply, &piece, &mut self.disk).unwrap();
                }
            }
        }
        // A job of the set before has nothing to give to the restored one.
        self.job = None;
        self.set = restored.expect("the first piece makes it");
        assert!(!self.set.is_restoring());
    }

    fn finish(mut self) {
        let ids: Vec<u64> = self.plain.keys().copied().chain([0, u64::MAX]).collect();
        for ids in ids.chunks(IDS_MAX) {
            self.compare(ids);
        }
        self.scan(10);
        let mut cursor = 0;
        let mut fetched = Fetched::none();
        loop {
            match self.set.check(cursor, &fetched) {
                Ok((next, faults)) => {
                    assert_eq!(faults, Vec::<String>::new());
                    cursor = next;
                    if cursor == 0 {
                        break;
                    }
                }
                Err(page) => fetched = self.disk.fetch(vec![page]),
            }
        }
    }
}

fn pieces(set: &CounterSet, disk: &Disk) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    set.dump(&mut |page| disk.read(page), &mut |piece| pieces.push(piece.to_vec())).unwrap();
    pieces
}

fn run(options: Options, steps: Vec<Step>) {
    let mut world = World::new(options);
    for step in steps {
        world.take(step);
    }
    world.finish();
}

/// While a table splits, an id whose record became 0 before its group moved is counted again.
#[test]
fn w2_an_id_that_was_zero_when_its_table_split_counts_on() {
    let mut world = World::new(Options { order: Order::Random, table_slots: 48, probe_max: 3, ..Options::default() });
    let count = |world: &mut World, id: u64, delta: i64| world.increment(Mode::Decide, Id::Any(id), &[(0, delta)]);
    for id in 0..1_000 {
        count(&mut world, id, 1);
        for known in (0..=id).rev().step_by(3) {
            let delta = if world.value(known, "likes") == 0 { 1 } else { -1 };
            count(&mut world, known, delta);
        }
        world.compare(&(id.saturating_sub(30)..=id).collect::<Vec<_>>());
    }
    world.finish();
}

fn config() -> ProptestConfig {
    let long = std::env::var_os("TALLYSTONE_TEST_LONG").is_some();
    ProptestConfig { cases: if long { 20_000 } else { 1_000 }, ..ProptestConfig::default() }
}

/// Small tables, of all sizes of keys, fill thresholds and bounds of their number.
fn options(order: Order) -> impl Strategy<Value = Options> {
    let slots = prop_oneof![6 => 16..70_u64, 1 => Just(400), 1 => Just(1_000)];
    let key_bytes = prop_oneof![2 => Just(0), 3 => 4..=8_u64];
    let fill_percent = prop_oneof![2 => Just(90), 1 => 10..=95_u64];
    let tables_max = prop_oneof![3 => Just(0), 1 => 1..6_u64];
    (slots, 1..4_u64, key_bytes, fill_percent, tables_max).prop_map(
        move |(table_slots, probe_max, key_bytes, fill_percent, tables_max)| Options {
            order,
            table_slots,
            key_bytes,
            fill_percent,
            probe_max,
            tables_max,
            ..Options::default()
        },
    )
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn w2_w3_rising_tables_answer_like_a_map(
        options in options(Order::Rising),
        steps in prop::collection::vec(step(), 1..400),
    ) {
        run(options, steps);
    }

    #[test]
    fn w2_wild_ids_that_come_and_go_answer_like_a_map(
        options in options(Order::Rising),
        wild in prop::collection::vec(wild_step(), 1..300),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        run(options, wild.into_iter().chain(steps).collect());
    }

    #[test]
    fn w2_tables_by_hash_answer_like_a_map(
        options in options(Order::Random),
        steps in prop::collection::vec(step(), 1..400),
    ) {
        run(options, steps);
    }
}
