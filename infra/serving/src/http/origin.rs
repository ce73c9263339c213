//! Calls that a browser makes for a page of another origin (S1). The browser sends them, though the page may not
//! read the answer. Programs send none of these headers.

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, Uri};

/// Whether a page of another origin makes the call. A link to this port, which only opens a page or a reading call, is
/// no such call.
pub(super) fn is_of_other_origin(headers: &HeaderMap, uri: &Uri) -> bool {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("unreadable"));
    if let Some(origin) = text(ORIGIN.as_str()) {
        let authority = uri.authority().map(|authority| authority.as_str()).or(text(HOST.as_str()));
        let of_origin = origin.strip_prefix("http://").or(origin.strip_prefix("https://"));
        return of_origin.is_none() || !of_origin.zip(authority).is_some_and(|(a, b)| a.eq_ignore_ascii_case(b));
    }
    let is_foreign = matches!(text("sec-fetch-site"), Some("cross-site" | "same-site"));
    is_foreign && text("sec-fetch-mode") != Some("navigate")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1_only_pages_of_this_origin_and_programs_may_call() {
        let host = ("host", "127.0.0.1:7610");
        let refused = |headers: &[(&'static str, &'static str)]| {
            let headers = headers.iter().map(|(name, value)| {
                let name = name.parse::<axum::http::HeaderName>().unwrap();
                (name, value.parse().unwrap())
            });
            is_of_other_origin(&headers.collect(), &Uri::from_static("/v1/add_count"))
        };
        assert!(!refused(&[host]), "a program");
        assert!(!refused(&[host, ("origin", "http://127.0.0.1:7610"), ("sec-fetch-site", "same-origin")]));
        assert!(!refused(&[("host", "Counters.example"), ("origin", "https://counters.example")]), "behind a proxy");
        assert!(!refused(&[host, ("sec-fetch-site", "none")]), "typed by hand");
        assert!(!refused(&[host, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")]), "a link");
        for origin in ["http://evil.example", "http://127.0.0.1:3000", "http://127.0.0.1:76100", "null", "file://", ""]
        {
            assert!(refused(&[host, ("origin", origin)]), "{origin}");
        }
        assert!(refused(&[host, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")]));
        assert!(refused(&[host, ("sec-fetch-site", "same-site"), ("sec-fetch-mode", "cors")]));
    }
}
