//! Packed commands (W1), and values with times, which a read cache is filled with (W6).

use tallystone_tests::compact::{Engine, Setup, Wire};

fn increments(items: &[(u64, u8, i32)]) -> Vec<u8> {
    let item = |(id, field, delta): &(u64, u8, i32)| [&id.to_le_bytes()[..], &[*field], &delta.to_le_bytes()].concat();
    items.iter().flat_map(item).collect()
}

fn timed(items: &[(u64, i64, u64)]) -> Vec<u8> {
    let item =
        |(id, value, time): &(u64, i64, u64)| [id.to_le_bytes(), value.to_le_bytes(), time.to_le_bytes()].concat();
    items.iter().flat_map(item).collect()
}

fn shown(wire: &mut Wire, name: &str, rest: &[&[u8]]) -> String {
    wire.call(&[&[name.as_bytes(), b"k"], rest].concat()).to_string()
}

#[test]
fn w1_packed_increments_and_reads() {
    for engine in Engine::ALL {
        let node = Setup::new(engine).without_log().start();
        let mut wire = node.wire();
        wire.done("CT.CREATE k SCHEMA a 8 b i8");
        let first = increments(&[(1, 0, 5), (u64::MAX, 1, i32::MIN), (1, 0, 7), (0, 0, i32::MAX)]);
        assert_eq!(shown(&mut wire, "CT.PINCRBY", &[&first]), "[4]");
        // A field that does not exist, and one that would go below 0: the others count.
        let mixed = increments(&[(2, 0, 1), (2, 9, 1), (2, 0, -2), (2, 0, 3)]);
        let reply = wire.call(&[b"CT.PINCRBY".as_slice(), b"k", &mixed]);
        assert_eq!(reply.items()[0].int(), 2, "{reply}");
        let refused: Vec<_> =
            reply.items()[1..].iter().map(|item| (item.items()[0].int(), item.items()[1].text())).collect();
        assert_eq!(refused.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [1, 2]);
        assert!(refused[0].1.starts_with("ERR") && refused[1].1.starts_with("OVERFLOW"), "{reply}");
        assert_eq!(wire.run("CT.GET k 2").to_string(), "[4 0]");
        let ids: Vec<u8> = [1, u64::MAX, 0, 77].iter().flat_map(|id: &u64| id.to_le_bytes()).collect();
        let reply = wire.call(&[b"CT.PGET".as_slice(), b"k", &ids]);
        let values: Vec<i64> =
            reply.bytes().chunks(8).map(|word| i64::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(values, [12, 0, 0, i64::from(i32::MIN), i64::from(i32::MAX), 0, 0, 0]);
        // A retired field has no number; a new one has the next.
        wire.done("CT.ALTER k RETIRE a");
        wire.done("CT.ALTER k ADD c 8");
        let retired = wire.call(&[b"CT.PINCRBY".as_slice(), b"k", &increments(&[(1, 0, 1), (1, 2, 1)])]);
        assert_eq!(retired.items()[0].int(), 1, "{retired}");
        assert_eq!(wire.run("CT.GET k 1").to_string(), "[0 1]");
    }
}

#[test]
fn w6_a_later_value_stays_whatever_comes_after() {
    for engine in Engine::ALL {
        let (node, replica) = (Setup::new(engine).start(), Setup::new(engine).start());
        replica.follow(&node);
        let mut wire = node.wire();
        wire.done("CT.CREATE k SCHEMA likes 24 views 24 exact_to 40");
        let mut put =
            |items: &[(u64, i64, u64)]| shown(&mut wire, "CT.PSETNEWER", &[b"likes", b"exact_to", &timed(items)]);
        assert_eq!(put(&[(1, 10, 100), (2, 20, 100), (u64::MAX, 30, 1)]), "3");
        // A paused worker: older, or of the same time.
        assert_eq!(put(&[(1, 5, 99), (2, 6, 100), (3, 7, 0)]), "0");
        // Part of a batch is newer; an id twice.
        assert_eq!(put(&[(1, 11, 101), (2, 6, 50), (4, 1, 5), (4, 2, 4), (4, 3, 6)]), "3");
        assert!(put(&[(1, -1, 200)]).starts_with("!OVERFLOW"));
        assert!(put(&[(1, 1, u64::MAX)]).starts_with("!ERR a time"));
        assert_eq!(put(&[(5, 1 << 30, 1 << 40)]), "1");
        let expected = "[[11 0 101] [20 0 100] [0 0 0] [3 0 6] [1073741824 0 1099511627776]]";
        assert_eq!(wire.run("CT.MGET k 1 2 3 4 5").to_string(), expected);
        let same = wire.call(&[b"CT.PSETNEWER".as_slice(), b"k", b"likes", b"likes", &timed(&[(1, 1, 1)])]);
        assert_eq!(same.code(), Some("ERR"));
        replica.has_caught_up_with(&node);
        assert_eq!((replica.digest("k"), replica.scan("k")), (node.digest("k"), node.scan("k")));
    }
}
