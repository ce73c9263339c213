//! Which node of a Redis Cluster has a slot (Q17; decision 0084).

use crate::nodes::NodeAccess;
use crate::topology::{Claimed, TopologyNode};
use redis::{ErrorKind, RedisError, RedisResult, Value, from_redis_value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

/// Nodes that are queried at once, in addition to those of the address.
const QUERIED_MAX: usize = 16;

/// A Redis Cluster. One serves all slots of a process.
pub(crate) struct Cluster {
    /// The nodes of the address.
    seeds: Vec<Arc<TopologyNode>>,
    access: Arc<NodeAccess>,
    view: Mutex<View>,
}

type Address = (String, u16);

/// What the nodes have said last.
#[derive(Default)]
struct View {
    read_at: Option<Instant>,
    /// The primaries that they have named, without those of the address.
    primaries: BTreeMap<Address, Arc<TopologyNode>>,
    claims: Vec<Claim>,
    moves: BTreeSet<Move>,
    /// The slots that this process uses.
    used: BTreeSet<u16>,
}

/// A slot that a node is giving to another one, or gets from it, key by key. Each says so only of itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Move {
    slot: u16,
    /// `MIGRATING` or `IMPORTING`.
    how: &'static str,
    address: Address,
}

/// What one node knows.
#[derive(Default)]
struct Knowledge {
    claims: Vec<Claim>,
    moves: Vec<Move>,
}

/// A primary that has slots, as one node knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    /// Inclusive.
    from: u16,
    to: u16,
    /// The configuration epoch of the primary: it grows with each failover and each move of a slot.
    epoch: u64,
    address: Address,
}

impl Cluster {
    pub(crate) fn new(seeds: Vec<TopologyNode>, access: Arc<NodeAccess>) -> Cluster {
        Cluster { seeds: seeds.into_iter().map(Arc::new).collect(), access, view: Mutex::default() }
    }

    /// How its nodes are reached.
    pub(crate) fn access(&self) -> &NodeAccess {
        &self.access
    }

    /// The primary that has a slot, by answers that are no older than `age_max`. Nodes may disagree: the
    /// claim of the greatest epoch is the latest.
    ///
    /// # Errors
    /// No node answers, or none knows who has the slot.
    pub(crate) async fn primary(&self, slot: u16, age_max: Duration) -> RedisResult<Claimed> {
        let arrived = Instant::now();
        let mut view = self.view.lock().await;
        view.used.insert(slot);
        // A caller that waited for an answer takes it.
        let is_new = |at: Instant| at > arrived || at.elapsed() <= age_max;
        if !view.read_at.is_some_and(is_new) {
            self.read(&mut view).await?;
        }
        let claims = view.claims.iter().filter(|claim| (claim.from..=claim.to).contains(&slot));
        let Some(Claim { epoch, address: (host, port), .. }) = claims.max_by_key(|claim| claim.epoch) else {
            let what = "no node of the Redis Cluster has this slot";
            return Err(RedisError::from((ErrorKind::Io, what, slot.to_string())));
        };
        Ok(Claimed { host: host.clone(), port: *port, epoch: *epoch })
    }

    async fn read(&self, view: &mut View) -> RedisResult<()> {
        let mut reads = JoinSet::new();
        for node in self.seeds.iter().chain(view.primaries.values().take(QUERIED_MAX)) {
            let node = Arc::clone(node);
            reads.spawn(async move {
                let answer = node.query(redis::cmd("CLUSTER").arg("NODES")).await?;
                knowledge(answer, node.host())
            });
        }
        let (mut found, mut moves, mut failures) = (Vec::new(), BTreeSet::new(), Vec::new());
        while let Some(answer) = reads.join_next().await {
            match answer {
                Ok(Ok(known)) => {
                    found.extend(known.claims);
                    moves.extend(known.moves);
                }
                Ok(Err(why)) => failures.push(why),
                Err(panic) => failures.push(panic.to_string()),
            }
        }
        if found.is_empty() {
            let what = "no node of the Redis Cluster names its primaries";
            return Err(RedisError::from((ErrorKind::Io, what, failures.join("; "))));
        }
        let mut primaries = BTreeMap::new();
        for Claim { address, .. } in &found {
            if self.seeds.iter().any(|seed| seed.is_at(address)) {
                continue;
            }
            if let Some(known) = view.primaries.get(address) {
                primaries.insert(address.clone(), known.clone());
            } else {
                primaries
                    .insert(address.clone(), Arc::new(TopologyNode::new(self.access.at(address.0.clone(), address.1))));
            }
        }
        let used = std::mem::take(&mut view.used);
        moves.retain(|Move { slot, .. }| used.contains(slot));
        for Move { slot, how, address: (host, port) } in moves.difference(&view.moves) {
            tracing::warn!(
                slot,
                node = format!("{host}:{port}"),
                "a slot with our keys is {how}: calls about them are refused until the move has ended"
            );
        }
        *view = View { read_at: Some(Instant::now()), primaries, claims: found, moves, used };
        Ok(())
    }
}

