//! The rows of the file, and the messages they become.

use anyhow::{Context, Result};
use flate2::read::MultiGzDecoder;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use tallystone_client::NewMessage;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// January 2013, as it comes with the program.
const EMBEDDED: &[u8] = include_bytes!("../../data/flights-2013-01.csv.gz");
/// The exclusivity key, the aircraft's tail number: no two running flights share a value.
pub(super) const TAIL: &str = "tail";

/// One row: a flight as it was scheduled, and what happened to it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Flight {
    pub(super) sched_dep_utc: String,
    pub(super) carrier: String,
    pub(super) flight: String,
    /// Empty: missing in the source. Such a row is sent, too, and the queue refuses it.
    pub(super) tailnum: String,
    pub(super) origin: String,
    pub(super) dest: String,
    pub(super) dep_delay: Option<i32>,
    pub(super) air_time: Option<i32>,
    pub(super) distance: Option<i32>,
}

impl Flight {
    /// `<sched_dep_utc>/<carrier><flight>/<origin>`.
    pub(super) fn id(&self) -> String {
        format!("{}/{}{}/{}", self.sched_dep_utc, self.carrier, self.flight, self.origin)
    }

    /// The scheduled departure, Unix ms: the flight's priority.
    pub(super) fn departure_ms(&self) -> Result<i64> {
        let departure = OffsetDateTime::parse(&self.sched_dep_utc, &Rfc3339).with_context(|| {
            format!("sched_dep_utc {:?} is not a time such as 2013-01-01T10:15:00Z", self.sched_dep_utc)
        })?;
        Ok(departure.unix_timestamp() * 1_000)
    }

    /// The message: the row as JSON, ordered by departure, one at a time per aircraft.
    pub(super) fn message(&self) -> Result<NewMessage> {
        let pairs = [(TAIL, &self.tailnum), ("origin", &self.origin), ("dest", &self.dest), ("carrier", &self.carrier)];
        let message = NewMessage::new(self.id(), serde_json::to_vec(self)?).priority(self.departure_ms()?);
        // Metadata has no empty values: what is missing in the source is missing here.
        let known = pairs.into_iter().filter(|(_, value)| !value.is_empty());
        Ok(known.fold(message, |message, (key, value)| message.metadata(key, value)))
    }
}

/// Reads a CSV file, gzipped or not, or the embedded one, row by row.
pub(super) fn read(file: Option<&Path>) -> Result<impl Iterator<Item = Result<Flight>> + use<>> {
    let (name, bytes): (String, Box<dyn Read + Send>) = match file {
        None => ("the embedded file".to_owned(), Box::new(EMBEDDED)),
        Some(path) => {
            let open = std::fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
            (path.display().to_string(), Box::new(open))
        }
    };
    let mut bytes = BufReader::with_capacity(256 * 1024, bytes);
    let gzipped = bytes.fill_buf().with_context(|| format!("cannot read {name}"))?.starts_with(&[0x1f, 0x8b]);
    let text: Box<dyn Read + Send> = if gzipped { Box::new(MultiGzDecoder::new(bytes)) } else { Box::new(bytes) };
    let rows = csv::Reader::from_reader(text).into_deserialize();
    // The header is line 1.
    Ok(rows.zip(2..).map(move |(row, line)| row.with_context(|| format!("{name}, line {line}: not a flight"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_month_has_27004_flights_155_without_an_aircraft() {
        let flights: Vec<Flight> = read(None).unwrap().collect::<Result<_>>().unwrap();
        assert_eq!(flights.len(), 27_004);
        assert_eq!(flights.iter().filter(|flight| flight.tailnum.is_empty()).count(), 155);
        let ids: std::collections::HashSet<String> = flights.iter().map(Flight::id).collect();
        assert_eq!(ids.len(), flights.len(), "ids are unique");
    }

    #[test]
    fn a_row_becomes_a_message() {
        let first = read(None).unwrap().next().unwrap().unwrap();
        let message = first.message().unwrap();
        assert_eq!((message.id.as_str(), message.priority), ("2013-01-01T10:15:00Z/UA1545/EWR", 1_357_035_300_000));
        let pairs: Vec<&str> = message.metadata.values().map(String::as_str).collect();
        assert_eq!(pairs, ["UA", "IAH", "EWR", "N14228"]);
        let without = Flight { tailnum: String::new(), ..first };
        assert_eq!(without.message().unwrap().metadata.len(), 3);
    }

    #[test]
    fn a_row_that_is_no_flight_is_named() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let header = "sched_dep_utc,carrier,flight,tailnum,origin,dest,dep_delay,air_time,distance";
        std::io::Write::write_all(&mut file, format!("{header}\nnoon,UA,1,N1,EWR,IAH,x,,\n").as_bytes()).unwrap();
        let error = read(Some(file.path())).unwrap().next().unwrap().unwrap_err();
        assert!(format!("{error:#}").contains("line 2"), "{error:#}");
    }
}
