//! The head of a request over HTTP/1: the transport holds up to 400 KiB of one for 30 s, also without a credential. Here the connection
//! ends before that.

/// The begin of a connection with HTTP/2, which has its own bound. The transport compares all of it.
const HTTP2: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The most bytes of a head, about: it may have those of one more read.
pub(super) const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The bytes of a connection since its last call began.
#[derive(Default)]
pub(super) struct Head {
    /// The begin of the connection, which says which version of HTTP follows.
    first: [u8; HTTP2.len()],
    first_bytes: usize,
    bytes: usize,
    /// A read has brought bytes although there were more than [`HEAD_BYTES_MAX`]. One may: the transport reads the begin of a body
    /// before it calls the service.
    has_gone_on: bool,
    /// The calls that had begun when they were last counted.
    begun: u64,
    /// One of them had not ended then: what was read since may be of its body.
    was_open: bool,
}

impl Head {
    /// Whether a connection must end instead of reading on: what was read so far is no whole head, unless a call has begun.
    pub(super) fn is_too_large(&mut self, begun: u64, is_open: bool) -> bool {
        if is_open || self.was_open || self.begun != begun || self.is_http2() {
            (self.bytes, self.has_gone_on, self.begun) = (0, false, begun);
        }
        self.was_open = is_open;
        self.has_gone_on
    }

    /// Whether as many bytes have come as say which version of HTTP follows.
    pub(super) fn has_begun(&self) -> bool {
        self.first_bytes == self.first.len()
    }

    /// Whether a head over HTTP/1 has begun and its end has not been read. Call [`Head::is_too_large`] before.
    pub(super) fn is_unfinished(&self) -> bool {
        self.bytes > 0 && self.has_begun() && !self.is_http2()
    }

    /// Whether frames of HTTP/2 follow the begin.
    pub(super) fn is_http2(&self) -> bool {
        self.first == *HTTP2
    }

    /// Notes what was read then. Returns the part that is frames of HTTP/2.
    pub(super) fn note<'a>(&mut self, read: &'a [u8]) -> &'a [u8] {
        let missing = (self.first.len() - self.first_bytes).min(read.len());
        self.first[self.first_bytes..][..missing].copy_from_slice(&read[..missing]);
        self.first_bytes += missing;
        self.has_gone_on |= self.bytes > HEAD_BYTES_MAX && !read.is_empty();
        self.bytes = self.bytes.saturating_add(read.len());
        if self.is_http2() { &read[missing..] } else { &[] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads of these lengths while no call begins. Returns whether the next one is refused.
    fn ends_after(head: &mut Head, begun: u64, is_open: bool, reads: &[usize]) -> bool {
        for read in reads {
            assert!(!head.is_too_large(begun, is_open), "{read} of {reads:?}");
            head.note(&vec![b'x'; *read]);
        }
        head.is_too_large(begun, is_open)
    }

    #[test]
    fn s1_the_head_of_a_request_over_http_1_is_bounded() {
        assert!(!ends_after(&mut Head::default(), 0, false, &[HEAD_BYTES_MAX, 2 * HEAD_BYTES_MAX]));
        assert!(!ends_after(&mut Head::default(), 0, false, &[HEAD_BYTES_MAX + 1, 0, 0]));
        assert!(ends_after(&mut Head::default(), 0, false, &[HEAD_BYTES_MAX + 1, 1]));
        assert!(ends_after(&mut Head::default(), 0, false, &[HEAD_BYTES_MAX, 1, 1]));
    }

    #[test]
    fn s1_a_head_over_http_1_is_unfinished_until_its_call_begins() {
        let mut head = Head::default();
        let mut read = |bytes: &[u8], begun: u64, is_open: bool| {
            assert!(!head.is_too_large(begun, is_open));
            head.note(bytes);
            head.is_unfinished()
        };
        assert!(!read(b"", 0, false), "a silent connection has its own limit");
        assert!(!read(b"GET / HTTP/1.1\r\n", 0, false), "and so have the first bytes");
        assert!(read(b"host: localhost\r\n", 0, false) && read(b"\r\n", 0, false));
        assert!(!read(b"", 1, true), "its call has begun");
        assert!(!read(b"", 1, false), "an idle connection");
        assert!(read(b"G", 1, false), "the next head");
        // A call that begins and ends between two reads.
        assert!(!read(b"", 2, false));
        let mut head = Head::default();
        head.note(&[&HTTP2[..], &[0; 100]].concat());
        assert!(!head.is_unfinished(), "HTTP/2 has its own limits");
    }

    #[test]
    fn s1_bodies_are_no_heads() {
        let mut head = Head::default();
        // A whole head and the begin of a body, and one more read before the call.
        assert!(!ends_after(&mut head, 0, false, &[400 * 1024]));
        head.note(&[b'x'; 400 * 1024]);
        assert!(!ends_after(&mut head, 1, true, &[400 * 1024; 5]), "the body of a call");
        assert!(!ends_after(&mut head, 2, false, &[400 * 1024]), "a call that has begun and ended meanwhile");
        assert!(ends_after(&mut head, 2, false, &[1]));
        let mut head = Head::default();
        head.note(&HTTP2[..10]);
        head.note(&HTTP2[10..]);
        assert!(!ends_after(&mut head, 0, false, &[400 * 1024; 5]), "HTTP/2 has its own bounds");
        let mut head = Head::default();
        head.note(b"PRI / HTTP/1.1\r\nx: ");
        assert!(ends_after(&mut head, 0, false, &[400 * 1024, 1]), "a method that begins as HTTP/2 does");
    }
}
