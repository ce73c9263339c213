//! Lines of JSON. The header is the first line, `{"schema":"likes u24","options":{…}}`; each id is a line as `get --json` prints it,
//! `{"id":5,"values":{"likes":3}}`; the last line is `{"ids":1}`. Lines of other programs need no header, and then no last line.

use super::super::set::{Row, Values};
use super::content::{FileError, Header, Record};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};

/// Longer than any line that is written.
const LINE_BYTES_MAX: u64 = 256 << 10;

pub(crate) struct LineWriter<W> {
    out: W,
    fields: Vec<String>,
    ids: u64,
}

impl<W: Write> LineWriter<W> {
    pub(super) fn new(mut out: W, header: &Header) -> io::Result<LineWriter<W>> {
        serde_json::to_writer(&mut out, header)?;
        out.write_all(b"\n")?;
        Ok(LineWriter { out, fields: header.fields(), ids: 0 })
    }

    pub(super) fn write(&mut self, id: u64, values: &[i64]) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, &Row { id, values: Values { fields: &self.fields, values } })?;
        self.ids += 1;
        self.out.write_all(b"\n")
    }

    pub(super) fn finish(mut self) -> io::Result<u64> {
        writeln!(self.out, "{{\"ids\":{}}}", self.ids)?;
        self.out.flush()?;
        Ok(self.ids)
    }
}

/// A line.
#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Line {
    Record { id: u64, values: BTreeMap<String, i64> },
    End { ids: u64 },
}

pub(crate) struct LineReader<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
    header: Option<Header>,
    /// Whether `line` is still to be returned.
    is_pending: bool,
    ids: u64,
    has_ended: bool,
}

impl<R: BufRead> LineReader<R> {
    pub(super) fn new(input: R) -> Result<LineReader<R>, FileError> {
        let (line, header) = (Vec::new(), None);
        let mut reader = LineReader { input, line, number: 0, header, is_pending: false, ids: 0, has_ended: false };
        if reader.read_line()? {
            reader.header = serde_json::from_slice(&reader.line).ok();
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
                Ok(Some(Record { id, values: values.into_iter().collect() }))
            }
            Ok(Line::End { ids }) if ids == self.ids && self.header.is_some() => {
                self.has_ended = true;
                self.next()
            }
            Ok(Line::End { ids }) => Err(bad(&format_args!("{ids} ids were written, and {} are here", self.ids))),
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
