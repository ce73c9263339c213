//! Pages of any records and of any bytes, and a cold table against a plain map.

mod pages;
mod table;

use super::*;
use crate::record::Record;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::convert::Infallible;

type Bytes = Box<[u8; PAGE_BYTES]>;

fn write_file(file: FileId, records: &BTreeMap<u64, Record>) -> (Vec<Bytes>, PageIndex) {
    let mut pages = Vec::new();
    let mut write = |page: &[u8; PAGE_BYTES]| {
        pages.push(Box::new(*page));
        Ok::<(), Infallible>(())
    };
    let mut writer = PageWriter::new(file);
    records.iter().for_each(|(&id, record)| writer.push(id, record, &mut write).unwrap());
    let index = writer.finish(&mut write).unwrap();
    (pages, index)
}

fn config() -> ProptestConfig {
    let long = std::env::var_os("TALLYSTONE_TEST_LONG").is_some();
    ProptestConfig { cases: if long { 3_000 } else { 60 }, ..ProptestConfig::default() }
}

/// Values of any length, in records of a few or many fields.
fn record() -> impl Strategy<Value = Record> {
    let value = (any::<i64>(), prop_oneof![8 => 50..=64_u32, 1 => 0..64_u32]);
    let value = value.prop_map(|(value, shift)| if shift == 64 { 0 } else { value >> shift });
    let fields = prop_oneof![40 => 0..5_usize, 4 => 5..40_usize, 1 => 250..=256_usize];
    fields.prop_flat_map(move |fields| prop::collection::vec(value.clone(), fields)).prop_map(Record::new)
}

fn records() -> impl Strategy<Value = BTreeMap<u64, Record>> {
    let id = prop_oneof![8 => 0..5_000_u64, 1 => any::<u64>(), 1 => (u64::MAX - 3)..=u64::MAX];
    prop::collection::btree_map(id, record(), 0..600)
}
