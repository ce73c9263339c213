//! Text tables of every script on a real Redis: what is given, one call, its reply, and what is then in the keys.
//! They are in `tables.txt` and `counter_tables.txt`, whose heads explain the words; `table` and `counter_table` run the
//! words through the stores, `keys` shows what is in Redis. What may not live here: the meaning of the queue, which is the
//! conformance suite's.

mod counter_table;
mod counter_words;
mod keys;
mod table;

pub(crate) use counter_table::CounterTable;
pub(crate) use table::Table;
use tallystone_lua::Script;
use tallystone_lua::counter::CounterScript;
use tallystone_tests::TestRedis;

pub(crate) const TABLES: &str = include_str!("tables.txt");
pub(crate) const COUNTER_TABLES: &str = include_str!("counter_tables.txt");

/// Runs each table and compares it, line by line, with what is written.
#[tokio::test]
async fn q15_every_script_does_what_its_tables_say() {
    // Held over all tables: it ends with its last user.
    let redis = TestRedis::shared().await;
    let mut differing = Vec::new();
    for (at, written) in tables(TABLES).enumerate() {
        compare(written, Table::run(at, written, redis.clone()).await, &mut differing);
    }
    assert!(differing.is_empty(), "{} tables differ\n\n{}", differing.len(), differing.join("\n"));
}

#[tokio::test]
async fn n5_every_counter_script_does_what_its_tables_say() {
    let redis = TestRedis::shared().await;
    let mut differing = Vec::new();
    for (at, written) in tables(COUNTER_TABLES).enumerate() {
        compare(written, CounterTable::run(at, written, redis.clone()).await, &mut differing);
    }
    assert!(differing.is_empty(), "{} tables differ\n\n{}", differing.len(), differing.join("\n"));
}

pub(crate) fn compare(written: &str, found: String, differing: &mut Vec<String>) {
    if found != written {
        differing.push(format!("written:\n{written}\n\nfound:\n{found}\n"));
    }
}

#[test]
fn q15_every_script_has_a_table() {
    let queue = Script::ALL.iter().map(|script| (script.name(), TABLES));
    let counters = CounterScript::ALL.iter().map(|script| (script.name(), COUNTER_TABLES));
    for (script, text) in queue.chain(counters) {
        let has_table = tables(text).any(|table| table.starts_with(&format!("== {script}:")));
        assert!(has_table, "{script} has no table");
    }
}

/// The tables, the comments at the head left out.
pub(crate) fn tables(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.split("\n\n").map(str::trim).filter(|part| part.starts_with("== "))
}
