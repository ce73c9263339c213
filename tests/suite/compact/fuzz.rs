//! Commands of random bytes, and commands that are almost right: the engine lives, and what it holds is sound (W1).
//! `TALLYSTONE_TEST_LONG`: a million and more.

use super::cold::until_cold;
use super::{now_ms, random};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use std::ops::Range;
use tallystone_tests::amount;
use tallystone_tests::compact::{Engine, Setup, Wire};

const COMMANDS: usize = 12_000;
const BATCH: usize = 200;
const NAMES: [&str; 18] = [
    "CT.CREATE",
    "CT.ALTER",
    "CT.INCRBY",
    "CT.MINCRBY",
    "CT.PINCRBY",
    "CT.SET",
    "CT.DEL",
    "CT.GET",
    "CT.MGET",
    "CT.PGET",
    "CT.PSETNEWER",
    "CT.INFO",
    "CT.TABLES",
    "CT.CHECK",
    "CT.GIVEUP",
    "CT.SCAN",
    "CT.REPAIR",
    "CT.RESTORE",
];
const WORDS: &[&str] = &[
    "likes",
    "views",
    "balance",
    "time",
    "TOKEN",
    "TIME",
    "COUNT",
    "SCHEMA",
    "ADD",
    "WIDEN",
    "RETIRE",
    "OPTION",
    "ORDER",
    "RANDOM",
    "RISING",
    "TABLE_SLOTS",
    "MEMORY_MAX",
    "CACHE_BYTES",
    "TABLES_MAX",
    "PROBE_MAX",
    "KEY_BYTES",
    "FILL_PERCENT",
    "TOKEN_WINDOW_MS",
    "24",
    "u8",
    "i64",
    "64",
    "65",
    "0",
    "1",
    "-1",
    "16",
    "100",
    "00012",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775807",
    "-9223372036854775808",
    "1099511627776",
    "",
    "*",
    "$5",
    "\r\n",
    "\0",
    "1e3",
    " 1",
    "nan",
];

struct Fuzzer {
    random: StdRng,
    /// Pieces of dumps, to be broken.
    pieces: Vec<Vec<u8>>,
    /// What `DUMP` gives for each set, with the places of its pieces.
    payloads: Vec<(Vec<u8>, Vec<Range<usize>>)>,
}

