//! Limits of one command: ids, values of a reply, fields, bytes of a piece (W1).

use tallystone_tests::compact::{Engine, Reply, Setup, Wire};

fn command(words: &[&str], rest: impl Iterator<Item = String>) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).chain(rest).collect()
}

fn refused(wire: &mut Wire, args: &[String], reason: &str) {
    let reply = wire.call(args).to_string();
    assert!(reply.starts_with(&format!("!ERR {reason}")), "{:?} of {}: {reply:.200}", &args[..2], args.len());
}

#[test]
fn w1_a_command_has_bounds() {
    for engine in Engine::ALL {
        let node = Setup::new(engine).without_log().start();
        let mut wire = node.wire();
        wire.done("CT.CREATE four SCHEMA a 8 b 8 c 8 d 8");
        wire.done("CT.CREATE nine SCHEMA a 8 b 8 c 8 d 8 e 8 f 8 g 8 h 8 i 8");
        let ids = |count: u64| (0..count).map(|id| id.to_string());
        let triples = |count: u64| (0..count).flat_map(|id| [id.to_string(), "a".to_owned(), "1".to_owned()]);
        assert_eq!(wire.call(&command(&["CT.MINCRBY", "four"], triples(512))).items().len(), 512);
        let too_many = "a command has at most 512 ids";
        refused(&mut wire, &command(&["CT.MINCRBY", "four"], triples(513)), too_many);
        assert_eq!(wire.call(&command(&["CT.MGET", "four"], ids(512))).items().len(), 512);
        refused(&mut wire, &command(&["CT.MGET", "four"], ids(513)), too_many);
        assert_eq!(wire.call(&command(&["CT.MGET", "nine"], ids(455))).items().len(), 455);
        refused(&mut wire, &command(&["CT.MGET", "nine"], ids(456)), "a reply has at most 4096 values");
        assert_eq!(wire.call(&command(&["CT.DEL", "four"], ids(512))).int(), 512);
        refused(&mut wire, &command(&["CT.DEL", "four"], ids(513)), too_many);
        let wide: String = (0..33).map(|field| format!(" f{field} 7")).collect();
        wire.done(&format!("CT.CREATE wide SCHEMA{wide}"));
        let wide_triples = |count: u64| (0..count).flat_map(|id| [id.to_string(), "f0".to_owned(), "1".to_owned()]);
        let too_much = "a command writes at most 16384 values";
        assert_eq!(wire.call(&command(&["CT.MINCRBY", "wide"], wide_triples(496))).items().len(), 496);
        refused(&mut wire, &command(&["CT.MINCRBY", "wide"], wide_triples(497)), too_much);
        refused(&mut wire, &command(&["CT.DEL", "wide"], ids(497)), too_much);
        let reply = wire.call(&[b"CT.PINCRBY".as_slice(), b"wide", &vec![0; 13 * 497]]).to_string();
        assert!(reply.contains(too_much), "{reply}");
        let mut newer =
            |count: usize| wire.call(&[b"CT.PSETNEWER".as_slice(), b"wide", b"f0", b"f1", &vec![0; 24 * count]]);
        assert_eq!(newer(496).int(), 0, "no time is later than 0");
        assert!(newer(497).to_string().contains(too_much) && newer(513).to_string().contains(too_many));
        let names = |count: usize| std::iter::repeat_n("a".to_owned(), count);
        assert_eq!(wire.call(&command(&["CT.GET", "four", "1"], names(256))).items().len(), 256);
        refused(&mut wire, &command(&["CT.GET", "four", "1"], names(257)), "a command has at most 256 fields");
        let pairs = |count: usize| std::iter::repeat_n(["a".to_owned(), "1".to_owned()], count).flatten();
        assert_eq!(wire.call(&command(&["CT.INCRBY", "four", "1"], pairs(256))).items().len(), 256);
        refused(&mut wire, &command(&["CT.INCRBY", "four", "1"], pairs(257)), "a command has at most 256 fields");
        for (name, bytes) in [("CT.PINCRBY", 13), ("CT.PGET", 8)] {
            let packed = |count: usize| vec![0; bytes * count];
            for (length, is_right) in [(1, true), (512, true), (513, false), (0, false)] {
                let reply = wire.call(&[name.as_bytes(), b"four", &packed(length)]);
                assert_eq!(reply.code().is_none(), is_right, "{name} of {length}: {reply:.100}");
            }
            let reply = wire.call(&[name.as_bytes(), b"four", &vec![0; bytes + 1]]);
            assert_eq!(reply.code(), Some("ERR"), "{reply}");
        }
        let reply = wire.call(&[b"CT.RESTORE".as_slice(), b"new", &vec![0; (256 << 10) + 1]]);
        assert!(reply.to_string().starts_with("!ERR a piece has at most"), "{reply}");
        assert_eq!(wire.run("EXISTS new").int(), 0);
        // Tables are shown from a serial on.
        wire.done("CT.CREATE many TABLE_SLOTS 16 SCHEMA a 8");
        (0..200).for_each(|id| drop(wire.done(&format!("CT.INCRBY many {id} a 1"))));
        let serials = |reply: &Reply| reply.items().iter().map(|table| table.field("serial").int()).collect::<Vec<_>>();
        let all = serials(&wire.run("CT.TABLES many"));
        assert!(all.len() > 10 && all.is_sorted(), "{all:?}");
        assert_eq!(serials(&wire.run(&format!("CT.TABLES many FROM {}", all[7]))), all[7..]);
        assert_eq!(wire.run("CT.TABLES many FROM 1000").items().len(), 0);
        assert_eq!(wire.run("CT.TABLES many FROM x").code(), Some("ERR"));
        (200..6_000).for_each(|id| {
            wire.add(&["CT.INCRBY".to_owned(), "many".to_owned(), id.to_string(), "a".to_owned(), "1".to_owned()])
        });
        wire.flush().expect("a connection");
        (200..6_000).for_each(|_| assert_eq!(wire.read().expect("an answer").to_string(), "[1]"));
        let (page, count) = (serials(&wire.run("CT.TABLES many")), wire.run("CT.INFO many").field("hot_tables").int());
        assert!(count > 300 && page.len() == 256 && page.is_sorted(), "{count} tables, {} shown", page.len());
        // A schema has 256 fields in its life.
        wire.done("CT.CREATE life SCHEMA f0 1");
        for number in 1..256 {
            wire.done(&format!("CT.ALTER life ADD f{number} 1"));
            wire.done(&format!("CT.ALTER life RETIRE f{}", number - 1));
        }
        let reply = wire.run("CT.ALTER life ADD f256 1").to_string();
        assert!(reply.starts_with("!ERR a schema has at most 256 fields"), "{reply}");
        assert_eq!(wire.run("CT.INCRBY life 1 f255 3").to_string(), "[3]");
    }
}

#[test]
fn w2_tables_max_refuses_new_ids_when_no_slot_is_left() {
    for order in ["RISING", "RANDOM"] {
        let node = Setup::new(Engine::Redis).without_log().start();
        let mut wire = node.wire();
        wire.done(&format!("CT.CREATE k ORDER {order} TABLE_SLOTS 16 TABLES_MAX 2 SCHEMA a 8"));
        let mut counted = Vec::new();
        let mut is_full = false;
        for id in 0..200 {
            let reply = wire.run(&format!("CT.INCRBY k {id} a 1"));
            match reply.code() {
                None => counted.push(id),
                code => {
                    assert_eq!(code, Some("FULL"), "{reply}");
                    is_full = true;
                }
            }
        }
        assert!(is_full && counted.len() >= 16, "{order}: {} ids counted", counted.len());
        // Those that have a place continue.
        for id in &counted {
            assert_eq!(wire.run(&format!("CT.INCRBY k {id} a 1")).to_string(), "[2]");
        }
        assert_eq!(node.scan("k").len(), counted.len());
        wire.done("CT.ALTER k OPTION TABLES_MAX 0");
        assert_eq!(wire.run("CT.INCRBY k 1000 a 1").to_string(), "[1]");
    }
}
