//! What a client's certificate says.

use std::time::{Duration, SystemTime};
use x509_parser::asn1_rs::{Any, BmpString, Tag};
use x509_parser::extensions::GeneralName;
use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::x509::{AttributeTypeAndValue, RelativeDistinguishedName, X509Name};

/// The certificate that a client has shown, and whose CA is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    /// The URIs and the DNS names in it, and its subject as `CN=worker, O=acme`, escaped as in RFC 4514.
    pub(crate) names: Vec<String>,
    /// The end of its last second.
    pub(crate) expires_at: SystemTime,
}

impl ClientCertificate {
    /// `None`: it cannot be read.
    pub(super) fn read(certificate: &[u8]) -> Option<ClientCertificate> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let not_after = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
        // It is valid throughout that second.
        let expires_at = SystemTime::UNIX_EPOCH + Duration::from_secs(not_after.saturating_add(1));
        Some(ClientCertificate { names: names(&certificate), expires_at })
    }
}

/// The names of a certificate. They are compared as texts, so none of one kind may read as one of another: a URI has a colon behind its
/// scheme, a DNS name has neither a colon nor an equals sign, and in a subject an equals sign comes first. What is in the place of a URI or
/// a DNS name and is none identifies no caller.
fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let alternative = alternative.iter().flat_map(|names| &names.value.general_names);
    let mut names: Vec<String> = alternative
        .filter_map(|name| match name {
            GeneralName::URI(name) if is_uri(name) => Some((*name).to_owned()),
            GeneralName::DNSName(name) if is_dns_name(name) => Some((*name).to_owned()),
            _ => None,
        })
        .collect();
    let subject = subject(certificate.subject());
    names.extend((!subject.is_empty()).then_some(subject));
    names
}

/// Whether a text begins with a scheme and a colon.
fn is_uri(text: &str) -> bool {
    text.split_once(':').is_some_and(|(scheme, _)| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        scheme.starts_with(|first: char| first.is_ascii_alphabetic()) && scheme.bytes().all(is_allowed)
    })
}

fn is_dns_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._*".contains(&byte))
}

/// A subject as `CN=worker, O=acme`, in the order of the certificate. What separates its parts is escaped in their values, as RFC 4514
/// says: otherwise one value would read as several parts.
fn subject(name: &X509Name<'_>) -> String {
    name.iter_rdn().map(relative_name).collect::<Vec<_>>().join(", ")
}

fn relative_name(name: &RelativeDistinguishedName<'_>) -> String {
    name.iter().map(attribute).collect::<Vec<_>>().join(" + ")
}

fn attribute(attribute: &AttributeTypeAndValue<'_>) -> String {
    let kind = attribute.attr_type();
    let kind = oid2abbrev(kind, oid_registry()).map_or_else(|_| format!("{kind:?}"), str::to_owned);
    let value = attribute.attr_value();
    // A text that begins so is escaped.
    let value = text(value).map_or_else(|| format!("#{}", hex::encode_upper(value.data)), |text| escaped(&text));
    format!("{kind}={value}")
}

/// The text of a value; `None`: it is none, or cannot be read.
fn text(value: &Any<'_>) -> Option<String> {
    match value.tag() {
        Tag::NumericString
        | Tag::VisibleString
        | Tag::PrintableString
        | Tag::GeneralString
        | Tag::ObjectDescriptor
        | Tag::GraphicString
        | Tag::T61String
        | Tag::VideotexString
        | Tag::Utf8String
        | Tag::Ia5String => str::from_utf8(value.data).ok().map(str::to_owned),
        Tag::BmpString => BmpString::try_from(value).ok().map(|text| text.string()),
        _ => None,
    }
}

/// With a backslash before what RFC 4514 reserves, and control characters as the hexadecimal digits of their bytes.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        let (is_first, is_last) = (at == 0, at + c.len_utf8() == text.len());
        match c {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => escaped.extend(['\\', c]),
            '#' if is_first => escaped.extend(['\\', c]),
            ' ' if is_first || is_last => escaped.extend(['\\', c]),
            _ if c.is_control() => {
                escaped.extend(c.encode_utf8(&mut [0; 4]).bytes().map(|byte| format!("\\{byte:02X}")));
            }
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};

    fn common_name(tag: Tag, value: &[u8]) -> AttributeTypeAndValue<'_> {
        AttributeTypeAndValue::new(OID_X509_COMMON_NAME, Any::from_tag_and_data(tag, value))
    }

    /// A name of such parts, each with these attributes.
    fn name(parts: Vec<Vec<AttributeTypeAndValue<'_>>>) -> X509Name<'_> {
        X509Name::new(parts.into_iter().map(RelativeDistinguishedName::new).collect(), &[])
    }

    fn subject_of(value: &str) -> String {
        subject(&name(vec![vec![common_name(Tag::Utf8String, value.as_bytes())]]))
    }

    #[test]
    fn s3_usual_subjects_have_nothing_to_escape() {
        let organization = || {
            let value = Any::from_tag_and_data(Tag::PrintableString, b"acme: a & b (c)");
            AttributeTypeAndValue::new(OID_X509_ORGANIZATION_NAME, value)
        };
        let worker = || common_name(Tag::Utf8String, "wörker=1 #2".as_bytes());
        for (parts, text) in [
            (vec![vec![worker()], vec![organization()]], "CN=wörker=1 #2, O=acme: a & b (c)"),
            (vec![vec![worker(), organization()]], "CN=wörker=1 #2 + O=acme: a & b (c)"),
        ] {
            let name = name(parts);
            assert_eq!((subject(&name).as_str(), name.to_string().as_str()), (text, text));
        }
        assert_eq!(subject(&name(Vec::new())), "");
    }

    #[test]
    fn s3_no_value_of_a_subject_reads_as_several() {
        for (value, escaped) in [
            ("worker, O=acme", r"CN=worker\, O=acme"),
            ("worker + O=acme", r"CN=worker \+ O=acme"),
            (r"worker\", r"CN=worker\\"),
            ("\"<>;", r#"CN=\"\<\>\;"#),
            (" # ", r"CN=\ #\ "),
            ("#01", r"CN=\#01"),
            ("a\0\n\u{7f}\u{85}", r"CN=a\00\0A\7F\C2\85"),
            ("", "CN="),
        ] {
            assert_eq!(subject_of(value), escaped);
        }
        // What is no text.
        for (tag, value) in [(Tag::Integer, &[1][..]), (Tag::Utf8String, &[0xff])] {
            let hex = hex::encode_upper(value);
            assert_eq!(subject(&name(vec![vec![common_name(tag, value)]])), format!("CN=#{hex}"));
        }
        assert_eq!(subject(&name(vec![vec![common_name(Tag::BmpString, &[0, b',', 0x20, 0xac])]])), r"CN=\,€");
    }

    #[test]
    fn s3_no_name_of_one_kind_reads_as_one_of_another() {
        let uris = ["spiffe://acme/worker", "urn:a=b", "https://a.example:80/"];
        let dns_names = ["worker.acme.example", "*.acme.example", "localhost", "_a-1"];
        let others = ["CN=worker", "CN=worker, O=acme", "CN=a:b", "OID(1.2)=a:b", ":a", "1a:b", "a b", ""];
        for text in uris {
            assert!(is_uri(text) && !is_dns_name(text), "{text}");
        }
        for text in dns_names {
            assert!(is_dns_name(text) && !is_uri(text), "{text}");
        }
        for text in others {
            assert!(!is_uri(text) && !is_dns_name(text), "{text}");
        }
    }
}
