//! Files and their pages.

use super::*;

proptest! {
    #![proptest_config(config())]

    #[test]
    fn w3_a_file_has_the_records_that_were_written(mut records in records()) {
        let (pages, index) = write_file(FileId(5), &records);
        records.retain(|_, record| !record.is_zero());
        prop_assert_eq!((index.pages() as usize, index.records()), (pages.len(), records.len() as u64));
        let open = |(page, bytes): (u32, &Bytes)| Page::open(PageRef { file: FileId(5), page }, bytes.clone()).unwrap();
        let pages: Vec<Page> = (0..).zip(&pages).map(open).collect();
        let all: BTreeMap<u64, Record> = pages.iter().flat_map(|page| page.records().unwrap()).collect();
        prop_assert_eq!(&all, &records);
        let near = records.keys().flat_map(|id| [id.saturating_sub(1), *id, id.saturating_add(1)]);
        for id in near.chain([0, u64::MAX]) {
            let found = index.page_of(id).and_then(|page| pages[page as usize].find(id).unwrap());
            prop_assert_eq!(found.as_ref(), records.get(&id), "{}", id);
            for page in &pages {
                prop_assert!(page.find(id).unwrap().is_none_or(|record| Some(&record) == records.get(&id)));
            }
        }
    }

    /// Bytes that were not written as a page, under a checksum that fits them: any answer but a panic.
    #[test]
    fn w3_a_page_of_any_bytes_is_read_or_refused(
        mut records in records(),
        changes in prop::collection::vec((4..PAGE_BYTES, any::<u8>()), 0..20),
        head in prop::collection::vec((24..80_usize, any::<u8>()), 0..3),
        noise in prop::option::of(prop::collection::vec(any::<u8>(), PAGE_BYTES)),
        ids in prop::collection::vec(any::<u64>(), 5),
    ) {
        records.insert(7, Record::new(vec![1]));
        let mut bytes = write_file(FileId(5), &records).0[0].clone();
        if let Some(noise) = noise {
            bytes[30..].copy_from_slice(&noise[30..]);
        }
        changes.iter().chain(&head).for_each(|&(place, value)| bytes[place] = value);
        let place = PageRef { file: FileId(5), page: 0 };
        let sum = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        if let Ok(page) = Page::open(place, bytes) {
            let _ = page.records();
            ids.iter().chain(records.keys()).for_each(|&id| drop(page.find(id)));
        }
    }

    #[test]
    fn w3_a_changed_or_moved_page_is_refused(mut records in records(), bit in 0..PAGE_BYTES * 8, other in 1..9_u64) {
        records.insert(7, Record::new(vec![1]));
        let mut bytes = write_file(FileId(5), &records).0[0].clone();
        for place in [PageRef { file: FileId(5 + other), page: 0 }, PageRef { file: FileId(5), page: other as u32 }] {
            prop_assert_eq!(Page::open(place, bytes.clone()).unwrap_err(), PageFault::Misplaced);
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(Page::open(PageRef { file: FileId(5), page: 0 }, bytes).unwrap_err(), PageFault::Checksum);
    }
}

#[test]
fn w1_a_page_has_a_bounded_number_of_values() {
    for fields in [1, 4, 32] {
        let record = Record::new(vec![1; fields]);
        let records: BTreeMap<u64, Record> = (0..30_000).map(|id| (id, record.clone())).collect();
        let (pages, index) = write_file(FileId(1), &records);
        let least = (records.len() * fields).div_ceil(4_096).max(records.len().div_ceil(1_024));
        assert!(pages.len() >= least && index.records() == 30_000, "{} pages", pages.len());
    }
}

/// Few records have a value in the last column, and each record of their page is decoded to that column.
#[test]
fn w3_a_page_of_many_columns_has_fewer_records() {
    let record = |id: u64| Record::new(vec![1; if id.is_multiple_of(100) && id < 20_000 { 256 } else { 1 }]);
    let records: BTreeMap<u64, Record> = (0..40_000).map(|id| (id, record(id))).collect();
    let (pages, index) = write_file(FileId(1), &records);
    assert_eq!(index.records(), 40_000);
    let of_head = |page: &Bytes, at: usize| usize::from(u16::from_le_bytes([page[at], page[at + 1]]));
    let sizes: Vec<(usize, usize)> = pages.iter().map(|page| (of_head(page, 24), of_head(page, 26))).collect();
    assert!(sizes.iter().all(|(records, columns)| records * columns <= 16_384), "{sizes:?}");
    // A page without such a record does not keep the columns of the page before.
    assert!(sizes.iter().filter(|size| **size == (1_024, 1)).count() > 15, "{sizes:?}");
}

/// The goal is 12 bytes for an object of four counters of 24, 24, 16 and 24 bits, and 64 KB of index for a million.
#[test]
fn w3_an_object_takes_few_bytes() {
    let mut state = 1_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 11
    };
    for (is_skewed, most) in [(true, 6.5), (false, 13.0)] {
        let mut records = BTreeMap::new();
        let mut id = 4_000_000_000_000_000;
        for _ in 0..100_000 {
            id += 1 + random() % 1_024;
            let mut value = |bits: u32| {
                let length = if is_skewed { (random() % 12).min(random() % 12) as u32 } else { bits };
                (random() & ((1 << length) - 1)) as i64
            };
            records.insert(id, Record::new(vec![value(24), value(24), value(16), value(24)]));
        }
        let (pages, index) = write_file(FileId(1), &records);
        let bytes = (pages.len() * PAGE_BYTES) as f64 / records.len() as f64;
        assert!(bytes < most, "{bytes} bytes an object (skewed: {is_skewed})");
        assert!(index.memory_bytes() * 10 < 64_000, "{} bytes of index", index.memory_bytes());
    }
}
