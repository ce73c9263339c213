//! The metrics of the bounds.

use ::metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};

const CONNECTIONS: &str = "tallystone_connections";
const REFUSED: &str = "tallystone_connections_refused_total";
const CLOSED: &str = "tallystone_connections_closed_total";
const UNFINISHED: &str = "tallystone_unfinished_request_bytes";
const REQUESTS_REFUSED: &str = "tallystone_unfinished_requests_refused_total";
const CALLS: &str = "tallystone_open_calls";
const FULL: &str = "tallystone_connections_full_total";
const UNREAD: &str = "tallystone_unread_answer_bytes";
const ANSWERS_REFUSED: &str = "tallystone_unread_answers_refused_total";
const UNREAD_REQUESTS: &str = "tallystone_unread_request_bytes";
const PAUSES: &str = "tallystone_unread_request_pauses_total";
const REQUEST_STREAMS: &str = "tallystone_request_streams";
const REQUEST_STREAMS_REFUSED: &str = "tallystone_request_streams_refused_total";
const STREAMS: &str = "tallystone_health_streams";
const STREAMS_REFUSED: &str = "tallystone_health_streams_refused_total";

/// Why a connection is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The port has `connections_max`.
    Connections,
    /// The address has `peer_connections_max`.
    PeerConnections,
    /// The process can open no more files.
    Files,
}

impl Refused {
    pub(super) fn name(self) -> &'static str {
        match self {
            Refused::Connections => "connections_max",
            Refused::PeerConnections => "peer_connections_max",
            Refused::Files => "open_files",
        }
    }
}

/// Why a connection is closed before its caller closes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// No bytes came within `first_bytes_ms`, with TLS none behind the handshake.
    Silent,
    /// It had made no request, and another one needed its place.
    Evicted,
    /// The TLS handshake has failed.
    Handshake,
    /// The head of a request over HTTP/1 was too large.
    HeadTooLarge,
    /// The head of a request over HTTP/1 was not there in full within `request_ms`.
    HeadTooSlow,
    /// Bytes of its answers were unread for `answer_ms`, or it took no bytes at all for as long.
    UnreadTooLong,
    /// The process had `unread_bytes_max`, and its bytes were unread for the longest time.
    UnreadTooMuch,
    /// The process held more than half of `unread_request_bytes_max`, and no call has read the connection's requests for
    /// `request_ms`; or it held more than the bound for `request_ms`.
    RequestsUnread,
}

impl Closed {
    fn name(self) -> &'static str {
        match self {
            Closed::Silent => "silent",
            Closed::Evicted => "evicted",
            Closed::Handshake => "handshake",
            Closed::HeadTooLarge => "head_too_large",
            Closed::HeadTooSlow => "head_too_slow",
            Closed::UnreadTooLong => "unread_too_long",
            Closed::UnreadTooMuch => "unread_too_much",
            Closed::RequestsUnread => "requests_unread",
        }
    }
}

/// The metrics that change often.
pub(super) struct Metrics {
    pub(super) connections: Gauge,
    pub(super) unfinished: Gauge,
    pub(super) calls: Gauge,
    pub(super) streams: Gauge,
    pub(super) unread: Gauge,
    pub(super) unread_requests: Gauge,
    /// Connections that have as many open calls as they may have.
    pub(super) full: Counter,
}

impl Metrics {
    pub(super) fn new() -> Metrics {
        describe_gauge!(CONNECTIONS, "open connections");
        describe_counter!(REFUSED, "connections that were closed at once, by the limit that was reached");
        describe_counter!(CLOSED, "connections that the server closed: they made no request, or did not read answers");
        describe_gauge!(UNFINISHED, "bytes of requests that have not arrived in full");
        describe_counter!(REQUESTS_REFUSED, "requests that were refused before they had arrived in full");
        describe_gauge!(CALLS, "calls that have begun, and whose answers have not ended");
        describe_counter!(
            FULL,
            "how often a connection had as many open calls as limits.connection_streams_max admits"
        );
        describe_gauge!(
            UNREAD,
            "bytes of answers that the transport has and their callers have not taken, 4096 for each of their frames, and 1024 for each call that was reset while its connection had no room for answers"
        );
        describe_counter!(ANSWERS_REFUSED, "answers that ended because their connection had too many unread bytes");
        describe_gauge!(UNREAD_REQUESTS, "bytes of requests over HTTP/2 that have arrived and that no call has read");
        describe_counter!(PAUSES, "how often a connection was not read because the process had too many such bytes");
        describe_gauge!(REQUEST_STREAMS, "open streams of requests, such as Work");
        describe_counter!(REQUEST_STREAMS_REFUSED, "such streams that were refused by limits.streams_max");
        // So that the first refusal is a rise, which alerts see.
        for limit in [Refused::Connections, Refused::PeerConnections, Refused::Files] {
            counter!(REFUSED, "reason" => limit.name()).absolute(0);
        }
        for reason in ["too_slow", "too_many_bytes", "too_many_elements", "too_many_requests"] {
            counter!(REQUESTS_REFUSED, "reason" => reason).absolute(0);
        }
        for why in [
            Closed::Silent,
            Closed::Evicted,
            Closed::Handshake,
            Closed::HeadTooLarge,
            Closed::HeadTooSlow,
            Closed::UnreadTooLong,
            Closed::UnreadTooMuch,
            Closed::RequestsUnread,
        ] {
            counter!(CLOSED, "reason" => why.name()).absolute(0);
        }
        let full = counter!(FULL);
        full.absolute(0);
        counter!(ANSWERS_REFUSED).absolute(0);
        counter!(PAUSES).absolute(0);
        counter!(REQUEST_STREAMS_REFUSED).absolute(0);
        Metrics {
            connections: gauge!(CONNECTIONS),
            unfinished: gauge!(UNFINISHED),
            calls: gauge!(CALLS),
            streams: gauge!(REQUEST_STREAMS),
            unread: gauge!(UNREAD),
            unread_requests: gauge!(UNREAD_REQUESTS),
            full,
        }
    }
}

/// Counts a connection that was not admitted.
pub(super) fn count_refused(why: Refused) {
    counter!(REFUSED, "reason" => why.name()).increment(1);
}

/// Counts a connection that the server closes.
pub(super) fn note_closed(why: Closed) {
    counter!(CLOSED, "reason" => why.name()).increment(1);
}

/// Counts a request that was refused before it had arrived in full.
pub(super) fn note_unfinished(reason: &'static str) {
    counter!(REQUESTS_REFUSED, "reason" => reason).increment(1);
}

/// Counts an answer that was refused.
pub(super) fn note_answer_refused() {
    counter!(ANSWERS_REFUSED).increment(1);
}

/// Counts a connection that is not read for some time.
pub(super) fn note_pause() {
    counter!(PAUSES).increment(1);
}

/// Counts a stream of requests that was refused.
pub(super) fn note_stream_refused() {
    counter!(REQUEST_STREAMS_REFUSED).increment(1);
}

/// The open streams of the health or the reflection (`of`), and those that were refused.
pub(super) fn streams(of: &'static str) -> (Gauge, Counter) {
    describe_gauge!(STREAMS, "open watches of the health, and open calls of the reflection");
    describe_counter!(STREAMS_REFUSED, "such streams that were refused because a port has limits.health_streams_max");
    let refused = counter!(STREAMS_REFUSED, "of" => of);
    refused.absolute(0);
    (gauge!(STREAMS, "of" => of), refused)
}
