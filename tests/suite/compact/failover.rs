//! Sentinels replace the primary under load, of which every replica has each write before it is acknowledged: tokens count once (W4).

use super::load::{Load, SCHEMA, judge};
use super::random;
use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use tallystone_tests::compact::{Engine, Node, Setup, Wire, eventually};
use tallystone_tests::lasting_port;
use tempfile::TempDir;

const NAME: &str = "counters";
const KILLS: usize = 2;

struct Sentinel {
    port: u16,
    process: Child,
    _dir: TempDir,
}

impl Sentinel {
    fn start(primary: &Node) -> Sentinel {
        let (dir, port) = (TempDir::new().expect("a temporary folder"), lasting_port());
        let config = dir.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {NAME} 127.0.0.1 {} 2\n\
             sentinel down-after-milliseconds {NAME} 800\nsentinel failover-timeout {NAME} 6000\n\
             sentinel parallel-syncs {NAME} 2\n",
            dir.path().display(),
            primary.port()
        );
        std::fs::write(&config, text).expect("a file");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(primary.program()).arg(&config).arg("--sentinel");
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("a sentinel");
        eventually("the sentinel listens", || Wire::connect(port).is_ok());
        Sentinel { port, process, _dir: dir }
    }

    fn fields(&self) -> HashMap<String, String> {
        let reply = Wire::connect(self.port).expect("a sentinel").done(&format!("SENTINEL MASTER {NAME}"));
        reply.items().chunks(2).map(|pair| (pair[0].text(), pair[1].text())).collect()
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The node that all sentinels have as the primary. On a busy machine they also replace one that no test killed.
fn agreed(sentinels: &[Sentinel], nodes: &[Node]) -> Option<usize> {
    let ports: Vec<String> = sentinels.iter().map(|sentinel| sentinel.fields()["port"].clone()).collect();
    nodes.iter().position(|node| ports.iter().all(|port| *port == node.port().to_string()))
}

#[test]
fn w4_sentinels_fail_it_over_under_load_and_tokens_count_once_on_redis() {
    fail_over(Engine::Redis);
}

#[test]
fn w4_sentinels_fail_it_over_under_load_and_tokens_count_once_on_valkey() {
    fail_over(Engine::Valkey);
}

/// The sentinels are processes of the same program.
fn fail_over(engine: Engine) {
    let mut random = random("a failover under load");
    // The load waits until both replicas have each write, so that it does not matter which one the Sentinels promote.
    let args = "--min-replicas-to-write 1 --min-replicas-max-lag 10";
    let start = || Setup::new(engine).without_fsync().args(args).start();
    let mut nodes = [start(), start(), start()];
    nodes[1].follow(&nodes[0]);
    nodes[2].follow(&nodes[0]);
    let is_replicated = |node: &Node| node.info("replication", "min_slaves_good_slaves") == "2";
    eventually("both replicas are good", || is_replicated(&nodes[0]));
    nodes[0].wire().done(&format!("CT.CREATE k TABLE_SLOTS 512 MEMORY_MAX 1 CACHE_BYTES 100000 {SCHEMA}"));
    let sentinels = [0; 3].map(|_| Sentinel::start(&nodes[0]));
    for sentinel in &sentinels {
        eventually("they know each other", || {
            let fields = sentinel.fields();
            fields["num-slaves"] == "2" && fields["num-other-sentinels"] == "2"
        });
    }
    let load = Load::new(nodes[0].port()).waiting_for_replicas(2);
    let mut primary = 0;
    let sums = load.run(3, &mut random, |_| {
        for _ in 0..KILLS {
            load.progress(50);
            let killed = primary;
            nodes[killed].kill();
            let with_replicas = |nodes: &[Node], count: &str, is_running: &dyn Fn(usize) -> bool| {
                let found = agreed(&sentinels, nodes).filter(|found| is_running(*found))?;
                load.port.store(nodes[found].port(), Relaxed);
                let is_primary = nodes[found].info("replication", "role") == "master";
                let is_followed = nodes[found].info("replication", "min_slaves_good_slaves") == count;
                (is_primary && is_followed).then_some(found)
            };
            eventually("the other node follows another primary", || {
                with_replicas(&nodes, "1", &|found| found != killed).is_some()
            });
            nodes[killed].start_again();
            // On a busy machine it may become the primary again meanwhile.
            eventually("both others follow one", || {
                let found = with_replicas(&nodes, "2", &|_| true);
                primary = found.unwrap_or(primary);
                found.is_some()
            });
            load.progress(50);
        }
    });
    judge(&nodes[primary], &sums);
    for (at, node) in nodes.iter().enumerate() {
        if at != primary {
            node.has_caught_up_with(&nodes[primary]);
            judge(node, &sums);
        }
    }
}
