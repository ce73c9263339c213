//! The image, the files of Compose and Kubernetes, services as containers, and faults of networks and nodes, with a real
//! container engine.
//!
//! What lives here: tests that `./test --containers` runs, after `scripts/containers.sh`. They are ignored otherwise. What may
//! not: whatever a process on this machine can show.

mod compose;
mod engine;
mod faults;
mod image;
mod kubernetes;
mod partition;
mod rolling;
mod services;
mod units;
mod view;
