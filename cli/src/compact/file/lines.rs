//! Lines of JSON. The header is the first line, `{"schema":"likes u24","options":{…}}`; each id is a line as `get --json` prints it,
//! `{"id":5,"values":{"likes":3}}`; the last line is `{"ids":1,"crc32c":2774551}`, with the checksum of the header and of all ids with their
//! values, in whichever order of the fields. Files of earlier versions have none. Lines of other programs need no header, and then no last
//! line.

use super::super::set::{Row, Values};
use super::content::{FileError, Header, Record};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};

/// Longer than any line that is written.
const LINE_BYTES_MAX: u64 = 256 << 10;

/// The checksum of the content of a file: crc32c.
struct Sum(u32);

impl Sum {
    /// Of the schema, then of each option, in the order of their names.
    fn new(header: &Header) -> Sum {
        let mut sum = Sum(0);
        let options = header.options.iter().flat_map(|(name, value)| [name, value]);
        std::iter::once(&header.schema).chain(options).for_each(|text| sum.text(text));
        sum
    }

    /// A record. The fields are in the order of their names.
    fn record<'a>(&mut self, id: u64, values: impl Iterator<Item = (&'a str, i64)>) {
        self.bytes(&id.to_le_bytes());
        for (field, value) in values {
            self.text(field);
            self.bytes(&value.to_le_bytes());
        }
    }

    fn text(&mut self, text: &str) {
        self.bytes(&(text.len() as u32).to_le_bytes());
        self.bytes(text.as_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }
}

pub(crate) struct LineWriter<W> {
    out: W,
    fields: Vec<String>,
    /// The places of the fields in the order of their names.
    by_name: Vec<usize>,
    ids: u64,
    sum: Sum,
}

impl<W: Write> LineWriter<W> {
    pub(super) fn new(mut out: W, header: &Header) -> io::Result<LineWriter<W>> {
        serde_json::to_writer(&mut out, header)?;
        out.write_all(b"\n")?;
        let fields = header.fields();
        let mut by_name: Vec<usize> = (0..fields.len()).collect();
        by_name.sort_by_key(|place| &fields[*place]);
        Ok(LineWriter { out, fields, by_name, ids: 0, sum: Sum::new(header) })
    }

    pub(super) fn write(&mut self, id: u64, values: &[i64]) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, &Row { id, values: Values { fields: &self.fields, values } })?;
        self.ids += 1;
        self.sum.record(id, self.by_name.iter().map(|place| (self.fields[*place].as_str(), values[*place])));
        self.out.write_all(b"\n")
    }

    pub(super) fn finish(mut self) -> io::Result<u64> {
        writeln!(self.out, "{{\"ids\":{},\"crc32c\":{}}}", self.ids, self.sum.0)?;
        self.out.flush()?;
        Ok(self.ids)
    }
}

/// A line.
#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Line {
    Record { id: u64, values: BTreeMap<String, i64> },
    End { ids: u64, crc32c: Option<u32> },
}

pub(crate) struct LineReader<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
    header: Option<Header>,
    /// Whether `line` is still to be returned.
    is_pending: bool,
    ids: u64,
    sum: Sum,
    has_ended: bool,
}

impl<R: BufRead> LineReader<R> {
    pub(super) fn new(input: R) -> Result<LineReader<R>, FileError> {
        let (line, header) = (Vec::new(), None);
        let (is_pending, sum, has_ended) = (false, Sum(0), false);
        let mut reader = LineReader { input, line, number: 0, header, is_pending, ids: 0, sum, has_ended };
        if reader.read_line()? {
            reader.header = serde_json::from_slice(&reader.line).ok();
            reader.sum = reader.header.as_ref().map_or(Sum(0), Sum::new);
            reader.is_pending = reader.header.is_none();
        }
        Ok(reader)
    }

    pub(super) fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    pub(super) fn next(&mut self) -> Result<Option<Record>, FileError> {
        if !std::mem::take(&mut self.is_pending) && !self.read_line()? {
            return match self.header.is_some() && !self.has_ended {
                true => Err(FileError::content("its last line is missing: the export was cut off")),
                false => Ok(None),
            };
        }
        let bad = |what: &dyn std::fmt::Display| FileError::content(format!("line {}: {what}", self.number));
        if self.has_ended {
            return Err(bad(&"follows the last line"));
        }
        // serde would accept a list as the fields in their order.
        if !self.line.starts_with(b"{") {
            return Err(bad(&"is not a JSON object"));
        }
        match serde_json::from_slice(&self.line) {
            Ok(Line::Record { id, values }) => {
                self.ids += 1;
                self.sum.record(id, values.iter().map(|(field, value)| (field.as_str(), *value)));
                Ok(Some(Record { id, values: values.into_iter().collect() }))
            }
            Ok(Line::End { ids, crc32c }) if ids == self.ids && self.header.is_some() => {
                if crc32c.is_some_and(|sum| sum != self.sum.0) {
                    return Err(bad(
                        &"the file fails its checksum; if you have edited it, remove \"crc32c\" from this line",
                    ));
                }
                self.has_ended = true;
                self.next()
            }
            Ok(Line::End { ids, .. }) => Err(bad(&format_args!("{ids} ids were written, and {} are here", self.ids))),
            Err(_) => Err(bad(&"expected {\"id\":5,\"values\":{\"FIELD\":3}}")),
        }
    }

    /// Reads the next line that is not empty.
    fn read_line(&mut self) -> Result<bool, FileError> {
        loop {
            self.line.clear();
            let read = self.input.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut self.line)?;
            self.number += 1;
            if read as u64 > LINE_BYTES_MAX {
                return Err(FileError::content(format!("line {} is too long", self.number)));
            }
            if read == 0 {
                return Ok(false);
            }
            if !self.line.trim_ascii().is_empty() {
                self.line = self.line.trim_ascii().to_vec();
                return Ok(true);
            }
        }
    }
}
