//! Compares the protocol files with `baseline.binpb`, descriptors without comments. Generated clients must keep working, so a
//! change may only add to the baseline. A change that breaks clients belongs in a package of the next version.
//!
//! A commit that adds a name also adds it to the baseline, so that no later commit can remove or renumber it unnoticed:
//! `UPDATE_PROTO_BASELINE=1 cargo test -p tallystone-proto --test compatibility`. The command writes nothing if the change breaks
//! clients.

mod breaking;

use breaking::breaks;
use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    FileDescriptorSet, ServiceDescriptorProto,
};

const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/baseline.binpb");

/// Today's descriptors, without the comments.
fn current() -> FileDescriptorSet {
    let mut set = FileDescriptorSet::decode(tallystone_proto::FILE_DESCRIPTOR_SET).expect("descriptors");
    set.file.iter_mut().for_each(|file| file.source_code_info = None);
    set
}

#[test]
fn the_protocol_files_break_no_caller_of_the_baseline_which_has_every_name() {
    let bytes = std::fs::read(BASELINE).expect("the baseline is in the repository");
    let baseline = FileDescriptorSet::decode(bytes.as_slice()).expect("the baseline is a FileDescriptorSet");
    let ours = |set: &FileDescriptorSet| set.file.iter().filter(|file| file.name().starts_with("tallystone/")).count();
    assert!(ours(&baseline) >= 5, "the baseline has {} of our files", ours(&baseline));
    let found = breaks(&baseline, &current());
    assert!(
        found.is_empty(),
        "the protocol files break callers:\n  {}\nRestore what the baseline has and add new names, or make a package of the next version.",
        found.join("\n  ")
    );
    if std::env::var_os("UPDATE_PROTO_BASELINE").is_some() {
        std::fs::write(BASELINE, current().encode_to_vec()).expect("the baseline can be written");
        return;
    }
    // What exists today and not in the baseline would break callers of today if the files went back to the baseline.
    let added = breaks(&current(), &baseline);
    assert!(
        added.is_empty(),
        "the baseline lacks names of today. Update it in this commit: UPDATE_PROTO_BASELINE=1 cargo test -p tallystone-proto \
         --test compatibility. Compared with today:\n  {}",
        added.join("\n  ")
    );
}

fn queue_file(set: &mut FileDescriptorSet) -> &mut FileDescriptorProto {
    set.file.iter_mut().find(|file| file.name() == "tallystone/queue/v1/queue.proto").expect("queue.proto")
}

fn message<'a>(set: &'a mut FileDescriptorSet, name: &str) -> &'a mut DescriptorProto {
    queue_file(set).message_type.iter_mut().find(|message| message.name() == name).expect("the message")
}

fn field<'a>(set: &'a mut FileDescriptorSet, of: &str, name: &str) -> &'a mut FieldDescriptorProto {
    message(set, of).field.iter_mut().find(|field| field.name() == name).expect("the field")
}

fn service(set: &mut FileDescriptorSet) -> &mut ServiceDescriptorProto {
    &mut queue_file(set).service[0]
}

fn state(set: &mut FileDescriptorSet) -> &mut EnumDescriptorProto {
    &mut queue_file(set).enum_type[0]
}

#[test]
fn every_change_that_breaks_a_caller_is_found() {
    type Change = fn(&mut FileDescriptorSet);
    let changes: [(Change, &str); 17] = [
        (
            |set| set.file.retain(|file| !file.name().ends_with("queue.proto")),
            "the file tallystone/queue/v1/queue.proto is gone",
        ),
        (|set| queue_file(set).package = Some("tallystone.queue.v2".into()), "changes its package"),
        (|set| queue_file(set).options.as_mut().unwrap().go_package = None, "changes its option go_package"),
        (|set| queue_file(set).service.clear(), "the service tallystone.queue.v1.Queue is gone"),
        (|set| drop(service(set).method.remove(0)), "the rpc tallystone.queue.v1.Queue.Enqueue is gone"),
        (|set| service(set).method[0].server_streaming = Some(true), "the rpc tallystone.queue.v1.Queue.Enqueue was"),
        (
            |set| service(set).method[0].input_type = Some(".other".into()),
            "the rpc tallystone.queue.v1.Queue.Enqueue was",
        ),
        (
            |set| queue_file(set).message_type.retain(|message| message.name() != "Lease"),
            "the message tallystone.queue.v1.Lease is gone",
        ),
        (
            |set| message(set, "Lease").field.retain(|field| field.name() != "payload"),
            "the field tallystone.queue.v1.Lease.payload is gone",
        ),
        (|set| field(set, "Lease", "payload").number = Some(99), "changes its number from 2 to 99"),
        (
            |set| field(set, "Lease", "payload").name = Some("body".into()),
            "was 'bytes payload = 2', is 'bytes body = 2'",
        ),
        (
            |set| field(set, "Lease", "payload").set_type(Type::String),
            "was 'bytes payload = 2', is 'string payload = 2'",
        ),
        (|set| field(set, "Lease", "payload").set_label(Label::Repeated), "is 'repeated bytes payload = 2'"),
        (|set| field(set, "NewMessage", "lease_ms").proto3_optional = None, "was 'optional int64 lease_ms = 5'"),
        (|set| field(set, "EnqueueResult", "ok").oneof_index = None, "in oneof outcome', is"),
        (|set| drop(state(set).value.pop()), "the value tallystone.queue.v1.State.STATE_ERRORED is gone"),
        (|set| state(set).value[6].number = Some(7), "State.STATE_ERRORED changes its number from 6 to 7"),
    ];
    let old = current();
    assert_eq!(breaks(&old, &old), Vec::<String>::new());
    for (change, expected) in changes {
        let mut new = old.clone();
        change(&mut new);
        let found = breaks(&old, &new);
        assert!(found.iter().any(|found| found.contains(expected)), "{expected}: {found:?}");
    }
}

#[test]
fn additions_break_nothing() {
    let old = current();
    let mut new = old.clone();
    let added = FieldDescriptorProto { name: Some("added".into()), number: Some(100), ..Default::default() };
    message(&mut new, "Lease").field.insert(0, added);
    message(&mut new, "Lease").nested_type.push(DescriptorProto { name: Some("Added".into()), ..Default::default() });
    let value = EnumValueDescriptorProto { name: Some("STATE_ADDED".into()), number: Some(7), options: None };
    state(&mut new).value.push(value);
    let mut rpc = service(&mut new).method[0].clone();
    rpc.name = Some("Added".into());
    service(&mut new).method.insert(0, rpc);
    new.file.push(FileDescriptorProto { name: Some("tallystone/added.proto".into()), ..Default::default() });
    assert_eq!(breaks(&old, &new), Vec::<String>::new());
}
