//! How many elements the lists of a message have, before it is decoded: an empty element takes two bytes of a message, and more than
//! a hundred of memory.

use prost::bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// The elements of one message, in all its lists and in those of its elements. A stream may take a thousand calls in one message.
pub(super) const ELEMENTS_MAX: usize = 100_000;
/// The least bytes of an element.
const ELEMENT_BYTES_MIN: usize = 2;
/// The decoder refuses messages that nest more deeply.
const DEPTH_MAX: usize = 100;

/// Where each message has lists.
pub(super) struct Shapes(pub(super) Vec<Shape>);

/// The fields of a message that take memory for each element, by number.
pub(super) struct Shape(pub(super) Vec<(u32, Field)>);

/// Such a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field {
    /// One message or a list of them, with the shape of each if it is known.
    Message { is_list: bool, shape: Option<usize> },
    /// Strings or bytes.
    Texts,
    /// Numbers, one by one or packed.
    Numbers,
}

impl Shapes {
    /// Whether a message of this shape has more elements than [`ELEMENTS_MAX`]. One that is malformed must be refused, too: the decoder
    /// takes elements beyond the end of the message that has them, and refuses them only then.
    pub(super) fn count(&self, input: usize, message: &[u8]) -> Count {
        if message.len() <= ELEMENTS_MAX * ELEMENT_BYTES_MIN {
            return Count::Fits;
        }
        let mut left = ELEMENTS_MAX;
        self.count_within(input, message, DEPTH_MAX, &mut left)
    }

    fn count_within(&self, shape: usize, mut message: &[u8], depth: usize, left: &mut usize) -> Count {
        let Shape(fields) = &self.0[shape];
        while !message.is_empty() {
            let Ok((number, wire_type)) = decode_key(&mut message) else { return Count::Malformed };
            let field = fields.iter().find(|(of, _)| *of == number).map(|(_, field)| *field);
            let (elements, inner) = match (field, wire_type) {
                (Some(field), WireType::LengthDelimited) => {
                    let Some(value) = take(&mut message) else { return Count::Malformed };
                    match field {
                        Field::Message { is_list, shape } => (usize::from(is_list), shape.map(|shape| (shape, value))),
                        Field::Texts => (1, None),
                        Field::Numbers => (value.len(), None),
                    }
                }
                (field, wire_type) => {
                    if skip_field(wire_type, number, &mut message, DecodeContext::default()).is_err() {
                        return Count::Malformed;
                    }
                    (usize::from(field.is_some()), None)
                }
            };
            let Some(rest) = left.checked_sub(elements) else { return Count::TooMany };
            *left = rest;
            if let Some((shape, value)) = inner {
                if depth == 0 {
                    return Count::Malformed;
                }
                match self.count_within(shape, value, depth - 1, left) {
                    Count::Fits => {}
                    found => return found,
                }
            }
        }
        Count::Fits
    }
}

/// What a message has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    Fits,
    TooMany,
    Malformed,
}

/// The bytes of a field with a length.
fn take<'a>(message: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(decode_varint(message).ok()?).ok()?;
    let value = message.get(..length)?;
    message.advance(length);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::super::methods::Methods;
    use super::*;
    use tallystone_proto::counter::v1::{AddCount, AddCountsRequest, GetCountsRequest};
    use tallystone_proto::history::v1::SearchMessagesRequest;
    use tallystone_proto::queue::v1::{EnqueueCall, EnqueueRequest, EnqueueStreamRequest, NewMessage};

    fn has_too_many(path: &str, message: &impl prost::Message) -> bool {
        let methods = Methods::new();
        let input = methods.of(path).expect(path).input;
        match methods.shapes.count(input, &message.encode_to_vec()) {
            Count::Malformed => panic!("it is well-formed"),
            count => count == Count::TooMany,
        }
    }

    fn calls(calls: usize, messages: usize) -> EnqueueStreamRequest {
        let request = EnqueueRequest { queue: "q".to_owned(), messages: vec![NewMessage::default(); messages] };
        let call = EnqueueCall { request: Some(request), number: 7, ..EnqueueCall::default() };
        EnqueueStreamRequest { calls: vec![call; calls], canceled: Vec::new() }
    }

    #[test]
    fn s1_elements_of_all_lists_count_together() {
        let path = "/tallystone.queue.v1.Queue/EnqueueStream";
        // Each call is an element, too.
        assert!(!has_too_many(path, &calls(1_000, 99)));
        assert!(has_too_many(path, &calls(1_000, 100)));
        let path = "/tallystone.queue.v1.Queue/Enqueue";
        let of = |count| EnqueueRequest { messages: vec![NewMessage::default(); count], ..EnqueueRequest::default() };
        assert!(!has_too_many(path, &of(ELEMENTS_MAX)) && has_too_many(path, &of(ELEMENTS_MAX + 1)));
        let path = "/tallystone.counter.v1.Counters/AddCounts";
        let of = |count| AddCountsRequest { adds: vec![AddCount::default(); count], ..AddCountsRequest::default() };
        assert!(!has_too_many(path, &of(ELEMENTS_MAX)) && has_too_many(path, &of(ELEMENTS_MAX + 1)));
        let path = "/tallystone.counter.v1.Counters/GetCounts";
        let of = |count| GetCountsRequest { counters: vec![String::new(); count], ..GetCountsRequest::default() };
        assert!(!has_too_many(path, &of(ELEMENTS_MAX)) && has_too_many(path, &of(ELEMENTS_MAX + 1)));
    }

    #[test]
    fn s1_packed_numbers_count_each_and_large_values_once() {
        let path = "/tallystone.history.v1.History/SearchMessages";
        let of = |count| SearchMessagesRequest { states: vec![1; count], ..SearchMessagesRequest::default() };
        assert!(has_too_many(path, &of(3 * ELEMENTS_MAX)));
        let path = "/tallystone.queue.v1.Queue/Enqueue";
        let large = NewMessage { payload: vec![0; 30_000].into(), ..NewMessage::default() };
        assert!(!has_too_many(path, &EnqueueRequest { messages: vec![large; 100], ..EnqueueRequest::default() }));
    }

    #[test]
    fn s1_malformed_messages_are_refused() {
        let methods = Methods::new();
        let count = |method: &str, message: &[u8]| {
            methods
                .shapes
                .count(methods.of(&format!("/tallystone.queue.v1.Queue/{method}")).expect("a method").input, message)
        };
        // The last is a group in a group …
        for byte in [0x00, 0x07, 0xff, 0x0b] {
            assert_eq!(count("Enqueue", &vec![byte; 4 * ELEMENTS_MAX]), Count::Malformed, "{byte}");
        }
        // A call of five bytes whose request has all that follows: the decoder would read its messages first.
        let messages = [0x12, 0].repeat(2 * ELEMENTS_MAX);
        let length = [
            0x80 | messages.len() as u8 & 0x7f,
            0x80 | (messages.len() >> 7) as u8,
            0x80 | (messages.len() >> 14) as u8,
            0,
        ];
        let call = [&[0x0a, 5, 0x12][..], &length, &messages].concat();
        assert_eq!(count("EnqueueStream", &call), Count::Malformed);
    }
}
