//! Each command's replies and errors, on both engines, in both protocols (W1).

use super::now_ms;
use tallystone_tests::compact::{Engine, Reply, Setup, Wire, words};

/// Commands with their replies, one after the other. An error stands for all that begin with it.
const SCRIPT: &[(&str, &str)] = &[
    ("CT.CREATE k SCHEMA likes 24 views u40 balance i16 flag 1", "OK"),
    ("CT.CREATE k SCHEMA likes 24", "!BUSYKEY"),
    ("SET text 1", "OK"),
    ("CT.CREATE text SCHEMA likes 24", "!BUSYKEY"),
    // An id that was never written reads 0.
    ("CT.GET k 7", "[0 0 0 0]"),
    ("CT.GET k 7 views likes views", "[0 0 0]"),
    ("CT.INCRBY k 7 likes 5 views 6", "[5 6]"),
    ("ct.incrby k 7 likes 1 likes 1 balance -3", "[6 7 -3]"),
    ("CT.GET k 7", "[7 6 -3 0]"),
    ("CT.GET k 007 flag balance", "[0 -3]"),
    // The least and the greatest id; zeros in front.
    ("CT.INCRBY k 0 likes 1", "[1]"),
    ("CT.INCRBY k 18446744073709551615 likes 2", "[2]"),
    ("CT.GET k 000000018446744073709551615 likes", "[2]"),
    ("CT.GET k 0000 likes", "[1]"),
    ("CT.INCRBY k 18446744073709551616 likes 1", "!ERR an id"),
    ("CT.INCRBY k -1 likes 1", "!ERR an id"),
    ("CT.INCRBY k 1x likes 1", "!ERR an id"),
    ("CT.INCRBY k 1 likes 0000001", "[1]"),
    ("CT.INCRBY k 1 likes 9223372036854775808", "!ERR value is not an integer"),
    ("CT.INCRBY k 1 likes one", "!ERR value is not an integer"),
    ("CT.INCRBY k 1 none 1", "!ERR there is no field"),
    // A value leaves the width of its field, then int64.
    ("CT.SET k 8 likes 16777215 flag 1 views 3", "OK"),
    ("CT.INCRBY k 8 likes 1 flag 1", "[16777216 2]"),
    ("CT.GET k 8", "[16777216 3 0 2]"),
    ("CT.SET k 8 likes 9223372036854775807 balance -9223372036854775808", "OK"),
    ("CT.INCRBY k 8 views 1 likes 1", "!OVERFLOW"),
    ("CT.INCRBY k 8 views 1 balance -1", "!OVERFLOW"),
    ("CT.GET k 8", "[9223372036854775807 3 -9223372036854775808 2]"),
    ("CT.INCRBY k 8 balance 9223372036854775807", "[-1]"),
    // An unsigned field stays at or above 0, and the others of a refused command as they were.
    ("CT.INCRBY k 7 balance 1 likes -8", "!OVERFLOW"),
    ("CT.INCRBY k 7 likes -7 likes -1", "!OVERFLOW"),
    ("CT.SET k 7 likes -1", "!OVERFLOW"),
    ("CT.GET k 7", "[7 6 -3 0]"),
    ("CT.INCRBY k 7 likes -7 likes 2", "[0 2]"),
    // Many ids in one command: one that is refused does not hold up the others.
    ("CT.MINCRBY k 20 likes 1 21 likes -1 22 views 9 20 likes 4", "[1 !OVERFLOW"),
    ("CT.MGET k 20 21 22 20", "[[5 0 0 0] [0 0 0 0] [0 9 0 0] [5 0 0 0]]"),
    ("CT.MINCRBY k 20 likes 1 21 none 1", "!ERR there is no field"),
    ("CT.MINCRBY k 20 likes 1 x likes 1", "!ERR an id"),
    ("CT.MINCRBY k 20 likes 1 21 likes 1", "[6 1]"),
    ("CT.MINCRBY k 20 likes 1 21 likes", "!ERR wrong number of arguments"),
    // Set and delete.
    ("CT.SET k 30 likes 3", "OK"),
    ("CT.SET k 30 likes 4 likes 5 flag 0", "OK"),
    ("CT.GET k 30", "[5 0 0 0]"),
    ("CT.DEL k 30 31 22 30", "2"),
    ("CT.DEL k 30", "0"),
    ("CT.MGET k 30 22", "[[0 0 0 0] [0 0 0 0]]"),
    // The number of arguments.
    ("CT.GET k", "!ERR wrong number of arguments for 'ct.get' command"),
    ("CT.MGET k", "!ERR wrong number of arguments"),
    ("CT.PGET k", "!ERR wrong number of arguments"),
    ("CT.PGET k x y", "!ERR wrong number of arguments"),
    ("CT.INCRBY k 1 likes", "!ERR wrong number of arguments"),
    ("CT.INCRBY k 1 likes 1 views", "!ERR wrong number of arguments"),
    ("CT.PINCRBY k", "!ERR wrong number of arguments"),
    ("CT.PINCRBY k x y", "!ERR wrong number of arguments"),
    ("CT.SET k 1 likes", "!ERR wrong number of arguments"),
    ("CT.SET k 1 likes 1 views", "!ERR wrong number of arguments"),
    ("CT.DEL k", "!ERR wrong number of arguments"),
    ("CT.INFO", "!ERR wrong number of arguments"),
    ("CT.INFO k x", "!ERR wrong number of arguments"),
    ("CT.TABLES k x", "!ERR wrong number of arguments"),
    ("CT.CHECK k 0 x", "!ERR wrong number of arguments"),
    ("CT.GIVEUP k", "!ERR wrong number of arguments"),
    ("CT.GIVEUP k 0 x", "!ERR wrong number of arguments"),
    ("CT.GIVEUP k x", "!ERR"),
    ("CT.SCAN k", "!ERR wrong number of arguments"),
    ("CT.SCAN k 0 COUNT", "!ERR syntax error"),
    ("CT.SCAN k 0 LIMIT 1", "!ERR syntax error"),
    ("CT.SCAN k x", "!ERR"),
    ("CT.PSETNEWER k likes views", "!ERR wrong number of arguments"),
    ("CT.REPAIR k 0 1", "!ERR wrong number of arguments"),
    ("CT.RESTORE k", "!ERR wrong number of arguments"),
    ("CT.ALTER k ADD f", "!ERR wrong number of arguments"),
    ("CT.ALTER k RETIRE f g", "!ERR wrong number of arguments"),
    ("CT.ALTER k DROP f", "!ERR the changes are"),
    ("CT.CREATE k2", "!ERR wrong number of arguments"),
    ("CT.CREATE k2 SCHEMA likes", "!ERR wrong number of arguments"),
    ("CT.CREATE k2 SCHEMA likes 24 views", "!ERR SCHEMA"),
    // Keys of other types, and none.
    ("CT.GET text 1", "!WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("CT.INCRBY text 1 likes 1", "!WRONGTYPE"),
    ("CT.INFO text", "!WRONGTYPE"),
    ("CT.DEL text 1", "!WRONGTYPE"),
    ("INCR k", "!WRONGTYPE"),
    ("CT.GET none 1", "!NOSET"),
    ("CT.INCRBY none 1 likes 1", "!NOSET"),
    ("CT.SET none 1 likes 1", "!NOSET"),
    ("CT.DEL none 1", "!NOSET"),
    ("CT.MGET none 1", "!NOSET"),
    ("CT.ALTER none RETIRE likes", "!NOSET"),
    ("CT.INFO none", "!NOSET"),
    ("CT.TABLES none", "!NOSET"),
    ("CT.CHECK none", "!NOSET"),
    ("CT.SCAN none 0", "!NOSET"),
    ("EXISTS none k2", "0"),
    // Schemas and options.
    ("CT.CREATE k2 SCHEMA likes 65", "!ERR a width"),
    ("CT.CREATE k2 SCHEMA likes 0", "!ERR a width"),
    ("CT.CREATE k2 SCHEMA likes f24", "!ERR a width"),
    ("CT.CREATE k2 SCHEMA a/b 1", "!ERR a field name"),
    ("CT.CREATE k2 SCHEMA a 1 Token 20 time 50", "!ERR a field may not be called TOKEN"),
    ("CT.ALTER k ADD TOKEN 20", "!ERR a field may not be called TOKEN"),
    ("CT.CREATE k2 SCHEMA a 1 a 2", "!ERR the field 'a' exists"),
    ("CT.CREATE k2 SCHEMA a 64 b 64 c 64 d 64 e 1", "!ERR"),
    ("CT.CREATE k2 ORDER UP SCHEMA a 1", "!ERR ORDER"),
    ("CT.CREATE k2 ORDER RANDOM MEMORY_MAX 1 SCHEMA a 1", "!ERR MEMORY_MAX"),
    ("CT.CREATE k2 TABLE_SLOTS 15 SCHEMA a 1", "!ERR TABLE_SLOTS"),
    ("CT.CREATE k2 NONE 15 SCHEMA a 1", "!ERR there is no option"),
    ("CT.CREATE k2 order random table_slots 64 Schema a 64 b i64 c 1 d 64 e 63", "OK"),
    ("CT.INCRBY k2 99 a 9223372036854775807 b -9223372036854775808", "[9223372036854775807 -9223372036854775808]"),
    ("CT.GET k2 99", "[9223372036854775807 -9223372036854775808 0 0 0]"),
    ("CT.ALTER k2 OPTION MEMORY_MAX 1000", "!ERR MEMORY_MAX"),
    ("CT.ALTER k2 OPTION TABLE_SLOTS 128", "!ERR TABLE_SLOTS cannot be changed"),
    ("CT.ALTER k2 OPTION TABLES_MAX x", "!ERR TABLES_MAX"),
    ("CT.ALTER k2 OPTION tables_max 9", "OK"),
    // Fields are added, widened, retired; a later one of the same name begins at 0.
    ("CT.ALTER k ADD shares 12", "OK"),
    ("CT.ALTER k ADD shares 12", "!ERR the field 'shares' exists"),
    ("CT.INCRBY k 20 shares 4095 shares 1", "[4095 4096]"),
    ("CT.GET k 20", "[6 0 0 0 4096]"),
    ("CT.ALTER k WIDEN shares 20", "OK"),
    ("CT.ALTER k WIDEN shares 20", "!ERR"),
    ("CT.ALTER k WIDEN balance 20", "!ERR"),
    ("CT.ALTER k WIDEN none 20", "!ERR there is no field"),
    ("CT.ALTER k RETIRE likes", "OK"),
    ("CT.GET k 20 likes", "!ERR there is no field"),
    ("CT.GET k 20", "[0 0 0 4096]"),
    ("CT.ALTER k ADD likes 8", "OK"),
    ("CT.GET k 20", "[0 0 0 4096 0]"),
    ("CT.CREATE one TABLE_SLOTS 64 SCHEMA a 8", "OK"),
    ("CT.ALTER one RETIRE a", "!ERR the last field"),
    // A scan skips ids without values.
    ("CT.INCRBY one 5 a 300", "[300]"),
    ("CT.INCRBY one 6 a 1", "[1]"),
    ("CT.DEL one 6", "1"),
    ("CT.SCAN one 0", "[0 [5 300]]"),
    ("CT.SCAN one 0 COUNT 0007", "[0 [5 300]]"),
    ("CT.CHECK one", "[0]"),
    ("CT.CHECK one 0", "[0]"),
    // A window of 0: no tokens.
    ("CT.CREATE plain TOKEN_WINDOW_MS 0 SCHEMA a 8", "OK"),
    ("CT.INCRBY plain 1 a 1 TOKEN t TIME 1", "!ERR this key takes no tokens"),
    ("CT.INCRBY plain 1 a 1 TOKEN t TIME x", "!ERR TIME"),
];

/// The replies that a script expects.
fn play(wire: &mut Wire, script: &[(&str, &str)]) {
    for (command, expected) in script {
        let shown = wire.run(command).to_string();
        let is_right = if expected.contains('!') { shown.starts_with(expected) } else { shown == *expected };
        assert!(is_right, "{command}\n  expected: {expected}\n  replied:  {shown}");
    }
}

fn wires(engine: Engine) -> impl Iterator<Item = Wire> {
    let node = Setup::new(engine).without_log().start();
    [false, true].into_iter().map(move |is_resp3| {
        let mut wire = node.wire();
        wire.done("FLUSHALL");
        if is_resp3 {
            wire.hello_3();
        }
        wire
    })
}

#[test]
fn w1_each_command_answers_as_described() {
    for engine in Engine::ALL {
        for mut wire in wires(engine) {
            play(&mut wire, SCRIPT);
        }
    }
}

#[test]
fn w1_info_and_tables_are_maps() {
    for engine in Engine::ALL {
        for (mut wire, is_resp3) in wires(engine).zip([false, true]) {
            wire.done("CT.CREATE k TABLE_SLOTS 1024 TABLES_MAX 7 SCHEMA likes 24 balance i16");
            wire.done("CT.MINCRBY k 1 likes 1 2 likes 20000000 3 balance -5");
            let info = wire.run("CT.INFO k");
            assert_eq!(matches!(info, Reply::Map(_)), is_resp3, "{info}");
            assert_eq!(info.field("schema").text(), "likes u24 balance i16");
            assert_eq!(info.field("order").text(), "RISING");
            let numbers = [("ids", 3), ("record_bits", 40), ("aux_ids", 1), ("TABLE_SLOTS", 1024), ("TABLES_MAX", 7)];
            for (name, number) in numbers.into_iter().chain([("hot_tables", 1), ("cold_tables", 0), ("extend_ids", 0)])
            {
                assert_eq!(info.field(name).int(), number, "{name} of {info}");
            }
            let tables = wire.run("CT.TABLES k");
            let [table] = tables.items() else { panic!("one table, not {tables}") };
            assert_eq!(matches!(table, Reply::Map(_)), is_resp3, "{table}");
            assert_eq!(table.field("state").text(), "hot");
            assert_eq!((table.field("used").int(), table.field("first_id").int()), (3, 0), "{table}");
        }
    }
}

/// The event has the name of the command. A command that changes nothing notifies of nothing. The tests of pieces have that of `CT.RESTORE`.
#[test]
fn w1_each_write_notifies_of_its_key() {
    let increment = [&1_u64.to_le_bytes()[..], &[0], &1_i32.to_le_bytes()].concat();
    let newer = [1_u64, 7, 9].map(u64::to_le_bytes).concat();
    /// A command, its packed argument, and the event of it.
    type Written<'a> = (&'a str, Option<&'a [u8]>, Option<&'a str>);
    let commands: [Written; 14] = [
        ("CT.CREATE k SCHEMA likes 24 time 41", None, Some("ct.create")),
        ("CT.CREATE k SCHEMA likes 24", None, None),
        ("CT.ALTER k ADD views 8", None, Some("ct.alter")),
        ("CT.INCRBY k 1 likes 1", None, Some("ct.incrby")),
        ("CT.INCRBY k 1 likes -9", None, None),
        ("CT.MINCRBY k 1 likes 1 2 likes 1", None, Some("ct.mincrby")),
        ("CT.PINCRBY k", Some(&increment[..]), Some("ct.pincrby")),
        ("CT.SET k 1 likes 5", None, Some("ct.set")),
        ("CT.PSETNEWER k likes time", Some(&newer[..]), Some("ct.psetnewer")),
        ("CT.PSETNEWER k likes time", Some(&newer[..]), None),
        ("CT.DEL k 2", None, Some("ct.del")),
        ("CT.DEL k 2", None, None),
        ("CT.GIVEUP k 0", None, None),
        ("CT.REPAIR k 0 5", Some(&[]), Some("ct.repair")),
    ];
    for engine in Engine::ALL {
        let node = Setup::new(engine).without_log().start();
        let (mut wire, mut events) = (node.wire(), node.wire());
        wire.done("CONFIG SET notify-keyspace-events KEA");
        events.done("SUBSCRIBE __keyspace@0__:k");
        for (line, packed, _) in &commands {
            wire.call(&words(line).into_iter().chain(*packed).collect::<Vec<_>>());
        }
        wire.done("DEL k");
        for event in commands.iter().filter_map(|(_, _, event)| *event).chain(["del"]) {
            assert_eq!(events.read().expect("an event").items()[2].text(), event, "{engine:?}");
        }
    }
}

