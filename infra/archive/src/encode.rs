//! Writes the content of an object: rows by counter and time, in row groups that a reader can skip.

use crate::error::ArchiveError;
use crate::event::{ArchivedEvent, NewObject, ShardSpan};
use crate::footer::{Footer, GROUP_ROWS, GROUPS_KEY, RowGroup, SPANS_KEY, SUMS_KEY, ShardSums, entry, version};
use crate::name::ObjectName;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, FixedLenByteArrayType, Int32Type, Int64Type};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, TypePtr};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A clear has no delta.
const COLUMNS: &str = "
    OPTIONAL BYTE_ARRAY counter (UTF8);
    REQUIRED FIXED_LEN_BYTE_ARRAY (12) counter_id;
    REQUIRED INT32 shard;
    REQUIRED INT64 time (TIMESTAMP(MILLIS,true));
    REQUIRED BYTE_ARRAY token (UTF8);
    OPTIONAL INT64 delta;";
/// Only in an object with an event that has one.
const COLUMNS_OF_LABELS: &str = "
    OPTIONAL BYTE_ARRAY source (UTF8);
    OPTIONAL BYTE_ARRAY event_item_key (UTF8);";

/// The columns of an object.
pub(crate) fn schema(has_labels: bool) -> Result<TypePtr, ArchiveError> {
    let of_labels = if has_labels { COLUMNS_OF_LABELS } else { "" };
    Ok(Arc::new(parse_message_type(&format!("message event {{{COLUMNS}{of_labels}}}"))?))
}

/// An object before it is in the store.
pub(crate) struct Encoded {
    pub(crate) name: ObjectName,
    pub(crate) bytes: Vec<u8>,
    pub(crate) sums: BTreeMap<u16, ShardSums>,
}

/// Writes an object.
///
/// # Errors
/// [`ArchiveError::Invalid`]: an event is in no span, or twice.
pub(crate) fn encode(mut object: NewObject) -> Result<(Encoded, Vec<ArchivedEvent>), ArchiveError> {
    object.events.sort_unstable_by(|one, other| key(one).cmp(&key(other)));
    check(&object)?;
    let NewObject { written_ms, spans, events, .. } = object;
    let mut encoder = Encoder::new(events.iter().any(ArchivedEvent::has_labels))?;
    for rows in events.chunks(GROUP_ROWS) {
        encoder.group(rows)?;
    }
    Ok((encoder.finish(&spans, written_ms)?, events))
}

/// An object that is being written, row group by row group.
pub(crate) struct Encoder {
    writer: SerializedFileWriter<Vec<u8>>,
    has_labels: bool,
    groups: Vec<RowGroup>,
    sums: BTreeMap<u16, ShardSums>,
    last: Option<ArchivedEvent>,
}

impl Encoder {
    /// `has_labels`: some row may have labels.
    pub(crate) fn new(has_labels: bool) -> Result<Encoder, ArchiveError> {
        let writer = SerializedFileWriter::new(Vec::new(), schema(has_labels)?, Arc::new(properties()?))?;
        Ok(Encoder { writer, has_labels, groups: Vec::new(), sums: BTreeMap::new(), last: None })
    }

    /// Writes the next rows, at most [`GROUP_ROWS`], which follow those before in the order of [`key`].
    ///
    /// # Errors
    /// [`ArchiveError::Invalid`]: a row is out of order, or an event is there twice.
    pub(crate) fn group(&mut self, rows: &[ArchivedEvent]) -> Result<(), ArchiveError> {
        let all = || self.last.iter().chain(rows);
        if let Some((_, event)) = all().zip(all().skip(1)).find(|(one, next)| key(one) >= key(next)) {
            return Err(ArchiveError::invalid(format!("the event {event:?} is there twice, or out of order")));
        }
        self.last = rows.last().cloned();
        for event in rows {
            self.sums.entry(event.shard).or_default().count(event.delta);
        }
        let offset = self.writer.bytes_written();
        let mut group = self.writer.next_row_group()?;
        write_group(&mut group, rows)?;
        if self.has_labels {
            write_labels(&mut group, rows)?;
        } else if let Some(event) = rows.iter().find(|event| event.has_labels()) {
            return Err(ArchiveError::invalid(format!(
                "the event {event:?} has labels, and the object has no columns for them"
            )));
        }
        group.close()?;
        self.writer.flush().map_err(|error| ArchiveError::invalid(error.to_string()))?;
        self.groups.push(described(rows, offset, self.writer.inner().get(offset..).unwrap_or_default()));
        Ok(())
    }

    /// The object, which has all events of these spans.
    pub(crate) fn finish(mut self, spans: &[ShardSpan], written_ms: u64) -> Result<Encoded, ArchiveError> {
        let from_ms = spans.iter().map(|span| span.from_ms).min();
        let to_ms = spans.iter().map(|span| span.to_ms).max();
        let (Some(from_ms), Some(to_ms)) = (from_ms, to_ms) else {
            return Err(ArchiveError::invalid("an object needs a span"));
        };
        self.writer.append_key_value_metadata(version(self.has_labels));
        for entry in [entry(SPANS_KEY, &spans)?, entry(SUMS_KEY, &self.sums)?, entry(GROUPS_KEY, &self.groups)?] {
            self.writer.append_key_value_metadata(entry);
        }
        let bytes = self.writer.into_inner()?;
        let footer = Footer::of(&bytes).ok_or_else(|| ArchiveError::invalid("the object has no footer"))?;
        let footer_crc = crc32c::crc32c(footer);
        let name = ObjectName { written_ms, from_ms, to_ms, footer_crc, sha256: sha256(&bytes) };
        Ok(Encoded { name, bytes, sums: self.sums })
    }
}

