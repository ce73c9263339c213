//! A place in a stream of Redis: the id of an entry.

use std::fmt;

/// The id of an entry: the time at which it was written, by Redis's clock, and a number among those of the same ms. Ids of a
/// stream only rise, also if the clock is set back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Unix ms.
    pub ms: u64,
    /// From 0.
    pub number: u64,
}

impl Position {
    /// Reads `MS-NUMBER`.
    pub(super) fn parse(text: &str) -> Option<Position> {
        let (ms, number) = text.split_once('-')?;
        Some(Position { ms: ms.parse().ok()?, number: number.parse().ok()? })
    }

    /// The least id after it.
    pub(super) fn next(self) -> Position {
        Position { number: self.number + 1, ..self }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.number)
    }
}
