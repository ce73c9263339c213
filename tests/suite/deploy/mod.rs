//! The packages, and the page that says how to install them (O7).
//!
//! What lives here: the commands of `docs/deploy.md`, run as they are written, and checks of the files in `deploy/` that need
//! no container engine. What may not: tests that need one, which are in `containers`.

mod files;
mod page;