/// SHA-256 in hex.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex::encode(ring::digest::digest(&ring::digest::SHA256, bytes))
}

/// Whether the spans are in the slice, and each event is in a span.
fn check(NewObject { slice_ms, slice_length_ms, spans, events, .. }: &NewObject) -> Result<(), ArchiveError> {
    let is_in_slice = |span: &ShardSpan| *slice_ms <= span.from_ms && span.to_ms <= slice_ms + slice_length_ms;
    if let Some(span) = spans.iter().find(|span| !is_in_slice(span)) {
        return Err(ArchiveError::invalid(format!("{span:?} is not in the slice of {slice_ms}")));
    }
    let stray = events.iter().find(|event| !spans.iter().any(|span| span.has(event.shard, event.time_ms)));
    match stray {
        Some(ArchivedEvent { shard, time_ms, .. }) => {
            Err(ArchiveError::invalid(format!("an event of shard {shard} at {time_ms} is in no span")))
        }
        None => Ok(()),
    }
}

/// The order of rows.
pub(crate) fn key(event: &ArchivedEvent) -> (&[u8], u64, &str, u16) {
    (&event.counter_id, event.time_ms, &event.token, event.shard)
}

fn described(rows: &[ArchivedEvent], offset: usize, bytes: &[u8]) -> RowGroup {
    let id = |row: Option<&ArchivedEvent>| row.map(|event| hex::encode(event.counter_id)).unwrap_or_default();
    let times = || rows.iter().map(|event| event.time_ms);
    RowGroup {
        offset: offset as u64,
        bytes: bytes.len() as u64,
        crc: crc32c::crc32c(bytes),
        rows: rows.len() as u64,
        counters: [id(rows.first()), id(rows.last())],
        times_ms: [times().min().unwrap_or_default(), times().max().unwrap_or_default()],
    }
}

fn properties() -> Result<WriterProperties, ArchiveError> {
    let column = |name: &str| ColumnPath::from(name);
    let builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_statistics_truncate_length(None)
        .set_offset_index_disabled(true)
        .set_column_dictionary_enabled(column("time"), false)
        .set_column_encoding(column("time"), Encoding::DELTA_BINARY_PACKED)
        .set_column_dictionary_enabled(column("token"), false)
        .set_column_encoding(column("token"), Encoding::DELTA_LENGTH_BYTE_ARRAY)
        .set_column_statistics_enabled(column("token"), EnabledStatistics::None);
    Ok(builder.build())
}

/// A group of rows that is being written.
type Group<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

/// Writes the columns in the order of the schema, without those of labels.
fn write_group(group: &mut Group<'_>, rows: &[ArchivedEvent]) -> Result<(), ArchiveError> {
    write_texts(group, rows, |event| event.counter.as_deref())?;
    let ids = rows.iter().map(|event| ByteArray::from(event.counter_id.to_vec()).into());
    write_column::<FixedLenByteArrayType>(group, &ids.collect::<Vec<_>>(), None)?;
    let shards = rows.iter().map(|event| event.shard.into()).collect::<Vec<i32>>();
    write_column::<Int32Type>(group, &shards, None)?;
    let times = rows.iter().map(|event| event.time_ms as i64).collect::<Vec<i64>>();
    write_column::<Int64Type>(group, &times, None)?;
    let tokens = rows.iter().map(|event| ByteArray::from(event.token.as_bytes().to_vec())).collect::<Vec<ByteArray>>();
    write_column::<ByteArrayType>(group, &tokens, None)?;
    let added = rows.iter().map(|event| i16::from(event.delta.is_some())).collect::<Vec<i16>>();
    let deltas = rows.iter().filter_map(|event| event.delta).collect::<Vec<i64>>();
    write_column::<Int64Type>(group, &deltas, Some(&added))
}

fn write_labels(group: &mut Group<'_>, rows: &[ArchivedEvent]) -> Result<(), ArchiveError> {
    write_texts(group, rows, |event| event.source.as_deref())?;
    write_texts(group, rows, |event| event.event_item_key.as_deref())
}

/// Writes a column of texts that not every event has.
fn write_texts(
    group: &mut Group<'_>,
    rows: &[ArchivedEvent],
    text: impl Fn(&ArchivedEvent) -> Option<&str>,
) -> Result<(), ArchiveError> {
    let is_there = rows.iter().map(|event| i16::from(text(event).is_some())).collect::<Vec<i16>>();
    let texts = rows.iter().filter_map(&text).map(|text| ByteArray::from(text.as_bytes().to_vec()));
    write_column::<ByteArrayType>(group, &texts.collect::<Vec<_>>(), Some(&is_there))
}

fn write_column<T: DataType>(
    group: &mut Group<'_>,
    values: &[T::T],
    is_there: Option<&[i16]>,
) -> Result<(), ArchiveError> {
    let mut column = group.next_column()?.ok_or_else(|| ArchiveError::invalid("the schema has too few columns"))?;
    column.typed::<T>().write_batch(values, is_there, None)?;
    Ok(column.close()?)
}
