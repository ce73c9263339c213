//! The packed arguments of scripts: filters, indexes, Dequeue requests.

use super::reader::push_short;
use tallystone_model::store::{DequeueRequest, Ticket};
use tallystone_model::{Filter, IndexKeys};

/// Appends the values of an index's keys in a filter: they name the filter's list in the index.
pub fn encode_tuple(filter: &Filter, out: &mut Vec<u8>) {
    for value in filter.pairs().values() {
        push_short(out, value.as_bytes());
    }
}

/// Appends an index of a script's parameters: slot, building, number of names, names.
pub fn encode_index(slot: u8, building: bool, keys: &IndexKeys, out: &mut Vec<u8>) {
    out.extend_from_slice(&[slot, u8::from(building), keys.names().len() as u8]);
    for name in keys.names() {
        push_short(out, name.as_bytes());
    }
}

/// Appends the ticket of a Dequeue call.
pub fn encode_ticket(ticket: &Ticket, out: &mut Vec<u8>) {
    out.extend_from_slice(&ticket.server.to_be_bytes());
    out.push(ticket.slot);
    out.extend_from_slice(&ticket.first.to_be_bytes()[1..]);
    out.extend_from_slice(&ticket.number.to_be_bytes()[1..]);
}

/// Appends a Dequeue request up to its filters. `position`: in the whole call. `limit`: how many more leases it
/// accepts. `payload_bytes`: how many it got in earlier steps of the same call; `None` in the first step.
pub fn encode_request(
    position: usize,
    limit: usize,
    payload_bytes: Option<usize>,
    request: &DequeueRequest,
    filters: usize,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(&(position as u16).to_be_bytes());
    out.extend_from_slice(&(limit as u16).to_be_bytes());
    out.push(u8::from(payload_bytes.is_some()));
    out.extend_from_slice(&(payload_bytes.unwrap_or(0) as u32).to_be_bytes());
    out.extend_from_slice(&(request.lease_ms.unwrap_or(0) as u32).to_be_bytes());
    push_short(out, request.worker.as_bytes());
    push_short(out, request.request_id.as_bytes());
    out.push(filters as u8);
}

/// Appends one of its filters: the position of the index, and the values of the index's keys.
pub fn encode_request_filter(position: u8, tuple: &[u8], out: &mut Vec<u8>) {
    out.push(position);
    out.extend_from_slice(&(tuple.len() as u16).to_be_bytes());
    out.extend_from_slice(tuple);
}
