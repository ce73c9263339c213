//! The Rust side of the packed records. `lib/record.lua` and `lib/event.lua` draw the layouts.
//!
//! What lives here: one file for each kind of record. What may not: keys, and calls of scripts.

mod attempts;
mod content;
mod event;
mod head;
mod id;
mod message;
mod reader;
mod request;
mod state;

pub use content::{encode_content, encode_priority, read_priority};
pub use event::{decode_events, decode_timeline_mark};
pub use id::{decode_id, encode_id, stored_id};
pub use message::{decode_holder, decode_lease, decode_message};
pub use reader::Unreadable;
pub use request::{encode_index, encode_request, encode_request_filter, encode_ticket, encode_tuple};
pub use state::{ShardMarks, ShardState, decode_marks, decode_state};

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn rubbish_is_refused() {
        for rubbish in [&b""[..], b"\x03", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"] {
            assert!(decode_lease(b"x", rubbish, &Bytes::copy_from_slice(rubbish), 1).is_err());
            assert!(decode_state(rubbish).is_err());
        }
        assert!(decode_events(0, b"\x09\x00\x01").is_err());
        for no_mark in [&b""[..], b"\xff", b"\xff\x00\x00\x00\x00\x00\x00", b"\x00\x01\x02\x03\x04\x05\x06\x07"] {
            assert_eq!(decode_timeline_mark(no_mark), None);
        }
        assert_eq!(decode_timeline_mark(b"\xff\x00\x00\x00\x00\x00\x01\x02"), Some(258));
    }
}
