//! Objects that another program has written: their checksums are right, and what they say is not (N15).

use super::*;
use crate::encode::sha256;
use crate::footer::{Footer, GROUPS_KEY, RowGroup, entry};
use crate::name::ObjectName;
use parquet::file::metadata::{FileMetaData, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaData};

/// The events of the object.
const EVENTS: u64 = 500;

/// The same object, but its footer says something else of its row groups, in the list of the archive and in that of Parquet.
fn forged(object: &[u8], change: impl FnOnce(&mut RowGroup, &mut RowGroupMetaData)) -> Vec<u8> {
    let bytes = Footer::of(object).unwrap();
    let Footer { parquet, mut groups, .. } = Footer::read("the object", bytes, object.len() as u64).unwrap();
    let mut of_parquet = parquet.row_groups().to_vec();
    change(&mut groups[0], &mut of_parquet[0]);
    let of_file = parquet.file_metadata();
    let mut pairs = of_file.key_value_metadata().unwrap().clone();
    pairs.retain(|pair| pair.key != GROUPS_KEY);
    pairs.push(entry(GROUPS_KEY, &groups).unwrap());
    let (rows, creator) = (of_file.num_rows(), of_file.created_by().map(str::to_owned));
    let of_file = FileMetaData::new(of_file.version(), rows, creator, Some(pairs), of_file.schema_descr_ptr(), None);
    let metadata = ParquetMetaData::new(of_file, of_parquet);
    let mut forged = object[..object.len() - bytes.len()].to_vec();
    ParquetMetaDataWriter::new(&mut forged, &metadata).finish().unwrap();
    forged
}

fn with_rows(metadata: &RowGroupMetaData, rows: i64) -> RowGroupMetaData {
    metadata.clone().into_builder().set_num_rows(rows).build().unwrap()
}

/// What an archive answers for the last event of such an object.
async fn answer(change: impl FnOnce(&mut RowGroup, &mut RowGroupMetaData)) -> Result<Vec<Option<Found>>, ArchiveError> {
    let (folder, archive) = folder().await;
    let events: Vec<ArchivedEvent> = (0..EVENTS).map(|n| event(0, 1, n, &format!("{n}"), Some(1))).collect();
    archive.write(NS, object(1, vec![span(0, 0, EVENTS)], events.clone())).await.unwrap();
    let path = files(folder.path()).remove(0);
    let bytes = forged(&std::fs::read(&path).unwrap(), change);
    std::fs::remove_file(&path).unwrap();
    let name = ObjectName::parse(path.file_name().unwrap().to_str().unwrap()).unwrap();
    let footer_crc = crc32c::crc32c(Footer::of(&bytes).unwrap());
    let name = ObjectName { footer_crc, sha256: sha256(&bytes), ..name };
    std::fs::write(path.with_file_name(name.file()), &bytes).unwrap();
    // Without the footer that this one has read before.
    again(&folder).found(NS, &[key(&events[events.len() - 1])]).await
}

/// Memory for 2^40 rows is not there, and the process would end.
#[tokio::test]
async fn n15_a_footer_with_impossible_numbers_is_damaged() {
    const MANY: u64 = 1 << 40;
    let as_written = answer(|_, _| {}).await;
    assert!(matches!(as_written.as_deref(), Ok([Some(Found { delta: Some(1), .. })])), "{as_written:?}");
    let is_damaged = |what: &str, answer: Result<Vec<Option<Found>>, ArchiveError>| {
        assert!(matches!(answer, Err(ArchiveError::Damaged { .. })), "{what}: {answer:?}");
    };
    is_damaged("more rows than it has", answer(|group, _| group.rows = MANY).await);
    is_damaged("fewer rows than it has", answer(|group, _| group.rows -= 1).await);
    let both_many = |group: &mut RowGroup, metadata: &mut RowGroupMetaData| {
        (group.rows, *metadata) = (MANY, with_rows(metadata, MANY as i64));
    };
    is_damaged("more rows than a row group may have", answer(both_many).await);
    let negative = |_: &mut RowGroup, metadata: &mut RowGroupMetaData| *metadata = with_rows(metadata, -1);
    is_damaged("a negative number of rows", answer(negative).await);
    is_damaged("an end that is no number", answer(|group, _| group.offset = u64::MAX).await);
    is_damaged("more bytes than the object", answer(|group, _| group.bytes = MANY).await);
    let before_the_object = |_: &mut RowGroup, metadata: &mut RowGroupMetaData| {
        let mut columns = metadata.columns().to_vec();
        columns[1] = columns[1].clone().into_builder().set_total_compressed_size(-1).build().unwrap();
        *metadata = metadata.clone().into_builder().set_column_metadata(columns).build().unwrap();
    };
    is_damaged("a column of a negative length", answer(before_the_object).await);
}
