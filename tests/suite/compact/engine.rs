//! A counter set as a value among the engine's others: what the engine's own commands say of it and do with it (W1).

use super::now_ms;
use tallystone_tests::compact::{Engine, Node, Reply, Setup, eventually};

/// Name, whether it writes, whether it is fast, arity, and the names of the arguments, as docs/compact.md has them, with what is within
/// blocks and choices.
const COMMANDS: &[(&str, bool, bool, i64, &str)] = &[
    ("ct.create", true, false, -5, "key option(name value) schema(field width)"),
    ("ct.alter", true, false, -4, "key change(add(field width) widen(field width) field option(name value))"),
    ("ct.incrby", true, true, -5, "key id increment(field delta) token(token ms)"),
    ("ct.mincrby", true, false, -5, "key increment(id field delta) token(token ms)"),
    ("ct.pincrby", true, false, -3, "key packed token(token ms)"),
    ("ct.set", true, true, -5, "key id assignment(field value)"),
    ("ct.del", true, false, -3, "key id"),
    ("ct.get", false, true, -3, "key id field"),
    ("ct.mget", false, false, -3, "key id"),
    ("ct.pget", false, false, 3, "key packed"),
    ("ct.psetnewer", true, false, 5, "key field time_field packed"),
    ("ct.info", false, false, 2, "key"),
    ("ct.tables", false, false, -2, "key serial"),
    ("ct.check", false, false, -2, "key cursor"),
    ("ct.giveup", true, false, 3, "key cursor"),
    ("ct.scan", false, false, -3, "key cursor count"),
    ("ct.repair", true, false, 5, "key first last packed"),
    ("ct.restore", true, false, 3, "key piece"),
];

/// Commands that may reply differently to the same arguments.
const VARYING: [&str; 5] = ["ct.info", "ct.tables", "ct.check", "ct.giveup", "ct.scan"];

/// Commands that only operators send.
const DANGEROUS: [&str; 2] = ["ct.giveup", "ct.restore"];

fn argument_names(arguments: &Reply) -> String {
    let name = |argument: &Reply| {
        let name = argument.field("name").text();
        match argument.field("type").text().as_str() {
            "block" | "oneof" => format!("{name}({})", argument_names(argument.field("arguments"))),
            _ => name,
        }
    };
    arguments.items().iter().map(name).collect::<Vec<_>>().join(" ")
}

fn with_counters(engine: Engine) -> Node {
    let node = Setup::new(engine).without_log().start();
    let mut wire = node.wire();
    wire.done("CT.CREATE k TABLE_SLOTS 4096 SCHEMA likes 24 balance i8");
    for id in 0..1_000_u64 {
        wire.done(&format!("CT.INCRBY k {} likes {} balance -{id}", id * id, id + 1));
    }
    node
}

#[test]
fn w1_commands_are_described_and_flagged() {
    for engine in Engine::ALL {
        let node = Setup::new(engine).without_log().start();
        let mut wire = node.wire();
        for (name, is_write, is_fast, arity, arguments) in COMMANDS {
            let info = wire.done(&format!("COMMAND INFO {name}"));
            let info = info.items()[0].items();
            assert_eq!((info[0].text(), info[1].int()), ((*name).to_owned(), *arity));
            let flags: Vec<String> = info[2].items().iter().map(Reply::text).collect();
            let has = |flag: &str| flags.iter().any(|known| known == flag);
            // Giving pages up takes no memory. A delete does, of an id in a file, and frees none.
            let needs_memory = *is_write && *name != "ct.giveup";
            let expected = [*is_write, !*is_write, *is_fast, needs_memory, true];
            let found = [has("write"), has("readonly"), has("fast"), has("denyoom"), has("module")];
            assert_eq!(found, expected, "{name}: {flags:?}");
            assert_eq!((info[3].int(), info[4].int(), info[5].int()), (1, 1, 1), "{name}");
            let tips = if VARYING.contains(name) { "[nondeterministic_output]" } else { "[]" };
            assert_eq!(info[7].to_string(), tips, "{name}");
            let docs = wire.done(&format!("COMMAND DOCS {name}"));
            let docs = docs.field(name);
            assert!(docs.field("summary").text().ends_with('.'), "{docs}");
            assert!(docs.field("complexity").text().starts_with("O("), "{docs}");
            assert_eq!(docs.field("arguments").items()[0].field("type").text(), "key", "{docs}");
            assert_eq!(argument_names(docs.field("arguments")), *arguments, "{name}");
            let rest = if *arity > 0 { vec!["1"; *arity as usize - 2] } else { vec!["1"; 3] };
            let keys = wire.done(&format!("COMMAND GETKEYS {name} the-key {}", rest.join(" ")));
            assert_eq!(keys.to_string(), "[the-key]");
        }
        let known = wire.done("COMMAND LIST FILTERBY MODULE tallystone_compact");
        assert_eq!(known.items().len(), COMMANDS.len(), "a command that this test does not know: {known}");
        let module = wire.done("MODULE LIST");
        assert!(module.items().iter().any(|module| module.field("name").text() == "tallystone_compact"), "{module}");
    }
}

