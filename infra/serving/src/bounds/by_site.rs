//! Places that are counted by the address from which callers come.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// How many places are taken, of all addresses and of each.
#[derive(Default)]
pub(super) struct BySite {
    all: u64,
    sites: BTreeMap<IpAddr, u64>,
}

impl BySite {
    pub(super) const fn new() -> BySite {
        BySite { all: 0, sites: BTreeMap::new() }
    }

    pub(super) fn all(&self) -> u64 {
        self.all
    }

    pub(super) fn of(&self, site: IpAddr) -> u64 {
        self.sites.get(&site).copied().unwrap_or(0)
    }

    pub(super) fn take(&mut self, site: IpAddr) {
        self.all += 1;
        *self.sites.entry(site).or_default() += 1;
    }

    /// Frees a place that the address has taken.
    pub(super) fn free(&mut self, site: IpAddr) {
        self.all -= 1;
        if let Some(taken) = self.sites.get_mut(&site) {
            *taken -= 1;
            if *taken == 0 {
                self.sites.remove(&site);
            }
        }
    }
}

#[cfg(test)]
impl BySite {
    pub(super) fn is_empty(&self) -> bool {
        self.all == 0 && self.sites.is_empty()
    }
}
