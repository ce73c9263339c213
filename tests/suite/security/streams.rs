//! S1: all streams of requests that one address may have take bounded memory.

use super::bounds::{FILES, GROWTH_KIB_MAX, connection, unfinished};
use super::victim::{Victim, works};
use prost::Message as _;
use tallystone_proto::queue::v1::{WorkRequest, WorkStart};
use tallystone_serving::Limits;

/// The largest message of a stream that is not charged for what the server keeps of it.
const UNCHARGED_BYTES: usize = 2 * 1024;

/// The first request of a Work stream, as it is on the wire, with this length.
fn first(bytes: usize) -> Vec<u8> {
    let start = Some(WorkStart { queue: "q".to_owned(), worker: "w".to_owned(), ..WorkStart::default() });
    let mut request = WorkRequest { start, ..WorkRequest::default() }.encode_to_vec();
    // A field that no version knows. Its head has five bytes.
    let rest = vec![0_u8; bytes - request.len() - 5];
    prost::encoding::bytes::encode(1_000, &rest, &mut request);
    [&[0][..], &(request.len() as u32).to_be_bytes(), &request].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_all_streams_that_one_address_may_have_take_less_than_100_mb() {
    let victim = Victim::start("", FILES).await;
    let innocent = victim.innocent();
    works(&innocent, "before").await;
    let before = victim.memory_kib();
    // An address has half of those of a port.
    let streams = usize::try_from(Limits::default().streams_max / 2).expect("a small number");
    let calls = connection(&victim).await;
    let kept = unfinished(&victim, &calls, streams, "Work", &first(UNCHARGED_BYTES)).await;
    victim.until("tallystone_request_streams", streams as f64).await;
    let grown = victim.peak_memory_kib().saturating_sub(before);
    println!("{streams} streams: {grown} KiB, {} bytes each", grown * 1024 / streams as u64);
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB for {streams} streams");
    works(&innocent, "meanwhile").await;
    drop(kept);
    victim.until("tallystone_request_streams", 0.0).await;
}