#[test]
fn w1_a_reader_cannot_write() {
    for engine in Engine::ALL {
        let node = with_counters(engine);
        let mut wire = node.wire();
        let version = node.info("server", "redis_version");
        // Redis 7.0 gives commands of modules no categories: there, a user is bound by keys and by names.
        let has_categories = !version.starts_with("7.0.");
        let mut users = vec!["+@all %R~k", "+ct.get +ct.info ~k"];
        users.extend(has_categories.then_some("+@read ~k"));
        for rules in users {
            wire.done(&format!("ACL SETUSER reader reset on nopass {rules}"));
            let mut reader = node.wire();
            reader.done("AUTH reader any");
            assert_eq!(reader.run("CT.GET k 0").to_string(), "[1 0]");
            assert_eq!(reader.run("CT.INFO k").code(), None);
            for write in
                ["CT.INCRBY k 0 likes 1", "CT.DEL k 0", "CT.ALTER k RETIRE likes", "CT.CREATE k SCHEMA a 1 b 1"]
            {
                assert_eq!(reader.run(write).code(), Some("NOPERM"), "{rules}: {write}");
            }
            assert_eq!(reader.run("CT.GET other 0").code(), Some("NOPERM"), "{rules}");
        }
        wire.done("ACL SETUSER writer reset on nopass +@all %W~k");
        let mut writer = node.wire();
        writer.done("AUTH writer any");
        assert_eq!(writer.run("CT.SET k 0 likes 2").to_string(), "OK");
        // It returns values, so that it reads too.
        assert_eq!(writer.run("CT.INCRBY k 0 likes 1").code(), Some("NOPERM"));
        assert_eq!(writer.run("CT.GET k 0").code(), Some("NOPERM"));
        if has_categories {
            let [write, read, ours, dangerous] =
                ["write", "read", "compact", "dangerous"].map(|name| wire.done(&format!("ACL CAT {name}")).to_string());
            for (name, is_write, ..) in COMMANDS {
                let is_in = |list: &str| list[1..list.len() - 1].split(' ').any(|known| known == *name);
                assert_eq!((is_in(&write), is_in(&read), is_in(&ours)), (*is_write, !*is_write, true), "{name}");
                assert_eq!(is_in(&dangerous), DANGEROUS.contains(name), "{name}");
            }
            wire.done("ACL SETUSER careful reset on nopass +@all -@dangerous ~k");
            let mut careful = node.wire();
            careful.done("AUTH careful any");
            assert_eq!(careful.run("CT.INCRBY k 1 likes 1").code(), None);
            for refused in ["CT.GIVEUP k 0", "CT.RESTORE k piece"] {
                assert_eq!(careful.run(refused).code(), Some("NOPERM"), "{refused}");
            }
        }
    }
}

