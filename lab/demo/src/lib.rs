//! The demos: jobs on real data that show the queue and the counters at work, and check what they see.
//!
//! What lives here: the jobs, their data (`data/`), and the server that a demo starts when none is named. A job uses the
//! queue and the counters only through their clients, as any program would. What may not live here: anything that the
//! product needs to run. The command line parses the arguments and prints the report.

mod flights;
mod own_server;

pub use flights::{
    CounterServices, DrawTrace, FlightsArgs, FlightsOptions, FlightsReport, history_caught_up, run_flights,
};
pub use own_server::OwnServer;