impl Fuzzer {
    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.random.random_range(0..=most)];
        self.random.fill(&mut bytes[..]);
        bytes
    }

    fn arg(&mut self) -> Vec<u8> {
        match self.random.random_range(0..12) {
            0 => self.bytes(40),
            1 => self.random.random::<u64>().to_string().into_bytes(),
            2 => self.random.random_range(0..5_000_u64).to_string().into_bytes(),
            3 => {
                let count = self.random.random_range(0..20);
                (0..count).flat_map(|_| self.packed(13)).collect()
            }
            4 => {
                let bytes = [8, 24, 40][self.random.random_range(0..3)];
                self.packed(bytes)
            }
            5 => now_ms().to_string().into_bytes(),
            _ => WORDS.choose(&mut self.random).expect("words").as_bytes().to_vec(),
        }
    }

    /// An id that is used; one in twenty is far above the others, so that ranges begin for them and for those below.
    fn id(&mut self) -> u64 {
        let step = self.random.random_range(0..6_000);
        if self.random.random_bool(0.05) { (1 << 62) + step % 300 } else { step }
    }

    /// An id that is used, and random bytes behind it.
    fn packed(&mut self, bytes: usize) -> Vec<u8> {
        let mut packed = self.id().to_le_bytes().to_vec();
        packed.resize(bytes, 0);
        if bytes > 8 {
            packed[8] = self.random.random_range(0..6);
            let rest = self.random.random_range(9..=bytes);
            self.random.fill(&mut packed[9..rest]);
        }
        packed
    }

    fn key(&mut self) -> Vec<u8> {
        let keys = ["rising", "cold", "hash", "new", "text", "none", "restored"];
        keys.choose(&mut self.random).expect("keys").as_bytes().to_vec()
    }

    fn command(&mut self) -> Vec<Vec<u8>> {
        let id = self.id().to_string();
        let field = ["likes", "views", "balance"].choose(&mut self.random).expect("fields").to_string();
        let delta = self.random.random_range(-5..50).to_string();
        let name = NAMES.choose(&mut self.random).expect("names").to_string();
        let key = String::from_utf8(self.key()).expect("a name");
        let mut args: Vec<Vec<u8>> = match self.random.random_range(0..20) {
            0 => vec![b"DEL".to_vec(), b"new".to_vec()],
            1 => vec![b"CT.RESTORE".to_vec(), b"new".to_vec(), self.broken_piece()],
            2 => vec![
                b"CT.PINCRBY".to_vec(),
                key.into(),
                (0..self.random.random_range(1..30)).flat_map(|_| self.packed(13)).collect(),
            ],
            3 => vec![
                b"CT.PGET".to_vec(),
                key.into(),
                (0..self.random.random_range(1..30)).flat_map(|_| self.packed(8)).collect(),
            ],
            4 => ["CT.CREATE", "new", "TABLE_SLOTS", "64", "SCHEMA", "likes", "9", "views", "i20"]
                .map(|word| word.as_bytes().to_vec())
                .to_vec(),
            5 => vec![b"CT.ALTER".to_vec(), key.into(), b"OPTION".to_vec(), self.arg(), self.arg()],
            6..10 => ["CT.INCRBY", &key, &id, &field, &delta].map(|word| word.as_bytes().to_vec()).to_vec(),
            10 => ["CT.SET", &key, &id, &field, &delta].map(|word| word.as_bytes().to_vec()).to_vec(),
            11 => ["CT.GET", &key, &id].map(|word| word.as_bytes().to_vec()).to_vec(),
            // They come and go.
            12 => ["CT.DEL", &key, &id].map(|word| word.as_bytes().to_vec()).to_vec(),
            13 => return self.restore(),
            _ => {
                let mut args = vec![name.into_bytes(), key.into_bytes()];
                (0..self.random.random_range(0..9)).for_each(|_| args.push(self.arg()));
                args
            }
        };
        // Almost right: an argument is changed, is missing, or comes twice.
        if self.random.random_bool(0.3) && args.len() > 2 {
            let place = self.random.random_range(1..args.len());
            match self.random.random_range(0..4) {
                0 => args[place] = self.arg(),
                1 => drop(args.remove(place)),
                2 => args.insert(place, args[place].clone()),
                _ => {
                    let bit = self.random.random_range(0..8);
                    if let Some(byte) = args[place].first_mut() {
                        *byte ^= 1 << bit;
                    }
                }
            }
        }
        args
    }

    /// Restores a payload with a changed piece and matching checksums, so that the engine passes it to the module.
    fn restore(&mut self) -> Vec<Vec<u8>> {
        let (payload, places) = self.payloads.choose(&mut self.random).expect("payloads");
        let (mut payload, piece) = (payload.clone(), places.choose(&mut self.random).expect("pieces").clone());
        let content = piece.start..piece.end - 4;
        for _ in 0..self.random.random_range(1..4) {
            payload[self.random.random_range(content.clone())] = self.random.random();
        }
        let sum = crc32c::crc32c(&payload[content.clone()]);
        payload[content.end..piece.end].copy_from_slice(&sum.to_le_bytes());
        let end = payload.len() - 8;
        let sum = crc64(&payload[..end]);
        payload[end..].copy_from_slice(&sum.to_le_bytes());
        [b"RESTORE".to_vec(), b"restored".to_vec(), b"0".to_vec(), payload, b"REPLACE".to_vec()].to_vec()
    }

    fn broken_piece(&mut self) -> Vec<u8> {
        let Some(piece) = self.pieces.choose(&mut self.random) else { return self.bytes(100) };
        let mut piece = piece.clone();
        match self.random.random_range(0..4) {
            0 => piece.truncate(self.random.random_range(0..=piece.len())),
            1 => {
                let place = self.random.random_range(0..piece.len());
                piece[place] = self.random.random();
            }
            // Other content, with the checksum that fits it.
            2 => {
                let content = piece.len() - 4;
                let place = self.random.random_range(1.min(content - 1)..content);
                piece[place] = self.random.random();
                let sum = crc32c::crc32c(&piece[..content]);
                piece[content..].copy_from_slice(&sum.to_le_bytes());
            }
            _ => {}
        }
        piece
    }
}

/// The checksum of a payload of `DUMP`.
fn crc64(bytes: &[u8]) -> u64 {
    const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ u64::from(*byte), |sum, _| (sum >> 1) ^ if sum & 1 == 1 { POLYNOMIAL } else { 0 })
    })
}