#[test]
fn w1_the_engines_commands_handle_a_set() {
    for engine in Engine::ALL {
        let node = with_counters(engine);
        let mut wire = node.wire();
        let (digest, counters) = (node.digest("k"), node.scan("k"));
        assert_eq!(counters.len(), 1_000);
        assert_eq!(wire.run("TYPE k").text(), "tstone-ct");
        assert!(wire.run("OBJECT ENCODING k").code().is_none());
        let bytes = wire.run("MEMORY USAGE k").int();
        let shown = wire.run("CT.INFO k").field("memory_bytes").int();
        assert!((shown..shown + 1_000).contains(&bytes), "MEMORY USAGE {bytes}, CT.INFO {shown}");
        // A copy has its own counters.
        assert_eq!(wire.run("COPY k copy").int(), 1);
        assert_eq!((node.digest("copy"), node.scan("copy")), (digest.clone(), counters.clone()));
        wire.done("CT.INCRBY copy 0 likes 1");
        assert_ne!(node.digest("copy"), digest);
        assert_eq!(wire.run("CT.GET k 0").to_string(), "[1 0]");
        assert_eq!(wire.run("COPY k copy").int(), 0);
        assert_eq!(wire.run("COPY k copy REPLACE").int(), 1);
        assert_eq!(wire.run("COPY k k DB 3").int(), 1);
        assert_eq!(node.digest("copy"), digest);
        // DUMP and RESTORE.
        let dumped = wire.run("DUMP k");
        assert_eq!(wire.call(&[b"RESTORE".as_slice(), b"restored", b"0", dumped.bytes()]).text(), "OK");
        assert_eq!((node.digest("restored"), node.scan("restored")), (digest.clone(), counters.clone()));
        let mut broken = dumped.bytes().to_vec();
        broken[30] ^= 4;
        assert_eq!(wire.call(&[b"RESTORE".as_slice(), b"broken", b"0", &broken]).code(), Some("ERR"));
        // RENAME, EXPIRE, MOVE.
        wire.done("RENAME restored renamed");
        assert_eq!((wire.run("EXISTS restored").int(), node.digest("renamed")), (0, digest.clone()));
        assert_eq!(wire.run("EXPIRE renamed 100").int(), 1);
        assert!((1..=100).contains(&wire.run("TTL renamed").int()));
        wire.done("CT.INCRBY renamed 0 likes 1");
        assert!((1..=100).contains(&wire.run("TTL renamed").int()), "a write keeps the time to live");
        wire.done("PEXPIREAT renamed 1");
        assert_eq!(wire.run("CT.GET renamed 0").code(), Some("NOSET"));
        // Watchers and events.
        wire.done("CONFIG SET notify-keyspace-events KEA");
        let mut events = node.wire();
        events.done("SUBSCRIBE __keyspace@0__:k");
        let mut watching = node.wire();
        watching.done("WATCH k");
        wire.done("CT.INCRBY k 0 likes 1");
        assert_eq!(events.read().expect("an event").items()[2].text(), "ct.incrby");
        watching.done("MULTI");
        watching.done("CT.GET k 0");
        assert_eq!(watching.run("EXEC"), Reply::Nil);
        // Deleted in each way.
        assert_eq!(wire.run("DEL copy").int(), 1);
        assert_eq!(wire.run("UNLINK k").int(), 1);
        assert_eq!(wire.run("CT.GET k 0").code(), Some("NOSET"));
        wire.done("SELECT 3");
        assert_eq!(wire.run("CT.GET k 0").to_string(), "[1 0]");
        wire.done("FLUSHALL");
        assert_eq!(wire.run("CT.GET k 0").code(), Some("NOSET"));
        wire.done("CT.CREATE k SCHEMA a 1");
        assert_eq!(wire.run("CT.GET k 0").to_string(), "[0]");
    }
}

#[test]
fn w1_background_work_goes_on_under_another_name() {
    for engine in Engine::ALL {
        let node = Setup::new(engine).without_fsync().start();
        let mut wire = node.wire();
        for rename in [&["RENAME k renamed"][..], &["COPY k renamed", "RENAME renamed k"], &["MOVE k 3", "SELECT 3"]] {
            wire.done("SELECT 0");
            wire.done("FLUSHALL");
            wire.done("CT.CREATE k TABLE_SLOTS 1024 TOKEN_WINDOW_MS 200 MEMORY_MAX 60000 CACHE_BYTES 0 SCHEMA a 8");
            rename.iter().for_each(|command| drop(wire.done(command)));
            let key = if wire.run("EXISTS k").int() == 1 { "k" } else { "renamed" };
            for id in 0..20_000 {
                wire.add(&["CT.INCRBY", key, &id.to_string(), "a", "1"]);
            }
            wire.flush().expect("a connection");
            (0..20_000).for_each(|_| assert_eq!(wire.read().expect("an answer").to_string(), "[1]"));
            wire.done(&format!("CT.INCRBY {key} 1 a 1 TOKEN t TIME {}", now_ms()));
            wire.done(&format!("CT.ALTER {key} ADD b 30"));
            eventually("tables move, records are converted, tokens expire", || {
                let info = wire.run(&format!("CT.INFO {key}"));
                info.field("cold_tables").int() > 10
                    && info.field("converting").int() == 0
                    && info.field("tokens").int() == 0
            });
        }
    }
}

