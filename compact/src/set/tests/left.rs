//! Memory that is still to be freed is memory of the set (W1).

use super::*;

#[test]
fn w1_memory_that_is_still_to_be_freed_is_counted() {
    let mut set = set(Order::Rising, 1 << 16);
    let spares = |set: &mut CounterSet, count: &str| {
        set.alter(Change::Option(b"TABLES_PREALLOCATED".to_vec(), count.as_bytes().to_vec())).unwrap();
    };
    spares(&mut set, "4");
    fill(&mut set, 0..1);
    while set.step(0) {}
    let before = set.memory_bytes();
    assert!(before > 4 << 19, "{before}");
    spares(&mut set, "0");
    assert!(set.memory_bytes() >= before, "the spare tables are still there");
    assert_eq!(set.totals().memory_bytes, set.memory_bytes());
    let mut earlier = usize::MAX;
    while set.step(0) {
        assert!(set.memory_bytes() <= earlier);
        earlier = set.memory_bytes();
    }
    assert!(set.memory_bytes() < 100_000, "{}", set.memory_bytes());
}

#[test]
fn w1_the_memory_of_a_table_that_has_split_is_counted_until_it_is_freed() {
    let mut set = set(Order::Random, 1 << 12);
    fill(&mut set, 0..3_600);
    let mut id = 3_600;
    while set.totals().hot_tables != 3 {
        fill(&mut set, id..id + 1);
        id += 1;
    }
    let mut before = 0;
    while set.totals().hot_tables == 3 {
        before = set.memory_bytes();
        fill(&mut set, id..id + 1);
        id += 1;
    }
    assert!(set.memory_bytes() + 1_000 > before, "{before} before, {} after", set.memory_bytes());
    while set.step(0) {}
    assert!(set.memory_bytes() < before / 4 * 3, "{before} before, {} after", set.memory_bytes());
}
