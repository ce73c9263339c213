//! The footer of an object: the metadata of Parquet, and in it what an object has and the checksum of each row group. The
//! checksum of the footer itself is in the object's name, so a reader notices every changed byte before it trusts it.

use crate::error::ArchiveError;
use crate::event::{COUNTER_ID_BYTES, ShardSpan};
use parquet::file::metadata::{
    ColumnChunkMetaData, KeyValue, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;

/// The version of the content.
const VERSION: &str = "1";
/// The version of an object with the columns of labels, which earlier programs do not read.
const VERSION_WITH_LABELS: &str = "2";
const VERSION_KEY: &str = "tallystone.version";
pub(crate) const SPANS_KEY: &str = "tallystone.spans";
pub(crate) const SUMS_KEY: &str = "tallystone.sums";
pub(crate) const GROUPS_KEY: &str = "tallystone.row_groups";
/// Rows of one row group: what a reader of one event decodes at most.
pub(crate) const GROUP_ROWS: usize = 16_384;
/// The length of the metadata as four bytes, and the magic number.
const TAIL_BYTES: usize = 8;

/// What an object has of one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShardSums {
    pub(crate) rows: u64,
    pub(crate) clears: u64,
    /// Of all deltas.
    pub(crate) sum: i128,
}

impl ShardSums {
    pub(crate) fn count(&mut self, delta: Option<i64>) {
        self.rows += 1;
        self.clears += u64::from(delta.is_none());
        self.sum += i128::from(delta.unwrap_or_default());
    }
}

/// A row group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RowGroup {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// CRC-32C of these bytes.
    pub(crate) crc: u32,
    pub(crate) rows: u64,
    /// The first and the last counter, in hex.
    pub(crate) counters: [String; 2],
    /// The first and the last time, in Unix ms.
    pub(crate) times_ms: [u64; 2],
}

impl RowGroup {
    /// Whether it may have events of a counter in these times.
    pub(crate) fn may_have(&self, counter_id: &[u8; COUNTER_ID_BYTES], times_ms: &Range<u64>) -> bool {
        let id = hex::encode(counter_id);
        let [first_ms, last_ms] = self.times_ms;
        self.counters[0] <= id && id <= self.counters[1] && first_ms < times_ms.end && times_ms.start <= last_ms
    }

    /// Checks the numbers by which a reader allocates and computes places: an object that another program has written has the
    /// right checksums, too. `metadata`: what Parquet says of the row group.
    fn check(&self, metadata: &RowGroupMetaData, object_bytes: u64) -> Result<(), String> {
        let rows = metadata.num_rows();
        if self.rows > GROUP_ROWS as u64 || u64::try_from(rows) != Ok(self.rows) {
            return Err(format!("has {} rows, and by its metadata {rows}; at most {GROUP_ROWS} are read", self.rows));
        }
        if self.offset.checked_add(self.bytes).is_none_or(|end| end > object_bytes) {
            return Err(format!("has {} bytes at {}, and the object {object_bytes}", self.bytes, self.offset));
        }
        let begin = |column: &ColumnChunkMetaData| column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        // Parquet's reader would panic.
        match metadata.columns().iter().any(|column| begin(column) < 0 || column.compressed_size() < 0) {
            true => Err("has a column at a negative place, or of a negative length".to_owned()),
            false => Ok(()),
        }
    }
}

/// A footer.
#[derive(Debug)]
pub(crate) struct Footer {
    pub(crate) parquet: ParquetMetaData,
    /// The object has the columns of labels.
    pub(crate) has_labels: bool,
    pub(crate) spans: Vec<ShardSpan>,
    pub(crate) sums: BTreeMap<u16, ShardSums>,
    pub(crate) groups: Vec<RowGroup>,
}

impl Footer {
    /// The memory that it takes, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        // With two ids in hex.
        let groups = self.groups.len() * (size_of::<RowGroup>() + 4 * COUNTER_ID_BYTES);
        self.parquet.memory_size() + groups + self.spans.len() * size_of::<ShardSpan>()
    }

    /// The bytes of the row groups.
    pub(crate) fn bytes(&self) -> u64 {
        self.groups.iter().map(|group| group.bytes).sum()
    }

    /// The number of bytes of the footer with which these bytes end.
    pub(crate) fn length(end: &[u8]) -> Option<usize> {
        let length = u32::from_le_bytes(*end.strip_suffix(b"PAR1")?.last_chunk()?);
        Some(usize::try_from(length).ok()? + TAIL_BYTES)
    }

    /// The footer of a whole object.
    pub(crate) fn of(object: &[u8]) -> Option<&[u8]> {
        object.get(object.len().checked_sub(Footer::length(object)?)?..)
    }

    /// Reads a footer whose bytes have the right checksum, of an object of this size.
    pub(crate) fn read(path: &str, footer: &[u8], object_bytes: u64) -> Result<Footer, ArchiveError> {
        let metadata = footer.get(..footer.len().saturating_sub(TAIL_BYTES)).unwrap_or_default();
        let unreadable = |why: String| ArchiveError::damaged(path, why);
        let parquet =
            ParquetMetaDataReader::decode_metadata(metadata).map_err(|error| unreadable(error.to_string()))?;
        let version = value(&parquet, VERSION_KEY).unwrap_or_default();
        let has_labels = version == VERSION_WITH_LABELS;
        if !has_labels && version != VERSION {
            let why = format!(
                "it has version {version:?} of the archive, this program reads {VERSION} and {VERSION_WITH_LABELS}"
            );
            return Err(unreadable(why));
        }
        let read = Footer {
            has_labels,
            spans: json(&parquet, SPANS_KEY).map_err(unreadable)?,
            sums: json(&parquet, SUMS_KEY).map_err(unreadable)?,
            groups: json(&parquet, GROUPS_KEY).map_err(unreadable)?,
            parquet,
        };
        read.check(object_bytes).map_err(unreadable)?;
        Ok(read)
    }

    fn check(&self, object_bytes: u64) -> Result<(), String> {
        if self.groups.len() != self.parquet.num_row_groups() {
            return Err("its list of row groups is not that of its metadata".to_owned());
        }
        for (number, (group, metadata)) in self.groups.iter().zip(self.parquet.row_groups()).enumerate() {
            group.check(metadata, object_bytes).map_err(|why| format!("its row group {number} {why}"))?;
        }
        Ok(())
    }
}

/// The version of an object.
pub(crate) fn version(has_labels: bool) -> KeyValue {
    let version = if has_labels { VERSION_WITH_LABELS } else { VERSION };
    KeyValue::new(VERSION_KEY.to_owned(), version.to_owned())
}

fn value<'a>(parquet: &'a ParquetMetaData, key: &str) -> Option<&'a str> {
    let all = parquet.file_metadata().key_value_metadata()?;
    all.iter().find(|pair| pair.key == key)?.value.as_deref()
}

fn json<T: for<'a> Deserialize<'a>>(parquet: &ParquetMetaData, key: &str) -> Result<T, String> {
    let text = value(parquet, key).ok_or_else(|| format!("it has no {key}"))?;
    serde_json::from_str(text).map_err(|error| format!("{key}: {error}"))
}

/// An entry of the metadata.
pub(crate) fn entry(key: &str, value: &impl Serialize) -> Result<KeyValue, ArchiveError> {
    let text = serde_json::to_string(value).map_err(|error| ArchiveError::invalid(error.to_string()))?;
    Ok(KeyValue::new(key.to_owned(), text))
}