/// What an answer to CLUSTER NODES says. A node that no other has met does not know its own host: it is that of the question.
fn knowledge(answer: Value, queried_host: &str) -> Result<Knowledge, String> {
    let text: String = from_redis_value(answer).map_err(|error| error.to_string())?;
    let mut known = Knowledge::default();
    for line in text.lines() {
        let Some((address, epoch, slots)) = primary_of(line, queried_host) else { continue };
        for slots in slots {
            if let Some(moved) = slots.strip_prefix('[') {
                known.moves.extend(move_of(moved, &address));
            } else {
                let (from, to) = slots.split_once('-').unwrap_or((slots, slots));
                if let (Ok(from), Ok(to)) = (from.parse(), to.parse()) {
                    known.claims.push(Claim { from, to, epoch, address: address.clone() });
                }
            }
        }
    }
    Ok(known)
}

/// `ID HOST:PORT@BUS[,NAME] FLAGS PRIMARY PING PONG EPOCH LINK SLOT…`: the address, the epoch and the slots of a primary.
fn primary_of<'a>(line: &'a str, queried_host: &str) -> Option<(Address, u64, Vec<&'a str>)> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, address, flags, _, _, _, epoch, _, slots @ ..] = words.as_slice() else { return None };
    if !flags.split(',').any(|flag| flag == "master") {
        return None;
    }
    let (host, port) = address.split('@').next()?.rsplit_once(':')?;
    let host = if host.is_empty() { queried_host } else { host };
    Some(((host.to_owned(), port.parse().ok()?), epoch.parse().ok()?, slots.to_vec()))
}

/// `SLOT->-ID]` or `SLOT-<-ID]`.
fn move_of(text: &str, address: &Address) -> Option<Move> {
    let (slot, how) = match text.split_once("->-") {
        Some((slot, _)) => (slot, "MIGRATING"),
        None => (text.split_once("-<-")?.0, "IMPORTING"),
    };
    Some(Move { slot: slot.parse().ok()?, how, address: address.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q17_claims_are_read_from_what_a_node_knows() {
        let answer = "\
            07c3 127.0.0.1:30004@31004,name slave e7d1 0 1426238317239 4 connected\n\
            67ed :30002@31002 myself,master - 0 1426238316232 2 connected 5461-10922 [93->-292f] [7-<-e7d1]\n\
            e7d1 ::1:30001@31001 master,fail - 0 0 9 connected 0-100 5460\n";
        let known = knowledge(Value::BulkString(answer.as_bytes().to_vec()), "queried").expect("an answer");
        let claim = |from, to, epoch, host: &str, port| Claim { from, to, epoch, address: (host.to_owned(), port) };
        let expected = [
            claim(5_461, 10_922, 2, "queried", 30_002),
            claim(0, 100, 9, "::1", 30_001),
            claim(5_460, 5_460, 9, "::1", 30_001),
        ];
        assert_eq!(known.claims, expected);
        let moves = [(93, "MIGRATING"), (7, "IMPORTING")];
        assert_eq!(known.moves, moves.map(|(slot, how)| Move { slot, how, address: ("queried".to_owned(), 30_002) }));
    }
}