/// The payload of a key, with the places of these pieces in it.
fn payload(wire: &mut Wire, key: &str, pieces: &[Vec<u8>]) -> (Vec<u8>, Vec<Range<usize>>) {
    let payload = wire.run(&format!("DUMP {key}")).bytes().to_vec();
    let place = |piece: &Vec<u8>| {
        let at = payload.windows(piece.len()).position(|bytes| bytes == piece)?;
        Some(at..at + piece.len())
    };
    let places: Vec<Range<usize>> = pieces.iter().filter_map(place).collect();
    assert!(places.len() >= 3, "{key}: {} pieces", places.len());
    let end = payload.len() - 8;
    assert_eq!(crc64(&payload[..end]).to_le_bytes(), payload[end..], "{key}: the checksum");
    (payload, places)
}

/// The pieces of all sets, from a log without a snapshot in front.
pub(super) fn pieces(node: &tallystone_tests::compact::Node) -> Vec<Vec<u8>> {
    let log = std::fs::read(node.rewrite_log()).expect("a file");
    let marker = b"CT.RESTORE\r\n";
    let starts =
        log.windows(marker.len()).enumerate().filter(|(_, window)| window == marker).map(|(at, _)| at + marker.len());
    let bulk = |at: usize| {
        let end = at + log[at..].iter().position(|byte| *byte == b'\r').expect("a length");
        let length: usize = std::str::from_utf8(&log[at + 1..end]).expect("digits").parse().expect("a number");
        (end + 2..end + 2 + length, end + 4 + length)
    };
    starts.map(|at| log[bulk(bulk(at).1).0].to_vec()).collect()
}

fn fuzz(engine: Engine) {
    // Without compression, the payload of a set contains its pieces unchanged.
    let args = "--aof-use-rdb-preamble no --rdbcompression no";
    let mut node = Setup::new(engine).without_fsync().args(args).start();
    let mut wire = node.wire();
    wire.done("SET text 1");
    for (key, options) in [("rising", ""), ("cold", "MEMORY_MAX 1"), ("hash", "ORDER RANDOM")] {
        wire.done(&format!("CT.CREATE {key} TABLE_SLOTS 128 {options} SCHEMA likes 9 views i20 balance i60"));
        (0..1_000).for_each(|id| drop(wire.done(&format!("CT.INCRBY {key} {id} likes 2"))));
    }
    until_cold(&node, "cold");
    let pieces = pieces(&node);
    let payloads = ["rising", "cold", "hash"].map(|key| payload(&mut wire, key, &pieces)).to_vec();
    let mut fuzzer = Fuzzer { random: random("fuzz"), pieces, payloads };
    assert!(fuzzer.pieces.len() >= 3);
    let batches = amount(COMMANDS, 90 * COMMANDS) / BATCH;
    let keys = ["rising", "cold", "hash", "new"];
    for batch in 0..batches {
        let commands: Vec<Vec<Vec<u8>>> = (0..BATCH).map(|_| fuzzer.command()).collect();
        for (command, reply) in commands.iter().zip(wire.pipeline(&commands)) {
            let text = reply.to_string();
            let shown = || command.iter().map(|arg| arg.escape_ascii().to_string()).collect::<Vec<_>>().join(" ");
            assert!(!text.contains("a bug"), "{}: {text}", shown());
        }
        if batch % 30 == 29 || batch + 1 == batches {
            for key in keys {
                // A set that a broken dump began is refused until it is whole.
                if wire.run(&format!("CT.CHECK {key}")).code().is_none() {
                    assert_eq!(node.faults(key), Vec::<String>::new(), "{key}");
                }
            }
        }
    }
    let state =
        |node: &tallystone_tests::compact::Node| keys[..3].iter().map(|key| node.digest(key)).collect::<Vec<_>>();
    let before = state(&node);
    assert!(!node.log().contains("panicked"), "a bug was caught");
    // What it has accepted can be loaded.
    node.restart();
    assert_eq!(state(&node), before);
}

#[test]
fn w1_fuzzed_commands_on_redis() {
    fuzz(Engine::Redis);
}

#[test]
fn w1_fuzzed_commands_on_valkey() {
    fuzz(Engine::Valkey);
}
