//! Plans are held against what the bench has measured, and against the limits of an installation.

use super::{Demand, Machine, Plan};
use crate::namespace::CounterType;
use crate::refusal::Refusal;

const MACHINE: Machine = Machine { cores: 8, memory_bytes: 32 << 30 };
const MB: f64 = 1e6;

fn plan(demand: &Demand) -> Plan {
    Plan::new(demand, &MACHINE).expect("a plan")
}

#[track_caller]
fn assert_within(what: &str, planned: f64, measured: f64, factor: f64) {
    assert!((measured..measured * factor).contains(&planned), "{what}: planned {planned}, measured {measured}");
}

#[test]
fn n21_plans_are_at_least_what_was_measured_and_not_much_more() {
    // `archive_memory` in docs/performance.md, on two machines.
    let measured = Demand::new(20_000, 50_000);
    let planned = plan(&measured).memory.total_bytes() as f64;
    assert_within("memory with an archive", planned / MB, 160.1, 1.1);
    assert_within("the same on another machine", planned / MB, 141.0, 1.25);
    assert_within("append-only file", plan(&measured).disk.log_bytes_per_s as f64 / 20_000.0, 283.0, 1.01);

    // A week without an archive: 53 B an event, which retention deletes by the day.
    let without = Demand { has_archive: false, ..Demand::new(1_000, 50_000) };
    let planned = plan(&without).memory.total_bytes() as f64;
    assert_within("memory without an archive", planned / MB, 1_000.0 * 8.0 * 86_400.0 * 53.0 / MB, 1.01);
    assert_eq!(plan(&without).disk.archive_bytes, 0);
}

#[test]
fn n21_memory_follows_the_rate_and_not_the_retention() {
    let week = plan(&Demand::new(75_000, 1_000_000));
    let year = plan(&Demand { retention_ms: 365 * 86_400_000, ..Demand::new(75_000, 1_000_000) });
    assert_eq!(year.memory, week.memory);
    assert!(year.disk.archive_bytes > 40 * week.disk.archive_bytes, "{:?}, {:?}", year.disk, week.disk);
    let twice = plan(&Demand::new(150_000, 1_000_000));
    assert!(twice.memory.settled_bytes.abs_diff(2 * week.memory.settled_bytes) < 1_000);
}

#[test]
fn n21_the_configuration_follows_the_load() {
    // Many cold counters: most rollups count one add, whose state is in one shard. All their jobs have room.
    let cold = plan(&Demand::new(10_000, 100_000_000));
    assert_eq!(cold.namespace.buckets_per_id, 1);
    let depth = cold.namespace.capacity_bytes / 512 * u64::from(cold.namespace.num_queues);
    assert!(depth as f64 > 4.0 * cold.rollups.waiting_counters, "{depth}, {:?}", cold.rollups);
    let hot = plan(&Demand::new(10_000, 100));
    assert_eq!((hot.namespace.buckets_per_id, hot.namespace.capacity_bytes), (4, 16 << 20));
    // All adds to a counter within the coalescing time share a rollup.
    assert!(hot.rollups.per_s < 7.0 && hot.rollups.adds_of_one > 1_000.0, "{:?}", hot.rollups);

    let best_effort = plan(&Demand { counter_type: CounterType::BestEffort, ..Demand::new(500_000, 1_000_000) });
    assert_eq!((best_effort.memory.waiting_bytes, best_effort.memory.settled_bytes), (0, 0));
    assert!(!best_effort.namespace.archived && best_effort.fleet.parts.len() == 2, "{best_effort:?}");
    let minutes = plan(&Demand { retention_ms: 120_000, ..Demand::new(10, 10) });
    assert_eq!(minutes.namespace.seconds_per_slice, 600);
}

#[test]
fn n21_loads_beyond_an_installation_are_refused_by_name() {
    let invalid = |demand: &Demand, machine: &Machine| match Plan::new(demand, machine) {
        Err(Refusal::Invalid { field, why }) => (field, why),
        other => panic!("{other:?}"),
    };
    for (field, demand) in [
        ("adds_per_s", Demand::new(0, 1)),
        ("adds_per_s", Demand::new(u64::MAX, 1)),
        ("num_counters", Demand::new(1, 0)),
        ("name_bytes", Demand { name_bytes: 0, ..Demand::new(1, 1) }),
        ("retention_ms", Demand { retention_ms: 119_999, ..Demand::new(1, 1) }),
        ("retention_ms", Demand { retention_ms: u64::MAX, ..Demand::new(1, 1) }),
        ("coalesce_ms", Demand { coalesce_ms: u64::MAX, ..Demand::new(1, 1) }),
        ("accept_limit_ms", Demand { accept_limit_ms: u64::MAX, ..Demand::new(1, 1) }),
    ] {
        assert_eq!(invalid(&demand, &MACHINE).0, field, "{demand:?}");
    }
    let (field, why) = invalid(&Demand::new(50_000_000, 1_000_000), &MACHINE);
    assert_eq!(field, "adds_per_s");
    assert!(why.contains("installations"), "{why}");
    assert_eq!(invalid(&Demand::new(1, 1), &Machine { cores: 0, ..MACHINE }).0, "machine_cores");
    assert_eq!(invalid(&Demand::new(1, 1), &Machine { memory_bytes: 1, ..MACHINE }).0, "machine_memory");
}

#[test]
fn n21_a_small_load_has_two_of_each_process_and_a_large_one_a_cluster() {
    let processes = |plan: &Plan| plan.fleet.parts.iter().map(|part| part.processes).collect::<Vec<_>>();
    let small = plan(&Demand::new(100, 1_000));
    assert_eq!((processes(&small), small.fleet.machines), (vec![2; 5], 3));
    let large = plan(&Demand::new(500_000, 1_000_000));
    let redis = &large.fleet.parts[0];
    assert!(redis.processes >= 6 && large.fleet.machines > small.fleet.machines, "{large:?}");
    // Memory alone may need a cluster, too: a billion counters at docs/scale.md's rate.
    let many = plan(&Demand::new(75_000, 1_000_000_000));
    assert!(many.fleet.parts[0].processes >= 2 * 7, "{many:?}");
}
