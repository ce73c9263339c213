//! What breaks callers when one set of protocol files follows another: on the wire, in JSON, or in generated code.
//! Additions break nothing.

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    MethodDescriptorProto, ServiceDescriptorProto,
};
use std::collections::BTreeMap;

/// One sentence for each change from `old` to `new` that breaks callers. Only our own files are compared.
pub(crate) fn breaks(old: &FileDescriptorSet, new: &FileDescriptorSet) -> Vec<String> {
    let mut found = Vec::new();
    let ours = old.file.iter().filter(|file| file.name().starts_with("tallystone/"));
    for file in ours {
        match new.file.iter().find(|candidate| candidate.name() == file.name()) {
            Some(now) => compare_files(file, now, &mut found),
            None => found.push(format!("the file {} is gone", file.name())),
        }
    }
    found
}

fn compare_files(old: &FileDescriptorProto, new: &FileDescriptorProto, found: &mut Vec<String>) {
    let file = old.name();
    if old.package() != new.package() {
        found.push(format!("{file} changes its package from {} to {}", old.package(), new.package()));
        return;
    }
    let (was, is) = (old.options.clone().unwrap_or_default(), new.options.clone().unwrap_or_default());
    let options = [
        ("csharp_namespace", was.csharp_namespace() == is.csharp_namespace()),
        ("go_package", was.go_package() == is.go_package()),
        ("java_multiple_files", was.java_multiple_files() == is.java_multiple_files()),
        ("java_outer_classname", was.java_outer_classname() == is.java_outer_classname()),
        ("java_package", was.java_package() == is.java_package()),
    ];
    for (option, _) in options.into_iter().filter(|(_, same)| !same) {
        found.push(format!("{file} changes its option {option}"));
    }
    let package = old.package();
    compare_messages(package, &old.message_type, &new.message_type, found);
    compare_enums(package, &old.enum_type, &new.enum_type, found);
    for service in &old.service {
        let name = format!("{package}.{}", service.name());
        match new.service.iter().find(|candidate| candidate.name() == service.name()) {
            Some(now) => compare_services(&name, service, now, found),
            None => found.push(format!("the service {name} is gone")),
        }
    }
}

fn compare_services(name: &str, old: &ServiceDescriptorProto, new: &ServiceDescriptorProto, found: &mut Vec<String>) {
    let shape = |rpc: &MethodDescriptorProto| {
        let stream = |streaming| if streaming { "stream " } else { "" };
        let request = format!("{}{}", stream(rpc.client_streaming()), rpc.input_type());
        format!("({request}) returns ({}{})", stream(rpc.server_streaming()), rpc.output_type())
    };
    for rpc in &old.method {
        match new.method.iter().find(|candidate| candidate.name() == rpc.name()) {
            Some(now) if shape(now) == shape(rpc) => {}
            Some(now) => found.push(format!("the rpc {name}.{} was {}, is {}", rpc.name(), shape(rpc), shape(now))),
            None => found.push(format!("the rpc {name}.{} is gone", rpc.name())),
        }
    }
}

fn compare_messages(scope: &str, old: &[DescriptorProto], new: &[DescriptorProto], found: &mut Vec<String>) {
    for message in old {
        let name = format!("{scope}.{}", message.name());
        let Some(now) = new.iter().find(|candidate| candidate.name() == message.name()) else {
            found.push(format!("the message {name} is gone"));
            continue;
        };
        for field in &message.field {
            match now.field.iter().find(|candidate| candidate.number() == field.number()) {
                Some(other) => {
                    let (was, is) = (field_shape(message, field), field_shape(now, other));
                    if was != is {
                        found.push(format!("the field {name}.{} was '{was}', is '{is}'", field.name()));
                    }
                }
                None => match now.field.iter().find(|candidate| candidate.name() == field.name()) {
                    Some(other) => found.push(format!(
                        "the field {name}.{} changes its number from {} to {}",
                        field.name(),
                        field.number(),
                        other.number()
                    )),
                    None => found.push(format!("the field {name}.{} is gone", field.name())),
                },
            }
        }
        compare_messages(&name, &message.nested_type, &now.nested_type, found);
        compare_enums(&name, &message.enum_type, &now.enum_type, found);
    }
}

/// The field as a protocol file declares it. All of it matters: the type and label to the wire, the name to JSON and
/// generated code, the oneof and `optional` to generated code.
fn field_shape(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let label = match field.label() {
        Label::Repeated => "repeated ",
        _ if field.proto3_optional() => "optional ",
        _ => "",
    };
    let kind = match field.r#type() {
        Type::Message | Type::Enum => field.type_name().trim_start_matches('.').to_owned(),
        scalar => scalar.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
    };
    // `optional` adds a synthetic oneof, which is not part of the declaration.
    let oneof = match field.oneof_index {
        Some(index) if !field.proto3_optional() => {
            let oneof = message.oneof_decl.get(index as usize).map(|oneof| oneof.name()).unwrap_or_default();
            format!(" in oneof {oneof}")
        }
        _ => String::new(),
    };
    format!("{label}{kind} {} = {}{oneof}", field.name(), field.number())
}

fn compare_enums(scope: &str, old: &[EnumDescriptorProto], new: &[EnumDescriptorProto], found: &mut Vec<String>) {
    for declared in old {
        let name = format!("{scope}.{}", declared.name());
        let Some(now) = new.iter().find(|candidate| candidate.name() == declared.name()) else {
            found.push(format!("the enum {name} is gone"));
            continue;
        };
        let numbers: BTreeMap<&str, i32> = now.value.iter().map(|value| (value.name(), value.number())).collect();
        for value in &declared.value {
            match numbers.get(value.name()) {
                Some(number) if *number == value.number() => {}
                Some(number) => found.push(format!(
                    "the value {name}.{} changes its number from {} to {number}",
                    value.name(),
                    value.number()
                )),
                None => found.push(format!("the value {name}.{} is gone", value.name())),
            }
        }
    }
}
