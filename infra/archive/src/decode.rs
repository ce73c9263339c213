//! Reads row groups.

use crate::encode::schema;
use crate::error::ArchiveError;
use crate::event::{ArchivedEvent, COUNTER_ID_BYTES};
use crate::footer::{Footer, RowGroup};
use bytes::Bytes;
use parquet::basic::Type;
use parquet::column::page::PageReader;
use parquet::column::reader::{get_column_reader, get_typed_column_reader};
use parquet::data_type::{
    ByteArray, ByteArrayType, DataType, FixedLenByteArray, FixedLenByteArrayType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::SchemaDescriptor;
use std::io::Cursor;
use std::sync::Arc;

/// A part of an object in memory, at its place in the object.
struct Part {
    offset: u64,
    bytes: Bytes,
}

impl Length for Part {
    fn len(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

impl ChunkReader for Part {
    type T = Cursor<Bytes>;

    fn get_read(&self, start: u64) -> Result<Cursor<Bytes>, ParquetError> {
        let length = self.len().saturating_sub(start);
        Ok(Cursor::new(self.get_bytes(start, length as usize)?))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let outside = || ParquetError::EOF(format!("{length} bytes at {start} are not in the row group"));
        let begin = usize::try_from(start.checked_sub(self.offset).ok_or_else(outside)?).map_err(|_| outside())?;
        let end = begin.checked_add(length).filter(|end| *end <= self.bytes.len()).ok_or_else(outside)?;
        Ok(self.bytes.slice(begin..end))
    }
}

/// The events of a row group; `bytes`: all of it, as the store gave it.
///
/// # Errors
/// [`ArchiveError::Damaged`]: also if it has another checksum than the footer says.
pub(crate) fn decode(
    path: &str,
    footer: &Footer,
    number: usize,
    bytes: Bytes,
    is_wanted: impl Fn(&[u8; COUNTER_ID_BYTES]) -> bool,
) -> Result<Vec<ArchivedEvent>, ArchiveError> {
    let damaged = |why: String| ArchiveError::damaged(path, why);
    let group = footer.groups.get(number).ok_or_else(|| damaged("a row group is missing".to_owned()))?;
    if crc32c::crc32c(&bytes) != group.crc {
        return Err(damaged(format!("row group {number} has the wrong checksum")));
    }
    check_schema(footer).map_err(damaged)?;
    let columns = Columns {
        metadata: footer.parquet.row_group(number),
        part: Arc::new(Part { offset: group.offset, bytes }),
        rows: usize::try_from(group.rows).map_err(|error| damaged(error.to_string()))?,
        has_labels: footer.has_labels,
    };
    columns.events(group, is_wanted).map_err(|error| damaged(error.to_string()))
}

/// A typed reader of a column of another type would panic.
fn check_schema(footer: &Footer) -> Result<(), String> {
    let found = footer.parquet.file_metadata().schema_descr();
    let ours = SchemaDescriptor::new(schema(footer.has_labels).map_err(|error| error.to_string())?);
    let shape = |schema: &SchemaDescriptor| -> Vec<(String, Type, i16, i32)> {
        let columns = schema.columns().iter();
        let shape = columns.map(|column| {
            (column.name().to_owned(), column.physical_type(), column.max_def_level(), column.type_length())
        });
        shape.collect()
    };
    if shape(found) == shape(&ours) { Ok(()) } else { Err("its columns are not those of events".to_owned()) }
}

struct Columns<'a> {
    metadata: &'a RowGroupMetaData,
    part: Arc<Part>,
    rows: usize,
    has_labels: bool,
}

impl Columns<'_> {
    fn events(
        &self,
        group: &RowGroup,
        is_wanted: impl Fn(&[u8; COUNTER_ID_BYTES]) -> bool,
    ) -> Result<Vec<ArchivedEvent>, ParquetError> {
        let short = || ParquetError::General("a column has too few values".to_owned());
        let ids: Vec<[u8; COUNTER_ID_BYTES]> = self.required::<FixedLenByteArrayType>(1)?.iter().map(id).collect();
        let mut names = self.optional::<ByteArrayType>(0)?.into_iter();
        let mut shards = self.required::<Int32Type>(2)?.into_iter();
        let mut times = self.required::<Int64Type>(3)?.into_iter();
        let mut tokens = self.required::<ByteArrayType>(4)?.into_iter();
        let mut deltas = self.optional::<Int64Type>(5)?.into_iter();
        let label = |column| if self.has_labels { self.optional::<ByteArrayType>(column) } else { Ok(Vec::new()) };
        let (mut sources, mut item_keys) = (label(6)?.into_iter(), label(7)?.into_iter());
        let mut events = Vec::new();
        for counter_id in ids {
            let (name, shard) = (names.next().ok_or_else(short)?, shards.next().ok_or_else(short)?);
            let (time_ms, token) = (times.next().ok_or_else(short)?, tokens.next().ok_or_else(short)?);
            let delta = deltas.next().ok_or_else(short)?;
            // Of an object without these columns there are none.
            let (source, event_item_key) = (sources.next().flatten(), item_keys.next().flatten());
            if !is_wanted(&counter_id) {
                continue;
            }
            events.push(ArchivedEvent {
                shard: u16::try_from(shard).map_err(|_| ParquetError::General(format!("a shard {shard}")))?,
                counter_id,
                counter: name.map(|name| Ok::<_, ParquetError>(Arc::from(text(&name)?))).transpose()?,
                time_ms: time_ms as u64,
                token: boxed(&token)?,
                delta,
                source: source.as_ref().map(boxed).transpose()?,
                event_item_key: event_item_key.as_ref().map(boxed).transpose()?,
            });
        }
        debug_assert!(events.len() as u64 <= group.rows);
        Ok(events)
    }

    fn required<T: DataType>(&self, column: usize) -> Result<Vec<T::T>, ParquetError> {
        let mut values = Vec::with_capacity(self.rows);
        let (rows, ..) = self.read::<T>(column, None, &mut values)?;
        if rows == self.rows && values.len() == rows { Ok(values) } else { Err(self.wrong_length(rows)) }
    }

    fn optional<T: DataType>(&self, column: usize) -> Result<Vec<Option<T::T>>, ParquetError> {
        let (mut values, mut is_there) = (Vec::new(), Vec::with_capacity(self.rows));
        let (rows, ..) = self.read::<T>(column, Some(&mut is_there), &mut values)?;
        let mut values = values.into_iter();
        let all: Vec<Option<T::T>> =
            is_there.iter().map(|is_there| if *is_there > 0 { values.next() } else { None }).collect();
        if rows == self.rows && all.len() == rows { Ok(all) } else { Err(self.wrong_length(rows)) }
    }

    /// Reads the whole column, which may be in several pages.
    fn read<T: DataType>(
        &self,
        column: usize,
        is_there: Option<&mut Vec<i16>>,
        values: &mut Vec<T::T>,
    ) -> Result<(usize, usize, usize), ParquetError> {
        let chunk = self.metadata.column(column);
        let pages: Box<dyn PageReader> =
            Box::new(SerializedPageReader::new(self.part.clone(), chunk, self.rows, None)?);
        let reader = get_column_reader(chunk.column_descr_ptr(), pages);
        get_typed_column_reader::<T>(reader).read_records(self.rows, is_there, None, values)
    }

    fn wrong_length(&self, rows: usize) -> ParquetError {
        ParquetError::General(format!("a column has {rows} of {} rows", self.rows))
    }
}

fn id(bytes: &FixedLenByteArray) -> [u8; COUNTER_ID_BYTES] {
    // The schema was checked: it has this length.
    bytes.data().try_into().unwrap_or_default()
}

fn boxed(bytes: &ByteArray) -> Result<Box<str>, ParquetError> {
    text(bytes).map(Box::from)
}

fn text(bytes: &ByteArray) -> Result<&str, ParquetError> {
    bytes.as_utf8()
}