#[test]
fn w1_info_has_a_section() {
    for engine in Engine::ALL {
        let node = with_counters(engine);
        let mut wire = node.wire();
        wire.done("CT.CREATE other SCHEMA a 8");
        wire.done(&format!("CT.INCRBY other 1 a 300 TOKEN t TIME {}", now_ms()));
        let expected =
            [("sets", 2), ("sets_summed", 2), ("ids", 1_001), ("hot_tables", 2), ("cold_tables", 0), ("tokens", 1)];
        for (name, value) in expected {
            assert_eq!(figure(&node, name), value, "{name} on {engine:?}");
        }
        let bytes: i64 =
            ["k", "other"].iter().map(|key| wire.run(&format!("CT.INFO {key}")).field("memory_bytes").int()).sum();
        assert_eq!(figure(&node, "memory_bytes"), bytes);
    }
}

/// A figure of the module's section of `INFO`.
pub(super) fn figure(node: &Node, name: &str) -> i64 {
    node.info("tallystone_compact", &format!("tallystone_compact_{name}")).parse().expect("a number")
}

#[test]
fn w1_info_sums_many_sets_in_pieces() {
    const SETS: i64 = 6_000;
    for engine in Engine::ALL {
        let node = Setup::new(engine).without_log().start();
        let mut wire = node.wire();
        // All of one reply.
        let info = || {
            let section = node.wire().run("INFO tallystone_compact").text();
            ["sets", "sets_summed", "ids", "hot_tables"].map(|name| {
                let prefix = format!("tallystone_compact_{name}:");
                let value = section.lines().find_map(|line| line.strip_prefix(&prefix)).expect("a field");
                value.trim().parse::<i64>().expect("a number")
            })
        };
        let fill = |keys: std::ops::Range<i64>| {
            let commands = keys.flat_map(|key| {
                let create = format!("CT.CREATE k{key} TABLE_SLOTS 16 SCHEMA a 8");
                [create, format!("CT.INCRBY k{key} {key} a 1")].map(|line| line.split(' ').map(str::to_owned).collect())
            });
            commands.collect::<Vec<Vec<String>>>()
        };
        wire.pipeline(&fill(0..1_000));
        assert_eq!(info(), [1_000; 4], "what fits one piece is exact at once");
        wire.pipeline(&fill(1_000..SETS));
        let [sets, summed, ids, tables] = info();
        assert_eq!((sets, ids, tables), (SETS, summed, summed));
        assert!(summed < SETS, "{summed} sets in one piece");
        // No command follows: the background continues by itself. The first INFO begins to sum, a later one shows all.
        eventually("all sets are summed", || info() == [SETS; 4]);
        // Sets that come and go.
        let gone: Vec<Vec<String>> = (0..SETS - 10).map(|key| vec!["DEL".to_owned(), format!("k{key}")]).collect();
        wire.pipeline(&gone);
        assert_eq!(info(), [10; 4]);
        wire.done("FLUSHALL");
        eventually("they are freed", || info() == [0; 4]);
    }
}

#[test]
fn w1_digests_are_of_counters_and_not_of_places() {
    for engine in Engine::ALL {
        let node = Setup::new(engine).without_log().start();
        let mut wire = node.wire();
        let digest = |node: &Node| node.digest("k");
        let mut digests = Vec::new();
        // The same counters by other ways: other order, other tables, deleted ids between.
        for ids in [[1, 2, 3, 400], [400, 3, 2, 1]] {
            wire.done("DEL k");
            wire.done("CT.CREATE k TABLE_SLOTS 16 SCHEMA a 4 b 4");
            for id in ids {
                wire.done(&format!("CT.INCRBY k {id} a {}", id * 7));
            }
            for id in 1_000..1_100 {
                wire.done(&format!("CT.SET k {id} b 99"));
                wire.done(&format!("CT.DEL k {id}"));
            }
            digests.push(digest(&node));
        }
        assert_eq!(digests[0], digests[1]);
        for other in ["CT.INCRBY k 1 a 1", "CT.SET k 5 b 1", "CT.ALTER k WIDEN a 5", "CT.ALTER k OPTION TABLES_MAX 7"] {
            wire.done(other);
            let now = digest(&node);
            assert!(!digests.contains(&now), "{other} changes no digest");
            digests.push(now);
        }
    }
}

