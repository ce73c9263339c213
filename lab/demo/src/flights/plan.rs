//! The accepted flights, which the workers must fly. The checks compare the workers' log with this plan.

use super::flight::Flight;
use anyhow::Result;
use std::collections::HashMap;

/// Numbers of flights, in the order in which they were accepted; per aircraft that is the order of the file.
pub(super) type FlightNo = u32;

/// The flights accepted.
#[derive(Default)]
pub(super) struct Plan {
    numbers: HashMap<String, FlightNo>,
    pub(super) flights: Vec<Planned>,
    pub(super) aircraft: Names,
    pub(super) carriers: Names,
    pub(super) origins: Names,
    pub(super) dests: Names,
}

/// One accepted flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) departure_ms: i64,
    pub(super) aircraft: u32,
    pub(super) carrier: u32,
    pub(super) origin: u32,
    pub(super) dest: u32,
}

/// Names and their numbers.
#[derive(Default)]
pub(super) struct Names {
    numbers: HashMap<String, u32>,
    names: Vec<String>,
}

impl Names {
    pub(super) fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.numbers.insert(name.to_owned(), number);
        self.names.push(name.to_owned());
        number
    }

    pub(super) fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("?", String::as_str)
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }
}

impl Plan {
    /// Adds an accepted flight; false: a row with this id was accepted before, and is the same message.
    pub(super) fn accept(&mut self, flight: &Flight) -> Result<bool> {
        let number = FlightNo::try_from(self.flights.len())?;
        if let std::collections::hash_map::Entry::Vacant(vacant) = self.numbers.entry(flight.id()) {
            vacant.insert(number);
        } else {
            return Ok(false);
        }
        self.flights.push(Planned {
            departure_ms: flight.departure_ms()?,
            aircraft: self.aircraft.number(&flight.tailnum),
            carrier: self.carriers.number(&flight.carrier),
            origin: self.origins.number(&flight.origin),
            dest: self.dests.number(&flight.dest),
        });
        Ok(true)
    }

    /// The number of a message's id; `None`: the demo did not enqueue it.
    pub(super) fn number(&self, id: &str) -> Option<FlightNo> {
        self.numbers.get(id).copied()
    }

    /// The ids by number.
    pub(super) fn ids(&self) -> Vec<&str> {
        let mut ids = vec![""; self.flights.len()];
        for (id, number) in &self.numbers {
            ids[*number as usize] = id;
        }
        ids
    }
}
