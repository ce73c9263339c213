//! The gRPC methods of all ports: which take a stream of requests, and where their messages have lists.

use super::elements::{Field, Shape, Shapes};
use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorSet};
use std::collections::HashMap;
use tallystone_proto::FILE_DESCRIPTOR_SET;

/// A method, as its requests are bounded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Method {
    /// It takes any number of messages.
    pub(super) is_stream: bool,
    /// What it takes, in the shapes.
    pub(super) input: usize,
}

/// Every method that a port may serve.
pub(crate) struct Methods {
    by_path: HashMap<String, Method>,
    pub(super) shapes: Shapes,
}

impl Methods {
    /// Reads the descriptors of the services.
    pub(crate) fn new() -> Methods {
        let sets = [
            FILE_DESCRIPTOR_SET,
            tonic_health::pb::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
        ];
        let sets = sets.map(|set| FileDescriptorSet::decode(set).expect("sets made by the build are well-formed"));
        let files = || sets.iter().flat_map(|set| &set.file);
        let mut messages = Vec::new();
        for file in files() {
            let scope = scoped("", file.package());
            file.message_type.iter().for_each(|message| collect(&scope, message, &mut messages));
        }
        let numbers: HashMap<&str, usize> = (0..).zip(&messages).map(|(at, (name, _))| (name.as_str(), at)).collect();
        let shapes = Shapes(messages.iter().map(|(_, message)| shape(message, &numbers)).collect());
        let mut by_path = HashMap::new();
        for file in files() {
            for service in &file.service {
                for method in &service.method {
                    let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                    let input = numbers[method.input_type()];
                    by_path.insert(path, Method { is_stream: method.client_streaming(), input });
                }
            }
        }
        Methods { by_path, shapes }
    }

    /// The method of a path.
    pub(super) fn of(&self, path: &str) -> Option<Method> {
        self.by_path.get(path).copied()
    }
}

/// A full name, as descriptors refer to it: with a dot before each part.
fn scoped(scope: &str, name: &str) -> String {
    format!("{scope}.{name}")
}

/// A message and those that are declared in it, with their full names.
fn collect<'a>(scope: &str, message: &'a DescriptorProto, into: &mut Vec<(String, &'a DescriptorProto)>) {
    let name = scoped(scope, message.name());
    message.nested_type.iter().for_each(|nested| collect(&name, nested, into));
    into.push((name, message));
}

fn shape(message: &DescriptorProto, numbers: &HashMap<&str, usize>) -> Shape {
    let field = |field: &prost_types::FieldDescriptorProto| {
        let is_list = field.label() == Label::Repeated;
        let of = match (field.r#type(), is_list) {
            // A message of another package, such as a timestamp, has no lists.
            (Type::Message | Type::Group, _) => {
                Field::Message { is_list, shape: numbers.get(field.type_name()).copied() }
            }
            (Type::String | Type::Bytes, true) => Field::Texts,
            (_, true) => Field::Numbers,
            (_, false) => return None,
        };
        Some((u32::try_from(field.number()).unwrap_or_default(), of))
    };
    Shape(message.field.iter().filter_map(field).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_streams_of_requests_are_known() {
        let methods = Methods::new();
        let is_stream = |path: &str| methods.of(path).expect(path).is_stream;
        assert!(is_stream("/tallystone.queue.v1.Queue/Work"));
        assert!(is_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"));
        assert!(!is_stream("/tallystone.queue.v1.Queue/Enqueue") && !is_stream("/grpc.health.v1.Health/Watch"));
        assert!(methods.of("/v1/views").is_none());
    }
}
