//! Random commands on a set and on a plain map: each reply is equal, on both engines, while tables roll, spill to files and change their
//! fields (W1 to W3).

use super::random;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use std::collections::BTreeMap;
use tallystone_tests::amount;
use tallystone_tests::compact::{Engine, Node, Setup, Wire};

const STEPS: u32 = 6_000;
/// Commands that are sent at once.
const BATCH: u32 = 100;
/// Bits of a field. Six of them have less than a record may have.
const WIDTH_MAX: u32 = 40;

struct Field {
    name: String,
    number: u8,
    is_signed: bool,
    width: u32,
}

struct Plain {
    /// In the order of a reply.
    fields: Vec<Field>,
    next_number: u8,
    values: BTreeMap<u64, BTreeMap<u8, i64>>,
}

impl Plain {
    fn get(&self, id: u64, number: u8) -> i64 {
        self.values.get(&id).and_then(|values| values.get(&number)).copied().unwrap_or(0)
    }

    fn row(&self, id: u64) -> Vec<i64> {
        self.fields.iter().map(|field| self.get(id, field.number)).collect()
    }

    fn put(&mut self, id: u64, number: u8, value: i64) {
        self.values.entry(id).or_default().insert(number, value);
    }

    /// The new values; `None`: refused, and nothing changes.
    fn add(&mut self, id: u64, deltas: &[(usize, i64)]) -> Option<Vec<i64>> {
        let mut sums = BTreeMap::new();
        let mut reply = Vec::new();
        for (place, delta) in deltas {
            let Field { number, is_signed, .. } = self.fields[*place];
            let before = sums.get(&number).copied().unwrap_or_else(|| self.get(id, number));
            let after = before.checked_add(*delta).filter(|sum| is_signed || *sum >= 0)?;
            sums.insert(number, after);
            reply.push(after);
        }
        sums.into_iter().for_each(|(number, value)| self.put(id, number, value));
        Some(reply)
    }
}

struct Player {
    random: StdRng,
    plain: Plain,
    top: u64,
    ids: Vec<u64>,
    added: u32,
}

/// A command, and the reply that it is to have; `None`: an error of this code.
type Step = (Vec<Vec<u8>>, Result<String, &'static str>);

fn list<T: ToString>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    format!("[{}]", items.join(" "))
}

