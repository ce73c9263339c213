//! The servers of a client: one connection to each, and the one that gets the next call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The servers of a client by number, and the one that calls go to.
#[derive(Debug)]
pub(crate) struct Servers {
    count: usize,
    preferred: AtomicUsize,
}

impl Servers {
    /// `count` servers, of which calls go to `preferred` first.
    pub(crate) fn new(count: usize, preferred: usize) -> Servers {
        Servers { count, preferred: AtomicUsize::new(preferred) }
    }

    /// The server that gets the next call.
    pub(crate) fn preferred(&self) -> usize {
        self.preferred.load(Ordering::Relaxed)
    }

    /// The server after this one, in a circle.
    pub(crate) fn next_of(&self, server: usize) -> usize {
        (server + 1) % self.count
    }

    /// Calls go to `better` from now on, unless another call has moved them away from `server` already: many calls that
    /// fail together make one step.
    pub(crate) fn replace_preferred(&self, server: usize, better: usize) {
        let _ = self.preferred.compare_exchange(server, better, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// A service of the generated code, on each server.
#[derive(Clone, Debug)]
pub(crate) struct OnEach<S>(Arc<[S]>);

impl<S: Clone> OnEach<S> {
    /// One for each connection.
    pub(crate) fn new<C: Clone>(connections: &[C], service: impl Fn(C) -> S) -> OnEach<S> {
        OnEach(connections.iter().cloned().map(service).collect())
    }

    /// The one on the server of this number.
    pub(crate) fn on(&self, server: usize) -> S {
        self.0[server].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_fail_together_make_one_step() {
        let servers = Servers::new(3, 2);
        for _ in 0..5 {
            servers.replace_preferred(2, servers.next_of(2));
        }
        assert_eq!(servers.preferred(), 0);
        servers.replace_preferred(0, 1);
        assert_eq!(servers.preferred(), 1);
    }
}
