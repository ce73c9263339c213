//! A Cluster of three: it moves the slot of a set from node to node under load, and counts stay exact (W4); its clients work as they
//! are (W1).

use super::load::{Load, SCHEMA, judge};
use super::random;
use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use tallystone_client::compact::{Increments, group, key_of, pack_ids, unpack_values};
use tallystone_local::redis_py;
use tallystone_tests::compact::{Engine, Node, Reply, Setup, eventually};
use tallystone_tests::lasting_port;

const MOVES: usize = 6;

/// Waits until all nodes know the same of each other: a node that does not know the configuration epoch of another one yet
/// would claim the slot with one that is no higher, and lose it again.
fn until_agreed(all: &[Node]) {
    // The name of each node, its configuration epoch and its slots.
    let known = |node: &Node| {
        let text = node.wire().done("CLUSTER NODES").text();
        let of_line = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let slots = words[8..].iter().filter(|slots| !slots.starts_with('['));
            format!("{} {} {}", words[0], words[6], slots.copied().collect::<Vec<&str>>().join(" "))
        };
        text.lines().map(of_line).collect::<BTreeSet<String>>()
    };
    eventually("all nodes know the same", || {
        let first = known(&all[0]);
        all[1..].iter().all(|node| known(node) == first)
    });
}

/// Moves the slot of the key, as `redis-cli --cluster reshard` does.
fn move_slot(slot: i64, from: &Node, to: &Node, all: &[Node]) {
    let id = |node: &Node| node.wire().done("CLUSTER MYID").text();
    let (from_id, to_id) = (id(from), id(to));
    to.wire().done(&format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}"));
    from.wire().done(&format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}"));
    from.wire().done(&format!("MIGRATE 127.0.0.1 {} k 0 30000", to.port()));
    for node in [to, from].into_iter().chain(all) {
        node.wire().done(&format!("CLUSTER SETSLOT {slot} NODE {to_id}"));
    }
}

/// Moves it as Valkey 9 does by itself.
fn migrate_slot(slot: i64, from: &Node, to: &Node) {
    let to_id = to.wire().done("CLUSTER MYID").text();
    from.wire().done(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {to_id}"));
    eventually("the slot has moved", || {
        let jobs = from.wire().done("CLUSTER GETSLOTMIGRATIONS");
        assert!(!jobs.to_string().contains("failed"), "{jobs}");
        to.wire().run("CT.INFO k").code().is_none()
    });
}

/// A Cluster of three.
fn cluster(engine: Engine) -> [Node; 3] {
    let start = || {
        // The default is a port above, which another process may have.
        let bus = format!("--cluster-port {}", lasting_port());
        Setup::new(engine).without_fsync().args("--cluster-enabled yes --cluster-node-timeout 5000").args(&bus).start()
    };
    let nodes = [start(), start(), start()];
    let mut create = Command::new("redis-cli");
    create.args(["--cluster", "create"]).args(nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())));
    let created = create.args(["--cluster-replicas", "0", "--cluster-yes"]).output().expect("redis-cli");
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stdout));
    eventually("the cluster stands", || {
        nodes.iter().all(|node| node.wire().run("CLUSTER INFO").text().contains("cluster_state:ok"))
    });
    nodes
}

/// Sends a command to the node that has its key, which another one names.
fn routed(nodes: &[Node], command: &[Vec<u8>]) -> Reply {
    let reply = nodes[0].wire().call(command);
    if reply.code() != Some("MOVED") {
        return reply;
    }
    let text = reply.to_string();
    let port: u16 = text.rsplit(':').next().and_then(|port| port.trim().parse().ok()).expect("a port");
    nodes.iter().find(|node| node.port() == port).expect("a node").wire().call(command)
}

