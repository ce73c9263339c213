//! Requests as bytes, ready to be sent: ours and those of the engine's own types, on the same objects.

use super::objects::{Draw, FIELDS, PACKED_BYTES, floor, id, packed, values};
use tallystone_client::compact::IDS_MAX;

/// The key of the counter set.
pub(super) const SET: &str = "c";
/// Objects whose counters a client packs into one hash.
pub(super) const PACK: u64 = 100;

/// What a command does. Ours begin with `Ct`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// One counter of an object plus 1.
    Incr,
    CtIncrBy,
    /// This number of counters of random objects, each plus 1, in decimal or packed.
    CtMIncrBy(u64),
    CtPIncrBy(u64),
    /// Four counters of an object: a hash, four keys, a counter set.
    HMGet,
    MGet,
    CtGet,
    /// Four counters of each of this number of objects: keys, and a counter set in decimal or packed.
    MGetOf(u64),
    CtMGet(u64),
    CtPGet(u64),
}

impl Op {
    /// What one command counts as: increments or objects.
    pub(super) fn items(self) -> u64 {
        match self {
            Op::CtMIncrBy(items) | Op::CtPIncrBy(items) => items,
            Op::MGetOf(items) | Op::CtMGet(items) | Op::CtPGet(items) => items,
            _ => 1,
        }
    }

    /// Elements of its reply, arrays and their items counted.
    pub(super) fn elements(self) -> u64 {
        let fields = FIELDS.len() as u64;
        match self {
            Op::Incr | Op::CtPGet(_) => 1,
            Op::CtIncrBy | Op::CtPIncrBy(_) => 2,
            Op::CtMIncrBy(items) => 1 + items,
            Op::HMGet | Op::MGet | Op::CtGet => 1 + fields,
            Op::MGetOf(items) => 1 + items * fields,
            Op::CtMGet(items) => 1 + items * (1 + fields),
        }
    }

    /// Appends one command on objects drawn from those from `first` on.
    pub(super) fn append(self, out: &mut Vec<u8>, draw: &mut Draw, first: u64, objects: u64) {
        let mut next = || first + draw.below(objects);
        match self {
            Op::Incr => {
                let key = string_key(next(), draw.below(4) as usize);
                command(out, &[b"INCR", key.as_bytes()]);
            }
            Op::CtIncrBy => {
                let object = id(next()).to_string();
                let field = FIELDS[draw.below(4) as usize].0;
                command(out, &[b"CT.INCRBY", SET.as_bytes(), object.as_bytes(), field.as_bytes(), b"1"]);
            }
            Op::CtMIncrBy(items) => {
                begin(out, 2 + 3 * items as usize);
                argument(out, b"CT.MINCRBY");
                argument(out, SET.as_bytes());
                for _ in 0..items {
                    argument(out, id(first + draw.below(objects)).to_string().as_bytes());
                    argument(out, FIELDS[draw.below(4) as usize].0.as_bytes());
                    argument(out, b"1");
                }
            }
            Op::CtPIncrBy(items) => {
                let mut argument = Vec::new();
                for _ in 0..items {
                    increment(&mut argument, id(first + draw.below(objects)), draw.below(4) as u8, 1);
                }
                command(out, &[b"CT.PINCRBY", SET.as_bytes(), &argument]);
            }
            Op::HMGet => {
                let key = id(next()).to_string();
                let [l, r, m, v] = FIELDS.map(|(name, _)| name.as_bytes());
                command(out, &[b"HMGET", key.as_bytes(), l, r, m, v]);
            }
            Op::CtGet => command(out, &[b"CT.GET", SET.as_bytes(), id(next()).to_string().as_bytes()]),
            Op::MGet => Op::MGetOf(1).append(out, draw, first, objects),
            Op::MGetOf(items) => {
                begin(out, 1 + FIELDS.len() * items as usize);
                argument(out, b"MGET");
                for _ in 0..items {
                    let object = next();
                    (0..FIELDS.len()).for_each(|field| argument(out, string_key(object, field).as_bytes()));
                }
            }
            Op::CtMGet(items) => {
                begin(out, 2 + items as usize);
                argument(out, b"CT.MGET");
                argument(out, SET.as_bytes());
                (0..items).for_each(|_| argument(out, id(next()).to_string().as_bytes()));
            }
            Op::CtPGet(items) => {
                let ids: Vec<u8> = (0..items).flat_map(|_| id(next()).to_le_bytes()).collect();
                command(out, &[b"CT.PGET", SET.as_bytes(), &ids]);
            }
        }
    }
}