#[test]
fn w4_a_token_counts_once() {
    for engine in Engine::ALL {
        for mut wire in wires(engine) {
            wire.done("CT.CREATE k SCHEMA a 8 b i8");
            let now = now_ms();
            let once = format!("CT.INCRBY k 1 a 2 b -1 TOKEN t1 TIME {now}");
            assert_eq!(wire.run(&once).to_string(), "[2 -1]");
            assert_eq!(wire.run("CT.INCRBY k 1 a 5").to_string(), "[7]");
            // The values as they are now.
            assert_eq!(wire.run(&once).to_string(), "[7 -1]");
            assert_eq!(wire.run(&format!("CT.INCRBY k 1 a 3 TOKEN t1 TIME {now}")).code(), Some("TOKENREUSED"));
            let many = format!("CT.MINCRBY k 1 a 1 2 b -4 token t2 time {now}");
            assert_eq!(wire.run(&many).to_string(), "[8 -4]");
            assert_eq!(wire.run(&many).to_string(), "[8 -4]");
            // With a token all of a command counts, or nothing: then the token is free.
            let refused = wire.run(&format!("CT.MINCRBY k 1 a 1 2 a -1 TOKEN t3 TIME {now}"));
            let codes: Vec<_> = refused.items().iter().map(Reply::code).collect();
            assert_eq!(codes, [Some("ABORTED"), Some("OVERFLOW")], "{refused}");
            assert_eq!(wire.run("CT.MGET k 1 2").to_string(), "[[8 -1] [0 -4]]");
            assert_eq!(wire.run(&format!("CT.MINCRBY k 1 a 1 TOKEN t3 TIME {now}")).to_string(), "[9]");
            // Times outside of the window.
            for (time, code) in [(now - 700_000, "TOOOLD"), (now + 60_000, "TOOEARLY"), (0, "TOOOLD")] {
                let reply = wire.run(&format!("CT.INCRBY k 1 a 1 TOKEN t4 TIME {time}"));
                assert_eq!(reply.code(), Some(code), "{reply}");
            }
            let text = "t".repeat(64);
            assert_eq!(wire.run(&format!("CT.INCRBY k 1 a 1 TOKEN {text} TIME {now}")).to_string(), "[10]");
            assert_eq!(wire.run(&format!("CT.INCRBY k 1 a 1 TOKEN {text}t TIME {now}")).code(), Some("ERR"));
            assert_eq!(wire.run("CT.GET k 1").to_string(), "[10 -1]");
        }
    }
}