/// What the client makes of ids is sent as it is: keys, groups, packed increments and reads. A set of six fields takes fewer ids in a
/// command than one of four.
fn client_drives(nodes: &[Node]) {
    const PARTITIONS: u32 = 12;
    const FIELDS: usize = 6;
    let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    for partition in 0..PARTITIONS {
        let create =
            format!("CT.CREATE {} TABLE_SLOTS 1024 SCHEMA a 8 b 24 c 8 d 8 e 8 f 8", key_of("spread", partition));
        assert_eq!(routed(nodes, &words(&create)).to_string(), "OK");
    }
    let ids: Vec<u64> = (0..10_000).map(|number| number * 7_919).collect();
    let delta = |id: u64| (id % 1_000) as i32 + 1;
    let groups = group("spread", PARTITIONS, FIELDS, &ids);
    assert!(groups.len() > PARTITIONS as usize, "some partition has more ids than a command");
    for group in &groups {
        let mut increments = Increments::new();
        group.ids.iter().for_each(|id| increments.push(*id, 1, delta(*id)).expect("room"));
        let command = [words(&format!("CT.PINCRBY {}", group.key)), vec![increments.as_bytes().to_vec()]].concat();
        let reply = routed(nodes, &command);
        assert_eq!(reply.items()[0].int(), group.ids.len() as i64, "{reply}");
    }
    for group in &groups {
        let command = [words(&format!("CT.PGET {}", group.key)), vec![pack_ids(&group.ids).expect("few ids")]].concat();
        let reply = routed(nodes, &command);
        assert_eq!(reply.code(), None, "{reply}");
        let values = unpack_values(FIELDS, reply.bytes()).expect("six fields of each id");
        let expected = group.places.iter().map(|place| [0, i64::from(delta(ids[*place])), 0, 0, 0, 0]);
        assert!(values.rows().map(<[i64]>::to_vec).eq(expected.map(|row| row.to_vec())), "{}", group.key);
    }
}

/// `redis-cli -c` follows each key to its node.
fn cli_drives(nodes: &[Node]) {
    const KEYS: i64 = 6;
    let port = nodes[0].port().to_string();
    let run = |line: String| {
        let cli = Command::new("redis-cli").args(["-c", "-p", &port]).args(line.split(' ')).output();
        String::from_utf8(cli.expect("redis-cli").stdout).expect("a text")
    };
    for key in 0..KEYS {
        assert_eq!(run(format!("CT.CREATE cli{key} TABLE_SLOTS 1024 SCHEMA likes 24")), "OK\n");
        assert_eq!(run(format!("CT.INCRBY cli{key} 7 likes {}", key + 1)), format!("{}\n", key + 1));
        assert_eq!(run(format!("CT.GET cli{key} 7")), format!("{}\n", key + 1));
    }
    let is_moved = |key: i64| nodes[0].wire().run(&format!("CT.GET cli{key} 7")).code() == Some("MOVED");
    assert!((0..KEYS).any(is_moved), "all keys are on one node");
}

#[test]
fn w1_a_client_of_a_cluster_drives_it() {
    for engine in Engine::ALL {
        let nodes = cluster(engine);
        client_drives(&nodes);
        cli_drives(&nodes);
        for protocol in ["2", "3"] {
            let python = Command::new("python3")
                .arg("-c")
                .arg(include_str!("cluster_client.py"))
                .args([nodes[0].port().to_string().as_str(), protocol])
                .env("PYTHONPATH", redis_py().unwrap_or_else(|missing| panic!("{missing}")))
                .output()
                .expect("python3");
            let said = String::from_utf8_lossy(&python.stderr);
            assert!(python.status.success(), "{engine:?}, RESP{protocol}: {said}");
        }
    }
}

#[test]
fn w4_a_cluster_moves_a_set_under_load() {
    for engine in Engine::ALL {
        let mut random = random("a cluster");
        let nodes = cluster(engine);
        let slot = nodes[0].wire().run("CLUSTER KEYSLOT k").int();
        let create = format!("CT.CREATE k TABLE_SLOTS 512 MEMORY_MAX 1 CACHE_BYTES 100000 {SCHEMA}");
        let mut owner =
            nodes.iter().position(|node| node.wire().run(&create).code().is_none()).expect("one has the slot");
        let load = Load::new(nodes[owner].port());
        let sums = load.run(3, &mut random, |_| {
            for round in 0..MOVES {
                load.progress(100);
                until_agreed(&nodes);
                let next = (owner + 1) % nodes.len();
                match engine {
                    Engine::Valkey if round % 2 == 1 => migrate_slot(slot, &nodes[owner], &nodes[next]),
                    _ => move_slot(slot, &nodes[owner], &nodes[next], &nodes),
                }
                owner = next;
            }
            load.progress(100);
        });
        assert_eq!(load.port.load(Relaxed), nodes[owner].port(), "clients were led to it");
        judge(&nodes[owner], &sums);
        assert_eq!(nodes.iter().map(|node| node.wire().run("DBSIZE").int()).sum::<i64>(), 1);
    }
}
