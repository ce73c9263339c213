//! The file that `export` writes and `import` reads: a header with the schema and the options, the ids with their values, and at the
//! end the number of ids, so that a file that was cut is noticed (`content.rs`). `lines.rs` has the form of lines of JSON, `packed.rs`
//! that of bytes. Both have checksums.

mod content;
mod lines;
mod packed;

pub(super) use content::{Header, Record};

use content::FileError;
use lines::{LineReader, LineWriter};
use packed::{MAGIC, PackedReader, PackedWriter};
use std::io::{self, BufRead, BufReader, Read, Write};

/// Writes a file.
pub(super) enum Writer<W: Write> {
    Lines(LineWriter<W>),
    Packed(PackedWriter<W>),
}

impl<W: Write> Writer<W> {
    pub(super) fn new(out: W, header: &Header, packed: bool) -> io::Result<Writer<W>> {
        Ok(match packed {
            true => Writer::Packed(PackedWriter::new(out, header)?),
            false => Writer::Lines(LineWriter::new(out, header)?),
        })
    }

    /// Writes an id with the values of all fields.
    pub(super) fn write(&mut self, id: u64, values: &[i64]) -> io::Result<()> {
        match self {
            Writer::Lines(lines) => lines.write(id, values),
            Writer::Packed(packed) => packed.write(id, values),
        }
    }

    /// Ends the file. Returns the number of ids.
    pub(super) fn finish(self) -> io::Result<u64> {
        match self {
            Writer::Lines(lines) => lines.finish(),
            Writer::Packed(packed) => packed.finish(),
        }
    }
}

/// Reads a file of either form.
pub(super) enum Reader<R: Read> {
    Lines(LineReader<BufReader<R>>),
    Packed(PackedReader<BufReader<R>>),
}

impl<R: Read> Reader<R> {
    pub(super) fn new(input: R) -> Result<Reader<R>, FileError> {
        let mut input = BufReader::with_capacity(1 << 20, input);
        // A pipe may give fewer bytes at first, but never none before its end.
        match input.fill_buf()?.first() {
            None => Err(FileError::content("it is empty")),
            first if first == MAGIC.first() => Ok(Reader::Packed(PackedReader::new(input)?)),
            _ => Ok(Reader::Lines(LineReader::new(input)?)),
        }
    }

    /// The header; `None`: lines that another program has written, without one.
    pub(super) fn header(&self) -> Option<&Header> {
        match self {
            Reader::Lines(lines) => lines.header(),
            Reader::Packed(packed) => Some(packed.header()),
        }
    }

    /// The next id; `None` at the end of a complete file.
    pub(super) fn next(&mut self) -> Result<Option<Record>, FileError> {
        match self {
            Reader::Lines(lines) => lines.next(),
            Reader::Packed(packed) => packed.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let options = [("ORDER".to_owned(), "RISING".to_owned())].into();
        Header { schema: "likes u24 balance i40".to_owned(), options }
    }

    fn written(packed: bool, ids: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, &header(), packed).unwrap();
        for id in 0..ids {
            writer.write(id, &[id as i64, -(id as i64)]).unwrap();
        }
        writer.write(u64::MAX, &[i64::MAX, i64::MIN]).unwrap();
        assert_eq!(writer.finish().unwrap(), ids + 1);
        out
    }

    fn read(bytes: &[u8]) -> Result<Vec<Record>, FileError> {
        let mut reader = Reader::new(bytes)?;
        let mut records: Vec<Record> = std::iter::from_fn(|| reader.next().transpose()).collect::<Result<_, _>>()?;
        // Lines have the fields of an id in any order.
        records.iter_mut().for_each(|record| record.values.sort());
        Ok(records)
    }

    #[test]
    fn w1_both_forms_are_read_as_written() {
        for packed in [false, true] {
            let bytes = written(packed, 10_000);
            assert_eq!(Reader::new(&bytes[..]).unwrap().header(), Some(&header()));
            let records = read(&bytes).unwrap();
            assert_eq!(records.len(), 10_001);
            let values = |likes, balance| vec![("balance".to_owned(), balance), ("likes".to_owned(), likes)];
            assert_eq!(records[7], Record { id: 7, values: values(7, -7) });
            assert_eq!(records[10_000], Record { id: u64::MAX, values: values(i64::MAX, i64::MIN) });
        }
    }

    #[test]
    fn w4_a_file_that_was_cut_or_changed_is_refused() {
        for packed in [false, true] {
            let bytes = written(packed, 50);
            for len in 0..bytes.len() - 1 {
                assert!(read(&bytes[..len]).is_err(), "packed {packed}, {len} bytes");
            }
        }
        // Without its first bytes a packed file is none.
        for (packed, begin) in [(false, 0), (true, MAGIC.len())] {
            let bytes = written(packed, 50);
            for (at, bit) in (begin..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                assert!(read(&changed).is_err(), "packed {packed}, byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn w4_lines_of_an_earlier_version_have_no_checksum() {
        let lines = String::from_utf8(written(false, 50)).unwrap();
        let end = lines.find(",\"crc32c\"").unwrap();
        let earlier = format!("{}}}\n", &lines[..end]);
        assert_eq!(read(earlier.as_bytes()).unwrap(), read(lines.as_bytes()).unwrap());
        // The order of fields and spaces are not content.
        let edited = lines.replace("\"likes\":7,\"balance\":-7", "\"balance\": -7, \"likes\": 7");
        assert_ne!(edited, lines);
        assert_eq!(read(edited.as_bytes()).unwrap(), read(lines.as_bytes()).unwrap());
    }

    #[test]
    fn w1_lines_of_other_programs_need_no_header() {
        let lines = "{\"id\":5,\"values\":{\"likes\":3}}\n\n{\"id\":6,\"values\":{}}\n";
        let records = read(lines.as_bytes()).unwrap();
        assert_eq!(
            records,
            [(5, vec![("likes".to_owned(), 3)]), (6, vec![])].map(|(id, values)| Record { id, values })
        );
        for bad in ["{\"id\":-1,\"values\":{}}", "[1]", "{\"id\":1}", "x", "{\"ids\":1}"] {
            assert!(read(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