#[test]
fn w1_transactions_and_scripts() {
    for engine in Engine::ALL {
        let node = with_counters(engine);
        let mut wire = node.wire();
        wire.done("MULTI");
        for command in ["CT.INCRBY k 0 likes 1", "CT.INCRBY k 0 likes -99", "CT.GET k 0", "CT.GET none 0"] {
            assert_eq!(wire.run(command).text(), "QUEUED");
        }
        let replies = wire.run("EXEC");
        let shown: Vec<String> =
            replies.items().iter().map(|reply| reply.to_string().chars().take(9).collect()).collect();
        assert_eq!(shown, ["[2]", "!OVERFLOW", "[2 0]", "!NOSET th"]);
        let script = "local r = redis.call('CT.INCRBY', KEYS[1], ARGV[1], 'likes', 5) \
                      local e = redis.pcall('CT.INCRBY', KEYS[1], ARGV[1], 'likes', -100) \
                      return {r[1], e.err, redis.call('CT.GET', KEYS[1], ARGV[1])}";
        let reply = wire.call(&["EVAL", script, "1", "k", "0"]);
        assert!(reply.to_string().starts_with("[7 OVERFLOW") && reply.to_string().ends_with("[7 0]]"), "{reply}");
        let reply = wire.call(&["EVAL_RO", "return redis.call('CT.INCRBY', KEYS[1], 0, 'likes', 1)", "1", "k"]);
        assert_eq!(reply.code(), Some("ERR"), "{reply}");
        assert_eq!(wire.run("CT.GET k 0").to_string(), "[7 0]");
    }
}

/// If a part of a transaction or script is refused, the replica and the log get the part that has counted.
#[test]
fn w4_transactions_and_scripts_reach_replicas_and_the_log() {
    for engine in Engine::ALL {
        let start = || Setup::new(engine).without_fsync().start();
        let (mut node, replica) = (start(), start());
        replica.follow(&node);
        let mut wire = node.wire();
        wire.done("CT.CREATE k TABLE_SLOTS 4096 SCHEMA likes 24 balance i8");
        wire.done("CT.SET k 9 likes 1");
        wire.done("MULTI");
        let half_refused = "CT.MINCRBY k 0 likes 1 1 likes -1 2 balance -7";
        for command in ["CT.INCRBY k 0 likes 5", half_refused, "CT.INCRBY k 3 likes -1", "CT.DEL k 8 9"] {
            assert_eq!(wire.run(command).text(), "QUEUED");
        }
        let replies = wire.run("EXEC");
        assert_eq!(replies.items()[1].items()[1].code(), Some("OVERFLOW"), "{replies}");
        assert_eq!((replies.items()[2].code(), replies.items()[3].int()), (Some("OVERFLOW"), 1), "{replies}");
        // Valkey takes an error inside a reply as an error of the call.
        let script = "redis.pcall('CT.MINCRBY', KEYS[1], 0, 'likes', 2, 4, 'likes', -1, 5, 'likes', 6) \
                      redis.pcall('CT.INCRBY', KEYS[1], 4, 'likes', -1) \
                      return redis.call('CT.GET', KEYS[1], 0)";
        assert_eq!(wire.call(&["EVAL", script, "1", "k"]).to_string(), "[8 0]");
        let expected = std::collections::BTreeMap::from([(0, vec![8, 0]), (2, vec![0, -7]), (5, vec![6, 0])]);
        let digest = node.digest("k");
        replica.has_caught_up_with(&node);
        assert_eq!((replica.scan("k"), replica.digest("k")), (expected, digest.clone()), "{engine:?}: the replica");
        let expected = node.scan("k");
        node.kill();
        node.start_again();
        assert_eq!((node.scan("k"), node.digest("k")), (expected, digest), "{engine:?}: the log");
    }
}
