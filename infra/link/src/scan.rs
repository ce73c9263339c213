//! Walks over a set, a hash or all keys of a Redis by several calls (SCAN, SSCAN, HSCAN, ZSCAN).
//!
//! Each process of Redis places members by a secret that it draws at its start. A cursor of an earlier process, or of another
//! node, would skip members. So a position also has the timeline of the Redis that gave it: on another one, the walk begins
//! again. Some members are then found twice, as in any such walk, and none is missed.

use crate::timeline::Timeline;

/// Where a walk continues; the default: at its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanPosition {
    cursor: u64,
    timeline: Timeline,
}

impl ScanPosition {
    /// The position that this text has, see its `Display`.
    pub fn parse(text: &str) -> Option<ScanPosition> {
        // Earlier versions gave the cursor alone.
        let (cursor, timeline) = text.split_once('-').unwrap_or((text, "0"));
        Some(ScanPosition { cursor: cursor.parse().ok()?, timeline: Timeline(timeline.parse().ok()?) })
    }

    /// The cursor of the next call, on this timeline.
    pub(crate) fn cursor_on(self, timeline: Timeline) -> u64 {
        if self.timeline == timeline { self.cursor } else { 0 }
    }

    /// Where the walk continues after this reply to a call; `None`: this was the last one.
    pub(crate) fn after(timeline: Timeline, cursor: u64) -> Option<ScanPosition> {
        (cursor != 0).then_some(ScanPosition { cursor, timeline })
    }
}

impl std::fmt::Display for ScanPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.cursor, self.timeline.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_holds_on_one_timeline() {
        let position = ScanPosition::after(Timeline(7), 96).expect("the walk goes on");
        assert_eq!((position.cursor_on(Timeline(7)), position.cursor_on(Timeline(8))), (96, 0));
        assert_eq!(ScanPosition::parse(&position.to_string()), Some(position));
        assert_eq!(ScanPosition::parse("96").map(|earlier| earlier.cursor_on(Timeline(7))), Some(0));
        assert_eq!(ScanPosition::after(Timeline(7), 0), None);
        for bad in ["", "-", "96-", "-7", "x-7", "96-7-7"] {
            assert_eq!(ScanPosition::parse(bad), None, "{bad}");
        }
    }
}
