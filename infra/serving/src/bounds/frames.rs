//! The frames of HTTP/2 in the bytes of a connection: how much data each brings or admits, and which ones reset a call.

/// A length, a type, flags and the number of a stream.
const HEAD_BYTES: usize = 9;
/// The one field of a WINDOW_UPDATE.
const UPDATE_BYTES: usize = 4;
const DATA: u8 = 0;
const RST_STREAM: u8 = 3;
const WINDOW_UPDATE: u8 = 8;

/// A frame that changes how many bytes wait, or that resets a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// One of DATA has come in full, with this length. Before that, no call can read it.
    Data(u32),
    /// A call was reset.
    Reset,
    /// The window of the whole connection grows by this.
    WindowUpdate(u32),
}

/// Finds the frames in the bytes of one direction, however these are cut.
#[derive(Default)]
pub(super) struct Frames {
    /// The begin of a frame.
    begin: [u8; HEAD_BYTES + UPDATE_BYTES],
    begin_bytes: usize,
    /// What is left of the frame behind its begin.
    rest: usize,
    /// The length of the frame, if it is one of DATA that has not come in full.
    data: Option<u32>,
}

impl Frames {
    /// Passes on the frames in the next bytes.
    pub(super) fn note(&mut self, mut bytes: &[u8], mut found: impl FnMut(Frame)) {
        loop {
            bytes = &bytes[skip(&mut self.rest, bytes.len())..];
            if self.rest == 0
                && let Some(length) = self.data.take()
            {
                found(Frame::Data(length));
            }
            if bytes.is_empty() {
                return;
            }
            let wanted = if self.begin_bytes < HEAD_BYTES { HEAD_BYTES } else { self.begin.len() };
            let taken = (wanted - self.begin_bytes).min(bytes.len());
            self.begin[self.begin_bytes..][..taken].copy_from_slice(&bytes[..taken]);
            self.begin_bytes += taken;
            bytes = &bytes[taken..];
            if self.begin_bytes < wanted {
                return;
            }
            let [a, b, c, kind, _flags, stream @ .., u0, u1, u2, u3] = self.begin;
            let length = u32::from_be_bytes([0, a, b, c]);
            if wanted == HEAD_BYTES && kind == WINDOW_UPDATE && stream == [0; 4] && length == UPDATE_BYTES as u32 {
                continue;
            }
            if wanted > HEAD_BYTES {
                found(Frame::WindowUpdate(u32::from_be_bytes([u0, u1, u2, u3]) & (u32::MAX >> 1)));
            } else {
                if kind == RST_STREAM {
                    found(Frame::Reset);
                }
                (self.rest, self.data) = (length as usize, (kind == DATA).then_some(length));
            }
            self.begin_bytes = 0;
        }
    }
}

/// Takes from `rest` at most so many bytes; returns how many.
fn skip(rest: &mut usize, most: usize) -> usize {
    let skipped = most.min(*rest);
    *rest -= skipped;
    skipped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, 1], &stream.to_be_bytes(), payload].concat()
    }

    #[test]
    fn s1_frames_are_found_however_their_bytes_are_cut() {
        const HEADERS: u8 = 1;
        let update = |bytes: u32| bytes.to_be_bytes();
        let all = [
            frame(HEADERS, 1, &[7; 30]),
            frame(DATA, 1, &[DATA; 300]),
            frame(WINDOW_UPDATE, 0, &update(70_000)),
            // Of one stream.
            frame(WINDOW_UPDATE, 1, &update(3)),
            frame(RST_STREAM, 1, &update(8)),
            frame(DATA, 3, &[]),
            frame(WINDOW_UPDATE, 0, &update(1 << 31 | 5)),
            frame(DATA, 3, &[WINDOW_UPDATE; 70_000]),
        ]
        .concat();
        for size in (1..30).chain([100, all.len()]) {
            let (mut frames, mut found) = (Frames::default(), Vec::new());
            all.chunks(size).for_each(|bytes| frames.note(bytes, |frame| found.push(frame)));
            let [update, second] = [70_000, 5].map(Frame::WindowUpdate);
            let expected = [Frame::Data(300), update, Frame::Reset, Frame::Data(0), second, Frame::Data(70_000)];
            assert_eq!(found, expected, "{size}");
        }
    }
}
