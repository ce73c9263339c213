//! Bytes: a magic number, then pieces. A piece is its length (u32), the crc32c of its content (u32) and its content. The first has the
//! header as JSON, the last one, after an empty piece, the number of ids (u64); the others have ids (u64), each with the value of each
//! field (i64). All numbers are little-endian.

use super::content::{FileError, Header, Record};
use std::io::{self, ErrorKind, Read, Write};

pub(super) const MAGIC: &[u8; 8] = b"\x89TSCT\r\n1";
/// Bytes from which a piece is complete.
const PIECE_BYTES: usize = 128 << 10;
const PIECE_BYTES_MAX: usize = 1 << 20;

pub(crate) struct PackedWriter<W> {
    out: W,
    piece: Vec<u8>,
    ids: u64,
}

impl<W: Write> PackedWriter<W> {
    pub(super) fn new(mut out: W, header: &Header) -> io::Result<PackedWriter<W>> {
        out.write_all(MAGIC)?;
        let mut writer = PackedWriter { out, piece: serde_json::to_vec(header)?, ids: 0 };
        writer.flush()?;
        Ok(writer)
    }

    pub(super) fn write(&mut self, id: u64, values: &[i64]) -> io::Result<()> {
        self.piece.extend_from_slice(&id.to_le_bytes());
        self.piece.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        self.ids += 1;
        if self.piece.len() >= PIECE_BYTES { self.flush() } else { Ok(()) }
    }

    pub(super) fn finish(mut self) -> io::Result<u64> {
        if !self.piece.is_empty() {
            self.flush()?;
        }
        self.flush()?;
        self.piece.extend_from_slice(&self.ids.to_le_bytes());
        self.flush()?;
        self.out.flush()?;
        Ok(self.ids)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&(self.piece.len() as u32).to_le_bytes())?;
        self.out.write_all(&crc32c::crc32c(&self.piece).to_le_bytes())?;
        self.out.write_all(&self.piece)?;
        self.piece.clear();
        Ok(())
    }
}

pub(crate) struct PackedReader<R> {
    input: R,
    header: Header,
    fields: Vec<String>,
    piece: Vec<u8>,
    /// Bytes of the piece that were returned.
    used: usize,
    ids: u64,
    has_ended: bool,
}

impl<R: Read> PackedReader<R> {
    pub(super) fn new(mut input: R) -> Result<PackedReader<R>, FileError> {
        let mut magic = [0; MAGIC.len()];
        exactly(&mut input, &mut magic)?;
        if magic != *MAGIC {
            return Err(FileError::content("is no export of this version"));
        }
        let (mut piece, has_ended) = (Vec::new(), false);
        read_piece(&mut input, &mut piece)?;
        let header: Header = serde_json::from_slice(&piece).map_err(|_| FileError::content("its header is broken"))?;
        let (fields, used) = (header.fields(), piece.len());
        Ok(PackedReader { input, header, fields, piece, used, ids: 0, has_ended })
    }

    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    pub(super) fn next(&mut self) -> Result<Option<Record>, FileError> {
        if self.has_ended {
            return Ok(None);
        }
        if self.used == self.piece.len() {
            read_piece(&mut self.input, &mut self.piece)?;
            self.used = 0;
            if self.piece.is_empty() {
                return self.end();
            }
        }
        let bytes = 8 + 8 * self.fields.len();
        let Some(record) = self.piece.get(self.used..self.used + bytes) else {
            return Err(FileError::content("a record of it is broken"));
        };
        self.used += bytes;
        self.ids += 1;
        let (words, _) = record.as_chunks::<8>();
        let values = words[1..].iter().map(|word| i64::from_le_bytes(*word));
        let values = self.fields.iter().cloned().zip(values).collect();
        Ok(Some(Record { id: u64::from_le_bytes(words[0]), values }))
    }

    fn end(&mut self) -> Result<Option<Record>, FileError> {
        read_piece(&mut self.input, &mut self.piece)?;
        if self.piece != self.ids.to_le_bytes() {
            return Err(FileError::content("it lacks some of the ids that were written"));
        }
        if self.input.read(&mut [0])? > 0 {
            return Err(FileError::content("something follows its end"));
        }
        self.has_ended = true;
        Ok(None)
    }
}

fn read_piece(input: &mut impl Read, piece: &mut Vec<u8>) -> Result<(), FileError> {
    let (mut len, mut crc) = ([0; 4], [0; 4]);
    exactly(input, &mut len)?;
    exactly(input, &mut crc)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > PIECE_BYTES_MAX {
        return Err(FileError::content("the length of a piece is broken"));
    }
    piece.resize(len, 0);
    exactly(input, piece)?;
    if crc32c::crc32c(piece) != u32::from_le_bytes(crc) {
        return Err(FileError::content("a piece fails its checksum"));
    }
    Ok(())
}

fn exactly(input: &mut impl Read, bytes: &mut [u8]) -> Result<(), FileError> {
    input.read_exact(bytes).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => FileError::content("it ends too early: the export was cut off"),
        _ => FileError::Io(error),
    })
}
