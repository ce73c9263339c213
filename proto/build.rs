//! Compiles the protocol files with protox, which needs no protoc.
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = [
        "queue/v1/queue.proto",
        "queue/v1/admin.proto",
        "event/v1/event.proto",
        "history/v1/history.proto",
        "counter/v1/counter.proto",
    ]
    .map(|file| format!("proto/tallystone/{file}"));
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(files, ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?).join("tallystone.bin");
    std::fs::write(&out, prost::Message::encode_to_vec(&descriptors))?;
    tonic_prost_build::configure()
        .btree_map(".")
        .bytes(".")
        .codec_path("crate::LeanCodec")
        .extern_path(".google.rpc.Status", "::tonic_types::pb::Status")
        .compile_fds(descriptors)?;
    Ok(())
}
