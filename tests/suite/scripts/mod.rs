//! Text tables of every script on a real Redis: what is given, one call, its reply, and what is then in the keys.
//! They are in `tables.txt`, whose head explains the words; `table` runs the words through the store, `keys` shows
//! what is in Redis. What may not live here: the meaning of the queue, which is the conformance suite's.

mod keys;
mod table;

use std::path::Path;
use table::Table;
use tallystone_tests::TestRedis;

const TABLES: &str = include_str!("tables.txt");

/// Runs each table and compares it, line by line, with what is written.
#[tokio::test]
async fn q15_every_script_does_what_its_tables_say() {
    // Held over all tables: it ends with its last user.
    let _redis = TestRedis::shared().await;
    let mut differing = Vec::new();
    for (at, written) in tables().enumerate() {
        let found = Table::run(at, written).await;
        if found != written {
            differing.push(format!("written:\n{written}\n\nfound:\n{found}\n"));
        }
    }
    assert!(differing.is_empty(), "{} tables differ\n\n{}", differing.len(), differing.join("\n"));
}

#[test]
fn q15_every_script_has_a_table() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lua/scripts");
    for entry in std::fs::read_dir(scripts).expect("the scripts").flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        let Some(script) = file.strip_suffix(".lua") else { continue };
        assert!(tables().any(|table| table.starts_with(&format!("== {script}:"))), "{script} has no table");
    }
}

/// The tables, the comments at the head left out.
fn tables() -> impl Iterator<Item = &'static str> {
    TABLES.split("\n\n").map(str::trim).filter(|part| part.starts_with("== "))
}