/// How objects are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Store {
    /// One counter set.
    Set,
    /// Four keys of an object, each with a counter.
    Keys,
    /// One hash of an object.
    Hashes,
    /// Hashes of 100 objects, in which a client keeps 11 bytes for each, by its id.
    Packs,
    /// The same, by the remainder of its id, of which the engine makes three bytes.
    TightPacks,
}

impl Store {
    /// Objects that one command stores.
    pub(super) fn objects(self) -> u64 {
        match self {
            // An increment for each field.
            Store::Set => (IDS_MAX / FIELDS.len()) as u64,
            Store::Keys | Store::Hashes => 1,
            Store::Packs | Store::TightPacks => PACK,
        }
    }

    /// Appends the command that stores the objects from `first` to before `end`, at most [`Store::objects`] of them.
    pub(super) fn append(self, out: &mut Vec<u8>, first: u64, end: u64) {
        match self {
            Store::Set => {
                let mut increments = Vec::with_capacity((end - first) as usize * 52);
                for object in first..end {
                    for (field, value) in (0..).zip(values(object)) {
                        increment(&mut increments, id(object), field, value as i32);
                    }
                }
                command(out, &[b"CT.PINCRBY", SET.as_bytes(), &increments]);
            }
            Store::Keys => {
                begin(out, 1 + 2 * FIELDS.len());
                argument(out, b"MSET");
                for (field, value) in values(first).into_iter().enumerate() {
                    argument(out, string_key(first, field).as_bytes());
                    argument(out, value.to_string().as_bytes());
                }
            }
            Store::Hashes => {
                begin(out, 2 + 2 * FIELDS.len());
                argument(out, b"HSET");
                argument(out, id(first).to_string().as_bytes());
                for ((name, _), value) in FIELDS.iter().zip(values(first)) {
                    argument(out, name.as_bytes());
                    argument(out, value.to_string().as_bytes());
                }
            }
            Store::Packs | Store::TightPacks => {
                begin(out, 2 + 2 * (end - first) as usize);
                argument(out, b"HSET");
                argument(out, format!("p{}", first / PACK).as_bytes());
                for object in first..end {
                    let mut record = [0; PACKED_BYTES];
                    packed(object, &mut record);
                    let base = if self == Store::Packs { 0 } else { floor(first - first % PACK) };
                    argument(out, (id(object) - base).to_string().as_bytes());
                    argument(out, &record);
                }
            }
        }
    }
}

fn string_key(object: u64, field: usize) -> String {
    format!("{}:{}", id(object), FIELDS[field].0)
}

/// 13 bytes of `CT.PINCRBY`.
fn increment(out: &mut Vec<u8>, id: u64, field: u8, delta: i32) {
    out.extend_from_slice(&id.to_le_bytes());
    out.push(field);
    out.extend_from_slice(&delta.to_le_bytes());
}

/// Appends a command of these arguments.
pub(super) fn command(out: &mut Vec<u8>, arguments: &[&[u8]]) {
    begin(out, arguments.len());
    arguments.iter().for_each(|bytes| argument(out, bytes));
}

fn begin(out: &mut Vec<u8>, arguments: usize) {
    out.extend_from_slice(format!("*{arguments}\r\n").as_bytes());
}

fn argument(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w1_a_command_is_its_arguments() {
        let mut out = Vec::new();
        command(&mut out, &[b"INCR", b"a\r\nb"]);
        assert_eq!(out, b"*2\r\n$4\r\nINCR\r\n$4\r\na\r\nb\r\n");
    }

    #[test]
    fn w1_packed_requests_have_thirteen_and_eight_bytes_an_item() {
        let (mut out, mut draw) = (Vec::new(), Draw::new(1));
        Op::CtPIncrBy(64).append(&mut out, &mut draw, 0, 100);
        assert!(out.windows(5).any(|bytes| bytes == b"$832\r"));
        out.clear();
        Op::CtPGet(32).append(&mut out, &mut draw, 0, 100);
        assert!(out.windows(5).any(|bytes| bytes == b"$256\r"));
    }
}
