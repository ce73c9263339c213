//! Message ids as stored.

use super::reader::Unreadable;
use tallystone_model::MessageId;

/// Appends an id as stored. A canonical UUID, the most common id, takes 17 bytes instead of 36, three times for each
/// message. Its first byte is zero, which no other id starts with, because ids have no control characters.
pub fn encode_id(id: &MessageId, out: &mut Vec<u8>) {
    let text = id.as_str().as_bytes();
    // Only the canonical form is shortened: otherwise two ids could have the same bytes.
    if text.len() == 36
        && text[8] == b'-'
        && let Ok(uuid) = uuid::Uuid::try_parse_ascii(text)
        && uuid.hyphenated().encode_lower(&mut [0; 36]).as_bytes() == text
    {
        out.push(0);
        out.extend_from_slice(uuid.as_bytes());
        return;
    }
    out.extend_from_slice(text);
}

/// The bytes of a stored id.
pub fn stored_id(id: &MessageId) -> Vec<u8> {
    let mut out = Vec::with_capacity(id.as_str().len());
    encode_id(id, &mut out);
    out
}

/// The id of stored bytes.
pub fn decode_id(stored: &[u8]) -> Result<MessageId, Unreadable> {
    let text = match stored {
        [0, uuid @ ..] => uuid::Uuid::from_slice(uuid).map_err(|_| Unreadable("id"))?.to_string(),
        text => String::from_utf8(text.to_vec()).map_err(|_| Unreadable("id"))?,
    };
    MessageId::parse("id", text).map_err(|_| Unreadable("id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> MessageId {
        MessageId::parse("id", text).unwrap()
    }

    #[test]
    fn q3_ids_survive_storage_and_uuids_are_short() {
        let stored = |text: &str| {
            let mut out = Vec::new();
            encode_id(&id(text), &mut out);
            assert_eq!(decode_id(&out), Ok(id(text)));
            out.len()
        };
        assert_eq!(stored("0190163d-8694-739b-aea5-966c26f8ad91"), 17);
        assert_eq!(stored("0190163D-8694-739B-AEA5-966C26F8AD91"), 36, "not the canonical form: stored unchanged");
        assert_eq!(stored("0190163d-8694-739b-aea5-966c26f8adzz"), 36);
        assert_eq!(stored("ü/1"), 4);
    }
}
