//! Groups lines into batches, each of which is one call.

use super::{Item, Reader};
use crate::limits::BATCH_ITEMS_MAX;
use std::io::{self, Read};

/// A request may have 4 MiB; the rest is for the framing of a thousand items.
const BATCH_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The items of one call, and the lines that they come from.
pub(super) struct Batch<T> {
    pub(super) items: Vec<T>,
    /// The line number of each item.
    pub(super) lines: Vec<u64>,
    /// Lines that are not items: the line number and the error.
    pub(super) bad: Vec<(u64, String)>,
    bytes: usize,
    /// Bytes of the input read up to the end of this batch.
    pub(super) input_bytes: u64,
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Batch { items: Vec::new(), lines: Vec::new(), bad: Vec::new(), bytes: 0, input_bytes: 0 }
    }
}

/// Reads the input to its end and sends it batch by batch. A batch ends when it is full, or when the next read would
/// wait. Stops when `send` returns false: the receiver is gone.
pub(super) fn read_batches<T: Item>(mut reader: Reader<impl Read>, mut send: impl FnMut(io::Result<Batch<T>>) -> bool) {
    let mut batch = Batch::default();
    loop {
        let line = match reader.next() {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(error) => {
                send(Ok(std::mem::take(&mut batch)));
                send(Err(error));
                return;
            }
        };
        match line {
            (number, Ok(item)) => {
                batch.bytes += T::bytes(&item);
                batch.items.push(item);
                batch.lines.push(number);
            }
            (number, Err(error)) => batch.bad.push((number, error)),
        }
        batch.input_bytes = reader.bytes;
        let full = batch.items.len() + batch.bad.len() >= BATCH_ITEMS_MAX || batch.bytes >= BATCH_BYTES_MAX;
        if (full || reader.is_drained()) && !send(Ok(std::mem::take(&mut batch))) {
            return;
        }
    }
    send(Ok(batch));
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystone_client::NewMessage;

    #[test]
    fn batches_are_bounded_by_items_and_bytes_and_keep_line_numbers() {
        let mut input: Vec<u8> = Vec::new();
        for n in 0..2_500 {
            input.extend(format!("{{\"id\":\"{n}\"}}\n").bytes());
        }
        input.extend(b"nonsense\n");
        let large = "x".repeat(32 * 1024);
        for n in 0..200 {
            input.extend(format!("{{\"id\":\"large{n}\",\"payload\":\"{large}\"}}\n").bytes());
        }
        let mut batches = Vec::new();
        let length = input.len() as u64;
        read_batches(Reader::new(&input[..]), |batch| {
            batches.push(batch.unwrap() as Batch<NewMessage>);
            true
        });
        assert_eq!(batches.iter().map(|batch| batch.items.len()).sum::<usize>(), 2_700);
        for batch in &batches {
            assert!(batch.items.len() <= BATCH_ITEMS_MAX && batch.bytes < BATCH_BYTES_MAX + 64 * 1024);
            assert_eq!(batch.items.len(), batch.lines.len());
        }
        let lines: Vec<u64> = batches.iter().flat_map(|batch| batch.lines.clone()).collect();
        assert_eq!(lines, (1..=2_701).filter(|n| *n != 2_501).collect::<Vec<_>>());
        assert_eq!(batches.iter().flat_map(|batch| &batch.bad).map(|bad| bad.0).collect::<Vec<_>>(), [2_501]);
        assert_eq!(batches.last().unwrap().input_bytes.max(batches[batches.len() - 2].input_bytes), length);
    }

    #[test]
    fn a_slow_input_is_sent_without_waiting_for_a_full_batch() {
        /// A pipe that returns one line per read.
        struct Trickle(Vec<&'static [u8]>);
        impl Read for Trickle {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let Some(line) = self.0.pop() else { return Ok(0) };
                buffer[..line.len()].copy_from_slice(line);
                Ok(line.len())
            }
        }
        let mut sizes = Vec::new();
        read_batches(Reader::new(Trickle(vec![b"{}\n", b"{}\n"])), |batch| {
            let batch: Batch<NewMessage> = batch.unwrap();
            sizes.push(batch.items.len());
            true
        });
        assert_eq!(sizes, [1, 1, 0]);
    }
}