fn args(words: &str) -> Vec<Vec<u8>> {
    words.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

impl Player {
    fn id(&mut self) -> u64 {
        let id = match self.random.random_range(0..20) {
            0 => *[0, 1, u64::MAX, u64::MAX - 1, 1 << 40, 1 << 63].choose(&mut self.random).unwrap(),
            1 => self.random.random(),
            2 => self.random.random_range(0..self.top),
            3..9 => {
                self.top += self.random.random_range(1..50);
                self.top
            }
            _ if self.ids.is_empty() => 5,
            _ => *self.ids.choose(&mut self.random).unwrap(),
        };
        self.ids.push(id);
        id
    }

    fn delta(&mut self) -> i64 {
        match self.random.random_range(0..12) {
            0 => self.random.random(),
            1 => *[i64::MAX, i64::MIN, 1 << 40, -1].choose(&mut self.random).unwrap(),
            2 | 3 => self.random.random_range(-70_000..70_000),
            _ => self.random.random_range(-2..10),
        }
    }

    fn deltas(&mut self) -> Vec<(usize, i64)> {
        (0..self.random.random_range(1..4))
            .map(|_| (self.random.random_range(0..self.plain.fields.len()), self.delta()))
            .collect()
    }

    fn some_ids(&mut self) -> Vec<u64> {
        (0..self.random.random_range(1..12)).map(|_| self.id()).collect()
    }

    fn step(&mut self) -> Step {
        match self.random.random_range(0..100) {
            0..40 => {
                let (id, deltas) = (self.id(), self.deltas());
                let mut line = format!("CT.INCRBY k {id}");
                for (place, delta) in &deltas {
                    line.push_str(&format!(" {} {delta}", self.plain.fields[*place].name));
                }
                (args(&line), self.plain.add(id, &deltas).map(|values| list(&values)).ok_or("OVERFLOW"))
            }
            40..48 => {
                let (id, place, value) =
                    (self.id(), self.random.random_range(0..self.plain.fields.len()), self.delta());
                let Field { name, number, is_signed, .. } = &self.plain.fields[place];
                let line = format!("CT.SET k {id} {name} {value}");
                let (number, is_right) = (*number, *is_signed || value >= 0);
                if is_right {
                    self.plain.put(id, number, value);
                }
                let reply = if is_right { Ok("OK".to_owned()) } else { Err("OVERFLOW") };
                (args(&line), reply)
            }
            48..60 => {
                let id = self.id();
                (args(&format!("CT.GET k {id}")), Ok(list(&self.plain.row(id))))
            }
            60..68 => {
                let ids = self.some_ids();
                let rows: Vec<String> = ids.iter().map(|id| list(&self.plain.row(*id))).collect();
                let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
                (args(&format!("CT.MGET k {}", ids.join(" "))), Ok(list(&rows)))
            }
            68..73 => {
                let ids = self.some_ids();
                let mut count = 0;
                for id in &ids {
                    count += i64::from(self.plain.row(*id).iter().any(|value| *value != 0));
                    self.plain.values.remove(id);
                }
                let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
                (args(&format!("CT.DEL k {}", ids.join(" "))), Ok(count.to_string()))
            }
            73..97 => self.packed(),
            _ => self.alter(),
        }
    }

    /// Only deltas that count: what is refused has a text, which the tests of single commands compare.
    fn packed(&mut self) -> Step {
        let mut items = Vec::new();
        for _ in 0..self.random.random_range(1..20) {
            let (id, place) = (self.id(), self.random.random_range(0..self.plain.fields.len()));
            let delta = i32::try_from(self.delta()).unwrap_or(3);
            if self.plain.add(id, &[(place, i64::from(delta))]).is_some() {
                items.extend_from_slice(&id.to_le_bytes());
                items.push(self.plain.fields[place].number);
                items.extend_from_slice(&delta.to_le_bytes());
            }
        }
        if items.is_empty() {
            return (args("CT.SCAN none 0"), Err("NOSET"));
        }
        let count = items.len() / 13;
        (vec![b"CT.PINCRBY".to_vec(), b"k".to_vec(), items], Ok(format!("[{count}]")))
    }

    fn alter(&mut self) -> Step {
        let fields = self.plain.fields.len();
        let may_add = self.plain.next_number < 200 && fields < 6;
        match self.random.random_range(0..3) {
            _ if may_add && fields < 3 => self.add_field(),
            0 if may_add => self.add_field(),
            1 if fields > 2 => self.retire_field(),
            _ => self.widen_field(),
        }
    }

    fn add_field(&mut self) -> Step {
        self.added += 1;
        let (name, number) = (format!("new{}", self.added), self.plain.next_number);
        let (is_signed, width) = (self.random.random_bool(0.5), self.random.random_range(1..20));
        let line = format!("CT.ALTER k ADD {name} {}{width}", if is_signed { 'i' } else { 'u' });
        self.plain.fields.push(Field { name, number, is_signed, width });
        self.plain.next_number += 1;
        (args(&line), Ok("OK".to_owned()))
    }

    fn retire_field(&mut self) -> Step {
        let place = self.random.random_range(0..self.plain.fields.len());
        let Field { name, number, .. } = self.plain.fields.remove(place);
        self.plain.values.values_mut().for_each(|values| {
            values.remove(&number);
        });
        (args(&format!("CT.ALTER k RETIRE {name}")), Ok("OK".to_owned()))
    }

    /// No value changes. A width that is not greater is refused.
    fn widen_field(&mut self) -> Step {
        let place = self.random.random_range(0..self.plain.fields.len());
        let (field, width) = (&mut self.plain.fields[place], self.random.random_range(1..=WIDTH_MAX));
        let line = format!("CT.ALTER k WIDEN {} {}{width}", field.name, if field.is_signed { 'i' } else { 'u' });
        let reply = if width > field.width { Ok("OK".to_owned()) } else { Err("ERR") };
        field.width = field.width.max(width);
        (args(&line), reply)
    }
}

fn play(wire: &mut Wire, player: &mut Player, count: u32) {
    let steps: Vec<Step> = (0..count).map(|_| player.step()).collect();
    let commands: Vec<Vec<Vec<u8>>> = steps.iter().map(|(args, _)| args.clone()).collect();
    for ((args, expected), reply) in steps.iter().zip(wire.pipeline(&commands)) {
        let command = || args.iter().map(|arg| arg.escape_ascii().to_string()).collect::<Vec<_>>().join(" ");
        match expected {
            Ok(expected) => assert_eq!(reply.to_string(), *expected, "{}", command()),
            Err(code) => assert_eq!(reply.code(), Some(*code), "{}: {reply}", command()),
        }
    }
}

fn compare(node: &Node, plain: &Plain) {
    let expected: BTreeMap<u64, Vec<i64>> = plain
        .values
        .keys()
        .map(|id| (*id, plain.row(*id)))
        .filter(|(_, row)| row.iter().any(|value| *value != 0))
        .collect();
    let found = node.scan("k");
    let differing = expected.iter().find(|(id, row)| found.get(id) != Some(row));
    assert_eq!(differing.map(|(id, row)| (id, row, found.get(id))), None);
    assert_eq!(found.len(), expected.len());
    assert_eq!(node.faults("k"), Vec::<String>::new());
}

fn against_a_map(name: &str, engine: Engine, options: &str) {
    let node = Setup::new(engine).without_fsync().start();
    let mut wire = node.wire();
    wire.done(&format!("CT.CREATE k {options} SCHEMA likes 7 views u17 balance i9"));
    let fields = [("likes", 0, false, 7), ("views", 1, false, 17), ("balance", 2, true, 9)];
    let fields =
        fields.map(|(name, number, is_signed, width)| Field { name: name.to_owned(), number, is_signed, width });
    let plain = Plain { fields: fields.into(), next_number: 3, values: BTreeMap::new() };
    let mut player = Player { random: random(name), plain, top: 1_000_000, ids: Vec::new(), added: 0 };
    let steps = amount(STEPS, 50 * STEPS);
    for batch in 0..steps / BATCH {
        play(&mut wire, &mut player, BATCH);
        if batch % 20 == 19 {
            compare(&node, &player.plain);
            // Recent ids are what most commands are about.
            player.ids.shuffle(&mut player.random);
            player.ids.truncate(300);
        }
    }
    compare(&node, &player.plain);
    let (digest, counters) = (node.digest("k"), node.scan("k"));
    let mut node = node;
    drop(wire);
    node.restart();
    assert_eq!((node.digest("k"), node.scan("k")), (digest, counters));
}

#[test]
fn w1_random_commands_equal_a_map_on_redis() {
    against_a_map("rising on Redis", Engine::Redis, "TABLE_SLOTS 128 PROBE_MAX 2 TABLES_PREALLOCATED 1");
}

#[test]
fn w2_random_commands_equal_a_map_on_valkey_with_tables_by_hash() {
    against_a_map("random on Valkey", Engine::Valkey, "ORDER RANDOM TABLE_SLOTS 64 PROBE_MAX 1");
}

#[test]
fn w3_random_commands_equal_a_map_while_tables_are_cold() {
    let options = "TABLE_SLOTS 128 MEMORY_MAX 1 CACHE_BYTES 3000";
    for engine in Engine::ALL {
        against_a_map(&format!("cold on {engine:?}"), engine, options);
    }
}
