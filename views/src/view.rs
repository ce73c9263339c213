//! A view as it is posted, and as it is in the log.

use crate::Refusal;
use jiff::Timestamp;
use serde::Deserialize;
use std::borrow::Cow;

/// The longest id of a video in bytes. A counter is named after it, behind a day.
pub const VIDEO_BYTES_MAX: usize = 100;
/// The longest id of a user in bytes.
pub const USER_BYTES_MAX: usize = 128;
/// Bytes of a view in the log without its names: the timestamp, and the lengths of namespace, video and user.
const HEAD_BYTES: usize = 11;

/// The body of a view.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ViewBody<'a> {
    #[serde(borrow)]
    video_id: Cow<'a, str>,
    #[serde(borrow)]
    user_id: Cow<'a, str>,
    #[serde(borrow)]
    timestamp: Cow<'a, str>,
}

/// A view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View<'a> {
    /// The video's id.
    pub video: Cow<'a, str>,
    /// The user's id.
    pub user: Cow<'a, str>,
    /// When the client says that it happened, in Unix ms. It is kept in the log, and decides nothing.
    pub client_ms: i64,
}

impl<'a> ViewBody<'a> {
    /// Checks each field.
    pub(crate) fn check(self) -> Result<View<'a>, Refusal> {
        check_id("videoId", &self.video_id, VIDEO_BYTES_MAX)?;
        check_id("userId", &self.user_id, USER_BYTES_MAX)?;
        let at = self.timestamp.parse::<Timestamp>();
        let at = at.map_err(|_| {
            Refusal::invalid("timestamp", "is no date and time of RFC 3339, such as 2026-11-25T08:00:00Z")
        })?;
        Ok(View { video: self.video_id, user: self.user_id, client_ms: at.as_millisecond() })
    }
}

/// Checks an id.
pub(crate) fn check_id(field: &'static str, id: &str, bytes_max: usize) -> Result<(), Refusal> {
    let bytes = id.len();
    if !(1..=bytes_max).contains(&bytes) {
        return Err(Refusal::invalid(field, format!("has {bytes} bytes; must have 1 to {bytes_max}")));
    }
    let has_control =
        if id.is_ascii() { id.bytes().any(|byte| byte.is_ascii_control()) } else { id.chars().any(char::is_control) };
    match has_control {
        true => Err(Refusal::invalid(field, "has control characters")),
        false => Ok(()),
    }
}

impl View<'_> {
    /// Its bytes in the log.
    pub(crate) fn bytes(&self, namespace: &str) -> usize {
        HEAD_BYTES + namespace.len() + self.video.len() + self.user.len()
    }

    /// Appends it to an entry of the log.
    pub(crate) fn write(&self, namespace: &str, to: &mut Vec<u8>) {
        let texts = [namespace, &self.video, &self.user];
        to.extend(self.client_ms.to_be_bytes());
        // Checked: each has fewer than 256 bytes.
        to.extend(texts.map(|text| text.len() as u8));
        texts.iter().for_each(|text| to.extend(text.as_bytes()));
    }

    /// Reads the namespace and the view that an entry has next; `None`: it has no more that can be read.
    pub(crate) fn read<'a>(from: &mut &'a [u8]) -> Option<(&'a str, View<'a>)> {
        let (head, mut rest) = from.split_first_chunk::<HEAD_BYTES>()?;
        let (client_ms, lengths) = head.split_first_chunk::<8>()?;
        let mut text = |length: &u8| {
            let (text, after) = rest.split_at_checked(usize::from(*length))?;
            rest = after;
            std::str::from_utf8(text).ok()
        };
        let [namespace, video, user] = lengths else { return None };
        let (namespace, video, user) = (text(namespace)?, text(video)?.into(), text(user)?.into());
        *from = rest;
        Some((namespace, View { video, user, client_ms: i64::from_be_bytes(*client_ms) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str) -> Result<View<'_>, Refusal> {
        serde_json::from_str::<ViewBody<'_>>(json).expect("JSON").check()
    }

    #[test]
    fn v1_views_are_written_and_read() {
        let views = [
            check(r#"{"videoId":"v","userId":"u","timestamp":"2026-11-25T08:00:00.001Z"}"#).unwrap(),
            check(r#"{"videoId":"\u00e9","userId":"a b","timestamp":"1969-12-31T23:59:59+00:00"}"#).unwrap(),
        ];
        let mut entry = Vec::new();
        views.iter().for_each(|view| view.write("n", &mut entry));
        assert_eq!(entry.len(), views.iter().map(|view| view.bytes("n")).sum::<usize>());
        let mut from = &entry[..];
        let read: Vec<_> = std::iter::from_fn(|| View::read(&mut from)).collect();
        assert_eq!(read, views.map(|view| ("n", view)));
        assert!(from.is_empty());
        assert_eq!(View::read(&mut &entry[..HEAD_BYTES + 2]), None);
    }

    #[test]
    fn v1_a_bad_field_is_named() {
        let long = "x".repeat(VIDEO_BYTES_MAX + 1);
        for (field, video, user, timestamp) in [
            ("videoId", "", "u", "2026-11-25T08:00:00Z"),
            ("videoId", &long, "u", "2026-11-25T08:00:00Z"),
            ("userId", "v", "a\\u0000b", "2026-11-25T08:00:00Z"),
            ("timestamp", "v", "u", "yesterday"),
            ("timestamp", "v", "u", "2026-11-25"),
        ] {
            let json = format!(r#"{{"videoId":"{video}","userId":"{user}","timestamp":"{timestamp}"}}"#);
            assert!(matches!(check(&json), Err(Refusal::Invalid { field: found, .. }) if found == field), "{json}");
        }
    }
}
