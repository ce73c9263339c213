//! "Did you mean …?"

/// The most similar name, if one is similar at all.
pub(crate) fn nearest<'a>(name: &str, among: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = among.into_iter().map(|candidate| (strsim::jaro_winkler(name, candidate), candidate));
    scored.filter(|(score, _)| *score > 0.8).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found() {
        assert_eq!(nearest("fligths", ["flights", "orders"]), Some("flights"));
        assert_eq!(nearest("xyz", ["flights", "orders"]), None);
    }
}
